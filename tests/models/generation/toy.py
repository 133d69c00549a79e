"""Things that continue without a network of ours: a table of probabilities, and a model of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Table:
    """The next token depends on the last one alone: row v of the table holds the log-probabilities after token v."""

    def __init__(self, logits_VV: Tensor, prompts: Sequence[Sequence[int]]) -> None:
        self.logits_VV = logits_VV
        self.ids = [list(prompt) for prompt in prompts]

    def logits(self) -> Tensor:
        return self.logits_VV[[ids[-1] for ids in self.ids]]

    def extend(self, ids_B: Tensor) -> None:
        for ids, token in zip(self.ids, ids_B.tolist(), strict=True):
            ids.append(token)

    def take(self, rows_R: Tensor) -> None:
        self.ids = [list(self.ids[row]) for row in rows_R.tolist()]


class Theirs(Table):
    """A left-to-right model of `transformers`, every sequence read again at every step."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        super().__init__(torch.empty(0), prompts)
        self.model = model

    @torch.no_grad()
    def logits(self) -> Tensor:
        return torch.stack([self.model(torch.tensor([ids])).logits[0, -1] for ids in self.ids]).float()
