"""The map as a PNG, with matplotlib (the extra `plots`).

draw_map(result, Path("bank.png"), colour="cluster")
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core.outputs import escape_dollars, new_output
from larvatus.inference.maps.labels import place_labels
from larvatus.inference.maps.page import about, chosen_field, middles, shown_fields
from larvatus.inference.maps.word_map import WordMap

# Okabe and Ito's palette, told apart by the colour-blind, and markers that tell the same in black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6BC9", "#7F7F7F", "#A6761D", "#1B9E77")
MARKERS = ("o", "s", "^", "D", "P")
MOST_GROUPS = 12
"""Groups in the legend; what is beyond is drawn in grey as one."""


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
        many = number >= MOST_GROUPS
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
    """The name of each cluster beside its points, with a line to its middle where it had to stand apart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.patheffects import withStroke

    figure = axes.figure
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    figure.draw_without_rendering()  # the layout is known from here on
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
