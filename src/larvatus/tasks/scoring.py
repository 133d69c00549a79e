"""Scores of a model's head for many sequences: unpadded batches of nearly equal length, under a budget of tokens.

score_sequences(model, sequences, ScoringOptions(device="cpu"))   # [S, K] classes, [W, K] tags, [N, 2] answers
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges, runs
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.models.heads.head import Head
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import Loss
from larvatus.tasks.encoding.sequences import Sequences, run_indices


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Device, precision and batch size of scoring."""

    device: str = "cpu"
    precision: str = "fp32"
    tokens: int = 0
    """Tokens of a batch; 0: by device."""

    @property
    def budget(self) -> int:
        return self.tokens or (65_536 if self.device.startswith("cuda") else 4_096)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16, enabled=self.precision == "bf16")


def head_of(model: Network, name: str = "the model") -> Head:
    """The head that fine-tuning gave a model."""
    for head in model.heads.values():
        if isinstance(head, Head):
            return head
    raise ArtefactError(f"{name} has no head to predict with; give it one with larvatus finetune")


AHead = TypeVar("AHead", bound=Head)


def head_as(model: Network, kind: type[AHead], does: str, name: str = "the model") -> AHead:
    """The model's head as the kind that a task needs; `does` is what such a head does: "tag words"."""
    head = head_of(model, name)
    if not isinstance(head, kind):
        raise UsageError(f"{name} does not {does}; give it what it was fine-tuned for")
    return head


def features_of(
    model: Network, batch: TrainingBatch[Tensor], head: Head, *, limit: int | None = None, learning: bool = False
) -> Tensor:
    """The head's `features`. If it reads only [CLS] or a blank, the rest of the last layer is not computed."""
    if (places := head.places(batch.tokens)) is not None:
        return head.added(model.encoder.at(batch.tokens, places, limit=limit))
    return head.features(head.states(model.encoder, batch.tokens, limit=limit), batch, learning=learning)


def loss_of(model: Network, batch: TrainingBatch[Tensor], head: Head, *, limit: int | None = None) -> Loss:
    """The head's loss on a batch."""
    loss: Loss = head(features_of(model, batch, head, limit=limit, learning=True), batch)
    return loss


def batches_by_length(sequences: Sequences, budget: int) -> Iterator[Ints]:
    """Sequences in batches of neighbours in length; the two orders of a pair, which are equally long, stay together."""
    orders = sequences.orders
    lengths = sequences.lengths[::orders]
    order = np.argsort(lengths, kind="stable")
    for first, last in runs(lengths[order] * orders, budget):
        chosen = order[first:last]
        yield run_indices(chosen * orders, np.full_like(chosen, orders))


@torch.inference_mode()
def score_sequences(model: Network, sequences: Sequences, scoring: ScoringOptions) -> Floats:
    """Scores in the order of the sequences: a row for each, for each of their words, or for each of their tokens."""
    head = head_of(model)
    model.eval()
    counts = head.rows(sequences.batch(np.arange(len(sequences.lengths))))
    starts = edges(counts)
    scores = np.zeros((int(starts[-1]), head.outputs), np.float32)
    for chosen in batches_by_length(sequences, scoring.budget):
        batch = on_device(sequences.inputs(chosen), scoring.device)
        with scoring.autocast():
            x = features_of(model, batch, head, limit=int(sequences.lengths[chosen[-1]]))
            logits = head.logits(x, batch)
        scores[run_indices(starts[:-1][chosen], counts[chosen])] = logits.float().cpu().numpy()
    return scores
