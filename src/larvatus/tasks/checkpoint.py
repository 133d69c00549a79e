"""A fine-tuning that was stopped goes on where it stood, and ends with the same weights.

    runs/mine/checkpoints/seed-1-step-00000400/
        trained.safetensors     the weights that learn            best.safetensors    the best of them so far
        optimizer.safetensors   the moments of Adam               kept.safetensors    the best seed that is done
        state.json              step, scores so far, seeds that are done, SHA-256 of the others

Long runs save now and then, and all when they are asked to stop. Order and dropout follow from seed and step.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from larvatus.bundle.weights import check_fit, read_tensors, stored_bytes, write_tensors
from larvatus.errors import ArtefactError
from larvatus.files import new_directory, read_json, sha256, write_json
from larvatus.objectives import Pretraining
from larvatus.regular_files import is_there
from larvatus.tasks.choosing import Epoch
from larvatus.tasks.loop import FineTuning
from larvatus.train.optimizer import optimizer_tensors, restore_optimizer

FOLDER = "checkpoints"
CONTENTS = ("model", "train", "dev")
"""What an identity holds as hashes."""
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
    """`state.json`."""

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
    files: dict[str, str]


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

    @classmethod
    def open(cls, directory: Path, identity: dict[str, Any], *, resume: bool) -> Keeper:
        """With `resume`, from the newest checkpoint there; it must be of the same run."""
        keeper = cls(directory, identity)
        paths = sorted((directory / FOLDER).glob("seed-*"), key=lambda path: path.stat().st_mtime_ns)
        if not resume or not paths:
            return keeper
        state = _read(paths[-1])
        refuse_another(directory, state.identity, identity)
        keeper.found, keeper.path, keeper.done = state, paths[-1], list(state.done)
        if state.kept is not None:
            keeper.kept = state.kept, read_tensors(paths[-1] / "kept.safetensors")
        return keeper

    def is_done(self, seed: int) -> bool:
        return any(run.seed == seed for run in self.done)

    def finish(self, run: SeedRun, model: Pretraining, *, best: bool) -> None:
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
        """A new checkpoint; the one before goes once it is whole."""
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
        shutil.rmtree(final, ignore_errors=True)
        with new_directory(final, sum(map(stored_bytes, tensors.values()))) as aside:
            for name, own in tensors.items():
                write_tensors(aside / name, own)
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
                files={name: sha256(aside / name) for name in tensors},
            )
            write_json(aside / "state.json", msgspec.to_builtins(state))  # knows NaN, which a score may be
        for old in (self.directory / FOLDER).glob("seed-*"):
            if old != final:
                shutil.rmtree(old, ignore_errors=True)
        self.saved = time.monotonic()
        return final

    def clear(self) -> None:
        """The run is done: the model directory holds all that is worth keeping."""
        shutil.rmtree(self.directory / FOLDER, ignore_errors=True)


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


def _read(path: Path) -> State:
    try:
        state = msgspec.convert(read_json(path / "state.json"), State)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{path / 'state.json'} cannot be read: {fault}; start anew in another --out") from fault
    for name, wanted in state.files.items():
        file = path / name
        if "/" in name or not is_there(file) or sha256(file) != wanted:
            raise ArtefactError(f"{file} is missing or does not match its checksum; start anew in another --out")
    return state
