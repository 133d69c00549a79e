"""Contexts with endings as the model reads them, the model's choices, and their scores.

    data = encode_choices(bundle, examples, windows)
    data.batch(np.array([3, 0]))                     # two examples, each a group of sequences that is never split
    logits = ending_scores(model, data, scoring)     # [E, most endings], ABSENT where an example has fewer
    evaluation = evaluate_choices(bundle, read_choices("test.jsonl"))
    evaluation.metrics["accuracy"].value, evaluation.by_endings[4].accuracy

There is a sequence for each ending, or its windows. Scores during and after training are accuracy, also by number of
endings, and calibration. E examples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core import notebook
from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import edges, ranges
from larvatus.core.pretraining_targets import IGNORE
from larvatus.core.tables import ReportPart, Table, Tabular
from larvatus.core.targets import ChoiceTargets
from larvatus.data.labelled.records import Dataset
from larvatus.metrics.calibration import brier, negative_log_likelihood, reliability_of_probabilities, softmax
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.sequence_score import MultipleChoice
from larvatus.models.network import Network
from larvatus.tasks.choose.reader import ChoiceExample
from larvatus.tasks.classify.classify import Merge, merge_windows
from larvatus.tasks.encoding.sequences import PairLists, WindowOptions, text_sequences
from larvatus.tasks.evaluation.evaluation import (
    CalibrationReport,
    Evaluation,
    EvaluationOptions,
    PairedMetrics,
    ReadStatistics,
    plain_metrics,
)
from larvatus.tasks.evaluation.resampling import ResampledMetric, resampled_words
from larvatus.tasks.results import Coverage, Piece, best
from larvatus.tasks.scoring import ScoringOptions, head_as, head_of, score_sequences
from larvatus.tasks.validation import Calibration, EncodedValidation, Scores, fit_calibration, mean_loss

ABSENT = -1e30
"""The score of an ending that there is not: its probability is 0 at every temperature, and it is finite."""


@dataclass(frozen=True, eq=False)
class EncodedChoices(PairLists):
    """E examples: pairs of a context with each of its endings."""

    endings: Ints  # [E]
    labels: Ints  # [E] IGNORE where nobody knows

    @property
    def sizes(self) -> Ints:
        return self.endings

    def targets(self, examples: Ints) -> ChoiceTargets[Ints]:
        return ChoiceTargets(
            windows=self.sequences.parts[self.pairs_of(examples)],
            endings=self.endings[examples],
            labels=self.labels[examples],
        )

    @property
    def coverage(self) -> list[Coverage]:
        """How much of each example is read: of all its pairs."""
        starts = edges(self.endings)[:-1]
        columns = (self.sequences.tokens, self.sequences.read, self.sequences.parts)
        sums = (np.add.reduceat(column, starts).tolist() for column in columns)
        return [
            Coverage(tokens=tokens, read=read, windows=windows) for tokens, read, windows in zip(*sums, strict=True)
        ]


def encode_choices(bundle: Bundle, examples: Sequence[ChoiceExample], windows: WindowOptions) -> EncodedChoices:
    """Examples, labelled or not, as the model reads them."""
    sequences = text_sequences(
        bundle.tokenizer,
        [pair for example in examples for pair in example.pairs],
        limit=windows.limit,
        truncate=windows.truncate,
        overlap=windows.overlap,
    )
    labels = [IGNORE if example.label is None else example.label for example in examples]
    return EncodedChoices(
        sequences,
        endings=np.array([len(example.endings) for example in examples], np.int64),
        labels=np.array(labels, np.int64),
    )


def chooser_of(model: Network, name: str = "the model") -> MultipleChoice:
    """The head of a model that chooses endings."""
    return head_as(model, MultipleChoice, "choose endings", name)


def ending_scores(model: Network, data: EncodedChoices, scoring: ScoringOptions, merge: Merge = "mean") -> Floats:
    """Scores of the endings of each example, from its windows: [E, most endings]."""
    return scores_by_example(score_sequences(model, data.sequences, scoring), data, merge)


def scores_by_example(scores_S1: Floats, data: EncodedChoices, merge: Merge = "mean") -> Floats:
    """From the scores of all windows to a row for each example, `ABSENT` where it has fewer endings than others."""
    rows = np.full((len(data), int(data.endings.max(initial=0))), ABSENT, np.float32)
    rows[np.repeat(np.arange(len(data)), data.endings), ranges(data.endings)] = merge_windows(
        scores_S1, data.sequences.parts, merge
    )[:, 0]
    return rows


@dataclass(frozen=True, kw_only=True)
class Chosen(Tabular):
    """A context with the likeliest of its endings."""

    context: str
    choice: int
    """The number of the ending, from 0."""
    probabilities: dict[str, float]
    """Probability of every ending, in the order in which they were given."""
    coverage: Coverage

    @property
    def endings(self) -> tuple[str, ...]:
        return tuple(self.probabilities)

    @property
    def ending(self) -> str:
        """The text of the ending."""
        return self.endings[self.choice]

    @property
    def probability(self) -> float:
        """Probability of the ending."""
        return self.probabilities[self.ending]

    def _repr_html_(self) -> str:
        return notebook.bars(self.probabilities.items(), title=self.context, note=str(self))

    def to_dict(self) -> dict[str, Any]:
        return {
            "context": self.context,
            "choice": self.choice,
            "ending": self.ending,
            "probability": self.probability,
            "probabilities": self.probabilities,
            **self.coverage.to_dict(),
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each ending, in the order in which they were given."""
        return [
            {
                "context": self.context,
                "number": number,
                "ending": ending,
                "probability": probability,
                "chosen": number == self.choice,
            }
            for number, (ending, probability) in enumerate(self.probabilities.items())
        ]

    def pieces(self, *, top: int | None = None, width: int = 0) -> Iterator[Piece]:
        for number, (ending, probability) in enumerate(best(self.probabilities, top or 1)):
            if number:
                yield Piece("  ")
            yield Piece(f"{self.endings.index(ending)} {probability:.3f} ", "bold")
            yield Piece(ending)
        yield Piece(" ⟵ ", "dim")
        yield Piece(self.context)

    def __str__(self) -> str:
        return f"{self.choice}: {self.ending} {self.probability:.3f}"


# Scores.

METRICS = ("accuracy",)


@dataclass(frozen=True, eq=False)
class ChoiceValidation(EncodedValidation):
    data: EncodedChoices
    metric: str = "accuracy"

    def scores(self, model: Network, scoring: ScoringOptions) -> Scores:
        windows = self.row_scores(model, scoring)
        right = scores_by_example(windows, self.data).argmax(-1) == self.data.labels
        return Scores(
            metric=self.metric,
            values={"accuracy": float(right.mean())},
            validation_loss=mean_loss(head_of(model), windows, self.data.targets(np.arange(len(self.data)))),
        )

    def calibration(self, model: Network, scoring: ScoringOptions) -> Calibration:
        known = self.data.labels != IGNORE
        logits = scores_by_example(self.row_scores(model, scoring), self.data)
        return fit_calibration(logits[known], self.data.labels[known], kind="softmax")


@dataclass(frozen=True)
class EndingCountScore:
    """Accuracy on the examples with a given number of endings."""

    examples: int
    accuracy: float
    chance: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceEvaluation(Evaluation):
    """Evaluation of a model that chooses endings."""

    data: Dataset[ChoiceExample]
    by_endings: dict[int, EndingCountScore]
    """Scores by number of endings."""
    calibration: CalibrationReport
    gold: Ints
    """[E] the right endings; so are the `answers`."""
    answers: Ints
    probabilities: Floats
    """[E, most endings] calibrated; 0 of endings that an example does not have."""

    @property
    def right(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.gold == self.answers)

    def details(self) -> dict[str, Any]:
        return {
            "metrics": plain_metrics(self.metrics),
            "by_endings": [{"endings": size, **dataclasses.asdict(row)} for size, row in self.by_endings.items()],
            "calibration": self.calibration.to_dict(),
        }

    def shown(self) -> Iterator[ReportPart]:
        yield Table(
            ("endings", "examples", "accuracy", "chance"),
            tuple(
                (str(size), f"{row.examples:,}", f"{row.accuracy:.4f}", f"{row.chance:.4f}")
                for size, row in self.by_endings.items()
            ),
            blank_before=True,
        )
        yield from self.calibration.shown()

    def paired(self, other: ChoiceEvaluation) -> PairedMetrics:
        return PairedMetrics(_resampled(self.right), _resampled(other.right), (self.right, other.right))


def evaluate_choices(
    bundle: Bundle, data: Dataset[ChoiceExample], options: EvaluationOptions = EvaluationOptions()
) -> ChoiceEvaluation:
    """A model that chooses endings."""
    temperature = chooser_of(bundle.network, str(bundle.path)).config.temperature
    encoded = encode_choices(bundle, data.examples, options.windows(bundle))
    bundle.network.to(options.scoring.device)
    logits = ending_scores(bundle.network, encoded, options.scoring, options.merge)
    answers, probabilities = logits.argmax(-1), softmax(logits / temperature)
    right = answers == encoded.labels
    return ChoiceEvaluation(
        model=str(bundle.path),
        data=data,
        metrics=options.intervals(_resampled(right)),
        by_endings={
            int(size): EndingCountScore(
                int((of := encoded.endings == size).sum()), float(right[of].mean()), 1 / int(size)
            )
            for size in np.unique(encoded.endings)
        },
        calibration=CalibrationReport(
            temperature=temperature,
            nll=negative_log_likelihood(logits / temperature, encoded.labels),
            brier=brier(probabilities, encoded.labels),
            reliability=reliability_of_probabilities(probabilities, encoded.labels, kind="softmax"),
        ),
        reading=_reading(encoded),
        gold=encoded.labels,
        answers=answers,
        probabilities=probabilities.astype(np.float32),
    )


def _resampled(right: npt.NDArray[np.bool_]) -> dict[str, ResampledMetric]:
    return resampled_words(right, np.ones(len(right)))


def _reading(data: EncodedChoices) -> ReadStatistics:
    coverage = data.coverage
    return ReadStatistics(
        examples=len(data),
        long=sum(
            example.windows > endings or example.read < example.tokens
            for example, endings in zip(coverage, data.endings.tolist(), strict=True)
        ),
        windows=sum(example.windows for example in coverage),
        tokens=sum(example.tokens for example in coverage),
        read=sum(example.read for example in coverage),
    )
