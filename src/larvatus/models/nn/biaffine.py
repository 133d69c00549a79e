"""Biaffine scores of arcs and their relations (Dozat & Manning 2017), from vectors of words that lie end to end.

    arc of word i to head j           s_ij = [d_i; 1]ᵀ U h_j               d = MLP(z), h = MLP'(z), each of size H
    relation k of word i to head j    r_ijk = [d'_i; 1]ᵀ U_k [h'_j; 1]     of size R

The root is a learned vector before the words of each sentence. Arcs are scored sentence by sentence, so there is no
score between two sentences: those of equal length in one product on a CPU, without padding; those of similar length on
a GPU, where each product costs a launch. Relations are scored for one head of each word only: the gold head in
training, the predicted one in prediction.
W words, E sentences, n words of a sentence, D size of word vectors, K relations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges
from larvatus.models.nn.device import to_device
from larvatus.models.nn.dropout import Dropout

SLOPE = 0.1
"""Slope of the leaky rectifiers below 0, as published."""


SHORT = 16
"""Sentences of up to so many words are similar in length; then up to twice as many, and so on."""


class SentenceGroup(NamedTuple):
    """Sentences of equal or similar length."""

    sizes: Ints  # [G] words of each
    words: Ints  # [G, n] numbers of their words; −1 after the last of a shorter one

    @property
    def padded(self) -> bool:
        return bool(self.sizes.min() < self.words.shape[1])


def by_length(sizes: Sequence[int], *, similar: bool = False) -> Iterator[SentenceGroup]:
    """Sentences grouped by their number of words, equal or `similar`.

    >>> [group.words.tolist() for group in by_length([2, 1, 2])]
    [[[2]], [[0, 1], [3, 4]]]
    >>> [group.words.tolist() for group in by_length([2, 1, 2], similar=True)]
    [[[0, 1], [2, -1], [3, 4]]]
    """
    lengths = np.asarray(sizes, np.int64)
    starts = edges(lengths)[:-1]
    kinds = np.ceil(np.log2(np.maximum(lengths, SHORT))) if similar else lengths
    for kind in np.unique(kinds):
        sentences = np.flatnonzero(kinds == kind)
        places = np.arange(lengths[sentences].max())
        inside = places < lengths[sentences, None]
        yield SentenceGroup(lengths[sentences], np.where(inside, starts[sentences, None] + places, -1))


class ArcGroup(NamedTuple):
    """Scores of all arcs in sentences of one group."""

    group: SentenceGroup
    words: Tensor  # [G, n] its words, on the device
    scores: Tensor  # [G, n, n + 1] dependent by head, of which the first is the root; no word is its own head


class _Projections(nn.Module):
    """Vectors of words as dependents and as heads."""

    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dependent = nn.Linear(size, hidden)
        self.head = nn.Linear(size, hidden)
        self.dropout = Dropout(dropout)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Matrices keep the scale of their input (σ = 1 / √inputs); biaffine weights start at 0, as published."""
        for name, parameter in self.named_parameters():
            if name in ("dependent.weight", "head.weight"):
                scale = parameter.shape[1] ** -0.5
                parameter.copy_(torch.empty(parameter.shape).normal_(0, scale, generator=generator))
            else:
                parameter.zero_()

    def project(self, linear: nn.Linear, z: Tensor) -> Tensor:
        """Vectors as dependents or as heads."""
        with torch.autocast(z.device.type, enabled=False):
            projected: Tensor = self.dropout(F.leaky_relu(linear(_wide(z)), SLOPE))
        return projected


def _wide(z: Tensor) -> Tensor:
    """Float32 or better: the scores of trees are compared with each other, and bfloat16 has three digits."""
    return z.float() if z.dtype in (torch.bfloat16, torch.float16) else z


def _product(first: Tensor, second: Tensor) -> Tensor:
    """Matrix product in full precision, whatever the precision in force."""
    with torch.autocast(first.device.type, enabled=False):
        return first @ second


class ArcScorer(_Projections):
    def __init__(self, size: int, *, hidden: int, dropout: float) -> None:
        super().__init__(size, hidden, dropout)
        self.weight = nn.Parameter(torch.zeros(hidden + 1, hidden))

    def forward(self, z_WD: Tensor, root_D: Tensor, sizes: Sequence[int]) -> Iterator[ArcGroup]:
        """Scores of the arcs of all sentences, from the vectors of their words and their numbers of words."""
        dependent_WH = _product(self.project(self.dependent, z_WD), self.weight[:-1]) + self.weight[-1]
        head_WH, root_H = self.project(self.head, z_WD), self.project(self.head, root_D)
        for group in by_length(sizes, similar=z_WD.device.type != "cpu"):
            words = to_device(group.words, z_WD.device)
            roots = root_H.expand(len(words), 1, -1)
            heads = torch.cat([roots, head_WH[words]], dim=1)
            scores = _product(dependent_WH[words], heads.transpose(1, 2))
            none = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device).triu(1).tril(1)
            if group.padded:
                none = none | F.pad(words < 0, (1, 0))[:, None]
            yield ArcGroup(group, words, scores.masked_fill(none, -torch.inf))


class RelationBiaffine(_Projections):
    def __init__(self, size: int, *, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__(size, hidden, dropout)
        self.weight = nn.Parameter(torch.zeros(outputs, hidden + 1, hidden + 1))

    def forward(self, z_WD: Tensor, root_D: Tensor, heads_W: Tensor) -> Tensor:
        """Scores of the relations of each word to its head, a number of a word or −1 for the root: [W, K]."""
        dependent_WR = F.pad(self.project(self.dependent, z_WD), (0, 1), value=1.0)
        vectors_WD = torch.cat([_wide(z_WD), root_D[None]])
        head_WR = F.pad(self.project(self.head, vectors_WD), (0, 1), value=1.0)[heads_W]  # −1 is the last
        outputs, rows, columns = self.weight.shape
        by_relation = _product(dependent_WR, self.weight.transpose(0, 1).reshape(rows, outputs * columns))
        return _product(by_relation.view(-1, outputs, columns), head_WR[:, :, None])[..., 0]
