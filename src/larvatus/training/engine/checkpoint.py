"""The checkpoints of a run: written whole, the newest two kept, taken up again, those of another run refused.

    checkpoints = Checkpoints(run=out, kind="pretraining", state=State, order=order, warn=print)
    checkpoints.write("step-00000400", {"model.safetensors": weights}, state, made=made)
    checkpoints.resume(refuse=refuse_another_run, made=made)       # the newest sound one; None where there is none

What a state holds and how directories are named is up to each kind of training; `snapshot.py` has the format.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.models.bundle.weights import check_fit, read_tensors
from larvatus.training.engine.parallel import part_of
from larvatus.training.engine.snapshot import KEEP, NEW_RUN, STATE, Made, let_go, newest_snapshot, write_snapshot

FOLDER = "checkpoints"
State = TypeVar("State", bound=Struct)


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """A directory whose files were found sound."""

    path: Path
    made: Made
    state: State


@dataclass(frozen=True, kw_only=True)
class Checkpoints(Generic[State]):
    """All checkpoints of a run."""

    run: Path
    kind: str
    """Of training, in words."""
    state: type[State]
    order: Callable[[str], Any]
    """Of the name of a directory: larger is newer; None where it is no checkpoint of this kind."""
    warn: Callable[[str], None]

    @property
    def folder(self) -> Path:
        return self.run / FOLDER

    def paths(self) -> list[Path]:
        """Newest first; what is still being written has another name."""
        there = [path for path in self.folder.glob("*") if path.is_dir()] if self.folder.is_dir() else []
        ordered = [(order, path) for path in there if (order := self.order(path.name)) is not None]
        return [path for _, path in sorted(ordered, reverse=True)]

    def newest(self) -> Checkpoint[State] | None:
        """The newest that is sound; each newer one that is broken is named aloud."""
        snapshot = newest_snapshot(self.paths(), self.warn)
        if snapshot is None:
            return None
        try:
            state = msgspec.convert(snapshot.state, self.state)
        except msgspec.ValidationError as fault:
            raise ArtefactError(
                f"{snapshot.path / STATE} is no checkpoint of {self.kind}: {fault}; {NEW_RUN}"
            ) from fault
        return Checkpoint(snapshot.path, snapshot.made, state)

    def resume(self, *, refuse: Callable[[Checkpoint[State]], None], made: Made) -> Checkpoint[State] | None:
        """Where to go on from; `refuse` raises where that is of another run, and what may change bits is said."""
        checkpoint = self.newest()
        if checkpoint is None:
            return None
        refuse(checkpoint)
        if (line := checkpoint.made.unlike(made)) is not None:
            self.warn(line)
        return checkpoint

    def write(self, name: str, tensors: Mapping[str, Mapping[str, Tensor]], state: State, *, made: Made) -> Path:
        """A new checkpoint; only the one before it stays besides."""
        final = self.folder / name
        write_snapshot(final, tensors, msgspec.to_builtins(state), made=made)
        paths = self.paths()
        kept = paths[paths.index(final) :][:KEEP]  # newer ones were found broken when the run went on
        let_go([path for path in paths if path not in kept], self.warn)
        return final

    def clear(self) -> None:
        """The run is done, and its model directory holds all that is worth keeping."""
        gone = self.run / f".{FOLDER}.tmp-{os.getpid()}"
        with suppress(FileNotFoundError):
            os.rename(self.folder, gone)  # at once: a kill now leaves no half of a checkpoint
        shutil.rmtree(gone, ignore_errors=True)


def restore_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Read a file of tensors into the weights of the same names; each must be there, in its shape, and none besides."""
    tensors = read_tensors(path)
    check_fit(
        path,
        stored={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        wanted={name: tuple(tensor.shape) for name, tensor in weights.items()},
    )
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(part_of(tensors[name], tensor))


class Changed(NamedTuple):
    """A field of a run's identity that is not what it was."""

    field: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.field}: {self.before!r} → {self.now!r}"


def changed_fields(before: Any, now: Any, field: str = "") -> list[Changed]:
    """Field by field, what two identities (as plain data) do not agree on.

    >>> changed_fields({"seed": 1, "optimizer": {"rate": 0.1}}, {"seed": 1, "optimizer": {"rate": 0.2}})
    [Changed(field='optimizer.rate', before=0.1, now=0.2)]
    """
    pairs: list[tuple[object, Any, Any]] = []
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = [(name, before.get(name), now.get(name)) for name in sorted({*before, *now})]
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [(place, old, new) for place, (old, new) in enumerate(zip(before, now, strict=True))]
    elif before != now:
        return [Changed(field, before, now)]
    prefix = f"{field}." if field else ""
    return [changed for name, old, new in pairs for changed in changed_fields(old, new, f"{prefix}{name}")]


def refuse_resume_with_overwrite(*, resume: bool, overwrite: bool) -> None:
    if overwrite and resume:
        raise UsageError("--resume goes on with a run and --overwrite begins anew; give one of them")


def refuse_other_kind(run: Path, ours: Callable[[str], bool]) -> None:
    """Refuse the checkpoints of another kind of training; `ours` says of a name whether it is of this kind."""
    others = sorted(name for name in names_in(run / FOLDER) if not ours(name))
    if others:
        raise ArtefactError(f"{run / FOLDER} is of another kind of run ({others[0]}); choose another --out")


def names_in(folder: Path) -> list[str]:
    """What stands in a folder of checkpoints; nothing where there is none."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
