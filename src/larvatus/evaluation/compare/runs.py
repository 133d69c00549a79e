"""Candidates of a comparison, recipes or the variants of an ablation, and their runs.

    read_candidates("bert,roberta", size="tiny", settings=["batch=64", "bert:optimizer.rate=5e-4"])
    read_ablation("next-sentence").candidates(size="tiny")

Published ablations have one file each in `recipes/ablations`: `larvatus ablate next-sentence --corpus my_texts/ …`. An
ablation is a recipe with a list of variants. Each variant has a label and changes settings of the recipe, the recipe
itself, the share of the budget, or settings of fine-tuning. Everything else is equal.

A run is trained or resumed, measured, and stored with its result. `result.json` in its directory records the result and
its inputs. A resume reuses it only if recipe, seed, text, budget and model are the same.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, LarvatusError, RecipeError, UsageError, did_you_mean
from larvatus.core.files import sha256
from larvatus.core.ranges import PositiveShare, check_ranges
from larvatus.core.run_identity import changed_fields
from larvatus.core.settings import Settings
from larvatus.data.corpus import Corpus
from larvatus.evaluation.compare.results import ComparedObjective, LossPoint, RunResult
from larvatus.evaluation.compare.word_nll import MaskedPassages, measure_word_nll
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.network import Network
from larvatus.models.nn.initialise import empty_weights
from larvatus.models.recipes import Recipe, read_recipe, recipe_table
from larvatus.training.engine.reporter import Reporter
from larvatus.training.pretraining.checkpoint import newest_checkpoint
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import PretrainingJob
from larvatus.training.pretraining.prepare import PreparedCorpus
from larvatus.training.pretraining.run import train

RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class CandidateRun:
    """One candidate with one seed."""

    label: str
    job: PretrainingJob
    prepared: PreparedCorpus


def run_candidate(trial: CandidateRun, passages: MaskedPassages | None, reporter: Reporter) -> RunResult:
    """Return the result of a finished run, or train and measure."""
    job, corpus = trial.job, Corpus.open(trial.prepared.train)
    identity: dict[str, Any] = {
        "recipe": recipe_table(job.recipe),
        "seed": job.seed,
        "budget": msgspec.to_builtins(job.budget),
        "corpus": corpus.fingerprint,
        "yardstick": passages.fingerprint if passages else None,
    }
    if job.resume and (job.out / RESULT).exists():
        reporter.say(f"{job.out} is finished: reused")
        return _finished(trial, identity)
    try:
        held_out = train(job, lambda: trial.prepared, reporter)
    except LarvatusError as fault:
        raise type(fault)(f"{trial.label}, seed {job.seed}: {fault}") from fault
    result = _measured(trial, corpus, held_out, passages)
    identity["manifest"] = sha256(job.out / MANIFEST)
    write_checksummed(job.out / RESULT, {"of": identity, "result": msgspec.to_builtins(result)})
    return result


def _finished(trial: CandidateRun, identity: dict[str, Any]) -> RunResult:
    """The stored result, if its inputs are the same. The model is checked against its manifest."""
    path = trial.job.out / RESULT
    kept = read_checksummed(path, way="delete it to measure again")
    try:
        of, result = dict(kept["of"]), msgspec.convert(kept["result"], RunResult)
    except (KeyError, TypeError, ValueError) as fault:
        raise ArtefactError(f"{path} is no result of a comparison: {fault}; delete it to measure again") from fault
    manifest = of.pop("manifest", None)
    if changed := changed_fields(of, identity):
        raise ArtefactError(
            f"{trial.job.out} is of something else: {'; '.join(map(str, changed[:8]))}; choose another --out"
        )
    load_bundle(trial.job.out)  # verifies checksums
    if manifest != sha256(trial.job.out / MANIFEST):
        other = f"{trial.job.out / MANIFEST} is of another model than was measured"
        raise ArtefactError(f"{other}; delete {path} to measure it again")
    return result


def _measured(
    trial: CandidateRun, corpus: Corpus, held_out: dict[int, HeldOutScores], passages: MaskedPassages | None
) -> RunResult:
    job = trial.job
    bundle, recipe = load_bundle(job.out), job.recipe
    length = recipe.phases[-1].length
    last = held_out.get(length)
    longest = max(phase.length for phase in recipe.phases)
    room = bundle.tokenizer.template.single.text_length(longest)  # no longer than its training sequences
    with empty_weights():
        shell = Network(recipe.model, recipe.objectives, corpus.tokenizer.size)
    checkpoint = newest_checkpoint(job.out, warn=lambda line: None)
    if checkpoint is None:
        raise ArtefactError(f"{job.out} has no checkpoint that shows its progress; choose another --out")
    progress, score = checkpoint.state.progress, None
    steps, tokens, seconds = progress.step, progress.tokens, progress.seconds
    if passages is not None:
        score = measure_word_nll(bundle.network.to(job.runtime.device), bundle.tokenizer, passages, room=room)
    curve = {point.step: LossPoint(**msgspec.structs.asdict(point)) for point in progress.curve}
    if last and last.guess_loss and last.words in last.scores:
        loss = last.scores[last.words].loss
        curve[steps] = LossPoint(step=steps, tokens=tokens, seconds=seconds, loss=loss, guess=last.guess_loss)
    scores = last.scores if last else {}
    return RunResult(
        label=trial.label,
        seed=job.seed,
        path=str(job.out),
        parameters=sum(parameter.numel() for parameter in shell.parameters()),
        vocabulary=corpus.tokenizer.size,
        tokenizer=corpus.tokenizer.fingerprint,
        cased=not corpus.tokenizer.lowercase,
        steps=steps,
        tokens=tokens,
        seconds=seconds,
        epochs=tokens / corpus.tokens,
        words=tokens / corpus.tokens * corpus.manifest.counts.words,
        length=length,
        objectives={n: ComparedObjective(loss=s.loss, accuracy=s.accuracy, count=s.count) for n, s in scores.items()},
        predicts=last.words if last else "masked-lm",
        guess_loss=last.guess_loss if last else None,
        guess_accuracy=last.guess_accuracy if last else None,
        word_nll=score,
        languages=_languages(last, corpus),
        curve=tuple(curve[step] for step in sorted(curve)),
    )


def _languages(last: HeldOutScores | None, corpus: Corpus) -> dict[str, ComparedObjective]:
    """Masked-lm scores by language."""
    alone = {corpus.languages[0]: last} if last and len(corpus.languages) == 1 else {}
    scores = {name: part.scores.get("masked-lm") for name, part in ((last and last.languages) or alone).items()}
    return {n: ComparedObjective(loss=s.loss, accuracy=s.accuracy, count=s.count) for n, s in scores.items() if s}


# Candidates.


@dataclass(frozen=True)
class Candidate:
    """A column of the table: a recipe, its share of the budget, and its settings of fine-tuning."""

    label: str
    recipe: Recipe
    share: float = 1.0
    """Share of the budget."""
    tuning: tuple[str, ...] = ()
    """Its own settings of fine-tuning, as given to `--then-set`."""

    def pretrained_as(self, other: Candidate) -> bool:
        """Whether both have the same pretraining and differ only in fine-tuning."""
        return self.recipe == other.recipe and self.share == other.share

    @property
    def folder(self) -> str:
        """The label as a directory name."""
        return re.sub(r"[^\w.+-]+", "-", self.label).strip("-.") or "run"


def read_candidates(names: str, *, size: str | None = None, settings: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Read comma-separated recipes by name or file. A setting applies to all, or with the prefix `name:` to one."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    labels = [Path(name).stem if name.endswith(".toml") else name for name in wanted]
    addressed = [_addressed(setting, labels) for setting in settings]
    candidates = []
    for name, label in zip(wanted, labels, strict=True):
        chosen = [setting for to, setting in addressed if to in (None, label)]
        candidates.append(Candidate(label, read_candidate_recipe(label, name, size=size, settings=chosen)))
    return tuple(candidates)


def read_candidate_recipe(label: str, name: str, *, size: str | None, settings: Sequence[str]) -> Recipe:
    """Like `read_recipe`, but errors name the candidate."""
    try:
        return read_recipe(name, size=size, settings=settings)
    except RecipeError as fault:
        said = str(fault)
        raise RecipeError(said if name in said or label in said else f"{label}: {said}") from None


def _addressed(setting: str, labels: Sequence[str]) -> tuple[str | None, str]:
    path = setting.partition("=")[0]
    if ":" not in path:
        return None, setting
    label, _, rest = setting.partition(":")
    if label not in labels:
        raise UsageError(f"--set {setting}: {label!r} is not compared here{did_you_mean(label, labels)}")
    return label, rest


_HOME = "larvatus.models.recipes"


class Variant(Settings):
    label: str
    recipe: str | None = None
    """Another recipe than the ablation's: its name, or a file in the folder of ablations."""
    settings: tuple[str, ...] = ()
    """Settings of the recipe, as given to `--set`."""
    tuning: tuple[str, ...] = ()
    """Settings of fine-tuning, as given to `--then-set`. Variants that differ only in these are pretrained once."""
    share: PositiveShare = 1.0
    """Share of the budget."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.label}: ")


class Ablation(Settings):
    name: str
    about: str
    """The varied property."""
    paper: str
    """The publication, with the place in it."""
    finding: str
    """The published finding."""
    recipe: str = "bert"
    """Default recipe."""
    wants: str = ""
    """A task that shows the difference, if pretraining does not."""
    variants: tuple[Variant, ...]

    def candidates(
        self, *, recipe: str | None = None, size: str | None = None, settings: Sequence[str] = ()
    ) -> tuple[Candidate, ...]:
        """The variants as candidates; `settings` apply to all, after a variant's own."""
        candidates: list[Candidate] = []
        for variant in self.variants:
            chosen = [*variant.settings, *settings]
            base = recipe or self.recipe if variant.recipe is None else _beside(variant.recipe)
            made = Candidate(
                variant.label,
                read_candidate_recipe(variant.label, base, size=size, settings=chosen),
                share=variant.share,
                tuning=variant.tuning,
            )
            for other in candidates:
                if made.pretrained_as(other) and made.tuning == other.tuning:
                    raise UsageError(
                        f"--set makes the variants {other.label} and {variant.label} the same; leave it out"
                    )
            candidates.append(made)
        return tuple(candidates)

    def check_sets(self, sets: Collection[object]) -> None:
        """Refuse an ablation of fine-tuning without labelled sets: its columns would all be equal."""
        if self.wants and not sets:
            raise UsageError(
                f"{self.name} varies what is fine-tuned: give labelled sets, such as --then {self.wants}=PATH"
            )


def _beside(recipe: str) -> str:
    """The name of a recipe, or the path of a packaged recipe file."""
    return str(resources.files(_HOME).joinpath("ablations", recipe)) if recipe.endswith(".toml") else recipe


def ablation_names() -> list[str]:
    folder = resources.files(_HOME).joinpath("ablations")
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def read_ablation(name: str) -> Ablation:
    if name not in ablation_names():
        raise UsageError(f"there is no ablation {name!r}{did_you_mean(name, ablation_names())}")
    text = resources.files(_HOME).joinpath("ablations", f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert({"name": name, **tomllib.loads(text)}, Ablation)
