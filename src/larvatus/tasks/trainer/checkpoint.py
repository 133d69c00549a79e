"""A fine-tuning that was stopped goes on where it stood, and ends with the same weights.

    runs/mine/checkpoints/seed-1-step-00000400/
        trained.safetensors     the weights that learn            best.safetensors    the best of them so far
        optimizer.safetensors   the moments of Adam               kept.safetensors    the best seed that is done
        state.json              step, scores so far, seeds that are done; SHA-256 of the others and of itself

Long runs save now and then, and all when they are asked to stop; the two newest stay. Order and dropout follow from
seed and step.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from torch import Tensor

from larvatus.core.errors import ArtefactError
from larvatus.core.run_identity import FieldChange, changed_fields
from larvatus.core.settings import Settings
from larvatus.models.bundle.weights import read_tensors
from larvatus.models.network import Network
from larvatus.tasks.trainer.selection import Epoch
from larvatus.tasks.trainer.trainer import Trainer
from larvatus.training.engine.checkpoint import Checkpoint, Checkpoints, Provenance, restore_weights
from larvatus.training.engine.optimizer import optimizer_tensors, restore_optimizer
from larvatus.training.engine.settings import Runtime

CONTENTS = ("model", "train", "dev")
"""What an identity holds as hashes."""
_NAME = re.compile(r"seed-(-?\d+)-step-(\d+)")
EVERY_S = 120.0
"""Seconds of training between two checkpoints."""


class SeedRun(Struct, frozen=True, kw_only=True):
    """What one seed came to."""

    seed: int
    steps: int
    seconds: float
    history: tuple[Epoch, ...]
    best: Epoch | None


class CheckpointState(Settings):
    """What `state.json` says of the run."""

    identity: dict[str, Any]
    """What must not change under a resume: data, settings, model."""
    seed: int
    step: int
    seconds: float
    history: tuple[Epoch, ...]
    best: Epoch | None
    waited: int
    losses: tuple[float, ...]
    """Of the steps since the last look."""
    done: tuple[SeedRun, ...]
    kept: int | None
    """The seed whose weights are in kept.safetensors."""
    microbatch: int | UnsetType = UNSET
    """Tokens of one pass, where memory ran out with what was asked for."""


@dataclass
class CheckpointStore:
    """Saves a run under way in its directory, and knows the checkpoint that it goes on from."""

    directory: Path
    identity: dict[str, Any]
    checkpoint: Checkpoint[CheckpointState] | None = None
    """Where the run goes on."""
    done: list[SeedRun] = field(default_factory=list)
    kept: tuple[int, dict[str, Tensor]] | None = None
    """The best seed so far, with its weights."""
    saved: float = field(default_factory=time.monotonic)

    say: Callable[[str], None] = lambda line: None
    """Told what is broken, or differs."""
    runtime: Runtime = field(default_factory=Runtime)
    processes: int = 1

    @classmethod
    def open(
        cls,
        directory: Path,
        identity: dict[str, Any],
        *,
        resume: bool,
        say: Callable[[str], None] = lambda line: None,
        runtime: Runtime | None = None,
        processes: int = 1,
    ) -> CheckpointStore:
        """With `resume`, from the newest sound checkpoint there; it must be of the same run."""
        keeper = cls(directory, identity, say=say, runtime=runtime or Runtime(), processes=processes)
        if not resume:
            return keeper
        checkpoint = keeper.checkpoints.resume(
            refuse=lambda newest: check_same_run(directory, newest.state.identity, identity),
            made=Provenance.here(keeper.runtime, processes),
        )
        if checkpoint is not None:
            keeper.checkpoint, keeper.done = checkpoint, list(checkpoint.state.done)
            if checkpoint.state.kept is not None:
                keeper.kept = checkpoint.state.kept, read_tensors(checkpoint.path / "kept.safetensors")
        return keeper

    @property
    def checkpoints(self) -> Checkpoints[CheckpointState]:
        return Checkpoints(
            run=self.directory, kind="fine-tuning", state=CheckpointState, order=self._order, warn=self.say
        )

    def _order(self, name: str) -> tuple[int, int] | None:
        """Seeds are trained in the order they were given in."""
        numbers = _NAME.fullmatch(name)
        if numbers is None:
            return None
        seeds: list[int] = self.identity.get("seeds", [])
        seed, step = map(int, numbers.groups())
        return (seeds.index(seed) if seed in seeds else -1), step

    def is_done(self, seed: int) -> bool:
        return any(run.seed == seed for run in self.done)

    def finish(self, run: SeedRun, model: Network, *, best: bool) -> None:
        """A seed is done; `best` says whether its weights are to be kept."""
        self.done.append(run)
        if best:
            self.kept = run.seed, {name: tensor.cpu().clone() for name, tensor in model.own_state().items()}

    def restore(self, training: Trainer, seed: int) -> None:
        """Have a training go on where the checkpoint of its seed stood."""
        if self.checkpoint is None:
            return
        state, path = self.checkpoint.state, self.checkpoint.path
        if state.seed != seed or not state.step:
            return
        restore_weights(path / "trained.safetensors", training.trained)
        moments = read_tensors(path / "optimizer.safetensors")
        restore_optimizer(training.optimizer, training.model, moments, steps=state.step)
        fit = training.fit
        fit.step, fit.seconds, fit.waited = state.step, state.seconds, state.waited
        fit.history, fit.best_epoch = list(state.history), state.best
        fit.best = read_tensors(path / "best.safetensors") if state.best is not None else None
        training.losses = list(state.losses)
        training.update.lower(state.microbatch)

    def due(self) -> bool:
        return time.monotonic() - self.saved > EVERY_S

    def save(self, training: Trainer, seed: int) -> Path:
        """A new checkpoint; only the one before it stays besides."""
        fit = training.fit
        tensors = {
            "trained.safetensors": training.trained,
            "optimizer.safetensors": optimizer_tensors(training.optimizer, training.model),
        }
        if fit.best is not None:
            tensors["best.safetensors"] = fit.best
        if self.kept is not None:
            tensors["kept.safetensors"] = self.kept[1]
        state = CheckpointState(
            identity=self.identity,
            seed=seed,
            step=fit.step,
            seconds=fit.seconds,
            history=tuple(fit.history),
            best=fit.best_epoch,
            waited=fit.waited,
            losses=tuple(training.losses),
            done=tuple(self.done),
            kept=self.kept[0] if self.kept is not None else None,
            microbatch=training.update.lowered,
        )
        name = f"seed-{seed}-step-{fit.step:08d}"
        path = self.checkpoints.write(name, tensors, state, made=Provenance.here(self.runtime, self.processes))
        self.saved = time.monotonic()
        return path

    def clear(self) -> None:
        """The run is done."""
        self.checkpoints.clear()


def check_same_run(directory: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A run goes on as it was begun, or not at all."""
    changed = list(dict.fromkeys(map(_said, changed_fields(before, now))))
    if changed:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ArtefactError(
            f"{directory} was begun with {', '.join(changed[:4])}{more}; give the same, or choose another --out"
        )


def _said(changed: FieldChange) -> str:
    """``settings.rate 0.01 (now 0.02)``; of contents only that they differ."""
    first = changed.field.partition(".")[0]
    if first in CONTENTS:
        return f"other contents of {first}"
    return f"{changed.field} {json.dumps(changed.before)} (now {json.dumps(changed.now)})"
