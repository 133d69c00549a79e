"""ELMo (Peters et al. 2018): characters of words, then two stacks of LSTMs that read a sentence from either end.

    x_k = CNN(characters of word k)
    h_{k,j} = LSTM→_j(h_{1 … k, j−1})        h̄_{k,j} = LSTM←_j(h̄_{k … n, j−1})        + their input, from j = 2 on

Layer 0 of a word is [x_k; x_k], layer j is [h_{k,j}; h̄_{k,j}]: what a task mixes (`layer_mix.py`). Every character
gets the vector of its word, and so do the tokens that open and close a sentence, which are words too. Both directions
share the softmax over words; forward-lm reads one half of the highest layer, backward-lm the other. N characters, W
words, P size of a direction, D = 2 P, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NoReturn

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Clip, Deviation, DropoutRate, Layers, LayersOrNone, Size, SizeOrNone
from larvatus.models.nn.character_cnn import SYMBOLS, CharacterCNN, WordLayout
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import Encoder, ModelConfig
from larvatus.models.nn.feedforward import Activation
from larvatus.models.nn.lstm import ProjectedLSTM

CHARACTERS_PER_WORD = 5
"""Characters of an average word, for estimates of size and cost."""


class ElmoConfig(ModelConfig, tag_field="type", tag="elmo"):
    text_pool: ClassVar[str] = "mean"
    """Pooling of a text: at its first token, one of the directions has read nothing."""
    mixed: ClassVar[bool] = True
    """A task reads a learned mix of all layers by default."""

    layers: Layers = 2
    """LSTMs on top of each other, in each direction."""
    hidden: Size = 1024
    """Size of a word's vector; each direction has half of it."""
    cells: SizeOrNone = 0
    """Cells of an LSTM, which are projected to half of `hidden`; 0 means 4 × hidden."""
    symbol: Size = 16
    """Size of a character's vector."""
    filters: tuple[Size, ...] = (32, 32, 64, 128, 256, 512, 1024)
    """Filters over characters: how many of width 1, of width 2, …"""
    highways: LayersOrNone = 2
    """Highway layers over the filters."""
    clip: Clip = 3.0
    """Largest value of cells and projections, which requires single steps; 0: no limit, with the fused kernel."""
    dropout: DropoutRate = 0.1
    """Dropout on the input of each LSTM, and on the highest layer."""
    max_positions: Size = 4096
    """Longest sequence, in characters."""
    init: Deviation = 0.02
    """Standard deviation of the initial weights of the softmax; the rest is initialised as released."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % 2:
            raise RecipeError(f"model.hidden = {self.hidden} must be even, for two directions; set {self.hidden + 1}")
        if self.inner <= self.hidden // 2:
            raise RecipeError(
                f"model.cells = {self.cells} are projected to fewer numbers, but model.hidden = {self.hidden} needs "
                f"{self.hidden // 2} in each direction; set model.cells above that, or 0"
            )
        if not self.filters:
            raise RecipeError(
                "model.filters names no filter; set it to a list such as [32, 32, 64], the numbers of "
                "filters of width 1, 2, 3"
            )

    @property
    def inner(self) -> int:
        """Cells of an LSTM, resolved."""
        return self.cells or 4 * self.hidden

    @property
    def word_width(self) -> int:
        return self.hidden // 2

    @property
    def enclosed(self) -> bool:
        """A sentence is between begin and end tokens, from which the LSTMs start."""
        return True

    @property
    def activation(self) -> Activation:
        return "relu"

    @property
    def _characters(self) -> int:
        """Weights of the CNN."""
        total = sum(self.filters)
        kernels = sum(width * self.symbol * count for width, count in enumerate(self.filters, start=1))
        return SYMBOLS * self.symbol + kernels + 2 * self.highways * total**2 + total * self.word_width

    @property
    def _lstms(self) -> int:
        """Weights of all LSTMs."""
        return 2 * self.layers * (8 * self.word_width * self.inner + self.inner * self.word_width)

    def least_weights(self, vocabulary: int) -> int:
        return self._characters + self._lstms + vocabulary * self.word_width

    @property
    def kept_numbers(self) -> int:
        """Numbers of a character, and its share of those of its word."""
        return sum(self.filters) + 2 * self.layers * 5 * self.inner // (2 * CHARACTERS_PER_WORD)

    def build(self, vocabulary: int) -> Elmo:
        return Elmo(self, vocabulary)

    def narrowed(self, share: float) -> NoReturn:
        raise RecipeError("elmo has no generator; leave out replaced-tokens, or set its generator = 0")


class BidirectionalLayer(nn.Module):
    """A layer: an LSTM for each direction."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.forwards = ProjectedLSTM(size=config.word_width, cells=config.inner, clip=config.clip)
        self.backwards = ProjectedLSTM(size=config.word_width, cells=config.inner, clip=config.clip)


class WordSoftmax(nn.Module):
    """The output words, for both directions: a vector and a bias each."""

    def __init__(self, vocabulary: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocabulary, size))
        self.bias = nn.Parameter(torch.zeros(vocabulary))


class Elmo(Encoder):
    config: ElmoConfig

    def __init__(self, config: ElmoConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.characters = CharacterCNN(
            symbol=config.symbol, filters=config.filters, highways=config.highways, out=config.word_width
        )
        self.layers = nn.ModuleList(BidirectionalLayer(config) for _ in range(config.layers))
        self.softmax = WordSoftmax(vocabulary, config.word_width)
        self.dropout = Dropout(config.dropout)

    @property
    def word_vectors(self) -> Tensor:
        return self.softmax.weight

    def parts(self) -> list[tuple[int, nn.Module]]:
        """Without the softmax, which no task learns from."""
        above = self.config.layers
        return [(above, self.characters), *((above - 1 - j, layer) for j, layer in enumerate(self.layers))]

    def flops(self, length: int) -> int:
        """Filters for each character; highways and LSTMs for each word."""
        kernels = sum(width * self.config.symbol * count for width, count in enumerate(self.config.filters, start=1))
        words = self.config.least_weights(0) - kernels
        return 6 * (kernels + words // CHARACTERS_PER_WORD)

    @uncompiled
    def forward(
        self, batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        """As in `Encoder`. A compiled step breaks its graph here: an LSTM has a kernel of its own."""
        top = self.config.layers
        wanted = [top] if layers is None else list(layers)
        layout = WordLayout.of(batch)
        x_UP = self.characters(layout)
        right, left = x_UP.index_select(0, layout.forward.rows), x_UP.index_select(0, layout.backward.rows)
        states: dict[int, Tensor] = {}
        for j in range(max(wanted) + 1):
            if j > 0:
                ahead, back = self.layers[j - 1].children()
                right = self.layer(self._read, right, ahead, layout, residual=j > 1)
                left = self.layer(self._read, left, back, layout, residual=j > 1)
            if j == top:
                right, left = self.dropout(right), self.dropout(left)
            if j in wanted:
                ends = (right, layout.forward.tokens), (left, layout.backward.tokens)
                states[j] = torch.cat([x_WP.index_select(0, places_N) for x_WP, places_N in ends], dim=-1)
        return states[top] if layers is None else [states[j] for j in wanted]

    def _read(self, x_WP: Tensor, lstm: nn.Module, layout: WordLayout, *, residual: bool) -> Tensor:
        dropped = self.dropout(x_WP)
        out_WP: Tensor = lstm(dropped, layout.sizes)
        return out_WP + dropped if residual else out_WP
