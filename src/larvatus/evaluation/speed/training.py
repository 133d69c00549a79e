"""Training steps as in `larvatus pretrain`, and steps of `transformers` on the same rows.

    ours = LarvatusTraining(subject, runtime, batches, length=512)
    ours.step()                                       # forward, backward, clipping, optimizer
    theirs = TransformersTraining(subject.directory, runtime, batches, length=512)

The peer is loaded from the directory of the Larvatus model, so that both have the same weights, and gets the same
tokens and targets. It pads rows to the longest, or to one fixed length if compiled. Rows are prepared in advance for
both, as a loader does during the previous step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.evaluation.speed.model import BenchmarkModel
from larvatus.models.network import Network
from larvatus.models.nn.encoder_base import set_activation_checkpointing
from larvatus.models.recipes import Recipe
from larvatus.training.engine.optimizer import build_optimizer
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import autocast
from larvatus.training.engine.throughput import flops_per_token
from larvatus.training.pretraining.memory import must_recompute
from larvatus.training.pretraining.step import Stepper

RATE = 1e-5
IGNORED = -100
"""Label that `transformers` ignores."""


class TimedTraining:
    """Steps over batches in turn; subclasses define a step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(self, batches: Sequence[TrainingBatch[Ints]]) -> None:
        self.batches, self.number = batches, 0

    def step(self) -> None:
        self.take(self.number % len(self.batches))
        self.number += 1

    def take(self, number: int) -> None:
        raise NotImplementedError

    @property
    def held_bytes(self) -> int:
        """Bytes of weights and moments, which persist between steps."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = [*self.model.parameters(), *self.model.buffers(), *(m for m in moments if isinstance(m, Tensor))]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


class LarvatusTraining(TimedTraining):
    def __init__(
        self, subject: BenchmarkModel, runtime: Runtime, batches: Sequence[TrainingBatch[Ints]], *, length: int
    ) -> None:
        super().__init__(batches)
        self.network = self.model = subject.network.to(runtime.device)
        set_activation_checkpointing(self.model, recomputes(subject, runtime))
        self.optimizer = build_optimizer(self.model, subject.recipe.optimizer)
        self.stepper = Stepper(
            subject.network,
            self.optimizer,
            subject.recipe,
            runtime=runtime,
            ranks=Ranks(),
            seed=1,
            pad_id=subject.corpus.tokenizer.id(subject.corpus.tokenizer.special.pad) or 0,
        )
        self.ready = [self.stepper.prepare(batch, limit=length) for batch in batches]

    def take(self, number: int) -> None:
        self.stepper.launch(self.ready[number], step=self.number, rate=RATE)


def recomputes(subject: BenchmarkModel, runtime: Runtime) -> bool:
    """Whether activations are recomputed in the backward pass, as in a run of the same steps."""
    return must_recompute(subject.recipe, runtime, len(subject.network.encoder.word_vectors))


class TransformersTraining(TimedTraining):
    """`AutoModelForMaskedLM` with SDPA attention, fused AdamW and clipping; compiled if Larvatus is."""

    def __init__(
        self, directory: Path, runtime: Runtime, batches: Sequence[TrainingBatch[Ints]], *, length: int
    ) -> None:
        super().__init__(batches)
        from transformers import AutoModelForMaskedLM

        loaded = AutoModelForMaskedLM.from_pretrained(str(directory), attn_implementation="sdpa")
        self.model = loaded.to(runtime.device).train()
        self.runtime = runtime
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, fused=True)
        self._call: Callable[..., Any] = torch.compile(self.model, dynamic=False) if runtime.compile else self.model
        rows = max(batch.tokens.count for batch in batches) if runtime.compile else 0
        self.padded = [padded(batch, rows=rows, length=length if runtime.compile else 0) for batch in batches]
        if runtime.cuda:
            self.padded = [{name: tensor.pin_memory() for name, tensor in inputs.items()} for inputs in self.padded]

    def take(self, number: int) -> None:
        inputs = {
            name: tensor.to(self.runtime.device, non_blocking=True) for name, tensor in self.padded[number].items()
        }
        with autocast(self.runtime):
            loss = self._call(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def padded(batch: TrainingBatch[Ints], *, rows: int = 0, length: int = 0) -> dict[str, Tensor]:
    """Padded rows as in the collator of `transformers`, of at least the given shape."""
    lengths = torch.from_numpy(batch.tokens.lengths.copy())
    shape = max(rows, batch.tokens.count), max(length, int(lengths.max()))
    targets = batch.targets[MaskedTokens]
    labels_N = torch.full((batch.tokens.size,), IGNORED)
    labels_N[torch.from_numpy(targets.places.copy())] = torch.from_numpy(targets.ids.copy())
    inside = torch.zeros(shape, dtype=torch.bool)
    inside[: batch.tokens.count] = torch.arange(shape[1]) < lengths[:, None]
    ids, labels = torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORED)
    ids[inside] = torch.from_numpy(batch.tokens.ids.copy())
    labels[inside] = labels_N
    inputs = {"input_ids": ids, "attention_mask": inside.long(), "labels": labels}
    if batch.tokens.segments.any():
        segments = torch.zeros(shape, dtype=torch.long)
        segments[inside] = torch.from_numpy(batch.tokens.segments.copy())
        inputs["token_type_ids"] = segments
    return inputs


def flops_of(network: Network, recipe: Recipe, batches: Sequence[TrainingBatch[Ints]]) -> float:
    """Training operations per token of these rows, forward and backward, with attention by their lengths."""
    by_length: dict[int, int] = {}
    for batch in batches:
        for length in batch.tokens.lengths.tolist():
            by_length[length] = by_length.get(length, 0) + 1
    tokens = sum(length * count for length, count in by_length.items())
    work = sum(count * length * flops_per_token(network, recipe, length) for length, count in by_length.items())
    return work / tokens
