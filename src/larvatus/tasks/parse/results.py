"""Dependency trees of a text: sentences of words, which print as a table and become CoNLL-U.

doc = model.predict("She reads.")
doc.words[0].upos, doc.words[0].relation, doc.words[0].head          # PRON, nsubj, 2
doc.sentences[0].head_of(doc.words[0]).text                          # reads
print(doc.to_conllu())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from larvatus.core.drawing import in_notebook
from larvatus.core.tables import Column, Table, Tabular
from larvatus.data.labelled.conllu import ABSENT
from larvatus.data.labelled.trees import FEATS, HEAD, LEMMA, RELATION, ROOT, UPOS, rewrite_lines
from larvatus.data.text.learned_words import WordToken
from larvatus.tasks.parse.picture import draw_trees
from larvatus.tasks.results import Coverage, Piece

FIELDS = ("id", "text", "lemma", "upos", "feats", "head", "relation", "start", "end", "probability")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedWord:
    """A word of a sentence in its tree."""

    id: int
    """Its number in the sentence, from 1."""
    text: str
    head: int
    """The `id` of its head; 0: it is the root."""
    relation: str
    """Its relation to the head."""
    lemma: str | None
    """None where the model predicts none; likewise of the next two."""
    upos: str | None
    """Universal part of speech."""
    feats: Mapping[str, str] | None
    """Features: ``{"Number": "Sing"}``."""
    start: int
    end: int
    """Characters [start, end) of the text. Words of a token that they do not spell have those of the token."""
    probability: float
    """Probability of the head among all words of the sentence, not calibrated."""

    def __str__(self) -> str:
        return f"{self.text} ←{self.relation} {self.head}" if self.head else f"{self.text} (root)"

    def to_dict(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in record.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedSentence:
    """The tree of a sentence."""

    text: str
    start: int
    end: int
    """Characters [start, end) of the text."""
    words: tuple[ParsedWord, ...]
    tokens: tuple[WordToken, ...]
    lines: tuple[str, ...] = ()
    """The lines of CoNLL-U that it was read from."""

    @property
    def root(self) -> ParsedWord:
        return next(word for word in self.words if word.head == ROOT)

    def head_of(self, word: ParsedWord) -> ParsedWord | None:
        """The head of a word; None for the root."""
        return self.words[word.head - 1] if word.head else None

    def dependents(self, word: ParsedWord) -> tuple[ParsedWord, ...]:
        """The words whose head it is, in their order."""
        return tuple(other for other in self.words if other.head == word.id)

    def conllu(self, identifier: str) -> list[str]:
        """Its lines: those that it was read from, with new columns, or new ones with this id."""
        if self.lines:
            return rewrite_lines(self.lines, self._columns())
        columns = {FEATS: [ABSENT] * len(self.words), **self._columns()}
        lines = [f"# sent_id = {identifier}", f"# text = {' '.join(self.text.split())}"]
        first = 0
        for token in self.tokens:
            last = first + len(token.words)
            misc = ABSENT if token.space else "SpaceAfter=No"
            if len(token.words) > 1:
                lines.append("\t".join([f"{first + 1}-{last}", token.form, *[ABSENT] * 7, misc]))
                misc = ABSENT
            for index in range(first, last):
                cells = [str(index + 1), self.words[index].text, *[ABSENT] * 7, misc]
                lines.append("\t".join(columns[n][index] if n in columns else cell for n, cell in enumerate(cells)))
            first = last
        return lines

    def _columns(self) -> dict[int, list[str]]:
        """The columns that are predicted."""
        columns = {
            HEAD: [str(word.head) for word in self.words],
            RELATION: [word.relation for word in self.words],
        }
        for column, name in ((UPOS, "upos"), (LEMMA, "lemma")):
            values = [getattr(word, name) for word in self.words]
            if None not in values:
                columns[column] = values
        feats = [word.feats for word in self.words if word.feats is not None]
        if len(feats) == len(self.words):
            columns[FEATS] = [join_feats(each) for each in feats]
        return columns


def join_feats(feats: Mapping[str, str]) -> str:
    """Features as CoNLL-U has them."""
    return "|".join(f"{name}={value}" for name, value in feats.items()) or ABSENT


def split_feats(cell: str) -> dict[str, str]:
    """The opposite."""
    parts = (part.partition("=") for part in cell.split("|") if part != ABSENT)
    return {name: value for name, _, value in parts}


@dataclass(frozen=True, kw_only=True)
class Parsed(Tabular):
    """A text with the trees of its sentences."""

    text: str
    sentences: tuple[ParsedSentence, ...]
    coverage: Coverage
    notes: tuple[str, ...] = ()
    """Sentences that were too long for one tree."""

    @property
    def words(self) -> tuple[ParsedWord, ...]:
        """The words of all sentences."""
        return tuple(word for sentence in self.sentences for word in sentence.words)

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "text": self.text,
            "sentences": [
                {
                    "text": sentence.text,
                    "start": sentence.start,
                    "end": sentence.end,
                    "words": [word.to_dict() for word in sentence.words],
                }
                for sentence in self.sentences
            ],
        }
        if self.notes:
            record["notes"] = list(self.notes)
        return {**record, **self.coverage.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each word; `sentence` is the number of its sentence, from 1."""
        return [
            {"sentence": number, **word.to_dict(), **({} if word.feats is None else {"feats": join_feats(word.feats)})}
            for number, sentence in enumerate(self.sentences, start=1)
            for word in sentence.words
        ]

    def conllu(self, number: int = 1) -> Iterator[list[str]]:
        """The lines of each sentence in CoNLL-U; new sentences of the third text have the ids 3-1, 3-2, …"""
        return (sentence.conllu(f"{number}-{place}") for place, sentence in enumerate(self.sentences, start=1))

    def to_conllu(self) -> str:
        """The sentences as CoNLL-U, each with a blank line after it."""
        return "".join("\n".join(lines) + "\n\n" for lines in self.conllu())

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        """The words of all sentences, each with its relation and its head."""
        for sentence in self.sentences:
            for word in sentence.words:
                yield Piece(word.text, "bold" if word.head == ROOT else "")
                head = sentence.head_of(word)
                yield Piece(
                    f" –{word.relation}" + (f"→ {head.text}" if head is not None else ""), f"dim label:{word.relation}"
                )
                yield Piece("  ")

    def tables(self) -> Iterator[Table]:
        """A table for each sentence."""
        for sentence in self.sentences:
            first = sentence.words[0]
            names = ["id", "text", *(name for name in ("lemma", "upos", "feats") if getattr(first, name) is not None)]
            names += ["head", "relation"]
            rows = [[_cell(word, name) for name in names] for word in sentence.words]
            yield Table([Column(name, right=name in ("id", "head")) for name in names], rows)

    def __str__(self) -> str:
        return "\n\n".join(str(table) for table in self.tables())

    def _repr_html_(self) -> str:
        return in_notebook(draw_trees(self.to_dict()))


def _cell(word: ParsedWord, name: str) -> str:
    value = getattr(word, name)
    return join_feats(value) if name == "feats" else str(value)
