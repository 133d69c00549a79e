"""The structural probe (Hewitt & Manning 2019, *A structural probe for finding syntax in word representations*).

A linear map B shows trees as distances and depths if, for words i and j of a sentence of T words,

    d(i, j) = ‖B (h_i − h_j)‖²        L = 1/T² Σ_ij |d_tree(i, j) − d(i, j)|        number of edges between the words
    n(i)    = ‖B h_i‖²                L = 1/T  Σ_i  |n_tree(i) − n(i)|              number of edges to the root

with one B for distances and one for depths. UUAS is the share of a tree's edges, without those of punctuation, that are
in the minimum spanning tree of d; Spearman's ρ compares d with the tree's distances, word by word, in sentences of 5 to
50 words. The baseline joins neighbours. The control task gives each word type a random rank; the head of a word is the
lower of the next higher ranks on its left and on its right. So the control trees are projective, depend on word types
and their order only, and can be memorised, but not read from syntax.

    tree_distances(np.array([2, 0, 2]))         # [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.batch import edges
from larvatus.core.errors import DataError
from larvatus.evaluation.probing.examples import TEST, TRAIN, VALIDATION, ProbeData, uniform_of
from larvatus.evaluation.probing.training import initial, minimise
from larvatus.metrics.ranking import spearman

RANK = 64
"""Rows of B."""
BATCH = 20
SPEARMAN_WORDS = (5, 50)
LONGEST = 100
"""Words of a sentence that trains the probe, since distances grow by their square."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Sentences of consecutive units, and their trees."""

    first: Ints
    """[S] first unit of each sentence; and the unit after the last one."""
    heads: Sequence[Ints]
    scored: Sequence[np.ndarray]
    """Words without punctuation."""
    parts: Ints

    @classmethod
    def of(cls, data: ProbeData, missing: np.ndarray) -> Trees:
        """The sentences of two words or more, whose words all have vectors."""
        first = edges(np.array([len(spans) for spans in data.spans], np.int64))
        parts = data.parts.copy()
        for number, heads in enumerate(data.heads):
            low, high = first[number], first[number + 1]
            if high - low != len(heads) or high - low < 2 or missing[low:high].any():
                parts[number] = -1
        for part, name in ((TRAIN, "training"), (VALIDATION, "validation"), (TEST, "test")):
            if not (parts == part).any():
                raise DataError(f"{data.source}: no {name} sentence has two words or more; give more sentences")
        return cls(first, data.heads, data.scored, parts)

    def with_control(self, data: ProbeData, seed: int) -> Trees:
        """The same sentences with the trees of the control task."""
        ranks = {word: uniform_of(word, seed) for word in set(data.types)}
        values = np.zeros(int(self.first[-1]))
        values[data.units[:, 0]] = [ranks[word] for word in data.types]
        heads = [control_heads(values[a:b]) for a, b in zip(self.first[:-1], self.first[1:], strict=True)]
        return Trees(self.first, heads, self.scored, self.parts)


def control_heads(ranks: Doubles) -> Ints:
    """Heads from 1, 0 for the root: a word depends on the lower of the next higher words on either side.

    >>> control_heads(np.array([0.2, 0.9, 0.5, 0.1])).tolist()
    [2, 0, 2, 3]
    """
    order = sorted(range(len(ranks)), key=lambda at: (ranks[at], at))
    place = {at: height for height, at in enumerate(order)}
    heads = np.zeros(len(ranks), np.int64)
    for at in range(len(ranks)):
        left = next((n for n in range(at - 1, -1, -1) if place[n] > place[at]), None)
        right = next((n for n in range(at + 1, len(ranks)) if place[n] > place[at]), None)
        higher = [n for n in (left, right) if n is not None]
        heads[at] = 1 + min(higher, key=place.__getitem__) if higher else 0
    return heads


def tree_distances(heads: Ints) -> Ints:
    """[T, T] edges between words.

    >>> tree_distances(np.array([2, 0, 2])).tolist()
    [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    """
    paths = [_path(heads, word) for word in range(len(heads))]
    depth = np.array([len(path) for path in paths])
    above = np.zeros((len(heads), len(heads)), np.int64)
    for word, path in enumerate(paths):
        above[word, path] = 1
    return np.asarray(depth[:, None] + depth[None, :] - 2 * (above @ above.T))


def _path(heads: Ints, word: int) -> list[int]:
    """The word and those above it."""
    path = [word]
    while heads[path[-1]]:
        path.append(int(heads[path[-1]]) - 1)
    return path


def spanning_edges(distances: Doubles) -> set[tuple[int, int]]:
    """Edges (low, high) of the minimum spanning tree (Prim)."""
    near, parent = distances[0].copy(), np.zeros(len(distances), np.int64)
    near[0], joined = np.inf, set()
    for _ in range(len(distances) - 1):
        word = int(near.argmin())
        joined.add((min(word, int(parent[word])), max(word, int(parent[word]))))
        closer = (distances[word] < near) & np.isfinite(near)
        near[closer], parent[closer] = distances[word][closer], word
        near[word] = np.inf
    return joined


@dataclass(frozen=True, eq=False)
class TreeScores:
    """Sums of each test sentence, [L, E, 2]: of what is right and of how much there is."""

    uuas: Doubles
    spearman: Doubles
    depth_spearman: Doubles
    root: Doubles


def probe_trees(vectors: Floats, trees: Trees, *, seed: int, rank: int = RANK) -> TreeScores:
    """Train both maps for all layers on training sentences, and score the test sentences."""
    z_LUD = torch.from_numpy(vectors)
    used = np.concatenate([np.arange(trees.first[n], trees.first[n + 1]) for n in np.flatnonzero(trees.parts == TRAIN)])
    mean = z_LUD[:, used].mean(1, keepdim=True)
    deviation = z_LUD[:, used].std(1, keepdim=True).clamp_min(1e-6)
    gold = [tree_distances(heads) if part >= 0 else np.zeros((0, 0), np.int64) for heads, part in _pairs(trees)]
    roots = [int(np.flatnonzero(heads == 0)[0]) if part >= 0 else 0 for heads, part in _pairs(trees)]

    def words(sentences: Ints) -> tuple[Tensor, Tensor]:
        """h [G, B, T, D] and which words there are, [B, T]."""
        sizes = np.array([len(gold[n]) for n in sentences])
        places = np.arange(sizes.max())[None, :]
        units = np.where(
            places < sizes[:, None], trees.first[sentences][:, None] + places, trees.first[sentences][:, None]
        )
        h = (z_LUD[:, torch.from_numpy(units)] - mean[:, :, None]) / deviation[:, :, None]
        return h, torch.from_numpy(places < sizes[:, None])

    def distance_loss(weights: Sequence[Tensor], sentences: Ints) -> Tensor:
        h, there_BT = words(sentences)
        wanted = torch.zeros(len(sentences), there_BT.shape[1], there_BT.shape[1])
        for row, n in enumerate(sentences):
            wanted[row, : len(gold[n]), : len(gold[n])] = torch.from_numpy(gold[n])
        both = there_BT[:, :, None] & there_BT[:, None, :]
        errors = (squared_distances(project(h, weights[0])) - wanted).abs() * both
        return (errors.sum((2, 3)) / both.sum((1, 2))).mean(1)

    def depth_loss(weights: Sequence[Tensor], sentences: Ints) -> Tensor:
        h, there_BT = words(sentences)
        wanted = torch.zeros(there_BT.shape)
        for row, n in enumerate(sentences):
            wanted[row, : len(gold[n])] = torch.from_numpy(gold[n][roots[n]])
        errors = (project(h, weights[0]).square().sum(-1) - wanted).abs() * there_BT
        return (errors.sum(2) / there_BT.sum(1)).mean(1)

    size = z_LUD.shape[2]
    short = np.array([len(heads) <= LONGEST for heads in trees.heads])
    split = (np.flatnonzero((trees.parts == TRAIN) & short), np.flatnonzero((trees.parts == VALIDATION) & short))
    maps = [
        minimise(loss, [initial((len(z_LUD), size, min(rank, size)), (2 / (size * rank)) ** 0.5, seed, name)], split,
                 seed=seed, batch=BATCH)[0]
        for name, loss in (("distances", distance_loss), ("depths", depth_loss))
    ]  # fmt: skip
    return _scores(trees, gold, roots, lambda n: [project(words(np.array([n]))[0], weights)[:, 0] for weights in maps])


def project(h_GBTD: Tensor, weights_GDR: Tensor) -> Tensor:
    """B h, [G, B, T, R]."""
    return (h_GBTD.flatten(1, 2) @ weights_GDR).view(*h_GBTD.shape[:3], -1)


def squared_distances(p_GBTR: Tensor) -> Tensor:
    """[G, B, T, T]"""
    lengths = p_GBTR.square().sum(-1)
    return lengths[..., :, None] + lengths[..., None, :] - 2 * p_GBTR @ p_GBTR.transpose(-1, -2)


def _pairs(trees: Trees) -> list[tuple[Ints, int]]:
    return list(zip(trees.heads, trees.parts.tolist(), strict=True))


@torch.no_grad()
def _scores(
    trees: Trees, gold: Sequence[Ints], roots: Sequence[int], projected: Callable[[int], Sequence[Tensor]]
) -> TreeScores:
    rows = []
    for n in np.flatnonzero(trees.parts == TEST).tolist():
        far, deep = projected(n)
        distances = squared_distances(far[:, None])[:, 0].double().numpy()
        depths = deep.square().sum(-1).double().numpy()
        rows.append(
            [sentence_scores(d, h, gold[n], roots[n], trees.scored[n]) for d, h in zip(distances, depths, strict=True)]
        )
    table = np.array(rows).transpose(2, 1, 0, 3)  # [4, L, E, 2]
    return TreeScores(*table)


def sentence_scores(
    distances: Doubles, depths: Doubles, gold: Ints, root: int, scored: np.ndarray
) -> list[tuple[float, float]]:
    """Sums and counts of UUAS, Spearman of distances, Spearman of depths, and root accuracy of one sentence."""
    wanted = {(a, b) for a, b in np.argwhere(np.triu(gold == 1)).tolist() if scored[a] and scored[b]}
    # punctuation joins no others, so it has no part in the spanning tree
    kept = np.flatnonzero(scored)
    joined = (
        {(int(kept[a]), int(kept[b])) for a, b in spanning_edges(distances[np.ix_(kept, kept)])}
        if len(kept) > 1
        else set()
    )
    uuas = (float(len(wanted & joined)), float(len(wanted)))
    rank, deep = (0.0, 0.0), (0.0, 0.0)
    if SPEARMAN_WORDS[0] <= len(gold) <= SPEARMAN_WORDS[1]:
        rhos = [spearman(np.delete(distances[i], i), np.delete(gold[i], i)) for i in range(len(gold))]
        known = [rho for rho in rhos if not np.isnan(rho)]
        rank = (float(np.mean(known)), 1.0) if known else rank
        rho = spearman(depths, gold[root])
        deep = deep if np.isnan(rho) else (rho, 1.0)
    words = np.where(scored, depths, np.inf)
    return [uuas, rank, deep, (float(int(words.argmin()) == root), 1.0)]


def chain_scores(trees: Trees) -> Doubles:
    """UUAS sums of the baseline that joins neighbouring words, [E, 2]."""
    rows = []
    for n in np.flatnonzero(trees.parts == TEST).tolist():
        places = np.arange(len(trees.heads[n]))
        apart = np.abs(places[:, None] - places[None, :]).astype(np.float64)
        rows.append(
            sentence_scores(apart, places.astype(np.float64), tree_distances(trees.heads[n]), 0, trees.scored[n])[0]
        )
    return np.array(rows)
