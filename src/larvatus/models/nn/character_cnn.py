"""A vector for each word from its characters (Kim et al. 2016; ELMo, Peters et al. 2018, as released).

    m_k = max_i  relu(W_k [e_i; …; e_{i+k−1}] + b_k)      filters of width k over the symbols of a word, k = 1 … K
    g = σ(W_g x + b_g)        x ← g · relu(W_t x + b_t) + (1 − g) · x               highway layers, over all m_k
    v = W_p x + b_p

A word is begin, bytes, end. A window that runs over the end of a word sees zeros there, never the next word; windows
start at every symbol. Released models pad words to 50 symbols and cut longer ones: here none is padded or cut.
S symbols, U different words, E size of a symbol, F filters, P size of a word's vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.models.nn.word_layout import SYMBOLS, WordLayout

CARRIED = -2.0
"""Bias of the gates at first: most of a word's vector is carried through."""


class Highway(nn.Module):
    """Srivastava et al. 2015."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, size)
        self.transform = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        g = torch.sigmoid(self.gate(x))
        return g * torch.relu(self.transform(x)) + (1 - g) * x


class CharacterCNN(nn.Module):
    def __init__(self, *, symbol: int, filters: Sequence[int], highways: int, out: int) -> None:
        """`filters`: how many of width 1, of width 2, …"""
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, symbol)
        self.filters = nn.ModuleList(nn.Linear(width * symbol, count) for width, count in enumerate(filters, start=1))
        self.highways = nn.ModuleList(Highway(sum(filters)) for _ in range(highways))
        self.projection = nn.Linear(sum(filters), out)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """As released: symbols and filters uniform, the rest normal by its size, gates that carry at first."""

        def draw(parameter: Tensor, *, uniform: float = 0.0) -> None:
            drawn = torch.empty(parameter.shape)
            if uniform:
                parameter.copy_(drawn.uniform_(-uniform, uniform, generator=generator))
            else:
                parameter.copy_(drawn.normal_(0.0, 1 / math.sqrt(parameter.shape[-1]), generator=generator))

        draw(self.symbols.weight, uniform=1.0)
        gates: list[nn.Linear] = []
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                draw(layer.weight, uniform=0.05 if layer in [*self.filters] else 0.0)
                layer.bias.zero_()
            elif isinstance(layer, Highway):
                gates.append(layer.gate)
        for gate in gates:
            gate.bias.fill_(CARRIED)

    def forward(self, layout: WordLayout) -> Tensor:
        """[S] → [U, P]: a vector for each different word of the batch."""
        windows_SK = self._windows(layout)
        size = self.symbols.embedding_dim
        pooled = []
        for width, filters in enumerate(self.filters, start=1):
            y_SF = filters(windows_SK[:, : width * size])
            # unsafe: lengths are not checked, for which a GPU would have to be waited for
            pooled.append(torch.relu(torch.segment_reduce(y_SF, "max", lengths=layout.letters, unsafe=True)))
        x_UF = torch.cat(pooled, dim=-1)
        for highway in self.highways:
            x_UF = highway(x_UF)
        v_UP: Tensor = self.projection(x_UF)
        return v_UP

    def _windows(self, layout: WordLayout) -> Tensor:
        """Each symbol with those after it in its word, as many as the widest filter sees: [S] → [S, K × E]."""
        e_SE = self.symbols(layout.symbols)
        count, widest = len(e_SE), len(self.filters)
        offsets_K = torch.arange(widest, device=e_SE.device)
        places_SK = torch.arange(count, device=e_SE.device)[:, None] + offsets_K
        places_SK = places_SK.where(offsets_K < layout.left[:, None], count)  # beyond its word: the row of zeros
        padded = F.pad(e_SE, (0, 0, 0, 1))
        return padded.index_select(0, places_SK.flatten()).view(count, -1)
