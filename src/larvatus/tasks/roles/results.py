"""Predicates with their rolesets and arguments, in characters of the text.

sentence = model.predict("Ann tried to run.")
sentence.frames[0].predicate.text, sentence.frames[0].roleset          # 'tried', 'try.01'
sentence.frames[0].arguments[0].role, sentence.frames[0].arguments[0].start
print(sentence)                                                        # a table
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from larvatus.core.drawing import in_notebook
from larvatus.core.tables import Table, Tabular
from larvatus.tasks.results import Coverage, Piece
from larvatus.tasks.roles.examples import FramedSentence
from larvatus.tasks.roles.picture import draw_frames
from larvatus.tasks.roles.props import props_lines
from larvatus.tasks.roles.reader import frame_record


@dataclass(frozen=True, kw_only=True)
class PredicateSpan:
    text: str
    start: int
    end: int
    """Characters [start, end) of the text: the predicate's word, with others of its own (``took place``)."""
    score: float
    """Probability that it is a predicate."""


@dataclass(frozen=True, kw_only=True)
class ArgumentSpan:
    role: str
    text: str
    start: int
    end: int
    """Characters [start, end) of the text."""
    score: float
    """Probability of its least certain word, or of the span rather than none."""

    def __str__(self) -> str:
        return f"{self.role}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class PredictedFrame:
    """A predicate with its sense and arguments."""

    predicate: PredicateSpan
    roleset: str
    roleset_score: float
    """Probability among the rolesets of its lemma; 0 for a lemma that training lacks."""
    arguments: tuple[ArgumentSpan, ...]

    def __str__(self) -> str:
        return f"{self.roleset}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, kw_only=True)
class TextFrames(Tabular):
    """A text with its predicates and their arguments."""

    text: str
    frames: tuple[PredictedFrame, ...]
    """Frames of all sentences, in the order of the text."""
    sentences: tuple[FramedSentence, ...]
    """The sentences that the text was read as, with the same frames in words."""
    coverage: Coverage

    def to_dict(self) -> dict[str, Any]:
        frames = [dataclasses.asdict(frame) for frame in self.frames]
        return {"text": self.text, "frames": frames, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each argument; one without a role for a predicate that has none, and for a text without any."""
        rows = []
        for frame in self.frames:
            start: dict[str, Any] = {"text": self.text, "predicate": frame.predicate.text, "roleset": frame.roleset}
            start["predicate_start"] = frame.predicate.start
            arguments = [dataclasses.asdict(argument) for argument in frame.arguments]
            for argument in arguments or [dict.fromkeys(_COLUMNS)]:
                rows.append(start | {"argument": argument["text"]} | {name: argument[name] for name in _COLUMNS[1:]})
        nothing = dict.fromkeys(("predicate", "roleset", "predicate_start", "argument", *_COLUMNS[1:]))
        return rows or [{"text": self.text, **nothing}]

    def props(self) -> str:
        """Columns of CoNLL-2005: word, sense, lemma, and the arguments of each predicate."""
        return "\n".join(line for each in self.sentences for line in props_lines(each.words, each.frames or ()))

    def records(self) -> list[dict[str, Any]]:
        """A record for each sentence, as `finetune roles` reads it from JSON lines."""
        return [frame_record(sentence) for sentence in self.sentences]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """Each predicate's roleset with its arguments: ``try.01(ARG0: Ann, ARG1: to run)``."""
        for number, frame in enumerate(self.frames):
            yield Piece("  " if number else "")
            yield Piece(f"{frame.roleset}(", "bold")
            for place, argument in enumerate(frame.arguments):
                yield Piece(", " if place else "")
                yield Piece(f"{argument.role}: ", f"label:{argument.role}")
                yield Piece(argument.text)
            yield Piece(")", "bold")
        if not self.frames:
            yield Piece("no predicate  ", "dim")
            yield Piece(self.text)

    def table(self) -> Table:
        """A row for each argument, under its predicate."""
        rows = []
        for frame in self.frames:
            for number, each in enumerate(frame.arguments or (None,)):
                head = (frame.predicate.text, frame.roleset) if number == 0 else ("", "")
                cells = ("", "", "") if each is None else (each.role, each.text, f"{each.start}–{each.end}")
                rows.append((*head, *cells))
        return Table(("predicate", "roleset", "role", "argument", "characters"), rows, left=4)

    def __str__(self) -> str:
        return str(self.table()) if self.frames else "no predicate"

    def _repr_html_(self) -> str:
        return in_notebook(draw_frames(self.to_dict()))


_COLUMNS = ("text", "role", "start", "end", "score")
