"""Checkpoints of a fine-tuning run, and selection of the best one.

    runs/mine/checkpoints/seed-1-step-00000400/
        trained.safetensors     weights that are trained          best.safetensors    the best of them so far
        optimizer.safetensors   moments of Adam                   kept.safetensors    weights of the best finished seed
        state.json              step, scores so far, finished seeds; SHA-256 of the other files and of itself

A run that was stopped resumes where it was, and ends with the same weights: order and dropout follow from seed and
step. A long run saves every two minutes, and every run saves when it gets a signal to stop. The two newest checkpoints
are kept.

    is_better(now.scores, best.scores)           # are these weights to be kept in place of those?
    resolve_patience(None, evaluations=40)      # 20 evaluations without a gain end training

**Selection.** The metric comes first. If metrics are equal, validation loss decides: with few examples F1 stays 0 for
many evaluations while the loss already falls. If the loss is equal too, the later weights, which trained longer, are
kept.

**Early stopping** (Prechelt 1998) counts the evaluations in a row that brought neither a better metric than any before
nor a lower validation loss. A run that still improves in one of them continues. The learning rate follows the planned
steps.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
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
from larvatus.tasks.validation import Scores
from larvatus.training.engine.checkpoint import Checkpoint, Checkpoints, Provenance
from larvatus.training.engine.settings import Runtime

WAIT = 1 / 2
FEWEST_WAITED = 10
"""Where no patience is given: this share of the planned evaluations, but at least `FEWEST_WAITED`."""


class Epoch(Struct, frozen=True, kw_only=True):
    """An evaluation during training."""

    step: int
    epoch: float
    training_loss: float
    """Mean loss of the training steps since the last evaluation."""
    scores: Scores | None = None
    seconds: float = 0.0
    """Seconds of training so far."""

    def losses(self) -> dict[str, float]:
        """Training loss and, where there are validation examples, validation loss."""
        losses = {"training_loss": self.training_loss}
        return losses if self.scores is None else losses | {"validation_loss": self.scores.validation_loss}

    def figures(self) -> dict[str, float]:
        """Figures of its line in `metrics.jsonl`."""
        return {"epoch": self.epoch, **self.losses(), **(self.scores.values if self.scores is not None else {})}


def compare(first: Scores | None, second: Scores | None) -> int:
    """1 if the first is better, -1 if the second is, 0 if metric and loss are equal. What is not defined is worse."""
    if first is None or second is None:
        return (first is not None) - (second is not None)
    for a, b in ((first.main, second.main), (-first.validation_loss, -second.validation_loss)):
        if math.isnan(a) or math.isnan(b):
            if math.isnan(a) != math.isnan(b):
                return 1 if math.isnan(b) else -1
        elif a != b:
            return 1 if a > b else -1
    return 0


def is_better(now: Scores, best: Scores | None) -> bool:
    """Whether later weights are kept in place of the best so far: equal ones are."""
    return compare(now, best) >= 0


def improves(now: Scores, before: Sequence[Epoch]) -> bool:
    """Whether the metric is better, or the validation loss lower, than at any evaluation before."""
    past = [epoch.scores for epoch in before if epoch.scores is not None]
    metric = max((scores.main for scores in past if not math.isnan(scores.main)), default=-math.inf)
    loss = min((scores.validation_loss for scores in past if not math.isnan(scores.validation_loss)), default=math.inf)
    return now.main > metric or now.validation_loss < loss


def resolve_patience(asked: int | None, *, evaluations: int) -> int:
    """Evaluations without a gain after which a run of `evaluations` ends; 0: never."""
    return max(FEWEST_WAITED, math.ceil(WAIT * evaluations)) if asked is None else asked


def no_progress_warning(history: Sequence[Epoch]) -> str | None:
    """A line for people where the metric never moved from where it began; None where it did, or could not rise."""
    scores = [epoch.scores for epoch in history if epoch.scores is not None]
    values = {each.main for each in scores}
    if len(scores) < 2 or len(values) > 1 or not scores[0].main < 1:
        return None
    return (
        f"{scores[0].metric} stayed {scores[0].main:.4g} at all {len(scores)} evaluations, and the weights with the "
        "lowest validation loss are kept; it needs more examples, more --epochs, or a higher --rate"
    )


# Checkpoints.

CONTENTS = ("model", "train", "dev")
"""Fields of an identity that are hashes."""
_NAME = re.compile(r"seed-(-?\d+)-step-(\d+)")
EVERY_S = 120.0
"""Seconds of training between two checkpoints."""


@dataclass
class TrainState:
    """How far the training of one seed has come."""

    step: int = 0
    seconds: float = 0.0
    best: dict[str, Tensor] | None = None
    """Trained weights with the best score."""
    best_epoch: Epoch | None = None
    history: list[Epoch] = field(default_factory=list)
    waited: int = 0
    """Evaluations in a row without an improvement (`selection.improves`)."""
    losses: list[float] = field(default_factory=list)
    """Losses of the steps since the last evaluation, as far as they were read from the device."""


class SeedRun(Struct, frozen=True, kw_only=True):
    """Result of one seed."""

    seed: int
    steps: int
    seconds: float
    history: tuple[Epoch, ...]
    best: Epoch | None


class CheckpointState(Settings):
    """Contents of `state.json`."""

    identity: dict[str, Any]
    """Data, settings and model, which must be the same when the run is resumed."""
    seed: int
    step: int
    seconds: float
    history: tuple[Epoch, ...]
    best: Epoch | None
    waited: int
    losses: tuple[float, ...]
    """Losses of the steps since the last evaluation."""
    done: tuple[SeedRun, ...]
    kept: int | None
    """Seed of the weights in kept.safetensors."""
    microbatch: int | UnsetType = UNSET
    """Tokens of one pass, where the requested number did not fit in memory."""

    def train_state(self, folder: Path) -> TrainState:
        """The state at this checkpoint, with the best weights from its folder."""
        return TrainState(
            step=self.step,
            seconds=self.seconds,
            best=read_tensors(folder / "best.safetensors") if self.best is not None else None,
            best_epoch=self.best,
            history=list(self.history),
            waited=self.waited,
            losses=list(self.losses),
        )


@dataclass
class CheckpointStore:
    """Saves checkpoints in the directory of a run, keeps the finished seeds, and finds the checkpoint to resume."""

    directory: Path
    identity: dict[str, Any]
    checkpoint: Checkpoint[CheckpointState] | None = None
    """Checkpoint that the run resumes from."""
    done: list[SeedRun] = field(default_factory=list)
    kept: tuple[int, dict[str, Tensor]] | None = None
    """Best seed so far, with its weights."""
    saved: float = field(default_factory=time.monotonic)

    say: Callable[[str], None] = lambda line: None
    """Called with a line for each broken or different checkpoint."""
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
        """The store of a run; with `resume`, at the newest intact checkpoint, which must be of the same run."""
        store = cls(directory, identity, say=say, runtime=runtime or Runtime(), processes=processes)
        if not resume:
            return store
        checkpoint = store.checkpoints.resume(
            refuse=lambda newest: check_same_run(directory, newest.state.identity, identity),
            made=Provenance.here(store.runtime, processes),
        )
        if checkpoint is not None:
            store.checkpoint, store.done = checkpoint, list(checkpoint.state.done)
            if checkpoint.state.kept is not None:
                store.kept = checkpoint.state.kept, read_tensors(checkpoint.path / "kept.safetensors")
        return store

    @property
    def checkpoints(self) -> Checkpoints[CheckpointState]:
        return Checkpoints(
            run=self.directory, kind="fine-tuning", state=CheckpointState, order=self._order, warn=self.say
        )

    def _order(self, name: str) -> tuple[int, int] | None:
        """Sort key of a checkpoint's folder: seeds are trained in the order in which they were given."""
        numbers = _NAME.fullmatch(name)
        if numbers is None:
            return None
        seeds: list[int] = self.identity.get("seeds", [])
        seed, step = map(int, numbers.groups())
        return (seeds.index(seed) if seed in seeds else -1), step

    def is_done(self, seed: int) -> bool:
        return any(run.seed == seed for run in self.done)

    def finish(self, run: SeedRun, model: Network, *, best: bool) -> None:
        """Note that a seed is finished; `best` keeps its weights."""
        self.done.append(run)
        if best:
            self.kept = run.seed, {name: tensor.cpu().clone() for name, tensor in model.own_state().items()}

    def of_seed(self, seed: int) -> Checkpoint[CheckpointState] | None:
        """The checkpoint that this seed resumes from, if there is one."""
        if self.checkpoint is None or self.checkpoint.state.seed != seed or not self.checkpoint.state.step:
            return None
        return self.checkpoint

    def due(self) -> bool:
        return time.monotonic() - self.saved > EVERY_S

    def save(
        self,
        seed: int,
        state: TrainState,
        tensors: Mapping[str, Mapping[str, Tensor]],
        microbatch: int | UnsetType = UNSET,
    ) -> Path:
        """Write a new checkpoint; of the older ones only the last stays. `tensors` are files with their tensors."""
        files = dict(tensors)
        if state.best is not None:
            files["best.safetensors"] = state.best
        if self.kept is not None:
            files["kept.safetensors"] = self.kept[1]
        saved = CheckpointState(
            identity=self.identity,
            seed=seed,
            step=state.step,
            seconds=state.seconds,
            history=tuple(state.history),
            best=state.best_epoch,
            waited=state.waited,
            losses=tuple(state.losses),
            done=tuple(self.done),
            kept=self.kept[0] if self.kept is not None else None,
            microbatch=microbatch,
        )
        name = f"seed-{seed}-step-{state.step:08d}"
        path = self.checkpoints.write(name, files, saved, made=Provenance.here(self.runtime, self.processes))
        self.saved = time.monotonic()
        return path

    def clear(self) -> None:
        """Remove all checkpoints of a finished run."""
        self.checkpoints.clear()


def check_same_run(directory: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to resume a run with other data, settings or model than it began with."""
    changed = list(dict.fromkeys(map(_describe_change, changed_fields(before, now))))
    if changed:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ArtefactError(
            f"{directory} was begun with {', '.join(changed[:4])}{more}; give the same, or choose another --out"
        )


def _describe_change(changed: FieldChange) -> str:
    """``settings.rate 0.01 (now 0.02)``; for hashes only that the contents differ."""
    first = changed.field.partition(".")[0]
    if first in CONTENTS:
        return f"other contents of {first}"
    return f"{changed.field} {json.dumps(changed.before)} (now {json.dumps(changed.now)})"
