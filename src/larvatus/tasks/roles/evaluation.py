"""Scores of semantic roles, during and after training: with given and with found predicates, with intervals.

    result = evaluate_frames(bundle, read_frames("dev.jsonl"), EvaluationOptions())
    result.metrics["argument-f1"].value, result.by_role["ARG0"].f1, result.metrics["found-argument-f1"].value

| metric | of |
| --- | --- |
| argument-f1, precision, recall | arguments of the gold predicates, as srl-eval.pl counts (`srl_eval.py`) |
| found-argument-f1 | arguments where the model finds the predicates itself, each with its predicate |
| predicate-f1 | words that are predicates |
| sense-accuracy | rolesets of the gold predicates |
| perfect-frames | gold predicates whose arguments are all right |

What a model cannot find counts as missed: unknown roles, predicates in words that are not read. The bootstrap resamples
sentences.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.batch import runs
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart
from larvatus.data.labelled.records import Dataset
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.metrics.classification import F1, divide
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.roles import RolesConfig
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.evaluation import (
    EvaluationOptions,
    ResampledEvaluation,
    class_rows,
    plain_metrics,
    read_statistics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric
from larvatus.tasks.evaluation.tables import class_table
from larvatus.tasks.features import Features
from larvatus.tasks.roles.encode import EncodedFrames
from larvatus.tasks.roles.examples import FramedSentence
from larvatus.tasks.roles.labelling import LabelledFrame, label_frames, roles_head
from larvatus.tasks.roles.lexicon import lemma_of
from larvatus.tasks.roles.srl_eval import FrameCounts, RoleCount, compare_sentence
from larvatus.tasks.scoring import ScoringOptions, loss_of
from larvatus.tasks.validation import Calibration, Scores

METRICS = (
    "argument-f1",
    "precision",
    "recall",
    "found-argument-f1",
    "predicate-f1",
    "sense-accuracy",
    "perfect-frames",
)
GIVEN, FOUND, PREDICATES = slice(0, 3), slice(3, 6), slice(6, 9)
"""Columns of right, excess and missed ones."""
SENSES, PERFECT, FRAMES = 9, 10, 11
"""Columns of gold predicates with the right roleset, with all arguments right, and of all."""


@dataclass(frozen=True, eq=False)
class FrameScores:
    """Scores of sentences with their gold frames."""

    rows: Doubles  # [E, 12] counts of each sentence
    given: FrameCounts
    """Counts with the gold predicates given."""
    unseen: tuple[int, int]
    """Gold predicates with a lemma that training lacks, and how many of them have the right roleset."""

    @classmethod
    def of(
        cls,
        examples: Sequence[FramedSentence],
        labelled: Sequence[Sequence[LabelledFrame]],
        known: frozenset[str] = frozenset(),
    ) -> FrameScores:
        """Compare; `labelled` frames are of gold predicates and of those that the model finds. `known` are lemmas."""
        rows = np.zeros((len(examples), FRAMES + 1))
        counts, unseen = FrameCounts(), [0, 0]
        for row, example, frames in zip(rows, examples, labelled, strict=True):
            wanted = {frame.predicate: frame for frame in example.frames or ()}
            answers = {frame.predicate: frame for frame in frames}
            gold = {word: frame.arguments for word, frame in wanted.items()}
            given = compare_sentence(gold, {word: f.arguments for word, f in answers.items() if word in gold})
            predicted = {word: frame for word, frame in answers.items() if frame.is_predicate}
            whole = compare_sentence(gold, {word: f.arguments for word, f in predicted.items()}, invented=True)
            right = len(predicted.keys() & gold.keys())
            row[GIVEN] = _three(given.total)
            row[FOUND] = _three(whole.total)
            row[PREDICATES] = right, len(predicted) - right, len(gold) - right
            senses = [answers[word].roleset == f.roleset if word in answers else False for word, f in wanted.items()]
            row[SENSES:] = sum(senses), given.perfect, len(gold)
            counts.add(given)
            new = [
                is_right
                for is_right, f in zip(senses, wanted.values(), strict=True)
                if lemma_of(f.roleset) not in known
            ]
            unseen = [unseen[0] + len(new), unseen[1] + sum(new)]
        return cls(rows, counts, (unseen[0], unseen[1]))

    def metrics(self) -> dict[str, ResampledMetric]:
        """By name, with what each sentence adds."""

        def share(part: int) -> ResampledMetric:
            return ResampledMetric(self.rows, lambda sums: divide(sums[..., part], sums[..., FRAMES]))

        return {
            "argument-f1": ResampledMetric(self.rows, lambda sums: _f1(sums[..., GIVEN])),
            "precision": ResampledMetric(self.rows, lambda sums: divide(sums[..., 0], sums[..., 0] + sums[..., 1])),
            "recall": ResampledMetric(self.rows, lambda sums: divide(sums[..., 0], sums[..., 0] + sums[..., 2])),
            "found-argument-f1": ResampledMetric(self.rows, lambda sums: _f1(sums[..., FOUND])),
            "predicate-f1": ResampledMetric(self.rows, lambda sums: _f1(sums[..., PREDICATES])),
            "sense-accuracy": share(SENSES),
            "perfect-frames": share(PERFECT),
        }

    def values(self) -> dict[str, float]:
        sums = self.rows.sum(0)
        return {name: float(metric.score(sums)) for name, metric in self.metrics().items()}


def _three(count: RoleCount) -> tuple[int, int, int]:
    return count.right, count.excess, count.missed


def _f1(sums: Doubles) -> Doubles:
    return divide(2 * sums[..., 0], 2 * sums[..., 0] + sums[..., 1] + sums[..., 2])


def role_f1(count: RoleCount) -> F1:
    """Precision, recall and F1 of one role."""
    right, given, gold = count.right, count.right + count.excess, count.right + count.missed
    return F1(right / max(given, 1), right / max(gold, 1), 2 * right / max(given + gold, 1), gold)


def gold_predicates(examples: Sequence[FramedSentence]) -> list[list[int]]:
    return [[frame.predicate for frame in example.frames or ()] for example in examples]


def unknown_roles(examples: Sequence[FramedSentence], config: RolesConfig) -> UnknownLabels:
    """Arguments with roles that are none of the model's."""
    known = set(config.labels)
    unknown: list[tuple[int, str]] = []
    first, total = "", 0
    for number, example in enumerate(examples):
        for name in example.names():
            total += 1
            if name not in known:
                unknown.append((number, name))
                first = first or f"{example.place}: the role {name!r} is one that the model does not know"
    return UnknownLabels.of(unknown, total=total, first=first)


@dataclass(frozen=True, eq=False)
class FrameValidation:
    """Validation sentences, scored during training."""

    data: EncodedFrames
    tokenizer: Tokenizer
    windows: WindowOptions
    metric: str
    features: Features | None = None
    """Outputs of a frozen encoder."""

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        """All metrics, from one pass over the sentences for given and found predicates."""
        examples = self.data.sentences
        labelled = label_frames(
            model,
            self.tokenizer,
            [example.words for example in examples],
            scoring=scoring,
            windows=self.windows,
            given=gold_predicates(examples),
            features=self.features,
            scores=False,
        )
        values = FrameScores.of(examples, labelled.frames).values()
        return Scores(metric=self.metric, values=values, validation_loss=self._loss(model, scoring))

    @torch.inference_mode()
    def _loss(self, model: Network, scoring: ScoringOptions) -> float:
        """Mean loss as in training, of the roles and rolesets that the model knows."""
        head, tokens = roles_head(model), self.data.read.tokens
        model.eval()
        order = np.argsort(tokens, kind="stable")
        total = count = 0.0
        for first, last in runs(tokens[order], scoring.budget):
            given = self.data.batch(order[first:last])
            batch = on_device(given, scoring.device)
            with scoring.autocast():
                if self.features is not None:
                    loss = head(self.features.of(order[first:last]), batch)
                else:
                    loss = loss_of(model, batch, head, limit=int(given.tokens.lengths.max()))
            total, count = total + float(loss.total), count + float(loss.count)
        return total / count if count else math.nan

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        """None: arguments are chosen together, and have no probability that a temperature would correct."""
        return Calibration()

    def read_once(self, model: Network, scoring: ScoringOptions) -> FrameValidation:
        """The encoder's outputs are kept, unless it reads sentences again for predicates that are found."""
        if roles_head(model).config.one_by_one:
            return self
        return dataclasses.replace(self, features=Features.build(model, self.data, scoring, learning=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class RolesEvaluation(ResampledEvaluation):
    """Evaluation of a model that labels semantic roles."""

    data: Dataset[FramedSentence]
    by_role: dict[str, F1]
    """With given predicates, most frequent first; without V."""
    verbs: F1
    """Score of the predicates' own words, V, which the other scores do not count."""
    counts: FrameCounts
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    """Roles of the data that the model does not know."""

    def shown(self) -> Iterator[ReportPart]:
        yield from class_table("role", self.by_role)
        total = self.counts.total
        yield (
            f"\nwith given predicates: {total.right:,} arguments right, {total.excess:,} excess, {total.missed:,} "
            f"missed; V, not counted, F1 {self.verbs.f1:.4f}"
        )
        yield "intervals are over sentences"
        yield from self.notes

    def details(self) -> dict[str, Any]:
        return {
            "metrics": plain_metrics(self.metrics),
            "resampled": "sentences",
            "roles": class_rows(self.by_role),
            "verbs": class_rows({"V": self.verbs})[0],
            "labels": list(self.labels),
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }


def evaluate_frames(bundle: Bundle, data: Dataset[FramedSentence], options: EvaluationOptions) -> RolesEvaluation:
    """A model on sentences with their predicates and arguments."""
    bare = next((example for example in data if example.frames is None), None)
    if bare is not None:
        raise DataError(f"{bare.place}: its predicates and arguments are not known; give sentences with frames")
    config = roles_head(bundle.network, str(bundle.path)).config
    unknown = unknown_roles(data.examples, config)
    unknown.check(strict=options.strict)
    bundle.network.to(options.scoring.device)
    words = [example.words for example in data]
    labelled = label_frames(
        bundle.network,
        bundle.tokenizer,
        words,
        scoring=options.scoring,
        windows=options.windows(bundle),
        given=gold_predicates(data.examples),
        scores=False,
    )
    known = frozenset(map(lemma_of, config.rolesets))
    scores = FrameScores.of(data.examples, labelled.frames, known)
    metrics = scores.metrics()
    by_role = {name: role_f1(count) for name, count in scores.given.by_role.items()}
    notes = [unknown.note("arguments", "of roles")]
    if scores.unseen[0]:
        notes.append(
            f"{scores.unseen[0]:,} predicates have a lemma that training lacks; {scores.unseen[1]:,} of their rolesets "
            "are guessed rightly"
        )
    return RolesEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(metrics),
        resampled=metrics,
        reading=read_statistics(labelled.sequences),
        notes=tuple(note for note in notes if note),
        by_role=dict(sorted(by_role.items(), key=lambda item: (-item[1].support, item[0]))),
        verbs=role_f1(scores.given.verbs),
        counts=scores.given,
        labels=config.labels,
        unknown=unknown.names,
    )
