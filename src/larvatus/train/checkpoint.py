"""Checkpoints: new directories, written aside, fsynced, renamed; the previous one stays until then.

    runs/mine/checkpoints/step-00000400/
        model.safetensors        the weights
        optimizer.safetensors    the moments of AdamW or LAMB
        state.json               step, place in the corpus, the recipe, and SHA-256 of the other two

There is no random state to keep: every draw is a function of seed, step and item.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.bundle.weights import check_fit, read_tensors, stored_bytes, write_tensors
from larvatus.corpus.loader import Cursor
from larvatus.errors import ArtefactError
from larvatus.files import new_directory, sha256
from larvatus.regular_files import is_there, read_bytes
from larvatus.train.optimizer import optimizer_tensors, restore_optimizer

FOLDER = "checkpoints"
_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"


class Progress(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run has come: all that a resume needs beside the tensors."""

    step: int = 0
    """Updates made."""
    steps: int
    """Updates in all, fixed when the run began."""
    phase: int = 0
    cursor: Cursor = Cursor()
    """Which sequence of the phase comes next."""
    tokens: int = 0
    """Tokens seen."""
    seconds: float = 0.0
    """Time spent training, over all sessions of the run."""


class State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`state.json`."""

    progress: Progress
    run: dict[str, object]
    """What must not change under a resume: recipe, seed, corpus, vocabulary."""
    files: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """One directory, found sound."""

    path: Path
    state: State


def save_checkpoint(
    run: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    identity: dict[str, object],
    keep: int = 2,
) -> Path:
    """Write a checkpoint and let go of all but the newest `keep`."""
    final = run / FOLDER / f"step-{progress.step:08d}"
    if final.exists():  # this very step was saved before and found broken on resume
        shutil.rmtree(final)
    weights = _weights(model)
    moments = optimizer_tensors(optimizer, model)
    with new_directory(final, stored_bytes(weights) + stored_bytes(moments)) as aside:
        write_tensors(aside / _MODEL, weights)
        write_tensors(aside / _OPTIMIZER, moments)
        files = {name: sha256(aside / name) for name in (_MODEL, _OPTIMIZER)}
        state = State(progress=progress, run=identity, files=files)
        (aside / _STATE).write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    for old in _directories(run)[keep:]:
        shutil.rmtree(old, ignore_errors=True)  # what cannot be deleted only takes room
    return final


def newest_checkpoint(run: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest sound checkpoint; each newer broken one is named aloud."""
    broken = 0
    for path in _directories(run):
        try:
            return Checkpoint(path, _read_state(path))
        except ArtefactError as fault:
            broken += 1
            warn(f"{fault}; falling back to the one before")
    if broken:
        raise ArtefactError(f"{run / FOLDER}: none of {broken} checkpoints is sound; start anew in another --out")
    return None


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Weights and moments back to where the checkpoint stood."""
    path = checkpoint.path / _MODEL
    tensors = read_tensors(path)
    check_fit(
        path,
        found={name: tuple(t.shape) for name, t in tensors.items()},
        wanted={name: tuple(t.shape) for name, t in _weights(model).items()},
    )
    model.load_state_dict(tensors, strict=False)  # a weight in two places is in the file once
    moments = read_tensors(checkpoint.path / _OPTIMIZER)
    restore_optimizer(optimizer, model, moments, steps=checkpoint.state.progress.step)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, under its first name, though it may stand in two places (shared embeddings)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _directories(run: Path) -> list[Path]:
    """Checkpoints by number, newest first; what is still being written has another name."""
    found = (run / FOLDER).glob("step-*") if (run / FOLDER).is_dir() else iter(())
    return sorted((path for path in found if path.is_dir()), reverse=True)


def _read_state(path: Path) -> State:
    try:
        state = msgspec.json.decode(read_bytes(path / _STATE), type=State)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise ArtefactError(f"{path / _STATE} cannot be read: {fault}") from fault
    if set(state.files) != {_MODEL, _OPTIMIZER}:
        raise ArtefactError(f"{path / _STATE} names other files than a checkpoint has")
    for name, wanted in state.files.items():
        file = path / name
        if not is_there(file):
            raise ArtefactError(f"{file} is missing")
        got = sha256(file)
        if got != wanted:
            raise ArtefactError(f"{file} does not match its checksum (wanted {wanted[:8]}…, got {got[:8]}…)")
    return state
