"""All segmentations of many words at once, as flat arrays: forward–backward and Viterbi without a loop over words.

A word of n characters has n + 1 nodes; an edge is a piece from one node to a later one. Edges are sorted by how far
into their word they end, so step t of the recursion is one slice for all words together, and sums have one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Integers


@dataclass(frozen=True, eq=False)
class Lattice:
    """E edges over the nodes of W words."""

    tail: Integers
    """[E] node where an edge begins."""
    head: Integers
    """[E] node where it ends; edges are sorted by (offset of the head in its word, head)."""
    piece: Integers
    """[E] the piece on it."""
    first: Integers
    """[W] first node of each word."""
    last: Integers
    """[W] last node."""
    counts: Doubles
    """[W] how often each word occurs."""
    offset: Integers
    """[nodes] characters of the word before each node."""

    def without(self, dropped: Bools, words: Bools | None = None) -> Lattice:
        """Drop pieces and renumber the rest; with `words`, drop words and their edges too."""
        alive = ~dropped[self.piece]
        first, last, counts = self.first, self.last, self.counts
        if words is not None:
            inside = np.repeat(words, last - first + 1)
            alive &= inside[self.head]
            first, last, counts = first[words], last[words], counts[words]
        number = np.cumsum(~dropped) - 1
        tail, head, offset = self.tail[alive], self.head[alive], self.offset
        if words is not None:
            renumber = np.cumsum(inside) - 1
            tail, head, offset = renumber[tail], renumber[head], offset[inside]
            first, last = renumber[first], renumber[last]
        return Lattice(tail, head, number[self.piece[alive]], first, last, counts, offset)

    @cached_property
    def _forward(self) -> list[tuple[int, int, Integers, Integers]]:
        return _steps(self.offset[self.head], self.head)

    @cached_property
    def _backward(self) -> tuple[Integers, list[tuple[int, int, Integers, Integers]]]:
        order = np.lexsort((self.tail, -self.offset[self.tail]))
        return order, _steps(-self.offset[self.tail[order]], self.tail[order])

    def expected(self, scores: Doubles) -> Doubles:
        """[pieces] expected count of each piece under the posterior of the segmentations."""
        weight = scores[self.piece]
        forward = self._sums(weight, self.tail, self._forward, self.first)
        order, steps = self._backward
        backward = self._sums(weight[order], self.head[order], steps, self.last)
        word = np.repeat(np.arange(len(self.first)), self.last - self.first + 1)[self.head]
        log = forward[self.tail] + weight + backward[self.head] - forward[self.last[word]]
        return weighted_counts(self.piece, np.exp(log) * self.counts[word], len(scores))

    def _sums(
        self, weight: Doubles, source: Integers, steps: list[tuple[int, int, Integers, Integers]], roots: Integers
    ) -> Doubles:
        """Log of the summed probability of all paths to each node."""
        value = np.full(len(self.offset), -np.inf)
        value[roots] = 0
        for begin, end, groups, nodes in steps:
            x = value[source[begin:end]] + weight[begin:end]
            top = np.maximum.reduceat(x, groups)
            sizes = np.diff(groups, append=end - begin)
            value[nodes] = top + np.log(np.add.reduceat(np.exp(x - np.repeat(top, sizes)), groups))
        return value

    def _viterbi(self, scores: Doubles) -> tuple[Doubles, Integers]:
        """Best score of each node and the edge by which it is reached (-1: by none); ties take the first edge."""
        value = np.full(len(self.offset), -np.inf)
        value[self.first] = 0
        by = np.full(len(self.offset), -1, dtype=np.int64)
        for begin, end, groups, nodes in self._forward:
            x = value[self.tail[begin:end]] + scores[self.piece[begin:end]]
            top = np.maximum.reduceat(x, groups)
            sizes = np.diff(groups, append=end - begin)
            edges = np.flatnonzero(x == np.repeat(top, sizes))
            _, earliest = np.unique(np.repeat(np.arange(len(groups)), sizes)[edges], return_index=True)
            value[nodes] = top
            by[nodes] = begin + edges[earliest]
        return value, by

    def best_score(self, scores: Doubles) -> Doubles:
        """[W] log probability of each word's best segmentation; -inf where there is none."""
        return self._viterbi(scores)[0][self.last]

    def best_counts(self, scores: Doubles) -> Doubles:
        """[pieces] how often each piece is used when every word takes its best segmentation."""
        _, by = self._viterbi(scores)
        used = np.zeros(len(scores))
        node, counts = self.last, self.counts
        while len(node):
            going = by[node] >= 0
            node, counts = node[going], counts[going]
            edge = by[node]
            used += weighted_counts(self.piece[edge], counts, len(scores))
            node = self.tail[edge]
        return used

    def best_sums(self, scores: Doubles, log_used: Doubles) -> tuple[Doubles, Doubles]:
        """For words that are the pieces themselves: [W] sum over the best segmentation's pieces j of
        log(used_j + used_w), and its number of pieces."""
        _, by = self._viterbi(scores)
        total, steps = np.zeros(len(self.last)), np.zeros(len(self.last))
        node, word = self.last, np.arange(len(self.last))
        while len(node):
            going = by[node] >= 0
            node, word = node[going], word[going]
            edge = by[node]
            total[word] += np.logaddexp(log_used[self.piece[edge]], log_used[word])
            steps[word] += 1
            node = self.tail[edge]
        return total, steps


def weighted_counts(index: Integers, weights: Doubles, size: int) -> Doubles:
    """[size] summed weights of each index, added up in the order given."""
    return np.asarray(np.bincount(index, weights=weights, minlength=size), dtype=np.float64)


def _steps(offset: Integers, node: Integers) -> list[tuple[int, int, Integers, Integers]]:
    """Slices of edges at one offset, each with the beginnings of its groups of equal nodes, and those nodes."""
    borders = np.flatnonzero(np.diff(offset, prepend=offset[:1] - 1, append=offset[-1:] + 1)).tolist()
    steps: list[tuple[int, int, Integers, Integers]] = []
    for begin, end in pairwise(borders):
        here = node[begin:end]
        groups = np.flatnonzero(np.diff(here, prepend=here[0] - 1))
        steps.append((begin, end, groups, here[groups]))
    return steps


def build_lattice(lengths: Integers, counts: Doubles, place: Integers, length: Integers, piece: Integers) -> Lattice:
    """Words laid end to end, and the places where pieces occur in them."""
    word = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    first = np.cumsum(lengths + 1) - lengths - 1
    offset = np.arange(int((lengths + 1).sum())) - np.repeat(first, lengths + 1)
    tail = (place + word[place]).astype(np.int32)
    return _sorted(tail, tail + length, piece, first, first + lengths, counts, offset)


def inner_lattice(place: Integers, length: Integers, piece: Integers, pieces: int) -> Lattice:
    """The pieces as words, segmented into other pieces: what could replace each."""
    example, extent = np.zeros(pieces, dtype=np.int64), np.zeros(pieces, dtype=np.int64)
    example[piece[::-1]], extent[piece[::-1]] = place[::-1], length[::-1]
    longest = int(length.max())
    key = place.astype(np.int64) * (longest + 1) + length
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.cumsum(extent + 1) - extent - 1
    offset = np.arange(int((extent + 1).sum())) - np.repeat(first, extent + 1)
    tails, heads, labels = [], [], []
    for start in range(longest):
        for size in range(1, longest - start + 1):
            owner = np.flatnonzero((extent >= start + size) & ((extent != size) if start == 0 else True))
            wanted = (example[owner] + start) * (longest + 1) + size
            at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            hit = key[at] == wanted
            tails.append((first[owner[hit]] + start).astype(np.int32))
            heads.append((first[owner[hit]] + start + size).astype(np.int32))
            labels.append(piece[order[at[hit]]])
    counts = np.ones(pieces)
    return _sorted(
        np.concatenate(tails), np.concatenate(heads), np.concatenate(labels), first, first + extent, counts, offset
    )


def _sorted(
    tail: Integers, head: Integers, piece: Integers, first: Integers, last: Integers, counts: Doubles, offset: Integers
) -> Lattice:
    order = np.lexsort((tail, head, offset[head]))
    tail, head, piece = (part[order].astype(np.int32) for part in (tail, head, piece))
    return Lattice(tail, head, piece, first, last, counts, offset.astype(np.int32))
