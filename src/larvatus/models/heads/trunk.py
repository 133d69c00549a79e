"""What all heads of tasks have before their scores: a mix of layers, a dense layer, a norm, dropout.

    x → Σ_l w_l x_l (ELMo) → f(W x + b) → norm → dropout → the head's own scores

Each part is there where the head's settings ask for it. A head *is* a trunk, so that its parameters keep their names:
``objectives.classification.dense.weight``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.nn.layer_mix import LayerMix, LearntMix, read_layers

Dense = Literal["tanh", "gelu", "relu", "none"]
DENSE: dict[Dense, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": torch.relu}


class Trunk(nn.Module):
    """From features of the encoder to what scores are told from: […, D] → […, width]."""

    def __init__(
        self,
        model: EncoderConfig,
        *,
        mix: bool | str,
        dropout: float,
        dense: Dense = "none",
        dense_norm: bool = False,
        read: int | None = None,
    ) -> None:
        """`read` is the size of a row of features, where it is not the encoder's."""
        super().__init__()
        self.mix = read_layers(mix, layers=model.layers)
        self.activation = DENSE.get(dense)
        read = read or model.hidden * (self.mix.wide if self.mix is not None else 1)
        self.dense = nn.Linear(read, model.hidden, bias=model.biases) if dense != "none" else None
        self.width = read if self.dense is None else model.hidden
        """Of what scores are told from."""
        self.norm = nn.LayerNorm(model.hidden, eps=model.norm_epsilon, bias=model.biases) if dense_norm else None
        self.dropout = Dropout(dropout)

    @property
    def learnt_mix(self) -> LearntMix | None:
        """How much it wants of each layer; None where it learns none of that."""
        return self.mix.learnt if isinstance(self.mix, LayerMix) else None

    def mixed(self, x: Tensor) -> Tensor:
        """One vector for each row, of a stack of layers too, through dense layer and norm, before dropout."""
        x_RD: Tensor = self.mix(x) if self.mix is not None else x
        if self.dense is not None and self.activation is not None:
            x_RD = self.activation(self.dense(x_RD))
        return self.norm(x_RD) if self.norm is not None else x_RD

    def trunk(self, x: Tensor) -> Tensor:
        """The whole way: features of rows [R, D], or [layers, R, D] for a mix → [R, D]."""
        dropped: Tensor = self.dropout(self.mixed(x))
        return dropped


def whole_precision(scores: Tensor) -> Tensor:
    """Losses are told from scores in float32 (or better), whatever they were computed in."""
    return scores.float() if scores.dtype == torch.bfloat16 else scores
