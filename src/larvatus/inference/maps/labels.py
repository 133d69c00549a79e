"""Where the names of clusters stand on a map: near their points, over as few points as can be, never over each other.

    places = place_labels(points, middles, sizes, (900, 640))       # pixels; the middle of each name

Free room is looked up in a grid of counted points (a summed-area table), so that any box costs four additions. Of all
places of a grid, the one with the fewest points under the name is taken, the nearest of these to its cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Doubles

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
CELL = 4.0
"""Pixels of a cell in which points are counted."""
STEP = 8
"""Pixels between two places that are tried."""
FAR = 0.02
"""Points under a name that a pixel of distance is worth: a name goes 50 pixels to free a point."""


def place_labels(
    points_N2: Doubles,
    middles_K2: Doubles,
    sizes_K2: Doubles,
    room: tuple[float, float],
    *,
    taken: Sequence[Box] = (),
    margin: float = 4.0,
) -> Doubles:
    """[K, 2] the middle of each name in a room of (width, height) pixels; `taken` boxes, such as a legend, stay free.

    Names that find no place beside others, since the room is too small, stand where fewest are covered.
    """
    width, height = room
    sums = _sums(points_N2, width, height)
    boxes = list(taken)
    places_K2 = np.empty_like(middles_K2)
    for number, (middle, size) in enumerate(zip(middles_K2, sizes_K2, strict=True)):
        half = size / 2 + margin
        xs = np.arange(half[0], max(width - half[0], half[0] + 1), STEP)
        ys = np.arange(half[1], max(height - half[1], half[1] + 1), STEP)
        places = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
        low, high = places - half, places + half
        covered = _inside(sums, low, high)
        clash = np.zeros(len(places))
        for left, top, right, bottom in boxes:
            clash += (low[:, 0] < right) & (high[:, 0] > left) & (low[:, 1] < bottom) & (high[:, 1] > top)
        far = np.linalg.norm(places - middle, axis=1)
        best = int(np.argmin(covered + FAR * far + 1e6 * clash))
        places_K2[number] = places[best]
        boxes.append((*low[best].tolist(), *high[best].tolist()))
    return places_K2


def _sums(points_N2: Doubles, width: float, height: float) -> Doubles:
    """[Y + 1, X + 1] points in all cells above and left of a corner."""
    columns, rows = int(np.ceil(width / CELL)) + 1, int(np.ceil(height / CELL)) + 1
    at = np.clip((points_N2 // CELL).astype(np.int64), 0, [columns - 1, rows - 1])
    counts = np.zeros((rows + 1, columns + 1))
    np.add.at(counts, (at[:, 1] + 1, at[:, 0] + 1), 1.0)
    return counts.cumsum(0).cumsum(1)


def _inside(sums: Doubles, low: Doubles, high: Doubles) -> Doubles:
    """Points in each box, to whole cells."""
    most = np.array([sums.shape[1] - 1, sums.shape[0] - 1])
    first = np.clip(np.floor(low / CELL).astype(np.int64), 0, most)
    last = np.clip(np.ceil(high / CELL).astype(np.int64), 0, most)
    a, b = first[:, 1], last[:, 1]
    left, right = first[:, 0], last[:, 0]
    return np.asarray(sums[b, right] - sums[a, right] - sums[b, left] + sums[a, left])
