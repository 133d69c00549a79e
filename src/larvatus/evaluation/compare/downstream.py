"""Fine-tuning of pretrained models on the same labelled sets, to compare them on downstream tasks.

    downstream = Downstream.read({"classify": "glue/SST-2"}, ["epochs=3", "classify:rate=1e-4"], labels=["bert", "gpt"])
    models = [PretrainedModel(label="bert", seed=0, path=…, out=…)]
    fine_tune_all(downstream, models, reporter, runtime=Runtime(), resume=False)

    runs/compare/then/bert/SST-2/seed-0/result.json     scores and their inputs; a resume reuses it if they are equal
    runs/compare/then/bert/SST-2/seed-0/checkpoints/    checkpoints of an unfinished run

Only scores are kept. `larvatus finetune` with the same settings and seed reproduces the model.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from larvatus.core import files
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, LarvatusError, Preempted, UsageError, did_you_mean
from larvatus.core.ranges import SEED
from larvatus.core.run_identity import changed_fields
from larvatus.core.signals import handle_signals, resumable
from larvatus.evaluation.compare.fine_tuned import FineTuneRefusal, FineTuneScore, SetFacts
from larvatus.evaluation.compare.labelled_sets import (
    LabelledSet,
    Sets,
    check_set_names,
    labelled_set,
    parse_sets,
    set_name,
)
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.nn.device import explain_out_of_memory
from larvatus.models.nn.layer_mix import LayerMix
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.registry import TASKS, column_names, get_task, option_names, parse_options
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.checkpoint import CheckpointStore
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, parse_arguments, scoring_options
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime

FOLDER, RESULT = "then", "result.json"
SEEDS = (0, 1, 2)
LOWER = "lower --microbatch; finished work is kept, and --resume continues from there"
_ELSEWHERE = {
    "seed": "--then-seeds",
    "seeds": "--then-seeds",
    "device": "--device",
    "precision": "--precision",
    "microbatch": "--microbatch",
}
_NOT_OURS = ("hold_out", "watch", "options")


class TuningSetting(NamedTuple):
    """One setting of fine-tuning, as given to `--then-set`."""

    to: str | None
    """A task, a labelled set or a candidate; None for all."""
    name: str
    value: str

    @classmethod
    def of(cls, word: str) -> TuningSetting:
        """
        >>> TuningSetting.of("classify:rate=1e-4"), TuningSetting.of("trained=head").to
        (TuningSetting(to='classify', name='rate', value='1e-4'), None)
        """
        path, equals, value = word.partition("=")
        to, colon, name = path.rpartition(":")
        if not equals or not name:
            raise UsageError(f"--then-set {word} is not name=value, such as epochs=3 or classify:epochs=3")
        if name in _ELSEWHERE:
            raise UsageError(f"--then-set {word}: use {_ELSEWHERE[name]} for that")
        if name in _NOT_OURS:
            raise UsageError(f"--then-set {word}: {name} is not a setting of fine-tuning")
        return cls(to if colon else None, name, value)


def _truth(value: str) -> str | bool:
    """Column names stay strings, even if they are numbers; `true` and `false` become truth values."""
    return value.lower() == "true" if value.lower() in ("true", "false") else value


def _plain(value: str) -> Any:
    """A number, a truth value or a string."""
    try:
        return json.loads(value.lower() if value in ("True", "False") else value)
    except (ValueError, RecursionError):
        return value


@dataclass(frozen=True, kw_only=True, eq=False)
class Downstream:
    """Labelled sets of a comparison, with settings and seeds of fine-tuning."""

    sets: tuple[LabelledSet, ...] = ()
    settings: tuple[TuningSetting, ...] = ()
    seeds: tuple[int, ...] = SEEDS

    @classmethod
    def read(
        cls,
        then: Sets,
        settings: Sequence[str] = (),
        *,
        labels: Sequence[str] = (),
        seeds: tuple[int, ...] = SEEDS,
        most: int | None = None,
    ) -> Downstream:
        """Read the sets, and raise errors before any training. `labels` are the labels of the candidates."""
        sources = parse_sets(then)
        chosen = tuple(TuningSetting.of(word) for word in settings)
        if not sources and (chosen or most is not None):
            raise UsageError("--then-set and --then-examples go with --then TASK=PATH: nothing is fine-tuned")
        names = [*TASKS, *map(set_name, sources), *labels]
        for setting in chosen:
            if setting.to is not None and setting.to not in names:
                wrong = f"--then-set {setting.to}:{setting.name}: {setting.to!r} is no task, set or candidate here"
                raise UsageError(wrong + did_you_mean(setting.to, names))
        for seed in seeds:
            SEED.check(seed, "--then-seeds")
        if not seeds or len(set(seeds)) < len(seeds):
            raise UsageError(f"--then-seeds needs different numbers, such as 0,1,2, not {','.join(map(str, seeds))}")
        columns = column_names()
        sets = []
        for source in sources:
            said = _chosen(chosen, source.task, set_name(source))
            of_files = {name: _truth(value) for name, value in said.items() if name in columns}
            sets.append(labelled_set(source, columns=of_files, most=most))
        check_set_names(sets)
        downstream = cls(sets=tuple(sets), settings=chosen, seeds=seeds)
        for label in labels:
            for data in sets:
                downstream.job(data, label)
        return downstream

    def job(
        self, data: LabelledSet, label: str, *, tuning: Sequence[str] = (), runtime: Runtime | None = None
    ) -> FineTuneArguments:
        """The fine-tuning job of a candidate on a set; its own settings `tuning` override the others."""
        said = _chosen(self.settings, data.task, data.name, label)
        said |= {setting.name: setting.value for setting in map(TuningSetting.of, tuning)}
        said = {name: value for name, value in said.items() if name not in column_names()}
        options = {name: value for name, value in said.items() if name in option_names()}
        others = {name: _plain(value) for name, value in said.items() if name not in options}
        try:
            chosen = parse_options(data.task, options)
            job = parse_arguments(data.task, {"metric": data.metric, **others, "options": chosen})
        except UsageError as fault:
            raise UsageError(f"--then-set: {fault}") from fault
        here = dataclasses.replace(runtime or Runtime(), compile=False)
        return dataclasses.replace(job, runtime=here)

    @property
    def facts(self) -> tuple[SetFacts, ...]:
        return tuple(
            SetFacts(
                name=data.name,
                task=data.task,
                train=len(data.train),
                scored=len(data.scored),
                source=data.scored.source,
                is_test=data.test is not None,
            )
            for data in self.sets
        )


def _chosen(settings: Sequence[TuningSetting], *addresses: str | None) -> dict[str, str]:
    """Settings for all, then for each address; later ones override earlier ones."""
    return {setting.name: setting.value for to in (None, *addresses) for setting in settings if setting.to == to}


@dataclass(frozen=True, kw_only=True)
class PretrainedModel:
    """A pretrained model of a comparison, and the folder of its scores."""

    label: str
    seed: int
    path: Path
    out: Path
    tuning: tuple[str, ...] = ()
    """Its own settings of fine-tuning."""


def fine_tune_all(
    downstream: Downstream, models: Sequence[PretrainedModel], reporter: Reporter, *, runtime: Runtime, resume: bool
) -> list[FineTuneScore | FineTuneRefusal]:
    """Fine-tune every model on every labelled set from every seed."""
    outcomes: list[FineTuneScore | FineTuneRefusal] = []
    contents: dict[Path, dict[str, str]] = {}
    for model in models if downstream.sets else ():
        if model.path not in contents:
            contents[model.path] = model_checksums(model.path)
        for data in downstream.sets:
            order = _order(downstream, model, data, runtime=runtime, contents=contents[model.path])
            made = [order] if isinstance(order, FineTuneRefusal) else _seeds(downstream, order, reporter, resume=resume)
            outcomes += [outcome for outcome in made if outcome not in outcomes]
            reporter.say(_line(model, data, made))
    return outcomes


def _order(
    downstream: Downstream, model: PretrainedModel, data: LabelledSet, *, runtime: Runtime, contents: Mapping[str, str]
) -> DownstreamRun | FineTuneRefusal:
    try:
        job = downstream.job(data, model.label, tuning=model.tuning, runtime=runtime)
    except UsageError as fault:  # settings of a variant need not suit every task; the user's were checked before
        return FineTuneRefusal(label=model.label, set=data.name, why=str(fault).removeprefix("--then-set: "))
    return DownstreamRun(model=model, contents=contents, data=data, job=job)


def _seeds(
    downstream: Downstream, order: DownstreamRun, reporter: Reporter, *, resume: bool
) -> list[FineTuneScore | FineTuneRefusal]:
    outcomes: list[FineTuneScore | FineTuneRefusal] = []
    for seed in downstream.seeds:
        job = dataclasses.replace(order.job, seeds=(seed,))
        outcomes.append(fine_tune(dataclasses.replace(order, job=job), reporter, resume=resume))
        if isinstance(outcomes[-1], FineTuneRefusal):
            break
    return outcomes


def _line(model: PretrainedModel, data: LabelledSet, outcomes: Sequence[FineTuneScore | FineTuneRefusal]) -> str:
    """One line about the scores of one model on one set."""
    scores = [outcome for outcome in outcomes if isinstance(outcome, FineTuneScore)]
    said = [f"{score.metric} {'not defined' if score.value is None else f'{score.value:.4g}'}" for score in scores]
    said += [f"refused: {outcome.why}" for outcome in outcomes if isinstance(outcome, FineTuneRefusal)]
    seconds = sum(score.seconds for score in scores)
    return f"{model.label}, seed {model.seed} · {data.name}: {', '.join(said)} · {seconds:,.0f} s"


@dataclass(frozen=True, kw_only=True, eq=False)
class DownstreamRun:
    """One model on one set with one seed, the first of the job's."""

    model: PretrainedModel
    contents: Mapping[str, str]
    """Checksums of the model's files."""
    data: LabelledSet
    job: FineTuneArguments

    @property
    def name(self) -> str:
        return f"{self.model.label}, seed {self.model.seed}: {self.data.name}"

    @property
    def out(self) -> Path:
        return self.model.out / self.data.folder / f"seed-{self.job.seeds[0]}"

    @property
    def record(self) -> Path:
        return self.out / RESULT

    @property
    def identity(self) -> dict[str, Any]:
        identity = {
            "model": self.contents,
            "set": self.data.identity,
            "settings": msgspec.to_builtins(self.job.config),
            "options": msgspec.to_builtins(self.job.options),
            "seed": self.job.seeds[0],
            "metric": self.job.metric,
            "precision": self.job.runtime.precision,
        }
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(identity))
        return plain


def fine_tune(order: DownstreamRun, reporter: Reporter, *, resume: bool) -> FineTuneScore | FineTuneRefusal:
    """Return stored scores, or fine-tune and score. Errors of the model or its head are returned as a refusal."""
    if resume and order.record.exists():
        return _finished(order)
    began = time.monotonic()
    order.out.mkdir(parents=True, exist_ok=True)
    files.sweep(order.out)
    try:
        with (
            handle_signals() as stop,
            resumable("the same command with --resume continues"),
            explain_out_of_memory(LOWER),
        ):
            store = CheckpointStore.open(
                order.out, order.identity, resume=resume, say=reporter.warn, runtime=order.job.runtime
            )
            job = dataclasses.replace(order.job, store=store, callbacks=Callbacks(stop=stop))
            tuned = finetune(order.data.task, load_bundle(order.model.path), order.data.train, order.data.dev, job)
            result = _scored(order, tuned, began)
            with stop.noting():
                write_checksummed(order.record, {"of": order.identity, "result": msgspec.to_builtins(result)})
                store.clear()
    except Preempted as fault:
        raise Preempted(f"{order.name}: {fault}") from fault
    except ArtefactError as fault:
        raise ArtefactError(f"{order.name}: {fault}") from fault
    except LarvatusError as fault:
        return FineTuneRefusal(label=order.model.label, set=order.data.name, why=str(fault))
    return result


def _finished(order: DownstreamRun) -> FineTuneScore:
    """The stored scores, if their inputs are the same."""
    path = order.record
    kept = read_checksummed(path, way="delete it to fine-tune again")
    try:
        of, result = dict(kept["of"]), msgspec.convert(kept["result"], FineTuneScore)
    except (KeyError, TypeError, ValueError) as fault:
        raise ArtefactError(f"{path} is no result of a fine-tuning: {fault}; delete it to fine-tune again") from fault
    if changed := changed_fields(of, order.identity):
        raise ArtefactError(
            f"{path} is of something else: {'; '.join(map(str, changed[:4]))}; delete it to fine-tune again, "
            "or choose another --out"
        )
    return result


def _known(number: float) -> float | None:
    """The number, or None for NaN and infinity, which JSON cannot express."""
    return number if math.isfinite(number) else None


def _scored(order: DownstreamRun, tuned: FineTuneResult, began: float) -> FineTuneScore:
    data, config, options = order.data, tuned.config, order.job.options
    same = {name: getattr(options, name) for name in ("merge", "repair") if hasattr(options, name)}
    exact = dataclasses.replace(order.job.runtime, precision="fp32")
    how = EvaluationOptions(scoring=scoring_options(exact), length=config.length, truncate=config.truncate, **same)
    interval = get_task(data.task).evaluate(tuned.bundle, data.scored, how).metrics[tuned.metric]
    mix = head_of(tuned.bundle.network).mix
    return FineTuneScore(
        label=order.model.label,
        seed=order.model.seed,
        set=data.name,
        task=data.task,
        tuning_seed=order.job.seeds[0],
        metric=tuned.metric,
        value=_known(interval.value),
        low=_known(interval.low),
        high=_known(interval.high),
        steps=tuned.runs[0].steps,
        trained=tuned.trained,
        training_seconds=tuned.runs[0].seconds,
        seconds=round(time.monotonic() - began, 3),
        layers=mix.learnt.shares if isinstance(mix, LayerMix) else (),
    )
