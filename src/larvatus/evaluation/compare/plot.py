"""The plot of a comparison: gain over the unigram baseline by training tokens and by minutes, and below it the scores
of fine-tuned models on each labelled set.

    draw(results, Path("runs/compare/compare.png"))

Wants matplotlib, the extra `plots`; `outputs.has_matplotlib` says whether it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larvatus.core.files import saying_what_is_full
from larvatus.evaluation.compare.fine_tuned import MetricRow, SeedMean
from larvatus.evaluation.compare.results import ComparisonResults, RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

# Okabe and Ito's palette for the colour-blind; markers distinguish lines in black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
WIDTH, HEIGHT, LOW = 11, 4.8, 3.0  # inches of curves, and of a row of panels of scores
ABREAST = 6  # panels of scores in a row
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw(results: ComparisonResults, path: Path) -> bool:
    """Write the plot as PNG; return False if there is nothing to draw."""
    has_curves, scores = any(run.curve for run in results.runs), results.fine_tuned_rows() if results.tuned else []
    if not has_curves and not scores:
        return False
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    heights = [HEIGHT] * has_curves + [LOW * -(-len(scores) // ABREAST)] * bool(scores)
    figure = Figure(figsize=(WIDTH, sum(heights)), dpi=150, layout="constrained")
    parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    if has_curves:
        _draw_curves(parts[0], results)
    if scores:
        _draw_scores(parts[-1], results, scores)
    with saying_what_is_full(path):
        figure.savefig(path, format="png")
    return True


def _draw_curves(figure: SubFigure, results: ComparisonResults) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    most = max(run.tokens for run in results.runs)
    scale, unit = next(
        (s, u) for s, u in ((1e9, "billion "), (1e6, "million "), (1e3, "thousand "), (1, "")) if most >= s
    )
    seconds = max(run.seconds for run in results.runs)
    time, clock = (60.0, "minutes") if seconds >= 120 else (1.0, "seconds")
    for number, label in enumerate(results.labels):
        runs = [run for run in results.runs if run.label == label and run.curve]
        style = _style(number)
        for run in runs:
            gains = [100 * point.gain for point in run.curve]
            left.plot([point.tokens / scale for point in run.curve], gains, **style)
            right.plot([point.seconds / time for point in run.curve], gains, **style)
    left.set_xlabel(f"{unit}tokens seen")
    right.set_xlabel(f"{clock} of training")
    left.set_ylabel("held-out gain over unigram guess, %")
    for axes in (left, right):
        _tidy(axes)
        axes.margins(x=0.03)
        axes.ticklabel_format(axis="x", style="plain", useOffset=False)
        if axes.get_ylim()[0] < 0 < axes.get_ylim()[1]:
            axes.axhline(0, color="#888888", linewidth=1, linestyle=":", zorder=1)
    _name_lines(right, results)
    kinds = ", ".join(dict.fromkeys(run.predicts for run in results.runs if run.curve))
    figure.suptitle(f"{kinds}, each with its own targets · {results.budget} each", x=0.01, ha="left", fontsize=11)


def _draw_scores(figure: SubFigure, results: ComparisonResults, rows: Sequence[MetricRow]) -> None:
    """A panel for each labelled set with its own scale: mean, deviation and interval of each model."""
    panels = figure.subplots(-(-len(rows) // ABREAST), min(len(rows), ABREAST), squeeze=False).ravel()
    for axes, row in zip(panels, rows, strict=False):
        scale = 100 if row.kind == "share" else 1
        for number, label in enumerate(results.labels):
            if (value := row.values[label]) is not None:
                _draw_value(axes, number, value, scale)
        axes.set_title(row.name, fontsize=10)
        axes.set_xticks([])
        axes.set_xlim(-0.7, len(results.labels) - 0.3)
        _tidy(axes)
    for axes in panels[len(rows) :]:
        axes.set_visible(False)
    panels[0].set_ylabel("score after fine-tuning" + (", %" if rows[0].kind == "share" else ""))
    marks = [panels[0].plot([], [], label=label, **_point(n))[0] for n, label in enumerate(results.labels)]
    figure.legend(handles=marks, loc="outside right center", frameon=False, fontsize=9)
    what = "thick: deviation over seeds · thin: 95% interval over examples"
    figure.suptitle(f"fine-tuned on the same labelled sets · {what}", x=0.01, ha="left", fontsize=11)


def _draw_value(axes: Axes, place: int, value: SeedMean, scale: float) -> None:
    style = _point(place)
    axes.plot([place], [scale * value.mean], zorder=3, **style)
    if value.low is not None and value.high is not None:
        axes.vlines(place, scale * value.low, scale * value.high, color=style["color"], linewidth=1, alpha=0.7)
    if value.deviation:
        ends = (scale * (value.mean - value.deviation), scale * (value.mean + value.deviation))
        axes.vlines(place, *ends, color=style["color"], linewidth=4, alpha=0.5)


def _point(number: int) -> dict[str, Any]:
    return {**_style(number), "linestyle": "none", "markersize": 6}


def _style(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": "-" if number < len(COLOURS) else "--",
        "linewidth": 1.6,
        "markersize": 4.5,
        "alpha": 0.9,
    }


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)


def _name_lines(axes: Axes, results: ComparisonResults) -> None:
    """Label each line to the right of the plot at its end, moving labels apart that would touch."""
    ends: list[tuple[float, int, str]] = []
    for number, label in enumerate(results.labels):
        runs = [run for run in results.runs if run.label == label and run.curve]
        if runs:
            ends.append((_mean_end(runs), number, label))
    ends.sort()
    low, high = axes.get_ylim()
    heights = spread_heights([(height - low) / (high - low) for height, _, _ in ends], gap=0.055)
    for (height, number, label), where in zip(ends, heights, strict=True):
        axes.annotate(
            f"{label}  {height:.1f}",
            xy=(1.02, where),
            xycoords="axes fraction",
            color=COLOURS[number % len(COLOURS)],
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def _mean_end(runs: Sequence[RunResult]) -> float:
    return 100 * sum(run.curve[-1].gain for run in runs) / len(runs)


def spread_heights(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights as little as needed for gaps of `gap`, within 0 … 1 if they fit.

    >>> [round(h, 2) for h in spread_heights([0.5, 0.51, 0.9], gap=0.1)]
    [0.5, 0.6, 0.9]
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    over = max(0.0, placed[-1] - 1.0) if placed else 0.0
    if over:  # push back down from the top
        ceiling = 1.0
        for k in range(len(placed) - 1, -1, -1):
            placed[k] = min(placed[k], ceiling)
            ceiling = placed[k] - gap
    return placed
