"""The map as a PNG, with matplotlib (the extra `plots`).

draw_map(result, Path("bank.png"), colour="cluster")
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from larvatus.embed.map.page import about, chosen_field, middles, shown_fields
from larvatus.embed.map.word_map import WordMap
from larvatus.files import new_file
from larvatus.plots import as_written

# Okabe and Ito's palette, told apart by the colour-blind, and markers that tell the same in black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6BC9", "#7F7F7F", "#A6761D", "#1B9E77")
MARKERS = ("o", "s", "^", "D", "P")
MOST_GROUPS = 12
"""Groups in the legend; what is beyond is drawn in grey as one."""


def draw_map(result: WordMap, path: Path, *, colour: str = "auto", label: str = "label") -> None:
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window
    from matplotlib.patheffects import withStroke

    columns = shown_fields(result, colour=colour, label=label)
    field = chosen_field(columns, colour)
    values = columns[field]
    figure = Figure(figsize=(9, 6.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    size = max(8.0, min(34.0, 12_000 / len(values)))
    groups = [name for name, _ in sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))]
    for number, name in enumerate(groups):
        own = [index for index, value in enumerate(values) if value == name]
        many = number >= MOST_GROUPS
        axes.scatter(
            result.points[own, 0],
            result.points[own, 1],
            s=size,
            color="#bbbbbb" if many else COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            alpha=0.75,
            linewidths=0,
            label=None if many else f"{_short(as_written(name))}  {len(own):,}",
        )
    for middle in middles(result.clusters, result.points) if result.clusters is not None else ():
        axes.annotate(
            as_written(middle["name"]),
            (middle["x"], middle["y"]),
            ha=_towards_the_middle(middle["x"], result.points[:, 0]),
            va="center",
            in_layout=False,
            fontsize=9,
            fontweight="bold",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#dddddd")
    axes.set_title(f"{as_written(', '.join(result.words))}: {about(result)}", loc="left", fontsize=10)
    if len(groups) > 1:
        axes.legend(title=as_written(field), loc="best", fontsize=8, title_fontsize=8, framealpha=0.85)
    with new_file(path) as aside:
        figure.savefig(aside, format="png")


def _towards_the_middle(x: float, xs: npt.NDArray[np.float64]) -> Literal["left", "center", "right"]:
    """Which side of a name stands at its place, so that names near an edge do not run over it."""
    low, span = float(xs.min()), float(np.ptp(xs)) or 1.0
    part = (x - low) / span
    return "left" if part < 0.15 else "right" if part > 0.85 else "center"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:12] + "…" + text[-27:]
