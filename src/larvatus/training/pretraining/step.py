"""A step of pretraining: the objectives of a network on a batch, as `training/engine/step.py` runs a step.

    stepper = Stepper(model, optimizer, recipe, runtime=runtime, ranks=Ranks(), seed=1, pad_id=0)
    report = stepper(batch, step=0, rate=1e-4, limit=128)

    ready = stepper.prepare(batch, limit=128)          # all that needs no weights: ahead of time, on another thread
    report = stepper.launch(ready, step=0, rate=1e-4)

The loss of a step is a mean over all its predicted tokens. Each microbatch's sum is divided by the counts of the whole
step, so gradients add up to the same whatever the microbatch, and a microbatch without targets counts for nothing.

The numbers of a `StepReport` travel to the host by themselves; reading them waits for that step, not for later ones.
So the loop launches step n + 1 before it looks at step n, and a GPU is never idle while Python prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import NumericsError
from larvatus.data.corpus.loader import Cursor, Loader, RankAssignment
from larvatus.data.corpus.loader import RankShare as ReadShare
from larvatus.models.network import Network
from larvatus.models.nn.compiling import fill_batch
from larvatus.models.nn.device import on_device
from larvatus.models.nn.dropout import has_dropout
from larvatus.models.objectives import Loss, WordObjective, weighted_sum
from larvatus.models.recipes import Recipe
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import MicrobatchLoss, Update, autocast
from larvatus.training.pretraining.job import rows_for_tokens
from larvatus.training.pretraining.retention import EmbeddingStage, StartPull


class StepReport:
    """Mean losses of a whole step, over all ranks, and the norm of its gradient."""

    def __init__(
        self,
        numbers: Tensor,
        counts: Mapping[str, int],
        weights: Mapping[str, float],
        *,
        step: int,
        tokens: int,
        rate: float,
    ) -> None:
        """`numbers` [objectives + 1]: the sum of each objective's losses, then the norm of the unclipped gradient."""
        self.step, self.tokens, self.rate = step, tokens, rate
        self.wait = self.wait_share = 0.0
        self.mine: Tensor | None = None
        """Sums of losses of this rank only."""
        self._counts, self._weights, self._numbers = counts, weights, numbers
        self._arrived: torch.cuda.Event | None = None
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def waits(self, seconds: float, *, rest: float) -> None:
        """Record the seconds that the step waited for its data; `rest` are the other seconds of the step."""
        self.wait, self.wait_share = seconds, seconds / max(seconds + rest, 1e-9)

    @cached_property
    def _values(self) -> list[float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[float] = self._numbers.tolist()
        return values

    @property
    def losses(self) -> dict[str, float]:
        return {name: total / max(n, 1) for (name, n), total in zip(self._counts.items(), self._values, strict=False)}

    @property
    def loss(self) -> float:
        """What was minimised: the losses, each by its weight."""
        return math.fsum(self._weights[name] * loss for name, loss in self.losses.items())

    @property
    def gradient(self) -> float:
        return self._values[-1]

    @property
    def is_mine_finite(self) -> bool:
        """Whether all that this rank computed is; to ask waits for the device."""
        return self.mine is None or bool(torch.isfinite(self.mine).all())

    def check(self) -> None:
        """Stop the run if the step was not sound; the optimizer has already left the weights unchanged."""
        wrong = [f"{name} loss {value}" for name, value in self.losses.items() if not math.isfinite(value)]
        if not math.isfinite(self.gradient):
            wrong.append(f"gradient norm {self.gradient}")
        if wrong:
            raise NumericsError(
                f"step {self.step + 1}: {', '.join(wrong)}; the weights were not touched; resume from the last "
                "checkpoint with a lower rate: --resume --fork --set optimizer.rate=…"
            )


@dataclass(frozen=True)
class Staged:
    """A batch on its way to a device, or there."""

    tensors: TrainingBatch[Tensor]
    arrived: torch.cuda.Event | None
    """On the stream that copies; None where nothing is copied."""

    def take(self) -> TrainingBatch[Tensor]:
        """The batch, for what is launched from here on, on the stream that is current."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream(self.tensors.tokens.ids.device)
            stream.wait_event(self.arrived)
            self.tensors.map(lambda tensor: tensor.record_stream(stream))  # so that its memory is not given away
        return self.tensors


class Stage:
    """Sends batches to a device ahead of time, on any thread: into pinned memory, copied on their own stream.

    Where a batch is read (`Staged.take`), the device waits for the copy, the host does not. Pinned memory comes from
    torch's cache, which gives the same few buffers again once their copies are done. On a CPU tensors are views.
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def __call__(self, batch: TrainingBatch[Ints]) -> Staged:
        if self._stream is None:
            return Staged(on_device(batch, self.device), None)
        with torch.cuda.stream(self._stream):  # its device is then current on this thread, too
            tensors = on_device(batch, self._stream.device)
            return Staged(tensors, self._stream.record_event())


Step = TrainingBatch[Ints] | ReadShare
"""All of a step, or what one of several ranks reads of it."""
Micro = Staged | TrainingBatch[Ints]


@dataclass(frozen=True)
class PreparedStep:
    """A step that waits for nothing but the weights."""

    batch: Step
    ranks: Ranks
    microbatch: int
    """Tokens of one pass, by which it was cut."""
    micros: Sequence[Micro | None]
    """Its microbatches, those of this rank on the device."""
    counts: Mapping[str, int]
    """How many predictions each objective makes in the microbatches of this rank."""
    limit: int
    """No sequence is longer."""

    @property
    def tokens(self) -> int:
        """Tokens of the whole step."""
        return self.batch.size if isinstance(self.batch, ReadShare) else self.batch.tokens.size

    def split(self, microbatch: int) -> Sequence[Micro | None]:
        """The step in parts of `microbatch` tokens: as it was prepared, or cut again where that is another number."""
        if microbatch == self.microbatch:
            return self.micros
        return list(self.batch.split(microbatch, self.ranks.count))


class Stepper:
    """Carries out steps on a model with an optimizer; holds nothing that a checkpoint would need."""

    def __init__(
        self,
        model: Network,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        *,
        runtime: Runtime,
        ranks: Ranks,
        seed: int,
        pad_id: int,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.model, self.recipe, self.runtime, self.pad_id = model, recipe, runtime, pad_id
        self.update = Update(
            optimizer,
            list(model.parameters()),
            runtime=runtime,
            ranks=ranks,
            clip=recipe.optimizer.clip,
            seed=seed,
            draws=has_dropout(model) or any(getattr(config, "samples", 0) for config in recipe.objectives),
            warn=warn,
        )
        self._losses: Any = torch.compile(model, dynamic=False) if runtime.compile else model
        self._stage = Stage(runtime.device)
        self.stage = EmbeddingStage(model, optimizer, names=())
        """What trains in a step."""
        self._needed: set[type] = {head.needs for head in self.model.heads.values()}

    def begin(self, embedding_steps: int, steps: int) -> None:
        """Begin the run: `embedding_steps` of its `steps` train only parameters with a row per token."""
        if embedding_steps:
            self.stage = EmbeddingStage(
                self.model,
                self.update.optimizer,
                names=rows_for_tokens(self.recipe),
                steps=embedding_steps,
                warmup=self.recipe.schedule.warmup_steps(steps),
            )

    def pull(self, weight: float, *, without_rows: bool) -> None:
        """Pull the weights towards what they are now; `without_rows`: not those with a row per token."""
        left_out = rows_for_tokens(self.recipe) if without_rows else set()
        pulled = {name: each for name, each in self.model.named_parameters() if name not in left_out}
        self.update.after_step = StartPull(pulled, weight)

    def __call__(self, batch: TrainingBatch[Ints], *, step: int, rate: float, limit: int) -> StepReport:
        """Prepare a step and launch it."""
        return self.launch(self.prepare(batch, limit=limit), step=step, rate=rate)

    def read(self, loader: Loader, cursor: Cursor = Cursor()) -> Iterator[tuple[Step, Cursor]]:
        """The steps of a loader; of several ranks each reads only its share."""
        ranks = self.update.ranks
        if ranks.count == 1:
            return loader.steps(cursor)
        return loader.shares(cursor, RankAssignment(ranks.rank, ranks.count), lambda: self.update.microbatch)

    def prepare(self, batch: Step, *, limit: int) -> PreparedStep:
        """Cut a step into microbatches and send them to the device; this may run on another thread than the steps."""
        microbatch, ranks = self.update.microbatch, self.update.ranks
        parts = list(batch.split(microbatch, ranks.count))
        mine = [micro for item, micro in enumerate(parts) if micro is not None and ranks.takes(item)]
        shares = [predictions(self.model, micro) for micro in mine]
        counts = {name: sum(share[name] for share in shares) for name in self.model.heads}
        micros = [
            self._staged(micro, limit) if micro is not None and ranks.takes(item) else micro
            for item, micro in enumerate(parts)
        ]
        return PreparedStep(batch, ranks, microbatch, micros, counts, limit)

    def launch(self, ready: PreparedStep, *, step: int, rate: float) -> StepReport:
        """Update the weights once. If anything is not finite they stay, on every rank: see `StepReport.check`."""
        self.model.train()
        rate = self.stage.enter(step, rate)
        if ready.microbatch != self.update.microbatch:  # memory ran out since: other ranks may have cut it otherwise
            ready = self.prepare(ready.batch, limit=ready.limit)
        totals = self.update.ranks.totals(list(ready.counts.values()))
        counts = dict(zip(ready.counts, totals, strict=True))

        def share(micro: Micro) -> MicrobatchLoss:
            return self._share(micro, counts, ready.limit)

        numbers = self.update(ready.split, share, step=step, rate=rate, figures=len(counts))
        weights = {name: head.config.weight for name, head in self.model.heads.items()}
        report = StepReport(numbers, counts, weights, step=step, tokens=ready.tokens, rate=rate)
        report.mine = self.update.mine
        return report

    def _staged(self, micro: TrainingBatch[Ints], limit: int) -> Staged:
        return self._stage(self._fixed_shape(micro, limit) if self.runtime.compile else self._read(micro))

    def _read(self, micro: TrainingBatch[Ints]) -> TrainingBatch[Ints]:
        """A microbatch with only the targets that an objective reads: a corruption may give more."""
        targets = {kind: value for kind, value in micro.targets.items() if kind in self._needed}
        return TrainingBatch(tokens=micro.tokens, targets=targets)

    def _share(self, micro: Micro, counts: Mapping[str, int], limit: int) -> MicrobatchLoss:
        """What one microbatch adds to the loss of the step; the figures are the sums of each objective's losses."""
        tensors = (micro if isinstance(micro, Staged) else self._staged(micro, limit)).take()
        with autocast(self.runtime):
            losses: dict[str, Loss] = self._losses(tensors, limit=limit)
        sums = [losses[name].total.detach().float() for name in counts]
        return MicrobatchLoss(loss=weighted_sum(losses, counts), figures=torch.stack(sums))

    def _fixed_shape(self, micro: TrainingBatch[Ints], limit: int) -> TrainingBatch[Ints]:
        """Bring a microbatch to totals that depend only on the recipe and runtime, so nothing is recompiled."""
        step, most = self.recipe.batch * limit, self.recipe.most_words_per_token
        parts = -(-step // self.update.microbatch)
        tokens = _bucket(micro.tokens.size, step if parts == 1 else -(-step // parts) + limit)
        return fill_batch(
            self._read(micro),
            tokens=tokens,
            sequences=_bucket(
                micro.tokens.count + -(-(tokens - micro.tokens.size) // limit), 2 * (tokens // limit) + 64
            ),
            targets=_bucket(self._words(micro), math.ceil(1.02 * most * tokens / 128 + 1) * 128),
            limit=limit,
            pad_id=self.pad_id,
        )

    def _words(self, micro: TrainingBatch[Ints]) -> int:
        """How many words an objective predicts in a microbatch; of several, the most."""
        kinds = [config.needs for config in self.recipe.objectives if isinstance(config, WordObjective)]
        return max((micro.targets[kind].count for kind in kinds if kind in micro.targets), default=0)


def predictions(model: Network, batch: TrainingBatch[Any]) -> dict[str, int]:
    """How many predictions each objective makes on a batch."""
    return {name: batch.targets[head.needs].count for name, head in model.heads.items()}


def _bucket(size: int, base: int) -> int:
    """The smallest base × 2^k that holds `size`: one shape nearly always, a few at the worst."""
    while base < size:
        base *= 2
    return base
