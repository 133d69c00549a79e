"""Checkpoints: new directories, written aside, fsynced, renamed; the previous one stays until then.

    runs/mine/checkpoints/step-00000400/
        model.safetensors        the weights
        optimizer.safetensors    the moments of AdamW or LAMB
        state.json               step, place in the corpus, the recipe; SHA-256 of the other two and of itself

There is no random state to keep: every draw is a function of seed, step and item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor, nn

from larvatus.bundle.directory import check_model_directory
from larvatus.bundle.manifest import NAME as MANIFEST
from larvatus.bundle.weights import check_fit, read_tensors
from larvatus.corpus.loader import Cursor
from larvatus.engine.optimizer import optimizer_tensors, restore_optimizer
from larvatus.engine.snapshot import KEEP, NEW_RUN, STATE, Made, let_go, newest_snapshot, write_snapshot
from larvatus.errors import ArtefactError, RecipeError, UsageError
from larvatus.recipes import differences
from larvatus.regular_files import refuse_link

FOLDER = "checkpoints"
_MODEL, _OPTIMIZER = "model.safetensors", "optimizer.safetensors"


class CurvePoint(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Held-out loss along the way."""

    step: int
    tokens: int
    seconds: float
    loss: float
    guess: float
    """Loss of guessing by frequency."""


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
    curve: tuple[CurvePoint, ...] = ()
    """Of objective masked-lm, where there is one and held-out text."""


class State(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `state.json` says of the run."""

    progress: Progress
    run: dict[str, object]
    """What must not change under a resume: recipe, seed, corpus, vocabulary."""


@dataclass(frozen=True)
class Checkpoint:
    """One directory, found sound."""

    path: Path
    made: Made
    state: State


def refuse_what_is_there(
    out: Path, *, resume: bool, overwrite: bool = False, inputs: Iterable[str | Path] = ()
) -> None:
    """A directory with a run is only touched by a resume or to begin anew, one with a model alone by the latter."""
    if overwrite and resume:
        raise UsageError("--resume goes on with a run and --overwrite begins anew; give one of them")
    checkpoints = out / FOLDER
    refuse_link(checkpoints)
    for name in (FOLDER, MANIFEST, _MODEL):
        if not resume and not overwrite and (out / name).exists():
            raise ArtefactError(
                f"{out} already holds a run ({name}); go on with --resume, begin anew with --overwrite, or choose "
                "another --out"
            )
        if resume and (out / name).exists() and not checkpoints.is_dir():
            raise ArtefactError(f"{out} holds a model ({name}), but no run to go on with; choose another --out")
    others = [path.name for path in checkpoints.iterdir()] if checkpoints.is_dir() else []
    others = [name for name in others if not name.startswith((".", "step-"))]
    if others:
        raise ArtefactError(f"{checkpoints} is of another kind of run ({min(others)}); choose another --out")
    begun = resume and checkpoints.is_dir()
    check_model_directory(out, overwrite=overwrite or begun, inputs=inputs)


def save_checkpoint(
    run: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    identity: dict[str, object],
    made: Made,
    warn: Callable[[str], None],
) -> Path:
    """Write a checkpoint; only the one before it stays besides. Newer ones were found broken when the run went on."""
    final = run / FOLDER / f"step-{progress.step:08d}"
    tensors = {_MODEL: _weights(model), _OPTIMIZER: optimizer_tensors(optimizer, model)}
    state: dict[str, Any] = msgspec.to_builtins(State(progress=progress, run=identity))
    write_snapshot(final, tensors, state, made=made)
    kept = [path for path in _directories(run) if path.name <= final.name][:KEEP]
    let_go([path for path in _directories(run) if path not in kept], warn)
    return final


def newest_checkpoint(run: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest sound checkpoint; each newer broken one is named aloud."""
    found = newest_snapshot(_directories(run), warn)
    if found is None:
        return None
    try:
        return Checkpoint(found.path, found.made, msgspec.convert(found.state, State))
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{found.path / STATE} is no checkpoint of pretraining: {fault}; {NEW_RUN}") from fault


def refuse_another_run(checkpoint: Checkpoint, identity: Mapping[str, object], *, steps: int | None) -> None:
    """Resuming with something else would be another run; say field by field what differs."""
    before = checkpoint.state.progress.steps
    old: dict[str, object] = {**checkpoint.state.run, "steps": before}
    new: dict[str, object] = {**identity, "steps": steps or before}
    if changed := differences(old, new):
        raise RecipeError(
            f"{checkpoint.path} belongs to a run with other settings: {'; '.join(changed[:8])}; "
            "resume with the same, or add --fork to go on from there with the new ones"
        )


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
