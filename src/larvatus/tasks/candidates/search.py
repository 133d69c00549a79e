"""Choose how to classify from few examples: candidates, the same folds for all, a time budget, one rule.

    candidates, vectors = search(bundle, train, args, minutes=2.0)
    print(candidates.report(candidates.choose()).verdict)

| candidate | what is trained |
| --- | --- |
| linear head | logistic regression on the model's sentence vectors (`FrozenVectors`) |
| linear head, four layers | the same on the vectors of its four highest layers, concatenated |
| TF-IDF | logistic regression on words and characters (`linear.py`); a baseline, never saved |
| all weights, or the two highest layers | fine-tuning with the defaults of `larvatus finetune` |

**Folds** are stratified by label; whole groups, and equal texts, are in one fold.

**Rule.** The candidate with the best cross-validated metric is kept; of equal ones the simplest. Taking the simplest
within one standard error of the best lost up to two points on development sets (docs/finetuning.md).

TF-IDF is only reported. On the same sets it was nowhere more than half a point better than the linear head, so a format
for bags of words in a model directory, which has one encoder that every command reads, would gain nothing.

The penalty of a logistic regression is the one of `PENALTIES` with the lowest cross-validated loss, so its score is a
little flattering, by a choice among few.

**Budget.** Vectors are computed once. Fine-tuning is tried if all its folds and the last training fit into what is
left of the budget: at first by the time that one pass over the texts took, then by the time of its first fold.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, Example, TextExample
from larvatus.data.labelled.split import strata_of, unit_word, units_of
from larvatus.metrics.calibration import negative_log_likelihood
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import ClassificationConfig
from larvatus.tasks.candidates.linear import FrozenVectors, TermCounts, fit_scaled
from larvatus.tasks.candidates.report import (
    BASELINE,
    BaselineComparison,
    CandidateScore,
    SearchReport,
    compare_with_baseline,
)
from larvatus.tasks.classify.classify import class_scores, encode_texts
from larvatus.tasks.classify.options import MINUTES
from larvatus.tasks.classify.task import ClassifyTask, class_metrics, text_metric
from larvatus.tasks.evaluation.resampling import resampled_classes
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune_on_split
from larvatus.tasks.trainer.trainable import TrainableConfig


def assign_folds(data: Dataset[Example], folds: int, *, seed: int = 0) -> Ints:
    """The fold of each example, as a function of the seed and the order of the examples.

    Units (a group, or equal texts) are assigned in random order, large ones first, each to the fold that has the fewest
    examples of its labels, then the fewest examples.
    """
    owners, strata = units_of(data), strata_of(data)
    sizes = Counter(owners)
    if len(sizes) < folds:
        word = unit_word(data) or "different examples"
        raise DataError(f"{data.source}: {len(sizes)} {word} are too few for {folds} folds; give --trained all")
    labels = [Counter[str]() for _ in sizes]
    for owner, stratum in zip(owners, strata, strict=True):
        labels[owner].update(stratum)
    order = stream(seed, "candidate folds").permutation(len(sizes)).tolist()
    order.sort(key=lambda unit: (-sizes[unit], min(labels[unit])))  # stable: random among equals
    held = [Counter[str]() for _ in range(folds)]
    filled = [0] * folds
    place = [0] * len(sizes)
    for unit in order:
        wanted = labels[unit]
        place[unit] = min(range(folds), key=lambda fold: (sum(held[fold][name] for name in wanted), filled[fold]))
        held[place[unit]].update(wanted)
        filled[place[unit]] += sizes[unit]
    return np.array([place[owner] for owner in owners], np.int64)


def select(data: Dataset[Example], chosen: npt.NDArray[np.bool_]) -> Dataset[Example]:
    """The examples where `chosen` is true."""
    examples = tuple(example for example, kept in zip(data.examples, chosen.tolist(), strict=True) if kept)
    return dataclasses.replace(data, examples=examples)


# The search.

FOLDS = 5
PENALTIES = (1.0, 5.0, 25.0)
"""C of logistic regression that are tried."""
LINEAR, LAYERS = "linear head", "linear head, four layers"
TUNED = {"fine-tuned: all weights": "all", "fine-tuned: two layers": "last2"}
"""The first that fits into the budget is tried."""
STEP_COST = {"all": 3.0, "last2": 2.0}
"""Cost of a training pass over texts, in passes that only read them."""
UNSEEN = -30.0
"""Logit of a class that a training fold lacks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Trial:
    """Predictions of a candidate for every example, each by a model that was not trained on it."""

    name: str
    logits: Doubles
    """[N, K]"""
    seconds: float
    penalty: float = 0.0


@dataclass
class CandidateSearch:
    """The state of a search: data, folds, budget, and the trials so far."""

    bundle: Bundle
    train: Dataset[TextExample]
    head: ClassificationConfig
    y: Ints
    fold: Ints
    metric: str
    args: FineTuneArguments
    budget: float
    """Seconds."""
    began: float = field(default_factory=time.monotonic)
    trials: list[Trial] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def folds(self) -> int:
        return int(self.fold.max()) + 1

    @property
    def left(self) -> float:
        return self.budget - (time.monotonic() - self.began)

    # ---- candidates

    def try_linear(self, name: str, vectors: Floats, seconds: float = 0.0) -> None:
        """Logistic regression on frozen vectors [N, D]."""

        def logits(trained: Any, penalties: Sequence[float]) -> list[Doubles]:
            x, y, classes = vectors[trained], self.y[trained], len(self.head.labels)
            return [fit.logits(vectors) for fit in fit_scaled(x, y, classes=classes, penalties=penalties)]

        self._try_penalties(name, logits, seconds)

    def try_bag_of_words(self) -> None:
        """Words and characters, if there are any."""
        bag, classes = TermCounts.of([example.text for example in self.train]), len(self.head.labels)

        def logits(trained: Any, penalties: Sequence[float]) -> list[Doubles]:
            return bag.predict(self.y, trained, classes=classes, penalties=penalties)

        self._try_penalties(BASELINE, logits, 0.0)

    def _try_penalties(
        self, name: str, logits: Callable[[Any, Sequence[float]], list[Doubles]], seconds: float
    ) -> None:
        began = time.monotonic()
        predicted = np.zeros((len(PENALTIES), len(self.y), len(self.head.labels)))
        for fold in range(self.folds):
            test = self.fold == fold
            for number, each in enumerate(logits(~test, PENALTIES)):
                predicted[number, test] = each[test]
        losses = [negative_log_likelihood(each, self.y, kind="softmax") for each in predicted]
        best = int(np.argmin(losses))
        seconds += time.monotonic() - began
        self._note(Trial(name=name, logits=predicted[best], seconds=seconds, penalty=PENALTIES[best]))

    def try_fine_tuning(self, reading: float) -> None:
        """The first of `TUNED` that fits; `reading` are the seconds of a pass over all texts."""
        for name, word in TUNED.items():
            config = self.config(word)
            passes = (config.epochs or 1) * STEP_COST[word]
            needed = reading * passes * self.folds  # folds of (k − 1) / k of the texts, and the last training
            if needed <= self.left:
                return self._try_tuned(name, config)
            self.skipped.append(f"{name}: not tried, needs about {_minutes(needed)} (--minutes)")
        return None

    def _try_tuned(self, name: str, config: TrainConfig) -> None:
        began = time.monotonic()
        predicted = np.full((len(self.y), len(self.head.labels)), UNSEEN)
        for fold in range(self.folds):
            test = self.fold == fold
            tuned = self.tuned(select(self.train, ~test), config, quiet=True)
            trained_head = head_of(tuned.bundle.network).config
            texts = select(self.train, test).examples
            sequences = encode_texts(tuned.bundle, texts, trained_head, self.args.windows(tuned.bundle))
            columns = np.array([self.head.labels.index(label) for label in trained_head.labels], np.int64)
            scores = class_scores(tuned.bundle.network, sequences, self.args.scoring)
            predicted[np.ix_(np.flatnonzero(test), columns)] = scores
            each = (time.monotonic() - began) / (fold + 1)
            if each * (self.folds - fold) > self.left:  # the folds that are left, and the last training
                needed = each * (self.folds + 1)
                self.skipped.append(
                    f"{name}: ended after {fold + 1} of {self.folds} folds, needs about {_minutes(needed)} (--minutes)"
                )
                return
        self._note(Trial(name=name, logits=predicted, seconds=time.monotonic() - began))

    def config(self, word: str) -> TrainConfig:
        config = msgspec.structs.replace(self.args.config, trained=TrainableConfig.read(word))
        return config.with_defaults(ClassifyTask.defaults, len(self.train))

    def tuned(
        self, train: Dataset[TextExample], config: TrainConfig, *, dev: Dataset[TextExample] | None = None, quiet: bool
    ) -> FineTuneResult:
        """Fine-tune; without validation examples the last weights are kept."""
        callbacks = Callbacks(stop=self.args.callbacks.stop) if quiet else self.args.callbacks
        args = dataclasses.replace(self.args, config=config, hold_out=False, store=None, callbacks=callbacks)
        return finetune_on_split(ClassifyTask(), self.bundle, train, dev, args)

    def _note(self, trial: Trial) -> None:
        self.trials.append(trial)
        score = self.scored(trial)
        self.args.say(f"{trial.name}: {self.metric} {score.score:.4f}, {trial.seconds:.0f} s")

    def loss(self, logits: Doubles) -> float:
        """Mean loss of logits for all examples."""
        return negative_log_likelihood(logits, self.y, kind="softmax")

    # ---- the choice

    def scored(self, trial: Trial) -> CandidateScore:
        classes = len(self.head.labels)
        answers = trial.logits.argmax(1)
        metric = resampled_classes(self.y, answers, kind="multi-class", classes=classes)[self.metric]
        interval = metric.interval(samples=1_000, seed=0)
        return CandidateScore(
            name=trial.name,
            score=interval.value,
            low=interval.low,
            high=interval.high,
            seconds=round(trial.seconds, 1),
            penalty=trial.penalty,
        )

    def choose(self) -> Trial:
        """The candidate of the rule, among those that a model directory can hold; the simplest was tried first."""
        models = [trial for trial in self.trials if trial.name != BASELINE]
        return max(models, key=lambda trial: self.scored(trial).score)

    def report(self, chosen: Trial) -> SearchReport:
        return SearchReport(
            metric=self.metric,
            examples=len(self.y),
            folds=self.folds,
            seconds=round(time.monotonic() - self.began, 1),
            minutes=self.budget / 60,
            candidates=tuple(self.scored(trial) for trial in self.trials),
            chosen=chosen.name,
            values=class_metrics(self.y, chosen.logits.astype(np.float32), self.head),
            skipped=tuple(self.skipped),
            comparison=self._comparison(chosen),
        )

    def _comparison(self, chosen: Trial) -> BaselineComparison | None:
        baseline = next((trial for trial in self.trials if trial.name == BASELINE), None)
        if baseline is None:
            return None
        names = np.array(self.head.labels)
        gold, theirs, ours = (names[y].tolist() for y in (self.y, baseline.logits.argmax(1), chosen.logits.argmax(1)))
        return compare_with_baseline(gold, theirs, ours, labels=self.head.labels, metric=self.metric)


def search(
    bundle: Bundle, train: Dataset[TextExample], args: FineTuneArguments, *, minutes: float
) -> tuple[CandidateSearch, FrozenVectors]:
    """Try the candidates in the order of their cost, as far as the budget reaches; the linear head is always tried."""
    MINUTES.check(minutes, "minutes")
    refuse_unsearchable(train)
    began = time.monotonic()
    fold_E = assign_folds(train, FOLDS)
    vectors = FrozenVectors.read(bundle, train, args)
    head = vectors.head
    y = np.array([head.labels.index(str(example.label)) for example in train], np.int64)
    metric = text_metric(head, np.bincount(y, minlength=len(head.labels)).tolist(), args.metric)
    candidates = CandidateSearch(bundle, train, head, y, fold_E, metric, args, minutes * 60, began)
    candidates.try_linear(LINEAR, vectors.last, vectors.seconds)
    if candidates.left > 0:
        candidates.try_linear(LAYERS, vectors.layers, vectors.seconds)
    if candidates.left > 0:
        candidates.try_bag_of_words()
    else:
        candidates.skipped.append(f"{BASELINE}: not tried, the budget is spent (--minutes)")
    candidates.try_fine_tuning(vectors.seconds)
    return candidates, vectors


def is_searchable(train: Dataset[TextExample]) -> bool:
    """Whether these are single texts with one class each, of two classes or more."""
    single = all(example.pair is None for example in train)
    return train.kind in (None, "multi-class") and single and len(train.labels()) > 1


def refuse_unsearchable(train: Dataset[TextExample]) -> None:
    """Refuse examples that the search does not compare candidates on."""
    if not is_searchable(train):
        raise UsageError(f"{train.source}: --auto is for single texts with one class each; leave it out")


def _minutes(seconds: float) -> str:
    return f"{max(0.1, seconds / 60):,.1f} minutes"
