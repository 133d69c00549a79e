"""Expected loss of a run: a curve fitted to runs that were made, and what token frequencies alone give.

    unigram_word_nll(tokenizer, passages)             # U: nats per word without any context
    fit = LossFit.packaged()
    fit.predict(Amount(words=180_000, text=300_000, seen=3_000_000, parameters=960_000), unigram=13.2)

The loss is word-level masked NLL (`evaluation/compare/word_nll.py`) on held-out text. As a share of U it falls from 1
(what a model knows that counts tokens) towards a floor E:

    L / U = E + (1 − E) / (1 + exp(b (x − x₀)))      x = ln D + c ln N
    D = T (1 + R (1 − exp(−(T_seen / T − 1) / R)))    tokens, those of further epochs worth less and less

T tokens of text, T_seen tokens trained on, N parameters. D and R = 15 are those of Muennighoff et al. 2023 ("Scaling
data-constrained language models"), not fitted here; E, b, x₀ and c are, by least squares, on `runs.csv`
(`benchmarks/plan_runs.py fit` writes `fit.json`). A prediction outside the range of those runs says so.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from larvatus.core.settings import Settings
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.compare.word_nll import MaskedPassages, length_cost, score_words, tokenise_passage

REPEATS = 15.0
"""R of Muennighoff et al. 2023."""
BAND = 2.0
"""Standard deviations of the residuals on either side of a prediction."""
SLACK = 1.5
"""Factor beyond the range of the runs from which a prediction is an extrapolation."""


def unigram_word_nll(tokenizer: Tokenizer, passages: MaskedPassages) -> float | None:
    """Nats per masked word of a model that knows only how frequent each token was where the vocabulary was trained.

    The same costs as `measure_word_nll`, without context. None if the vocabulary has no counts, or no word is masked.
    """
    if tokenizer.counts is None or not passages.hidden:
        return None
    nats = -np.log((tokenizer.counts + 1) / (tokenizer.counts.sum() + len(tokenizer.counts)))
    alignments = tokenizer.encode_many([passage.text for passage in passages.passages])
    read = [tokenise_passage(p, alignment) for p, alignment in zip(passages.passages, alignments, strict=True)]
    cost = length_cost([count for passage in read for count in passage.visible])
    coded = [{place: (float(nats[each.alignment.ids[place]]), False) for place in each.places} for each in read]
    total = math.fsum(score_words(each, costs, cost)[0] for each, costs in zip(read, coded, strict=True))
    return total / passages.hidden


@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much text and training a run has."""

    words: int
    """Words of the training text."""
    text: int
    """Tokens of the training text."""
    seen: int
    """Tokens trained on, in all epochs."""
    parameters: int

    @property
    def effective(self) -> float:
        """Tokens, with those of further epochs worth less and less.

        >>> round(Amount(words=60, text=100, seen=400, parameters=1).effective)
        372
        """
        repeats = max(0.0, self.seen / self.text - 1)
        once = min(self.text, self.seen)
        return once * (1 + REPEATS * (1 - math.exp(-repeats / REPEATS)))


class PlanRun(Struct, frozen=True, kw_only=True):
    """A run that was made: a row of `runs.csv`."""

    text: str
    words: int
    recipe: str
    size: str
    parameters: int
    tokens: int
    """Tokens of the training text."""
    seen: int
    unigram: float
    loss: float
    error: float
    source: str
    """Where it is from: `plan_runs.py`, or the page of docs/ that has it."""

    @property
    def amount(self) -> Amount:
        return Amount(words=self.words, text=self.tokens, seen=self.seen, parameters=self.parameters)


class ExpectedLoss(Settings):
    """A prediction of the loss of a run."""

    loss: float
    """Nats per word."""
    low: float
    """Loss less two standard deviations of the fit's residuals; `high` is the loss plus as much."""
    high: float
    outside: tuple[str, ...] = ()
    """Why the fit was extended beyond the runs that it was made from; empty within their range."""


class LossFit(Settings):
    """A fitted curve, and the range of the runs that it was fitted to."""

    floor: float
    """E."""
    slope: float
    """b."""
    middle: float
    """x₀."""
    size: float
    """c."""
    deviation: float
    """Standard deviation of L / U when a run's text is left out of the fit."""
    runs: int
    ranges: dict[str, tuple[float, float]]
    """Least and most words, tokens seen, and parameters of the runs."""

    @classmethod
    def packaged(cls) -> LossFit:
        text = resources.files("larvatus.evaluation.planning").joinpath("fit.json").read_text(encoding="utf-8")
        return msgspec.json.decode(text, type=cls)

    def share(self, amount: Amount) -> float:
        """L / U."""
        x = math.log(amount.effective) + self.size * math.log(amount.parameters)
        return self.floor + (1 - self.floor) / (1 + math.exp(self.slope * (x - self.middle)))

    def predict(self, amount: Amount, *, unigram: float) -> ExpectedLoss:
        share = self.share(amount)
        given = {"words": amount.words, "tokens seen": amount.seen, "parameters": amount.parameters}
        outside = tuple(
            f"{given[name]:,} {name}, runs have {low:,.0f} to {high:,.0f}"
            for name, (low, high) in self.ranges.items()
            if not low / SLACK <= given[name] <= high * SLACK
        )
        width = BAND * self.deviation
        return ExpectedLoss(
            loss=share * unigram, low=(share - width) * unigram, high=(share + width) * unigram, outside=outside
        )


def read_runs(lines: Sequence[str] | None = None) -> list[PlanRun]:
    """The runs of the fit, or those in lines of CSV."""
    if lines is None:
        name = resources.files("larvatus.evaluation.planning").joinpath("runs.csv")
        lines = name.read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    return [msgspec.convert(row, PlanRun, strict=False) for row in rows]
