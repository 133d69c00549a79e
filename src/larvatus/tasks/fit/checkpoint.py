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
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from larvatus.bundle.weights import check_fit, read_tensors
from larvatus.engine.optimizer import optimizer_tensors, restore_optimizer
from larvatus.engine.settings import Runtime
from larvatus.engine.snapshot import KEEP, NEW_RUN, STATE, Made, let_go, newest_snapshot, write_snapshot
from larvatus.errors import ArtefactError
from larvatus.network import Network
from larvatus.tasks.fit.choosing import Epoch
from larvatus.tasks.fit.loop import FineTuning

FOLDER = "checkpoints"
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


class State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


@dataclass
class Keeper:
    """Saves a run under way in its directory, and knows the one that was there before."""

    directory: Path
    identity: dict[str, Any]
    found: State | None = None
    path: Path | None = None
    done: list[SeedRun] = field(default_factory=list)
    kept: tuple[int, dict[str, Tensor]] | None = None
    """The best seed so far, with its weights."""
    saved: float = field(default_factory=time.monotonic)

    say: Callable[[str], None] = lambda line: None
    """Told what was found broken, or differs."""
    runtime: Runtime = field(default_factory=Runtime)

    @classmethod
    def open(
        cls,
        directory: Path,
        identity: dict[str, Any],
        *,
        resume: bool,
        say: Callable[[str], None] = lambda line: None,
        runtime: Runtime | None = None,
    ) -> Keeper:
        """With `resume`, from the newest sound checkpoint there; it must be of the same run."""
        keeper = cls(directory, identity, say=say, runtime=runtime or Runtime())
        found = newest_snapshot(keeper.paths(), say) if resume else None
        if found is None:
            return keeper
        try:
            state = msgspec.convert(found.state, State)
        except msgspec.ValidationError as fault:
            raise ArtefactError(f"{found.path / STATE} is no checkpoint of fine-tuning: {fault}; {NEW_RUN}") from fault
        refuse_another(directory, state.identity, identity)
        if (line := found.made.unlike(Made.here(keeper.runtime))) is not None:
            say(line)
        keeper.found, keeper.path, keeper.done = state, found.path, list(state.done)
        if state.kept is not None:
            keeper.kept = state.kept, read_tensors(found.path / "kept.safetensors")
        return keeper

    def paths(self) -> list[Path]:
        """The checkpoints that stand, newest first: seeds are trained in the order they were given in."""
        seeds: list[int] = self.identity.get("seeds", [])

        found = []
        for path in (self.directory / FOLDER).glob("seed-*"):
            if (name := _NAME.fullmatch(path.name)) and path.is_dir():
                seed, step = map(int, name.groups())
                found.append((seeds.index(seed) if seed in seeds else -1, step, path))
        return [path for _, _, path in sorted(found, reverse=True)]

    def is_done(self, seed: int) -> bool:
        return any(run.seed == seed for run in self.done)

    def finish(self, run: SeedRun, model: Network, *, best: bool) -> None:
        """A seed is done; `best` says whether its weights are to be kept."""
        self.done.append(run)
        if best:
            self.kept = run.seed, {name: tensor.cpu().clone() for name, tensor in model.own_state().items()}

    def restore(self, training: FineTuning, seed: int) -> None:
        """Have a training go on where the checkpoint of its seed stood."""
        state, path = self.found, self.path
        if state is None or path is None or state.seed != seed or not state.step:
            return
        own = training.trained
        tensors = read_tensors(path / "trained.safetensors")
        check_fit(
            path / "trained.safetensors",
            found={name: tuple(tensor.shape) for name, tensor in tensors.items()},
            wanted={name: tuple(tensor.shape) for name, tensor in own.items()},
        )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])
        moments = read_tensors(path / "optimizer.safetensors")
        restore_optimizer(training.optimizer, training.model, moments, steps=state.step)
        fit = training.fit
        fit.step, fit.seconds, fit.waited = state.step, state.seconds, state.waited
        fit.history, fit.best_epoch = list(state.history), state.best
        fit.best = read_tensors(path / "best.safetensors") if state.best is not None else None
        training.losses = list(state.losses)

    def due(self) -> bool:
        return time.monotonic() - self.saved > EVERY_S

    def save(self, training: FineTuning, seed: int) -> Path:
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
        final = self.directory / FOLDER / f"seed-{seed}-step-{fit.step:08d}"
        state = State(
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
        )
        write_snapshot(final, tensors, msgspec.to_builtins(state), made=Made.here(self.runtime))
        paths = self.paths()
        kept = paths[paths.index(final) :][:KEEP]  # newer ones were found broken when the run went on
        let_go([path for path in paths if path not in kept], self.say)
        self.saved = time.monotonic()
        return final

    def clear(self) -> None:
        """The run is done: the model directory holds all that is worth keeping."""
        gone = self.directory / f".{FOLDER}.tmp-{os.getpid()}"
        with suppress(FileNotFoundError):
            os.rename(self.directory / FOLDER, gone)  # at once: a kill now leaves no half of a checkpoint
        shutil.rmtree(gone, ignore_errors=True)


def refuse_another(directory: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """A run goes on as it was begun, or not at all."""
    changed = list(_changes(before, now))
    if changed:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ArtefactError(
            f"{directory} was begun with {', '.join(changed[:4])}{more}; give the same, or choose another --out"
        )


def _changes(before: dict[str, Any], now: dict[str, Any], within: str = "") -> Iterator[str]:
    """Each setting that differs: ``settings.rate 0.01 (now 0.02)``; of contents only that they do."""
    for name in {**before, **now}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name in CONTENTS and not within:
            yield f"other contents of {name}"
        elif isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{within}{name}.")
        else:
            yield f"{within}{name} {json.dumps(old)} (now {json.dumps(new)})"
