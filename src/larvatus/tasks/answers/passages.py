"""Questions and their passages as the model reads them, and the places of the answers in them.

    asked = ask(tokenizer, [("Where is Mt. Sanitas?", passage)], limit=384)
    data = label_questions(asked, examples, EmptyWindows())

A sequence is a question and its passage, wrapped in special tokens as a pair (`data/text/template.py`). A passage that
does not fit is read in windows that overlap, with the whole question in each (Devlin et al. 2019, `run_squad.py`); its
tokens belong to the window where they see most (`data/text/windows.py`). A window that does not hold the answer learns
to point at [CLS]. E questions, S sequences, N tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from larvatus.core.arrays import Bools, Floats, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import CountOrNone, Weight
from larvatus.core.rng import stream
from larvatus.core.settings import Settings
from larvatus.core.targets import AnswerSpans
from larvatus.data.labelled.records import QuestionExample
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import windows
from larvatus.tasks.encoding.sequences import Sequences

SHORTEST = 16
"""Tokens of the shortest window."""
NO_WORDS = np.empty((0, 2), np.int64)


@dataclass(frozen=True, eq=False)
class EncodedQuestions:
    """Questions over their passages. `sequences.tokens` and `read` count tokens of the passage only."""

    sequences: Sequences
    passages: tuple[Alignment, ...]  # [E] a passage with two questions is there twice, as one object
    nowhere: Ints  # [S] position of [CLS], the target if the answer is not there
    firsts: Ints  # [S] where the passage begins in each sequence
    begins: Ints  # [S] the token of the passage at that position
    sizes: Ints  # [S] tokens of the passage in each sequence
    owns: Ints  # [S, 2] tokens of the passage that see most in this sequence, first and after the last

    def __len__(self) -> int:
        return len(self.passages)


def encode_passages(
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    limit: int,
    truncate: bool = False,
    overlap: int | None = None,
    places: Sequence[object] | None = None,
) -> EncodedQuestions:
    """Questions and passages in sequences of at most `limit` tokens; `places` name the questions in errors."""
    if limit < SHORTEST:
        raise UsageError(f"a sequence of {limit} tokens is too short for a question; give at least {SHORTEST}")
    questions = tokenizer.encode_fast([question for question, _ in pairs])
    distinct = list(dict.fromkeys(passage for _, passage in pairs))
    aligned = dict(zip(distinct, tokenizer.encode_many(distinct, [NO_WORDS] * len(distinct)), strict=True))
    template = tokenizer.template.pair
    half = template.text_length(limit) // 2
    ids: list[Any] = [np.empty(0, np.int64)]
    rows: list[tuple[int, int, int, int, int]] = []  # question tokens, window, own tokens
    parts, read = [], []
    for number, ((_, text), question) in enumerate(zip(pairs, questions, strict=True)):
        passage = aligned[text]
        room = template.text_length(limit) - len(question)
        if len(question) > half:
            who = str(places[number]) if places is not None else f"question {number + 1}"
            raise DataError(
                f"{who}: the question has {len(question)} tokens, which leaves too little of a window of {limit} to "
                f"the passage; shorten it to {half}"
            )
        cut = windows(len(passage), size=room, overlap=None if overlap is None else min(overlap, room - 1))
        count = 1 if truncate else len(cut)
        borders = np.searchsorted(cut.chosen, np.arange(count + 1))
        if truncate:
            borders[1] = cut.ends[0]
        for window in range(count):
            start, end = int(cut.starts[window]), int(cut.ends[window])
            ids += template.interleave(question, passage.ids[start:end])
            rows.append((len(question), start, end, int(borders[window]), int(borders[window + 1])))
        parts.append(count)
        read.append(int(cut.ends[count - 1]))
    table = np.asarray(rows, np.int64).reshape(-1, 5)
    asked_, begins, sizes = table[:, 0], table[:, 1], table[:, 2] - table[:, 1]
    opening, between = len(template.gaps[0]), len(template.gaps[1])
    lengths = asked_ + sizes + template.special_count
    return EncodedQuestions(
        sequences=Sequences(
            ids=np.concatenate(ids).astype(np.int64),
            segments=template.segments(asked_, sizes),
            lengths=lengths,
            parts=np.asarray(parts, np.int64),
            tokens=np.asarray([len(aligned[text]) for _, text in pairs], np.int64),
            read=np.asarray(read, np.int64),
        ),
        passages=tuple(aligned[text] for _, text in pairs),
        nowhere=template.summary_places(lengths),
        firsts=asked_ + (opening + between),
        begins=begins,
        sizes=sizes,
        owns=table[:, 3:],
    )


class EmptyWindows(Settings):
    """Training on windows that do not hold the answer."""

    weight: Weight = 1.0
    """Weight of such a window; one with the answer has weight 1."""
    most: CountOrNone | None = None
    """Windows per passage that are trained on, sampled at random; None: all."""


@dataclass(frozen=True, eq=False)
class LabelledQuestions:
    """Training examples."""

    asked: EncodedQuestions
    starts: Ints  # [S] first token of the answer in each sequence, [CLS] where it is not there
    ends: Ints  # [S] its last
    weights: Floats  # [S]
    kept: Bools  # [S] whether a sequence is trained on
    lost: int
    """Questions whose answer no sequence holds: it is cut off, longer than a window, or no token of the vocabulary."""

    @property
    def sequences(self) -> Sequences:
        return self.asked.sequences

    def __len__(self) -> int:
        return len(self.asked)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        chosen = self.sequences.of(examples)
        chosen = chosen[self.kept[chosen]]
        return TrainingBatch(tokens=self.sequences.batch(chosen), targets={AnswerSpans: self.targets(chosen)})

    def targets(self, sequences: Ints) -> AnswerSpans[Any]:
        """Position of the answer in some sequences."""
        return AnswerSpans(
            starts=self.starts[sequences],
            ends=self.ends[sequences],
            weights=self.weights[sequences],
            lengths=self.sequences.lengths[sequences],
        )


def answer_tokens(passage: Alignment, example: QuestionExample) -> range:
    """The tokens of the passage that hold the first of the answers; none where there is no answer."""
    if not example.answers:
        return range(0)
    text, start = example.answers[0]
    return passage.tokens_of_chars(start, start + len(text))


def label_questions(
    asked: EncodedQuestions, examples: Sequence[QuestionExample], empty: EmptyWindows = EmptyWindows(), *, seed: int = 0
) -> LabelledQuestions:
    """Position of the answer in each sequence. An answer that a window holds in part does not count."""
    places = [answer_tokens(passage, example) for passage, example in zip(asked.passages, examples, strict=True)]
    owners = asked.sequences.owners
    first = np.array([place.start for place in places], np.int64)[owners]
    after = np.array([place.stop for place in places], np.int64)[owners]
    held = (after > first) & (asked.begins <= first) & (after <= asked.begins + asked.sizes)
    shift = asked.firsts - asked.begins
    counts = np.bincount(owners, weights=held, minlength=len(asked))
    answered = np.array([bool(example.answers) for example in examples], bool)
    return LabelledQuestions(
        asked=asked,
        starts=np.where(held, first + shift, asked.nowhere),
        ends=np.where(held, after - 1 + shift, asked.nowhere),
        weights=np.where(held, 1.0, empty.weight).astype(np.float32),
        kept=_kept(held, asked.sequences.parts, empty, seed),
        lost=int((answered & (counts == 0)).sum()),
    )


def _kept(held_S: Bools, parts: Ints, empty: EmptyWindows, seed: int) -> Bools:
    """[S] Sequences to train on: those with the answer, and some of the others. Every example keeps one."""
    keep = held_S.copy()
    border = edges(parts).tolist()
    for example, (low, high) in enumerate(pairwise(border)):
        others = low + np.flatnonzero(~held_S[low:high])
        least = 0 if len(others) < high - low else 1
        most = max(least, len(others) if empty.most is None else empty.most)
        if len(others) > most:
            others = stream(seed, "windows without the answer", 0, example).permutation(others)[:most]
        keep[others] = True
    return keep
