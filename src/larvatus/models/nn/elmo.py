"""ELMo (Peters et al. 2018): a character CNN over words, then two stacks of LSTMs that read from either end.

    x_k = CNN(characters of word k)
    h_{k,j} = LSTM→_j(h_{1 … k, j−1})        h̄_{k,j} = LSTM←_j(h̄_{k … n, j−1})        + their input, from j = 2 on

Layer 0 of a word is [x_k; x_k], layer j is [h_{k,j}; h̄_{k,j}]: what a task mixes (`layer_mix.py`). Every character
gets the vector of its word, and so do the tokens that open and close a sentence, which are words too. Both directions
share the softmax over words; forward-lm reads one half of the highest layer, backward-lm the other.

**The CNN** (Kim et al. 2016), as released:

    m_k = max_i  relu(W_k [e_i; …; e_{i+k−1}] + b_k)      filters of width k over the symbols of a word, k = 1 … K
    g = σ(W_g x + b_g)        x ← g · relu(W_t x + b_t) + (1 − g) · x               highway layers, over all m_k
    v = W_p x + b_p

A word is begin, bytes, end. A window that extends past the end of a word sees zeros there, never the next word; windows
start at every symbol. Released models pad words to 50 symbols and cut longer ones: here none is padded or cut.

**Words** are located in the flat batch of characters by `WordLayout`, on the host, from the tokens only
(`data/text/vocabularies/characters.py`):

    layout = WordLayout.of(batch)
    layout.symbols          # the characters of every different word once, between a begin and an end: [S]
    layout.forward          # the order in which an LSTM that reads to the right takes the words: [W]

The words of all sequences are sorted by their position in the sentence, first words of all sentences, then second
words, …, longest sentence first, as a packed sequence requires; and the same from the end for the LSTM that reads to
the left.

N characters, W words, U different words, S symbols of these, B sequences, T words of the longest sequence, E size of a
symbol, F filters, P size of a word's vector and of a direction, D = 2 P, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, edges, ranges
from larvatus.core.errors import RecipeError
from larvatus.core.ranges import Clip, Deviation, DropoutRate, Layers, LayersOrNone, Size, SizeOrNone
from larvatus.data.text.vocabularies.characters import INSIDE, word_starts
from larvatus.models.nn.compiling import uncompiled
from larvatus.models.nn.dropout import Dropout
from larvatus.models.nn.encoder_base import Encoder, ModelConfig
from larvatus.models.nn.feedforward import Activation
from larvatus.models.nn.lstm import ProjectedLSTM

BEGIN_WORD, END_WORD = INSIDE, INSIDE + 1
SYMBOLS = INSIDE + 2
"""Special tokens, bytes, begin and end of a word: 262, as published."""


@dataclass(frozen=True, eq=False)
class ReadingOrder:
    """The order in which an LSTM reads the words of a batch."""

    rows: Tensor  # [W] which of the different words is at each place
    tokens: Tensor  # [N] the place of each token's word
    words: Tensor  # [W] the place of each word


@dataclass(frozen=True, eq=False)
class WordLayout:
    symbols: Tensor  # [S] rows of a table of symbols
    left: Tensor  # [S] symbols of its word from this one on
    letters: Tensor  # [U] symbols of each word
    sizes: Tensor  # [T] on the CPU: sentences with an i-th word
    forward: ReadingOrder
    backward: ReadingOrder

    @classmethod
    @uncompiled
    def of(cls, batch: TokenBatch[Tensor]) -> WordLayout:
        """From a batch of characters. On a GPU this waits: an LSTM needs its steps counted on the host."""
        ids, lengths = batch.ids.cpu().numpy(), batch.lengths.cpu().numpy()
        starts = word_starts(ids, lengths)
        owners_N = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)
        letters = np.diff(np.append(first, len(ids)))  # [W]
        sentences = np.repeat(np.arange(len(lengths)), lengths)[first]
        counts = np.bincount(sentences, minlength=len(lengths))  # [B] words
        sizes, forward, backward = _reading_orders(counts)
        plain_N = np.where(ids < INSIDE, ids, ids - 256)
        kinds, chosen = _unique_words(plain_N.astype(np.uint16), first, letters)
        letters_U = letters[chosen]
        sizes_U, within = letters_U + 2, ranges(letters_U)
        symbols = np.full(int(sizes_U.sum()), BEGIN_WORD)
        symbols[within + np.repeat(edges(sizes_U)[:-1] + 1, letters_U)] = plain_N[
            within + np.repeat(first[chosen], letters_U)
        ]
        symbols[np.cumsum(sizes_U) - 1] = END_WORD
        left = np.repeat(sizes_U, sizes_U) - ranges(sizes_U)

        def moved(array: Ints) -> Tensor:
            tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))
            target = batch.ids.device
            return tensor.pin_memory().to(target, non_blocking=True) if target.type == "cuda" else tensor.to(target)

        def direction(rows: Ints) -> ReadingOrder:
            places = np.empty_like(rows)
            places[rows] = np.arange(len(rows))
            return ReadingOrder(moved(kinds[rows]), moved(places[owners_N]), moved(places))

        return cls(
            symbols=moved(symbols),
            left=moved(left),
            letters=moved(sizes_U),
            sizes=torch.from_numpy(sizes),
            forward=direction(forward),
            backward=direction(backward),
        )


def _unique_words(symbols: npt.NDArray[np.uint16], first: Ints, letters: Ints) -> tuple[Ints, Ints]:
    """The number of each word among the different words [W], and one word of each kind [U]: equal words have equal
    vectors.

    >>> symbols = np.array([7, 8, 9, 7, 8], np.uint16)  # three words, the first and the last equal
    >>> [each.tolist() for each in _unique_words(symbols, np.array([0, 2, 3]), np.array([2, 1, 2]))]
    [[0, 1, 0], [0, 1]]
    """
    symbol_bytes, size = symbols.tobytes(), symbols.itemsize
    known: dict[bytes, int] = {}
    bounds = zip((first * size).tolist(), ((first + letters) * size).tolist(), strict=True)
    kinds = np.fromiter((known.setdefault(symbol_bytes[a:b], len(known)) for a, b in bounds), np.int64, len(first))
    return kinds, np.unique(kinds, return_index=True)[1]


def _reading_orders(counts: Ints) -> tuple[Ints, Ints, Ints]:
    """The number of sentences with an i-th word [T], and the words in that order, from the start and from the end: [W].

    >>> [order.tolist() for order in _reading_orders(np.array([1, 3, 2]))]
    [[3, 2, 1], [1, 4, 0, 2, 5, 3], [3, 5, 0, 2, 4, 1]]
    """
    order = np.argsort(-counts, kind="stable")
    begins = edges(counts)[:-1][order]
    steps = np.arange(counts.max(initial=0))[:, None]
    there = counts[order][None, :] > steps
    forward = (begins[None, :] + steps)[there]
    backward = (begins[None, :] + counts[order][None, :] - 1 - steps)[there]
    return there.sum(1), forward, backward


CARRIED = -2.0
"""Initial bias of the gates: most of a word's vector is carried through."""


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
        """`filters`: the number of filters of width 1, of width 2, …"""
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
            # unsafe: lengths are not checked, which would mean waiting for a GPU
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
        places_SK = places_SK.where(offsets_K < layout.left[:, None], count)  # past its word: the row of zeros
        padded = F.pad(e_SE, (0, 0, 0, 1))
        return padded.index_select(0, places_SK.flatten()).view(count, -1)


# The two stacks of LSTMs.

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
