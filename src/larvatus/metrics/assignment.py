"""The one-to-one assignment of rows to columns with the largest sum (Kuhn 1955; shortest augmenting paths, Jonker &
Volgenant 1987).

    >>> largest_assignment(np.array([[1.0, 3.0], [2.0, 3.5]]))
    5.0
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Doubles, Ints


def largest_assignment(weights: Doubles) -> float:
    """The largest sum of weights [R, C], none negative, with at most one in each row and column."""
    wide = weights if weights.shape[0] <= weights.shape[1] else weights.T
    if not wide.size:
        return 0.0
    columns = match_rows(-wide)
    return float(wide[np.arange(len(wide)), columns].sum())


def match_rows(costs: Doubles) -> Ints:
    """[R] the column of each row such that the sum of costs [R, C] is smallest; R ≤ C.

    Rows are added one by one. Each finds the shortest path, by costs less the potentials of its row and column, over
    rows that are matched already to a column that is free; the rows on the path then change columns.
    """
    count, size = costs.shape
    row_potential, column_potential = np.zeros(count), np.zeros(size + 1)
    matched = np.full(size + 1, -1)  # row of each column; the last column is where a path begins
    for row in range(count):
        matched[size] = row
        distance, before = np.full(size, np.inf), np.full(size, size)
        reached = np.zeros(size + 1, np.bool_)
        column = size
        while matched[column] >= 0:
            reached[column] = True
            at = matched[column]
            reduced = costs[at] - row_potential[at] - column_potential[:size]
            shorter = ~reached[:size] & (reduced < distance)
            distance[shorter], before[shorter] = reduced[shorter], column
            free = np.where(reached[:size], np.inf, distance)
            nearest = int(free.argmin())
            step = free[nearest]
            row_potential[matched[reached]] += step
            column_potential[reached] -= step
            distance[~reached[:size]] -= step
            column = nearest
        while column != size:
            matched[column] = matched[before[column]]
            column = int(before[column])
    columns = np.empty(count, np.int64)
    taken = np.flatnonzero(matched[:size] >= 0)
    columns[matched[taken]] = taken
    return columns
