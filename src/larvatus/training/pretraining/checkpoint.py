"""Checkpoints: new directories, written aside, fsynced, renamed; the previous one stays until then.

    runs/mine/checkpoints/step-00000400/
        model.safetensors        the weights
        optimizer.safetensors    the moments of the optimizer
        state.json               step, place in the corpus, the recipe; SHA-256 of the other two and of itself

There is no random state to keep: every random number is a function of seed, step and item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor, nn

from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.core.regular_files import refuse_link
from larvatus.core.run_identity import RunIdentity
from larvatus.core.settings import Settings
from larvatus.data.corpus.loader import Cursor
from larvatus.models.bundle.directory import check_model_directory
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.bundle.weights import read_tensors
from larvatus.training.engine.checkpoint import (
    FOLDER,
    Checkpoint,
    Checkpoints,
    Provenance,
    refuse_other_kind,
    refuse_resume_with_overwrite,
    restore_weights,
)
from larvatus.training.engine.optimizer import optimizer_tensors, restore_optimizer
from larvatus.training.engine.parallel import gather_tensors

_PREFIX = "step-"
_MODEL, _OPTIMIZER = "model.safetensors", "optimizer.safetensors"


class LossCurvePoint(Settings):
    """Held-out loss along the way."""

    step: int
    tokens: int
    """Training tokens so far."""
    seconds: float
    """Training time so far."""
    loss: float
    guess: float
    """Loss of the unigram baseline on the same tokens."""


class Progress(Settings):
    """How far a run has come: all that a resume needs apart from the tensors."""

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
    curve: tuple[LossCurvePoint, ...] = ()
    """Validation losses of the masked-lm objective, if the run has both."""
    embedding_steps: int | UnsetType = UNSET
    """First updates that train only parameters with a row per token; fixed when the run began."""
    microbatch: int | UnsetType = UNSET
    """Tokens of one pass, where memory ran out with the requested number."""


class PretrainingState(Settings):
    """The run as `state.json` records it."""

    progress: Progress
    run: dict[str, object]
    """What must not change under a resume: recipe, seed, corpus, vocabulary."""


def open_checkpoints(run: Path, warn: Callable[[str], None]) -> Checkpoints[PretrainingState]:
    """The checkpoints of a pretraining run, by step."""
    return Checkpoints(
        run=run,
        kind="pretraining",
        state=PretrainingState,
        order=lambda name: name if name.startswith(_PREFIX) else None,
        warn=warn,
    )


def check_run_directory(out: Path, *, resume: bool, overwrite: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """A directory with a run is only touched by a resume or to start again, one with only a model by the latter."""
    refuse_resume_with_overwrite(resume=resume, overwrite=overwrite)
    checkpoints = out / FOLDER
    refuse_link(checkpoints)
    for name in (FOLDER, MANIFEST, _MODEL):
        if not resume and not overwrite and (out / name).exists():
            raise ArtefactError(
                f"{out} already holds a run ({name}); continue it with --resume, start again with --overwrite, "
                "or choose another --out"
            )
        if resume and (out / name).exists() and not checkpoints.is_dir():
            raise ArtefactError(f"{out} holds a model ({name}), but no run to resume; choose another --out")
    refuse_other_kind(out, lambda name: name.startswith(_PREFIX))
    begun = resume and checkpoints.is_dir()
    check_model_directory(out, overwrite=overwrite or begun, inputs=inputs)


def save_checkpoint(
    run: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    identity: dict[str, object],
    made: Provenance,
    warn: Callable[[str], None],
    main: bool = True,
) -> Path | None:
    """Write a checkpoint, of several ranks the main one; only the one before it is kept as well."""
    named = {_MODEL: _weights(model), _OPTIMIZER: optimizer_tensors(optimizer, model)}
    tensors = {file: gather_tensors(parts, keep=main) for file, parts in named.items()}  # all ranks have parts of them
    if not main:
        return None
    state = PretrainingState(progress=progress, run=identity)
    return open_checkpoints(run, warn).write(f"{_PREFIX}{progress.step:08d}", tensors, state, made=made)


def newest_checkpoint(run: Path, warn: Callable[[str], None]) -> Checkpoint[PretrainingState] | None:
    """The newest sound checkpoint; each newer broken one is named aloud."""
    return open_checkpoints(run, warn).newest()


def check_same_run(
    checkpoint: Checkpoint[PretrainingState], identity: Mapping[str, object], *, steps: int | None
) -> None:
    """Resuming with other settings would be another run: name each field that differs."""
    before = checkpoint.state.progress.steps
    old: dict[str, object] = {**checkpoint.state.run, "steps": before}
    new: dict[str, object] = {**identity, "steps": steps or before}
    RunIdentity(new).check(
        old,
        lambda changes: RecipeError(
            f"{checkpoint.path} belongs to a run with other settings: {changes}; "
            "resume with the same, or add --fork to continue from it with the new ones"
        ),
    )


def restore(
    checkpoint: Checkpoint[PretrainingState],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int | None = None,
) -> None:
    """Restore the weights and moments of the checkpoint; `steps`: updates of the optimizer, if it began later."""
    restore_weights(checkpoint.path / _MODEL, _weights(model))
    moments = read_tensors(checkpoint.path / _OPTIMIZER)
    optimizer.state.clear()
    restore_optimizer(optimizer, model, moments, steps=checkpoint.state.progress.step if steps is None else steps)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, under its first name, though it may be in two places (shared embeddings)."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
