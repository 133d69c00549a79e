"""Checkpoints of pretraining and fine-tuning: written whole, the newest two kept, resumed from, other runs refused.

    checkpoints = Checkpoints(run=out, kind="pretraining", state=State, order=order, warn=print)
    checkpoints.write("step-00000400", {"model.safetensors": weights}, state, made=Provenance.here(runtime))
    checkpoints.resume(refuse=refuse_another_run, made=made)       # the newest sound one; None where there is none

A checkpoint is a directory of tensors and `state.json`, which holds the format, SHA-256 of the other files, what it was
made with, the state itself, and a checksum over all of that. Each kind of training defines its state and the names of
its directories. A checkpoint of another format is refused: it cannot be distinguished from a damaged one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from larvatus.core.checksummed import check_file, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.files import new_directory, read_json, saying_what_is_full, sha256
from larvatus.core.regular_files import refuse_link
from larvatus.core.run_identity import VERSION
from larvatus.models.bundle.weights import check_fit, read_tensors, stored_bytes, write_tensors
from larvatus.training.engine.parallel import local_part
from larvatus.training.engine.settings import Runtime

FORMAT = 2
"""Format of `state.json`; that of Larvatus 0.1, without a number or a checksum of its own, counts as 1."""
KEEP = 2
"""Snapshots that stay: the newest, and one to fall back to."""
STATE = "state.json"
FOLDER = "checkpoints"
NEW_RUN = "start again in another --out"
State = TypeVar("State")


class Provenance(Struct, frozen=True, kw_only=True):
    """What a snapshot was made with: it does not decide which run this is, but it may decide the last bits."""

    larvatus: str
    torch: str
    threads: int
    device: str
    precision: str
    compiled: bool
    microbatch: int
    processes: int

    @classmethod
    def here(cls, runtime: Runtime, processes: int = 1) -> Provenance:
        return cls(
            larvatus=VERSION,
            torch=str(torch.__version__),
            threads=torch.get_num_threads(),
            device=runtime.device,
            precision=runtime.precision,
            compiled=runtime.compile,
            microbatch=runtime.microbatch,
            processes=processes,
        )

    def unlike(self, now: Provenance) -> str | None:
        """One line about what is different now; None if nothing is."""
        changed = [
            f"{name} {was} (now {given})"
            for name in self.__struct_fields__
            if (was := getattr(self, name)) != (given := getattr(now, name))
        ]
        if not changed:
            return None
        return f"the checkpoint was made with {', '.join(changed)}: the result may differ from that of an unbroken run"


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """A directory whose files were found sound."""

    path: Path
    made: Provenance
    state: State


class UnknownFormat(ArtefactError):
    """Sound, perhaps, but not for this version."""


def write_snapshot(
    final: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any], *, made: Provenance
) -> None:
    """Write a snapshot, whole or not at all; one of this name that was found broken makes way."""
    _make_way(final)
    with new_directory(final, sum(stored_bytes(named) for named in tensors.values())) as aside:
        for name, named in tensors.items():
            write_tensors(aside / name, named)
        files = {name: sha256(aside / name) for name in tensors}
        written = {"format": FORMAT, "made": msgspec.to_builtins(made), "files": files, "state": state}
        write_checksummed(aside / STATE, written)


def _make_way(final: Path) -> None:
    """Move away what could not be read on resume: to delete it may take long, or fail, and a name is soon changed."""
    refuse_link(final)
    if final.is_dir():
        aside = final.with_name(f".{final.name}.broken.tmp-{os.getpid()}")
        with saying_what_is_full(final):
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(final, aside)
        shutil.rmtree(aside, ignore_errors=True)


def read_snapshot(path: Path) -> Checkpoint[dict[str, Any]]:
    """Check all of a snapshot."""
    refuse_link(path)
    file = path / STATE
    first = read_json(file)
    if isinstance(first, dict) and {"files", "format", "sha256"} & first.keys() == {"files"}:
        raise UnknownFormat(_other(file, 1))
    record = read_checksummed(file, way=NEW_RUN)
    if record.get("format") != FORMAT:
        raise UnknownFormat(_other(file, record.get("format")))
    try:
        files, state = dict(record["files"]), dict(record["state"])
        made = msgspec.convert(record["made"], Provenance)
    except (KeyError, TypeError, ValueError) as fault:
        raise ArtefactError(f"{file} is not the state of a checkpoint: {fault}; {NEW_RUN}") from fault
    for name, wanted in files.items():
        if not re.fullmatch(r"[a-z]+\.safetensors", name):
            raise ArtefactError(f"{file} names {name!r}, which is no file of a checkpoint; {NEW_RUN}")
        check_file(path / name, wanted, way=NEW_RUN)
    return Checkpoint(path, made, state)


def _other(file: Path, number: object) -> str:
    way = f"end the run with the version of Larvatus that began it, or {NEW_RUN}"
    return f"{file} has format {number}, this version reads {FORMAT}; {way}"


def newest_snapshot(paths: Sequence[Path], warn: Callable[[str], None]) -> Checkpoint[dict[str, Any]] | None:
    """The first of them that is sound, newest first; each newer one that is broken is named aloud."""
    faults: list[str] = []
    for path in paths:
        try:
            snapshot = read_snapshot(path)
        except UnknownFormat:
            raise
        except ArtefactError as fault:
            faults.append(str(fault).removesuffix(f"; {NEW_RUN}"))
            continue
        for line in faults:
            warn(f"{line}; falling back to the one before")
        return snapshot
    if faults:
        raise ArtefactError(f"{faults[0]}; none of {len(paths)} checkpoints is sound; {NEW_RUN}")
    return None


def delete_old(old: Iterable[Path], warn: Callable[[str], None]) -> None:
    """Delete what is no longer needed. What cannot be deleted is reported, and tried again later."""
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            warn(f"{path} is no longer needed, but cannot be deleted; training continues, delete it by hand")


@dataclass(frozen=True, kw_only=True)
class Checkpoints(Generic[State]):
    """All checkpoints of a run."""

    run: Path
    kind: str
    """Kind of training, for messages."""
    state: type[State]
    order: Callable[[str], Any]
    """Sort key of a directory name: larger is newer; None if it is no checkpoint of this kind."""
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

    def resume(self, *, refuse: Callable[[Checkpoint[State]], None], made: Provenance) -> Checkpoint[State] | None:
        """The checkpoint to resume from; `refuse` raises if it is of another run; what may change bits is reported."""
        checkpoint = self.newest()
        if checkpoint is None:
            return None
        refuse(checkpoint)
        if (line := checkpoint.made.unlike(made)) is not None:
            self.warn(line)
        return checkpoint

    def write(self, name: str, tensors: Mapping[str, Mapping[str, Tensor]], state: State, *, made: Provenance) -> Path:
        """Write a checkpoint; only the one before it is kept as well."""
        final = self.folder / name
        write_snapshot(final, tensors, msgspec.to_builtins(state), made=made)
        paths = self.paths()
        kept = paths[paths.index(final) :][:KEEP]  # newer ones were found broken when the run went on
        delete_old([path for path in paths if path not in kept], self.warn)
        return final

    def clear(self) -> None:
        """The run is done, and its model directory has everything to keep."""
        gone = self.run / f".{FOLDER}.tmp-{os.getpid()}"
        with suppress(FileNotFoundError):
            os.rename(self.folder, gone)  # at once: a kill now leaves no half of a checkpoint
        shutil.rmtree(gone, ignore_errors=True)


def restore_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Read a file of tensors into the weights of the same names; each must be there, in its shape, and no other."""
    tensors = read_tensors(path)
    check_fit(
        path,
        stored={name: tuple(tensor.shape) for name, tensor in tensors.items()},
        wanted={name: tuple(tensor.shape) for name, tensor in weights.items()},
    )
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(local_part(tensors[name], tensor))


def refuse_resume_with_overwrite(*, resume: bool, overwrite: bool) -> None:
    if overwrite and resume:
        raise UsageError("--resume continues a run and --overwrite starts again; give one of them")


def refuse_other_kind(run: Path, ours: Callable[[str], bool]) -> None:
    """Refuse the checkpoints of another kind of training; `ours` says of a name whether it is of this kind."""
    others = sorted(name for name in names_in(run / FOLDER) if not ours(name))
    if others:
        raise ArtefactError(f"{run / FOLDER} is of another kind of run ({others[0]}); choose another --out")


def names_in(folder: Path) -> list[str]:
    """Names in a folder of checkpoints; none if it does not exist."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []
