"""Scores of a model's head for many sequences: unpadded batches of nearly equal length, under a budget of tokens.

score_sequences(model, sequences, Scoring(device="cpu"))     # [S, K] of classes, or [W, K] of tags
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.batch import Ints, TrainingBatch, edges, runs
from larvatus.errors import ArtefactError
from larvatus.nn.device import on_device
from larvatus.objectives import Classification, Pretraining, Spans, Tagging
from larvatus.tasks.sequences import Sequences, gathered

Floats = npt.NDArray[np.float32]
Head = Classification | Tagging | Spans


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Where and in what portions to compute."""

    device: str = "cpu"
    precision: str = "fp32"
    tokens: int = 0
    """Of a batch; 0: as suits the device."""

    @property
    def budget(self) -> int:
        return self.tokens or (65_536 if self.device.startswith("cuda") else 4_096)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16, enabled=self.precision == "bf16")


def head_of(model: Pretraining, name: str = "the model") -> Head:
    """The head that fine-tuning gave a model."""
    for head in model.heads.values():
        if isinstance(head, Head):
            return head
    raise ArtefactError(f"{name} has no head to predict with; give it one with larvatus finetune")


def states_of(model: Pretraining, batch: TrainingBatch[Tensor], head: Head, *, limit: int | None = None) -> Tensor:
    """The encoder's vectors as the head wants them: z [N, D] of the last layer, or of all layers for a mix."""
    if head.mix is None:
        z_ND: Tensor = model.encoder(batch.tokens, limit=limit)
        return z_ND
    return torch.stack(model.encoder(batch.tokens, hidden_states=True, limit=limit))


def by_length(sequences: Sequences, budget: int) -> Iterator[Ints]:
    """Sequences in batches of neighbours in length."""
    order = np.argsort(sequences.lengths, kind="stable")
    for first, last in runs(sequences.lengths[order], budget):
        yield order[first:last]


@torch.inference_mode()
def score_sequences(model: Pretraining, sequences: Sequences, scoring: Scoring) -> Floats:
    """Scores in the order of the sequences: a row for each, or for each of their words."""
    head = head_of(model)
    model.eval()
    counts = np.ones(len(sequences.lengths), np.int64) if sequences.words is None else sequences.words.counts
    starts = edges(counts)
    scores = np.zeros((int(starts[-1]), len(head.config.labels)), np.float32)
    for chosen in by_length(sequences, scoring.budget):
        batch = on_device(sequences.inputs(chosen), scoring.device)
        with scoring.autocast():
            states = states_of(model, batch, head, limit=int(sequences.lengths[chosen[-1]]))
            found = head.scores(states, batch)
        scores[gathered(starts[:-1][chosen], counts[chosen])] = found.float().cpu().numpy()
    return scores
