"""Outcomes of a knockout: what is measured with heads or neurons switched off, one row for each sampled unit.

    MaskedTextOutcome(batches)             passages of text: masked tokens, or next tokens, predicted rightly
    PairOutcome(tokenizer, pairs)          minimal pairs: the good sentence is preferred (BLiMP, Warstadt et al. 2020)
    TaskOutcome(bundle, dataset, options)  labelled examples: the score of a fine-tuned task

`rows` measures a network, whose encoder may be an edited view. The score is a function of sums of rows, so intervals
and tests resample units (`metrics/many.py`). Accuracy changes in steps; log-probability also shows small effects.

A minimal pair is compared by its differing word: one pass of the sentence with that word masked gives the
log-probabilities of both words. The pseudo-log-likelihood of whole sentences costs a pass for each token.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import ArtefactError, DataError, UsageError, did_you_mean
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.likelihood import score_texts
from larvatus.inference.cloze.slots import Slot, slot_scores
from larvatus.inference.interpret.importance import NOT_MEASURED, measured_objective
from larvatus.metrics.classification import divide
from larvatus.metrics.intervals import Score
from larvatus.models.bundle.directory import Bundle
from larvatus.models.masked_prediction import require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.evaluation.resampling import LOWER_IS_BETTER, micro_f1
from larvatus.tasks.registry import task_of

Measure = Literal["accuracy", "log-probability"]


def mean_of_rows(sums: Doubles) -> Doubles:
    """Score of rows (sum, count): […, 2] → […]."""
    return divide(sums[..., 0], sums[..., 1])


class KnockoutOutcome(ABC):
    metric: str
    units: str
    """Name of what is sampled."""
    score: Score = staticmethod(mean_of_rows)
    groups: Sequence[str | None] = ()
    """Group of each unit, such as its phenomenon; none if empty."""

    @abstractmethod
    def rows(self, network: Network) -> Doubles:
        """[units, K] of a network."""


@dataclass(eq=False)
class MaskedTextOutcome(KnockoutOutcome):
    """Prediction of the masked tokens of held-out text, or of the next tokens by a left-to-right model."""

    batches: Sequence[TrainingBatch[Ints]]
    measure: Measure = "accuracy"
    units = "passages"

    def __post_init__(self) -> None:
        self.metric = f"masked {self.measure}"

    @torch.inference_mode()
    def rows(self, network: Network) -> Doubles:
        objective = measured_objective(network)
        if objective is None:
            raise ArtefactError(f"the model {NOT_MEASURED}")
        head: Any = network.heads[objective]
        rows = []
        for batch in self.batches:
            targets = batch.targets[head.needs]
            states = cast(Any, network.encoder)(on_device(batch.tokens, network.encoder.device))
            logits = head.logits(states[torch.from_numpy(targets.places)], network.encoder.word_vectors).float()
            ids = torch.from_numpy(targets.ids).to(logits.device)
            if self.measure == "accuracy":
                values = (logits.argmax(-1) == ids).double()
            else:
                values = (logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(-1)).double()
            owners = np.searchsorted(edges(batch.tokens.lengths)[1:], targets.places, side="right")
            counts = np.bincount(owners, minlength=batch.tokens.count).astype(np.float64)
            sums = np.bincount(owners, values.cpu().numpy(), minlength=batch.tokens.count)
            rows.append(np.stack([sums, counts], axis=1)[counts > 0])
        if not rows or not sum(map(len, rows)):
            raise DataError("there is no masked token to predict; give more text")
        return np.concatenate(rows)


Method = Literal["word", "sentence"]


@dataclass(frozen=True)
class LabelledPair:
    good: str
    bad: str
    group: str | None = None
    where: str = "a pair"


@dataclass(eq=False)
class PairOutcome(KnockoutOutcome):
    """Preference for the good sentence of minimal pairs."""

    tokenizer: Tokenizer
    pairs: Sequence[LabelledPair]
    measure: Measure = "accuracy"
    method: Method = "word"
    name: str = "the model"
    units = "pairs"

    def __post_init__(self) -> None:
        self.metric = "accuracy on minimal pairs" if self.measure == "accuracy" else "log-odds of the good sentence"
        self.skipped = 0
        """Pairs that differ in more than one word."""
        self._slots: list[Slot] = []
        if self.method == "word":
            kept = [(pair, slots) for pair in self.pairs if (slots := differing_word(self.tokenizer, pair)) is not None]
            self.skipped = len(self.pairs) - len(kept)
            self.pairs, self._slots = [pair for pair, _ in kept], [slot for _, slots in kept for slot in slots]
        if not self.pairs:
            raise DataError("no pair of sentences differs in exactly one word; use --method sentence")
        labels = [pair.group for pair in self.pairs]
        self.groups = labels if len({*labels}) > 1 else ()

    def long(self, network: Network) -> int:
        """Pairs with a sentence that is longer than the model's window."""
        longest = self.tokenizer.template.single.text_length(network.encoder.reach)
        texts = self.tokenizer.encode_many([text for pair in self.pairs for text in (pair.good, pair.bad)])
        over = [len(text.ids) > longest for text in texts]
        return sum(map(any, zip(over[::2], over[1::2], strict=True)))

    def rows(self, network: Network) -> Doubles:
        if self.method == "word":
            predictor = require_predictor(network, self.tokenizer, what="compare words", name=self.name)
            totals = [score.total for score in slot_scores(predictor, self.tokenizer, self._slots)]
        else:
            texts = [text for pair in self.pairs for text in (pair.good, pair.bad)]
            labels = [pair.where for pair in self.pairs for _ in range(2)]
            totals = [s.total for s in score_texts(network, self.tokenizer, texts, labels=labels, name=self.name)]
        odds = np.array(totals[::2]) - np.array(totals[1::2])
        values = (odds > 0).astype(np.float64) if self.measure == "accuracy" else odds
        return np.stack([values, np.ones_like(values)], axis=1)


def differing_word(tokenizer: Tokenizer, pair: LabelledPair) -> tuple[Slot, Slot] | None:
    """The word in which two sentences differ, in each; None if they differ in several words, or in none."""
    spans = []
    texts = [tokenizer.encode(pair.good), tokenizer.encode(pair.bad)]
    words = [[text.word_text(number) for number in range(len(text.word_spans))] for text in texts]
    apart = [number for number, (a, b) in enumerate(zip(*words, strict=False)) if a != b]
    if len(words[0]) != len(words[1]) or len(apart) != 1:
        return None
    spans = [text.chars_of_word(apart[0]) for text in texts]
    around = [(text[:start], text[end:]) for text, (start, end) in zip((pair.good, pair.bad), spans, strict=True)]
    if around[0] != around[1]:  # other spaces
        return None
    return Slot(pair.good, spans[0], where=pair.where), Slot(pair.bad, spans[1], where=pair.where)


class TaskOutcome(KnockoutOutcome):
    """Score of a fine-tuned model on labelled examples."""

    units = "examples"

    def __init__(
        self, bundle: Bundle, data: Any, options: EvaluationOptions = EvaluationOptions(), *, metric: str | None = None
    ) -> None:
        """`metric` is the task's first by default."""
        self._bundle, self._data, self._task = bundle, data, task_of(bundle)
        self._options = dataclasses.replace(options, samples=2)  # intervals are computed from the rows
        self._whole = self._task.evaluate(bundle, data, self._options)
        self.metric = metric or self._whole.headline
        metrics = self._whole.paired(self._whole).first
        if self.metric not in metrics:
            raise UsageError(f"{self.metric!r} is not a metric of this task{did_you_mean(self.metric, metrics)}")
        if metrics[self.metric].of != "sums" or self.metric in LOWER_IS_BETTER:
            raise UsageError(
                f"{self.metric} is no score of sums that grows with quality; use another metric, of classes or spans"
            )
        self.score = metrics[self.metric].score

    def rows(self, network: Network) -> Doubles:
        bundle = dataclasses.replace(self._bundle, network=network)
        paired = self._whole.paired(self._task.evaluate(bundle, self._data, self._options))
        rows = paired.second[self.metric].rows
        return rows.sum(-1, keepdims=True) if self.score is micro_f1 else rows  # types that only one model predicts
