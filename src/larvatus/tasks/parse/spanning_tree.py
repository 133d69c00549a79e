"""The best tree: maximum spanning arborescence with exactly one root (Chu & Liu 1965, Edmonds 1967), exact.

    best_tree(scores)          # [N + 1, N] head by dependent → [N] the head of each word, 0 for the root

Row 0 of the scores is the root, row h the word h; column d is the word d + 1. Projective and other trees are both
spanning trees, so both can be found.

Where the best head of every word makes a tree with one root, that is the best tree. Otherwise each arc from the root
loses a constant that is larger than the difference between any two trees. A tree with one arc from the root then beats
all trees with more, and among those with one the order is as before: the single root costs no second search, and is
no approximation. A cycle of best heads is contracted to one node, whose row and column are updated in place (Tarjan
1977), so that all contractions together cost O(N²).
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.errors import NumericsError
from larvatus.data.labelled.trees import ROOT, find_cycle


def best_tree(scores: Floats | Doubles) -> Ints:
    """The heads of the best tree with one root, from the scores of all arcs; a word is never its own head."""
    table = np.array(scores, np.float64)
    count = table.shape[1]
    diagonal = np.arange(1, count + 1), np.arange(count)
    table[diagonal] = table[ROOT]
    if not np.isfinite(table).all():
        raise NumericsError("the scores of a tree's arcs are not finite; the model's weights are broken")
    ranges = np.ptp(table, axis=0)
    table[diagonal] = -np.inf
    greedy: Ints = table.argmax(0)
    if (greedy == ROOT).sum() == 1 and find_cycle(greedy.tolist()) is None:
        return greedy
    table[ROOT] -= ranges.sum() + 1.0
    square = np.full((count + 1, count + 1), -np.inf)
    square[:, 1:] = table
    return _Contraction(square).heads()


class _Contraction:
    """Search for the best arborescence from node 0; contracted nodes live in the row and column of one member."""

    def __init__(self, scores: Doubles) -> None:
        self.scores = scores
        size = len(scores)
        self.source = np.repeat(np.arange(size)[:, None], size, axis=1)
        """[N + 1, N + 1] the word that an arc leaves, where either end is contracted."""
        self.target = np.repeat(np.arange(size)[None, :], size, axis=0)
        self.node = list(range(size))
        """What is now in each row: a word, or a contracted cycle."""
        self.parents: dict[int, int] = {}
        self.cycles: dict[int, list[tuple[int, int, int]]] = {}
        """Members of each cycle, each with the two words of the arc that enters it."""

    def heads(self) -> Ints:
        size = len(self.scores)
        best = [0] * size
        seen = [0] * size  # the walk that has reached a row
        seen[0] = -1
        merged = [False] * size
        for start in range(1, size):
            row = start
            way: list[int] = []
            while True:
                if seen[row] == 0:
                    seen[row] = start
                    way.append(row)
                    best[row] = int(self.scores[:, row].argmax())
                    row = best[row]
                elif seen[row] == start:
                    cycle = way[way.index(row) :]
                    way = way[: -len(cycle)]
                    row = self._contract(cycle, best)
                    for member in cycle:
                        merged[member] = member != row
                    seen[row] = 0
                else:
                    break
        tops = [row for row in range(1, size) if not merged[row]]
        return self._expanded([(self.node[row], *self._arc(best[row], row)) for row in tops])

    def _arc(self, head: int, row: int) -> tuple[int, int]:
        return int(self.source[head, row]), int(self.target[head, row])

    def _contract(self, cycle: list[int], best: list[int]) -> int:
        """Make a cycle one node, in the row of its first member."""
        scores, keep = self.scores, cycle[0]
        number = len(scores) + len(self.cycles)
        self.cycles[number] = [(self.node[member], *self._arc(best[member], member)) for member in cycle]
        self.parents.update((self.node[member], number) for member in cycle)
        inside = np.array(cycle)
        every = np.arange(len(scores))
        gains = scores[:, inside] - scores[[best[member] for member in cycle], inside]
        entered, left = inside[gains.argmax(1)], inside[scores[inside].argmax(0)]
        for table in (self.source, self.target):
            column, line = table[every, entered], table[left, every]
            table[:, keep], table[keep] = column, line
        column, line = gains.max(1), scores[left, every]
        scores[inside], scores[:, inside] = -np.inf, -np.inf
        column[inside] = line[inside] = -np.inf
        line[0] = -np.inf
        scores[:, keep], scores[keep] = column, line
        self.node[keep] = number
        return keep

    def _expanded(self, entered: list[tuple[int, int, int]]) -> Ints:
        """The head of each word: the arc that enters a cycle replaces one of its own."""
        heads = np.zeros(len(self.scores) - 1, np.int64)
        while entered:
            node, head, dependent = entered.pop()
            if node not in self.cycles:
                heads[node - 1] = head
                continue
            child = dependent
            while self.parents[child] != node:
                child = self.parents[child]
            entered += [(child, head, dependent) if member[0] == child else member for member in self.cycles[node]]
        return heads
