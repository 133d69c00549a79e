"""A pretraining job: what to train, on what, from which weights, where to, and for how long.

    job = PretrainingJob(recipe=read_recipe("bert", size="tiny"), out=Path("runs/mine"), budget=Budget(steps=1_000))
    with ranks(job.runtime.device, job.runtime.rank_timeout) as group:
        job = agree_on_job(job, group)
    started = ParentModel.load("bert-base", out=Path("runs/mine")).start(recipe, seed=0)
    started.taken, started.new                        # ("masked-lm",), ("next-sentence",)

Before any rank reads text, all ranks check that they have the same job, and whether they resume. `torchrun
--max-restarts 3` starts all ranks again, with the same command, when one has failed: they resume from the last
checkpoint, as many as there are now.

A run that continues from a parent takes its encoder, and each head that both have, bit for bit. With a longer
vocabulary, each new token starts as the mean of its old tokens, in every tensor that has a row for each token: input
embeddings, and the bias of the masked-LM head (`data/text/extend.py` names the literature). With another vocabulary,
these tensors are made from the old ones as `token_transfer.py` says.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import SEED, STEPS
from larvatus.models.bundle.checksums import model_checksums
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.model_names import model_path
from larvatus.models.bundle.weights import check_fit
from larvatus.models.network import Network
from larvatus.models.nn.initialise import empty_weights
from larvatus.models.recipes import Recipe, recipe_table
from larvatus.training.engine.ranks import Ranks, check_ranks_agree, versions
from larvatus.training.engine.settings import Budget, Parallel, Runtime
from larvatus.training.pretraining.token_transfer import RowTransfer


@dataclass(frozen=True, eq=False)
class InitialModel:
    """A model ready to be trained on, and where its heads come from."""

    model: Network
    taken: tuple[str, ...]
    """Heads that the directory has too."""
    new: tuple[str, ...]
    """Heads that it lacks, or has in another shape: initialised as published."""
    left: tuple[str, ...]
    """Heads that the recipe has no use for."""

    def __str__(self) -> str:
        words = [f"encoder and {_listed(self.taken)} taken" if self.taken else "encoder taken"]
        words += [f"{_listed(self.new)} new"] if self.new else []
        words += [f"{_listed(self.left)} left behind"] if self.left else []
        return "; ".join(words)


@dataclass(frozen=True, eq=False)
class ParentModel:
    """The directory that training continues from."""

    bundle: Bundle
    fingerprint: str
    """SHA-256 over its settings, weights (its generator's too) and all files of its tokenizer."""

    @classmethod
    def load(cls, path: Path | str, *, out: Path) -> ParentModel:
        path = Path(model_path(path))
        if os.path.realpath(path) == os.path.realpath(out):
            raise UsageError(f"--from and --out are both {path}; choose another --out (or --resume, to continue a run)")
        bundle = load_bundle(path)
        parts = sorted(model_checksums(bundle.path).items())
        return cls(bundle, hashlib.sha256(repr(parts).encode()).hexdigest())

    @property
    def path(self) -> Path:
        return self.bundle.path

    @torch.no_grad()
    def start(
        self,
        recipe: Recipe,
        *,
        seed: int,
        first: int = 0,
        parts: Sequence[Sequence[int]] = (),
        rows: RowTransfer | None = None,
    ) -> InitialModel:
        """The model; with `parts`, rows from `first` on belong to new pieces made of those old ones.

        `rows`: those of another vocabulary.
        """
        theirs: dict[str, Tensor] = self.bundle.network.state_dict()
        size = max(len(self.bundle.network.encoder.word_vectors), first + len(parts)) if rows is None else rows.size
        model = Network.build(recipe.model, recipe.objectives, vocabulary=size, seed=seed)
        rowed = rows_for_tokens(recipe)

        def changed(name: str, tensor: Tensor) -> Tensor:
            if name not in rowed:
                return tensor
            if rows is None:
                return extend_rows(tensor, size, first, parts)
            return rows.apply(tensor, name=name.rpartition("encoder.")[2], seed=seed)

        given = {name: changed(name, tensor) for name, tensor in theirs.items()}
        wanted = model.state_dict()
        heads: dict[str, list[str]] = {}
        for name in wanted:
            heads.setdefault(_part(name), []).append(name)
        fitting = {
            part: all(name in given and given[name].shape == wanted[name].shape for name in names)
            for part, names in heads.items()
        }
        if not fitting["encoder"]:
            check_fit(self.path, stored=_encoder_shapes(given), wanted=_encoder_shapes(wanted))
        model.load_state_dict({name: given[name] if fitting[_part(name)] else t for name, t in wanted.items()})
        there = dict.fromkeys(map(_part, theirs))
        return InitialModel(
            model=model,
            taken=tuple(part for part in heads if fitting[part] and part != "encoder"),
            new=tuple(part for part in heads if not fitting[part]),
            left=tuple(part for part in there if part not in heads),
        )


def extend_rows(tensor: Tensor, size: int, first: int, parts: Sequence[Sequence[int]]) -> Tensor:
    """[V, …] → [size, …]: row first + i is the mean of the rows parts[i]; the others stay, spare ones are 0."""
    longer = tensor.new_zeros((size, *tensor.shape[1:]))
    longer[: len(tensor)] = tensor
    for number, old in enumerate(parts):
        longer[first + number] = tensor[list(old)].mean(0)
    return longer


def rows_for_tokens(recipe: Recipe) -> set[str]:
    """Parameters with a row for each token: those that differ between two sizes of the vocabulary."""
    with empty_weights():
        small, large = (Network(recipe.model, recipe.objectives, size).state_dict() for size in (8, 9))
    return {name for name in small if small[name].shape != large[name].shape}


def _encoder_shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items() if _part(name) == "encoder"}


def _part(name: str) -> str:
    """``encoder``, or the name of the head that a parameter belongs to."""
    place = name.split(".")
    return place[1] if place[0] == "objectives" else place[0]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# The job.


@dataclass(frozen=True, kw_only=True)
class PretrainingJob:
    """What to train, on what, where, and for how long."""

    recipe: Recipe
    out: Path
    runtime: Runtime = field(default_factory=Runtime)
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    """Begin again where there is a run or a model: its checkpoints go at once, its model when the new one is saved."""
    fork: bool = False
    """Resume although the recipe was edited."""
    evaluate_every: int | None = None
    save_every: int | None = None
    tensorboard: bool = False
    parallel: Parallel = "auto"
    """How several processes share the work (`training/engine/parallel.py`)."""
    origin: ParentModel | None = None
    """The model to continue from; a new one is initialised where there is none."""
    embedding_share: float = 0.0
    """Share of the steps that train only parameters with a row per token, before all are trained."""
    stay: float = 0.0
    """Weight of the pull towards the weights of `origin` (`retention.py`)."""
    free: frozenset[str] = frozenset()
    """What of "batch" and "rate" a plan may choose (`plan.py`), because the user has set neither it nor a recipe."""
    deadline: float | None = None
    """When training must end, as `time.monotonic` gives it: with fewer steps where the machine is busy."""
    brief: bool = False
    """One of several runs: show a bar or a line now and then, and what went wrong; the caller reports the rest."""

    def __post_init__(self) -> None:
        SEED.check(self.seed, "--seed")
        for option, every in (("--evaluate-every", self.evaluate_every), ("--save-every", self.save_every)):
            STEPS.check(1 if every is None else every, option)
        if self.fork and not self.resume:
            raise UsageError("--fork goes with --resume")
        if self.parallel not in get_args(Parallel):
            raise UsageError(f"--parallel is one of {', '.join(get_args(Parallel))}, not {self.parallel!r}")
        if self.parallel == "shard" and self.origin is not None:
            raise UsageError("--parallel shard trains new models; with --from, give --parallel replicate")

    @property
    def retention(self) -> dict[str, object]:
        """What a run must keep to under a resume, if it has these: the first stage, the pull towards the start."""
        settings = {"embedding share": self.embedding_share, "stay": self.stay}
        return {name: value for name, value in settings.items() if value}

    @property
    def may_shard(self) -> bool:
        """Whether processes may each have a part of the weights."""
        return self.parallel != "replicate" and self.origin is None


PER_MACHINE = ("workers", "memory", "rank_timeout")
"""Fields of the runtime that may differ between machines."""


def agree_on_job(job: PretrainingJob, group: Ranks) -> PretrainingJob:
    """The job that all ranks carry out; refused where their commands differ."""
    check_ranks_agree(group, _commanded(job))
    if not group.restarted:
        return job
    return dataclasses.replace(job, resume=True, overwrite=False)


def _commanded(job: PretrainingJob) -> dict[str, object]:
    """Options and versions that must be the same on every rank."""
    runtime = {name: value for name, value in dataclasses.asdict(job.runtime).items() if name not in PER_MACHINE}
    return {
        **versions(),
        "recipe": recipe_table(job.recipe),
        "seed": job.seed,
        "resume": job.resume,
        "fork": job.fork,
        "evaluate_every": job.evaluate_every,
        "save_every": job.save_every,
        "from": None if job.origin is None else job.origin.fingerprint,
        **job.retention,
        **runtime,
        **dataclasses.asdict(job.budget),
    }
