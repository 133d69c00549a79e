"""The map as a web page, and as a PNG with matplotlib (the extra `plots`).

    path.write_text(map_page(result, colour="cluster"))
    draw_map(result, Path("bank.png"), colour="cluster")

On the page, hover a point to read its sentence; it has colours, search, a legend and typical words of clusters. It is
one file of some hundred kilobytes for a thousand instances; `inference/web_page.py` keeps it safe and offline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Doubles
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.outputs import escape_dollars, new_output
from larvatus.inference.maps.instances import CorpusInstance
from larvatus.inference.maps.word_map import WordMap
from larvatus.inference.web_page import asset, build_page

_EITHER_SIDE = 240
"""Characters of a sentence shown before and after the word."""


def map_page(result: WordMap, *, colour: str = "auto", label: str = "label") -> str:
    columns = shown_fields(result, colour=colour, label=label)
    field = chosen_field(columns, colour)
    places = _between_0_and_1(result.points)
    points = [
        {
            "x": x,
            "y": y,
            "text": _parts(instance),
            "at": f"{instance.source}:{instance.line}",
            "fields": {name: values[number] for name, values in columns.items()},
        }
        for number, (instance, (x, y)) in enumerate(zip(result.instances, places.tolist(), strict=True))
    ]
    title = ", ".join(result.words)
    data: dict[str, Any] = {
        "title": title,
        "about": about(result),
        "colour": field,
        "fields": list(columns),
        "clusters": middles(result.clusters, places) if result.clusters is not None else [],
        "points": points,
    }
    package = "larvatus.inference.maps"
    return build_page(f"{title} · map", body=asset(package, "map.html"), script=asset(package, "map.js"), data=data)


def about(result: WordMap) -> str:
    """Summary in one line: instances, documents, method."""
    shown, total = len(result.instances), result.total
    of = f" of {total:,}" if total > shown else ""
    method = "UMAP" if result.method == "umap" else "principal components"
    return " · ".join([f"{shown:,}{of} instances in {result.documents:,} documents", method, *result.notes])


def shown_fields(result: WordMap, *, colour: str, label: str) -> dict[str, list[str]]:
    """Fields whose values differ between points, and always the requested one."""
    everything = result.fields(label)
    if colour != "auto" and colour not in everything:
        raise UsageError(f"the points cannot be coloured by {colour}{did_you_mean(colour, everything)}")
    differing = {name: values for name, values in everything.items() if len(set(values)) > 1 or name == colour}
    return differing or {"word": everything["word"]}


def chosen_field(columns: dict[str, list[str]], colour: str) -> str:
    """The field to colour by: a label of the records first, then languages, words and clusters."""
    if colour != "auto":
        return colour
    known = ("language", "word", "cluster", "source")
    labels = [name for name in columns if name not in known]
    return (labels + [name for name in known if name in columns])[0]


def middles(clusters: Sequence[str], points: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """Name and median point of each cluster; empty if there is only one."""
    names = list(dict.fromkeys(clusters))
    if len(names) < 2:
        return []
    owners = np.array(clusters)
    return [
        dict(
            zip(("x", "y"), np.median(points[owners == name], axis=0).round(4).tolist(), strict=True),
            name=name,
        )
        for name in names
    ]


def _between_0_and_1(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, span = points.min(axis=0), np.ptp(points, axis=0)
    flat: npt.NDArray[np.float64] = np.where(span > 0, (points - low) / np.where(span > 0, span, 1.0), 0.5)
    return flat.round(4)


def _parts(instance: CorpusInstance) -> list[str]:
    """Text before the word, the word, text after it; split here, because browsers count characters differently."""
    before, after = instance.text[: instance.start], instance.text[instance.end :]
    if len(before) > _EITHER_SIDE:
        before = "… " + before[-_EITHER_SIDE:]
    if len(after) > _EITHER_SIDE:
        after = after[:_EITHER_SIDE] + " …"
    return [before, instance.text[instance.start : instance.end], after]


# Okabe and Ito's palette, distinguishable for the colour-blind, and markers for black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6BC9", "#7F7F7F", "#A6761D", "#1B9E77")
MARKERS = ("o", "s", "^", "D", "P")
MAX_GROUPS = 12
"""Groups in the legend; all others are drawn in grey."""


def draw_map(result: WordMap, path: Path, *, colour: str = "auto", label: str = "label") -> None:
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    columns = shown_fields(result, colour=colour, label=label)
    field = chosen_field(columns, colour)
    values = columns[field]
    figure = Figure(figsize=(9, 6.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    size = max(8.0, min(34.0, 12_000 / len(values)))
    groups = [name for name, _ in sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))]
    for number, name in enumerate(groups):
        rows = [index for index, value in enumerate(values) if value == name]
        many = number >= MAX_GROUPS
        axes.scatter(
            result.points[rows, 0],
            result.points[rows, 1],
            s=size,
            color="#bbbbbb" if many else COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            alpha=0.75,
            linewidths=0,
            label=None if many else f"{_short(escape_dollars(name))}  {len(rows):,}",
        )
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#dddddd")
    axes.set_title(f"{escape_dollars(', '.join(result.words))}: {about(result)}", loc="left", fontsize=10)
    if len(groups) > 1:
        axes.legend(title=escape_dollars(field), loc="best", fontsize=8, title_fontsize=8, framealpha=0.85)
    if result.clusters is not None:
        _write_names(axes, result.points, middles(result.clusters, result.points))
    with new_output(path) as aside:
        figure.savefig(aside, format="png")


def _write_names(axes: Any, points: npt.NDArray[np.float64], clusters: list[dict[str, Any]]) -> None:
    """Write the name of each cluster near its points, with a line to its centre if it is far away."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patheffects import withStroke

    figure = axes.figure
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    figure.draw_without_rendering()  # fixes the layout
    figure.set_layout_engine("none")
    frame, legend = axes.get_window_extent(), axes.get_legend()
    corner = np.array([frame.x0, frame.y0])
    middles = np.array([[cluster["x"], cluster["y"]] for cluster in clusters]).reshape(-1, 2)
    at = axes.transData.transform(middles) - corner
    texts = [
        axes.text(
            0, 0, escape_dollars(cluster["name"]), fontsize=9, fontweight="bold", ha="center", va="center", zorder=5
        )
        for cluster in clusters
    ]
    sizes = np.array([[box.width, box.height] for box in (text.get_window_extent(renderer) for text in texts)])
    taken = []
    if legend is not None:
        box = legend.get_window_extent(renderer)
        taken.append((box.x0 - corner[0], box.y0 - corner[1], box.x1 - corner[0], box.y1 - corner[1]))
    seen = axes.transData.transform(points) - corner
    places = place_labels(seen, at, sizes.reshape(-1, 2), (frame.width, frame.height), taken=taken)
    back = axes.transData.inverted()
    for text, middle, place, size in zip(texts, at, places, sizes, strict=True):
        text.set_position(back.transform(place + corner))
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])
        if abs(place[1] - middle[1]) > size[1] or abs(place[0] - middle[0]) > size[0] / 2:
            line = back.transform(np.stack([place, middle]) + corner)
            axes.plot(*line.T, color="#555555", linewidth=0.7, zorder=4, scalex=False, scaley=False)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:12] + "…" + text[-27:]


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
CELL = 4.0
"""Pixels of a cell in which points are counted."""
STEP = 8
"""Pixels between two candidate positions."""
FAR = 0.02
"""Cost of a pixel of distance, in covered points: a name moves 50 pixels to uncover a point."""


def place_labels(
    points_N2: Doubles,
    middles_K2: Doubles,
    sizes_K2: Doubles,
    canvas: tuple[float, float],
    *,
    taken: Sequence[Box] = (),
    margin: float = 4.0,
) -> Doubles:
    """[K, 2] centres of the names of clusters on a canvas of (width, height) pixels, near their points.

    Names cover as few points as possible and never each other or the `taken` boxes, such as a legend. If the canvas is
    too small, they overlap as little as possible. Points are counted in a grid (a summed-area table), so that any box
    costs four additions; of all positions of a grid, the one with the fewest points is taken, the nearest of equal
    ones.
    """
    width, height = canvas
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
    corner = np.array([sums.shape[1] - 1, sums.shape[0] - 1])
    first = np.clip(np.floor(low / CELL).astype(np.int64), 0, corner)
    last = np.clip(np.ceil(high / CELL).astype(np.int64), 0, corner)
    a, b = first[:, 1], last[:, 1]
    left, right = first[:, 0], last[:, 0]
    return np.asarray(sums[b, right] - sums[a, right] - sums[b, left] + sums[a, left])
