"""A part that fine-tunes a model on a task and scores it on examples that were not used for selection.

    FineTunedPart(name="ewt", title="EWT", task="tag", train="pos/ewt/train.conllu", scored="pos/ewt/dev.conllu")

A random tenth of the training examples (2,000 at most), the same for every model, is used for validation and selects
the best weights. The official dev (or test) set is scored once per seed. Models are not kept.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from larvatus.data.labelled.glue import glue_task, read_glue
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.evaluation.compare.downstream import DownstreamRun, PretrainedModel, fine_tune
from larvatus.evaluation.compare.fine_tuned import FineTuneScore, SeedMean, SetFacts, fine_tuned_rows
from larvatus.evaluation.compare.labelled_sets import LabelledSet, baseline_scores
from larvatus.evaluation.suite.part import NotMeasured, PartResult, PartRun, SuiteFigure, SuitePart
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import get_task
from larvatus.tasks.trainer.config import FineTuneArguments, parse_arguments
from larvatus.tasks.trainer.run import sample_share

SEEDS, FEW = 3, 8_000
"""Number of seeds on sets of fewer than `FEW` examples, where one seed is not reliable."""
MEASURES = {
    "matthews": "Matthews", "spearman": "Spearman", "f1": "F1", "entity-f1": "entity F1", "span-f1": "span F1",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FineTunedPart(SuitePart):
    minds: ClassVar = ("examples", "epochs", "rate", "seeds", "precision")
    again: ClassVar = False
    task: str
    train: str
    scored: str | None
    """Scored file; None if the reader splits it off the training file."""
    glue: str | None = None
    """Name of a GLUE task, for its reader, metric and classes."""
    said: str = ""
    """Phrase that describes the scored examples."""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.train,) if self.scored is None else (self.train, self.scored)

    def measure(self, work: PartRun) -> PartResult:
        data = self.labelled(work)
        settings = work.settings
        seeds = tuple(range(settings.seeds or (SEEDS if len(data.train) < FEW else 1)))
        job = self.job(work, data)
        results = [self._tuned(work, data, job, seed) for seed in seeds]
        for seed, result in zip(seeds, results, strict=True):
            score = "not defined" if result.value is None else f"{result.value:.4f}"
            work.reporter.say(f"  seed {seed}: {result.metric} {score} · {result.seconds:,.0f} s")
        facts = SetFacts(
            name=data.name, task=data.task, train=len(data.train), scored=len(data.scored), source="", is_test=True
        )
        value = fine_tuned_rows(results, [facts], [work.subject.label])[0].values[work.subject.label]
        return PartResult(
            figures=[self._figure(data, results[0].metric, value, job=job, seeds=seeds)],
            details={
                "learnt_from": len(data.train),
                "chosen_by": len(data.dev),
                "scored": len(data.scored),
                "settings": msgspec.to_builtins(job.config),
                "runs": [msgspec.to_builtins(result) for result in results],
            },
        )

    def labelled(self, work: PartRun) -> LabelledSet:
        """Training, validation and scored examples."""
        metric = None
        if self.glue is not None:
            official, read = glue_task(self.glue), read_glue(self.glue, work.data.path(self.train).parent)
            assert read.train is not None
            train, scored, metric = read.train, next(iter(read.dev.values())), official.metrics[0]
        else:
            assert self.scored is not None
            train = read_examples(self.task, [str(work.data.path(self.train))])
            scored = read_examples(self.task, [str(work.data.path(self.scored))], kind=train.kind)
        train, dev, _ = hold_out(limit_examples(train, work.settings.examples))
        return LabelledSet(task=self.task, name=self.title, train=train, dev=dev, test=scored, metric=metric)

    def job(self, work: PartRun, data: LabelledSet) -> FineTuneArguments:
        given: dict[str, Any] = {"epochs": work.settings.epochs, "rate": work.settings.rate, "metric": data.metric}
        return self.arguments(work, {name: value for name, value in given.items() if value is not None})

    def arguments(self, work: PartRun, given: dict[str, Any]) -> FineTuneArguments:
        """Settings of fine-tuning, with the runtime of the suite."""
        job = parse_arguments(self.task, given)
        return dataclasses.replace(job, runtime=dataclasses.replace(work.runtime, compile=False))

    def baselines(self, data: LabelledSet, metric: str) -> dict[str, float]:
        """Scores of simple predictors by name."""
        return {name: score for name, score in baseline_scores(data, metric).items() if math.isfinite(score)}

    def _tuned(self, work: PartRun, data: LabelledSet, job: FineTuneArguments, seed: int) -> FineTuneScore:
        subject = work.subject
        order = DownstreamRun(
            model=PretrainedModel(label=subject.label, seed=0, path=subject.path, out=work.folder),
            contents=subject.contents,
            data=data,
            job=dataclasses.replace(job, seeds=(seed,)),
        )
        outcome = fine_tune(order, work.reporter, resume=True)
        if not isinstance(outcome, FineTuneScore):
            raise NotMeasured(f"{subject.label} on {self.title}: {outcome.why}")
        return outcome

    def _figure(
        self, data: LabelledSet, metric: str, value: SeedMean | None, *, job: FineTuneArguments, seeds: tuple[int, ...]
    ) -> SuiteFigure:
        scored = f"; scored on {self.said}" if self.said else ""
        return SuiteFigure(
            id=self.name,
            name=self.title,
            measure=MEASURES.get(metric, metric),
            by=f"fine-tuned on {len(data.train):,} examples{scored}",
            value=None if value is None else value.mean,
            low=None if value is None else value.low,
            high=None if value is None else value.high,
            deviation=None if value is None else value.deviation,
            seeds=seeds,
            examples=len(data.scored),
            baselines=self.baselines(data, metric),
            conditions=self._conditions(data, job, seeds),
        )

    def _conditions(self, data: LabelledSet, job: FineTuneArguments, seeds: tuple[int, ...]) -> str:
        epochs = job.config.with_defaults(get_task(self.task).defaults, len(data.train)).epochs
        return f"{_count(epochs or 0, 'epoch')}, {_count(len(seeds), 'seed')}"


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "seed"), _count(3, "epoch")
    ('1 seed', '3 epochs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def limit_examples(train: Dataset[Any], most: int | None) -> Dataset[Any]:
    """The examples, or a random sample of `most`."""
    return train if most is None or most >= len(train) else sample_share(train, most / len(train))
