"""Probabilities of given words in context: a word of a text is masked, and its tokens are predicted one by one.

    text = "He is a nurse."
    scores = slot_scores(predictor, tokenizer, [Slot(text, (8, 13)), Slot(text, (8, 13), hidden=((0, 2),))])
    scores[0].total - scores[1].total         # what "He" adds to the log-probability of "nurse"

A word of several tokens is predicted from left to right, with the tokens still to come masked (the chain rule of
`word-l2r`, Kauf & Ivanova 2023) or dropped, as StereoSet's own code does. Other words can be masked with it. All
sequences go through the encoder in flat batches; equal ones are read once, so candidates for one blank share a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges, runs
from larvatus.core.errors import DataError
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.fill import window
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries
from larvatus.models.nn.device import forward_budget, on_device

Rest = Literal["masked", "dropped"]
"""Treatment of the tokens of a word after the one that is predicted."""


@dataclass(frozen=True)
class Slot:
    """A word in its context."""

    text: str
    span: tuple[int, int]
    """Characters of the word."""
    hidden: tuple[tuple[int, int], ...] = ()
    """Characters of other words that are masked."""
    where: str = "a slot"
    """Name in messages."""


@dataclass(frozen=True, eq=False)
class SlotScore:
    log_probabilities: Doubles
    """[tokens of the word], in nats."""
    unknown: bool
    """Whether the word is unknown to the vocabulary: then the scores are those of its unknown token."""

    @property
    def total(self) -> float:
        return math.fsum(self.log_probabilities.tolist())


@dataclass(frozen=True)
class _Question:
    ids: tuple[int, ...]
    """The whole sequence."""
    place: int
    wanted: int


@torch.inference_mode()
def slot_scores(
    predictor: MaskedPredictor,
    tokenizer: Tokenizer,
    slots: Sequence[Slot],
    *,
    rest: Rest = "masked",
    budget: int | None = None,
) -> list[SlotScore]:
    """Log-probabilities of the tokens of each slot; `budget` is the number of tokens of a batch."""
    alignments = tokenizer.encode_many([slot.text for slot in slots])
    longest = predictor.longest_text(tokenizer)
    each = [
        _questions(slot, text, tokenizer, rest=rest, longest=longest)
        for slot, text in zip(slots, alignments, strict=True)
    ]
    answers = _answers(predictor, [question for questions in each for question in questions], budget)
    borders = np.cumsum([len(questions) for questions in each])[:-1]
    unknown = tokenizer.id(tokenizer.special.unk)
    return [
        SlotScore(of_slot, any(question.wanted == unknown for question in questions))
        for of_slot, questions in zip(np.split(answers, borders), each, strict=True)
    ]


def _questions(slot: Slot, text: Alignment, tokenizer: Tokenizer, *, rest: Rest, longest: int) -> list[_Question]:
    tokens = text.tokens_of_chars(*slot.span)
    if not tokens:
        word = slot.text[slice(*slot.span)]
        raise DataError(f"{slot.where}: the vocabulary deletes {word!r}; leave it out")
    if len(tokens) > longest:
        raise DataError(f"{slot.where}: its {len(tokens)} tokens are more than the model's window of {longest}")
    shown = text.ids.copy()
    for span in slot.hidden:
        covered = text.tokens_of_chars(*span)
        shown[covered.start : covered.stop] = tokenizer.mask_id
    questions = []
    for token in tokens:
        ids = shown.copy()
        ids[token : tokens.stop] = tokenizer.mask_id
        if rest == "dropped":
            ids = np.delete(ids, np.arange(token + 1, tokens.stop))
        start, end = window(len(ids), [token], longest)
        template = tokenizer.template.single
        questions.append(
            _Question(
                tuple(template.ids(ids[start:end]).tolist()), token - start + template.opening, int(text.ids[token])
            )
        )
    return questions


def _answers(predictor: MaskedPredictor, questions: Sequence[_Question], budget: int | None) -> Doubles:
    """log p of each question. Each distinct sequence and place is read once, shortest first."""
    by_copy: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, question in enumerate(questions):
        by_copy.setdefault((question.ids, question.place), []).append(number)
    copies = sorted(by_copy, key=lambda copy: len(copy[0]))
    lengths = np.array([len(ids) for ids, _ in copies], np.int64)
    answers = np.empty(len(questions), np.float64)
    device = predictor.device
    for first, last in runs(lengths, budget or forward_budget(device)):
        part = copies[first:last]
        numbers = [number for copy in part for number in by_copy[copy]]
        sequences = np.repeat(np.arange(len(part)), [len(by_copy[copy]) for copy in part])
        places = edges(lengths[first:last])[:-1] + np.array([place for _, place in part])
        wanted = np.array([questions[number].wanted for number in numbers])
        at, of, ids = (torch.from_numpy(array).to(device) for array in (places, sequences, wanted))
        tokens = on_device(_flat([ids for ids, _ in part], lengths[first:last]), device)
        answers[numbers] = predictor.log_probabilities(tokens, at, TokenQueries(of, ids)).double().cpu().numpy()
    return answers


def _flat(sequences: Iterable[tuple[int, ...]], lengths: Ints) -> TokenBatch[Ints]:
    positions = ranges(lengths)
    nothing = np.zeros_like(positions)
    ids = np.concatenate([np.array(sequence, np.int64) for sequence in sequences])
    return TokenBatch(ids=ids, lengths=lengths, positions=positions, segments=nothing, words=nothing + NO_WORD)
