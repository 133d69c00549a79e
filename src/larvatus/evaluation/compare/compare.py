"""Several recipes on the same text under the same budget: `larvatus compare bert,roberta,spanbert`.

    contestants = contestants_of("bert,roberta", size="tiny", settings=["batch=64", "bert:optimizer.rate=5e-4"])
    plan = Comparison(contestants=contestants, corpus=["texts/"], out=Path("runs/compare"), budget=Budget(minutes=10))
    results = compare(plan, Watcher(console))

    runs/compare/compare.json        what is compared: a resume with anything else is refused
    runs/compare/texts/…             vocabulary and shards, one for all recipes with the same tokenizer settings
    runs/compare/bert/               a run like any other, and a model directory (bert-seed-1/ … with several seeds)
    runs/compare/then/bert/          scores of fine-tuning on each labelled set from each seed (`downstream.py`)
    runs/compare/results.json        what the table shows
    runs/compare/compare.png         the curves

Each run is what `larvatus pretrain` alone would have made of recipe, text, steps and seed. Text is prepared for all
before anything is trained, so that what cannot work is refused at once. A failing run stops the comparison with its
name; with `resume`, finished runs are taken as they are, once they are found to be the same, and others go on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, UsageError
from larvatus.core.files import locked, sweep, write_json
from larvatus.core.ranges import SEED
from larvatus.core.regular_files import only_regular
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.packing import check as check_packing
from larvatus.data.text.languages import LanguageSource
from larvatus.evaluation.compare.contestants import Contestant
from larvatus.evaluation.compare.downstream import FOLDER as THEN
from larvatus.evaluation.compare.downstream import Downstream, Pretrained, tune_all
from larvatus.evaluation.compare.notes import budget_in_words, line_of, notes_on
from larvatus.evaluation.compare.passages import Yardstick
from larvatus.evaluation.compare.results import Results, RunResult
from larvatus.evaluation.compare.runs import Trial, run_trial
from larvatus.evaluation.compare.tuned import Refusal, TunedResult
from larvatus.models.recipes import recipe_table
from larvatus.training.engine.checkpoint import changed_fields
from larvatus.training.engine.launch import launch
from larvatus.training.engine.settings import Budget, Runtime
from larvatus.training.engine.watch import Watcher
from larvatus.training.pretraining.budget import steps_wanted
from larvatus.training.pretraining.prepare import Prepared, TextOptions, held_out_documents, longest, prepare
from larvatus.training.pretraining.text_note import kept_input

PLAN, RESULTS, TEXTS = "compare.json", "results.json", "texts"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What to compare, on what, for how long."""

    contestants: tuple[Contestant, ...]
    corpus: Sequence[LanguageSource]
    out: Path
    budget: Budget
    seeds: tuple[int, ...] = (0,)
    valid: str | None = None
    options: TextOptions = field(default_factory=TextOptions)
    runtime: Runtime = field(default_factory=Runtime)
    resume: bool = False
    downstream: Downstream = field(default_factory=Downstream)
    """Labelled sets that every model is fine-tuned on."""

    def __post_init__(self) -> None:
        if not self.contestants:
            raise UsageError("nothing to compare; name recipes, such as bert,roberta")
        if self.budget == Budget():
            raise UsageError("a comparison needs the same budget for all: --tokens, --epochs, --minutes or --steps")
        folders = [contestant.folder for contestant in self.contestants]
        for contestant in self.contestants:
            if folders.count(contestant.folder) > 1:
                raise UsageError(
                    f"{contestant.label} is compared with itself; name each once, and give a variant a file "
                    f'of its own that begins with base = "{contestant.recipe.name}"'
                )
            if contestant.folder in (TEXTS, THEN):
                raise UsageError(f"a recipe called {contestant.folder} would stand where others are; rename it")
        for seed in self.seeds:
            SEED.check(seed, "--seed")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"--seeds wants different numbers, such as 1,2,3, not {','.join(map(str, self.seeds))}")


def compare(plan: Comparison, watcher: Watcher) -> Results:
    """Train all, measure all, fine-tune all; the results are also written to `results.json`."""
    if launch().count > 1:
        raise UsageError("a comparison runs in one process; start it without torchrun")
    clock = _Clock()
    with locked(plan.out):
        only_regular(plan.out)
        sweep(plan.out)
        _begin(plan)
        plan = replace(plan, corpus=[str(kept_input(plan.out)) if path == "-" else path for path in plan.corpus])
        prepared = {contestant.label: _texts(plan, contestant, watcher) for contestant in plan.contestants}
        for contestant in plan.contestants:
            _check(plan, contestant, Corpus.open(prepared[contestant.label].train))
        yardstick = _yardstick(plan)
        clock.end("text")
        runs = _pretrained(plan, prepared, yardstick, watcher)
        clock.end("pretraining")
        outcomes = tune_all(plan.downstream, _models(plan, runs), watcher, runtime=plan.runtime, resume=plan.resume)
        clock.end("fine-tuning")
        results = Results(
            runs=tuple(runs),
            budget=budget_in_words(plan.budget),
            sets=plan.downstream.facts,
            tuned=tuple(outcome for outcome in outcomes if isinstance(outcome, TunedResult)),
            refusals=tuple(outcome for outcome in outcomes if isinstance(outcome, Refusal)),
            seconds=clock.seconds,
        )
        results = msgspec.structs.replace(results, notes=tuple(notes_on(results, yardstick)))
        write_json(plan.out / RESULTS, as_dict(results))
    return results


class _Clock:
    """How long the parts of a comparison take."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}

    def end(self, part: str) -> None:
        now = time.monotonic()
        self.seconds[part], self.began = round(now - self.began, 3), now


def _pretrained(
    plan: Comparison, prepared: dict[str, Prepared], yardstick: Yardstick | None, watcher: Watcher
) -> list[RunResult]:
    """Every contestant from every seed; those that differ only in how they are fine-tuned are trained once."""
    runs: list[RunResult] = []
    trained = [_first(plan, contestant) for contestant in plan.contestants]
    total = len(plan.seeds) * len({contestant.label for contestant in trained})
    for seed in plan.seeds:
        by_label: dict[str, RunResult] = {}
        for contestant, first in zip(plan.contestants, trained, strict=True):
            if first.label not in by_label:
                trial = Trial(
                    label=first.label,
                    recipe=first.recipe,
                    out=plan.out / _folder_of(plan, first, seed),
                    seed=seed,
                    budget=shared(plan.budget, first.share),
                    runtime=plan.runtime,
                    prepared=prepared[first.label],
                    resume=plan.resume,
                )
                by_label[first.label] = run_trial(trial, yardstick, watcher)
                number = len({run.path for run in [*runs, *by_label.values()]})
                watcher.say(f"{number} of {total}  {line_of(by_label[first.label])}")
            runs.append(msgspec.structs.replace(by_label[first.label], label=contestant.label))
    return runs


def _first(plan: Comparison, contestant: Contestant) -> Contestant:
    """The first contestant with the same pretraining."""
    return next(other for other in plan.contestants if contestant.pretrained_as(other))


def _folder_of(plan: Comparison, contestant: Contestant, seed: int) -> str:
    return contestant.folder + (f"-seed-{seed}" if len(plan.seeds) > 1 else "")


def shared(budget: Budget, share: float) -> Budget:
    """A share of a budget; at least a step or a token.

    >>> shared(Budget(steps=1_000), 0.25).steps
    250
    """
    if share == 1:
        return budget
    amounts: dict[str, Any] = msgspec.to_builtins(budget)
    parts = {name: share * amount for name, amount in amounts.items() if amount is not None}
    whole: dict[str, Any] = {name: max(1, round(part)) for name, part in parts.items() if name in ("steps", "tokens")}
    return Budget(**{**parts, **whole})


def _models(plan: Comparison, runs: Sequence[RunResult]) -> list[Pretrained]:
    contestants = {contestant.label: contestant for contestant in plan.contestants}
    return [
        Pretrained(
            label=run.label,
            seed=run.seed,
            path=Path(run.path),
            out=plan.out / THEN / _folder_of(plan, contestants[run.label], run.seed),
            tuning=contestants[run.label].tuning,
        )
        for run in runs
    ]


def as_dict(results: Results) -> dict[str, object]:
    """For JSON: the runs, and the measures of the table."""
    plain: dict[str, object] = msgspec.to_builtins(results)
    return {**plain, "rows": msgspec.to_builtins(results.rows())}


def _begin(plan: Comparison) -> None:
    """Write the plan; a directory with something else in it is not touched."""
    path = plan.out / PLAN
    identity: dict[str, object] = {
        "contestants": {contestant.label: recipe_table(contestant.recipe) for contestant in plan.contestants},
        "corpus": [str(path) for path in plan.corpus],
        "valid": plan.valid,
        "options": msgspec.to_builtins(plan.options),
        "budget": msgspec.to_builtins(plan.budget),
        "seeds": list(plan.seeds),
    }
    if any(contestant.share != 1 for contestant in plan.contestants):
        identity["shares"] = {contestant.label: contestant.share for contestant in plan.contestants}
    if not path.exists():
        if others := sorted(p.name for p in plan.out.iterdir() if not p.name.startswith(".")):
            raise ArtefactError(f"{plan.out} holds something else ({others[0]}); choose another --out")
        write_checksummed(path, identity)
    elif not plan.resume:
        raise ArtefactError(f"{plan.out} already holds a comparison; go on with --resume, or choose another --out")
    elif changed := changed_fields(read_checksummed(path, way="choose another --out"), identity):
        raise ArtefactError(
            f"{plan.out} holds another comparison: {'; '.join(map(str, changed[:8]))}; resume with the same, "
            "or choose another --out"
        )


def _folder(plan: Comparison, contestant: Contestant) -> Path:
    """Where its vocabulary and shards are: the same place for all that learn the same vocabulary."""
    recipe = contestant.recipe
    settings = msgspec.json.encode((recipe.tokenizer, recipe.mixture), order="sorted")
    kind = msgspec.to_builtins(recipe.tokenizer)["type"]
    return plan.out / TEXTS / f"{kind}-{hashlib.sha256(settings).hexdigest()[:8]}"


def _texts(plan: Comparison, contestant: Contestant, watcher: Watcher) -> Prepared:
    folder = _folder(plan, contestant)
    try:
        return prepare(
            contestant.recipe,
            plan.corpus,
            out=folder,
            valid=plan.valid,
            options=plan.options,
            watcher=watcher,
            length=longest(contestant.recipe for contestant in plan.contestants),  # the same text is held out for all
        )
    except LarvatusError as fault:
        raise type(fault)(f"{contestant.label}: {fault}") from fault


def _check(plan: Comparison, contestant: Contestant, corpus: Corpus) -> None:
    """What would fail after hours, now."""
    recipe = contestant.recipe
    step = recipe.batch * max(phase.length for phase in recipe.phases)
    try:
        steps_wanted(recipe, shared(plan.budget, contestant.share), corpus.tokens)
        check_packing(recipe.packing, corpus.manifest.counts)
    except LarvatusError as fault:
        said = str(fault)
        raise type(fault)(said if contestant.label in said else f"{contestant.label}: {said}") from fault
    if corpus.tokens < step:
        raise DataError(
            f"{contestant.label}: the text has {corpus.tokens:,} tokens, and one step takes {step:,}; give more text, "
            f"or a smaller batch (--set {contestant.label}:batch=…)"
        )


def _yardstick(plan: Comparison) -> Yardstick | None:
    """The same held-out text for all, read as text; which vocabulary's folder it is found by does not matter."""
    folder = _folder(plan, plan.contestants[0])
    documents = held_out_documents(plan.corpus, out=folder, valid=plan.valid, options=plan.options)
    if documents is None:
        return None
    return Yardstick.of(documents(), language=plan.options.language, sentences=plan.options.sentences)
