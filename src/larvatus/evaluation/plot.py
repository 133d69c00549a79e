"""The curves of a comparison: gain over the unigram guess against tokens seen and against minutes of training.

    draw(results, Path("runs/compare/compare.png"))

Wants matplotlib, the extra `plots`; `plots.can_draw` says whether it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larvatus.evaluation.results import Results, RunResult
from larvatus.files import saying_what_is_full

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, told apart by the colour-blind; markers tell the same in black and white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def draw(results: Results, path: Path) -> bool:
    """Write the plot as PNG; False where no run has a curve (no held-out text, no masked-lm)."""
    if not any(run.curve for run in results.runs):
        return False
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    figure = Figure(figsize=(11, 4.8), dpi=150, layout="constrained")
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
        if axes.get_ylim()[0] < 0 < axes.get_ylim()[1]:
            axes.axhline(0, color="#888888", linewidth=1, linestyle=":", zorder=1)
    _name_lines(right, results)
    figure.suptitle(f"masked-lm, each with its own masks · {results.budget} each", x=0.01, ha="left", fontsize=11)
    with saying_what_is_full(path):
        figure.savefig(path, format="png")
    return True


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
    axes.margins(x=0.03)
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)


def _name_lines(axes: Axes, results: Results) -> None:
    """Each line's name to the right of the plot, at the height of its end, moved apart where they would touch."""
    ends: list[tuple[float, int, str]] = []
    for number, label in enumerate(results.labels):
        runs = [run for run in results.runs if run.label == label and run.curve]
        if runs:
            ends.append((_mean_end(runs), number, label))
    ends.sort()
    low, high = axes.get_ylim()
    heights = apart([(height - low) / (high - low) for height, _, _ in ends], gap=0.055)
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


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """The same heights (ascending), moved as little as it takes for neighbours to be `gap` apart; all within 0 … 1
    where they fit.

    >>> [round(h, 2) for h in apart([0.5, 0.51, 0.9], gap=0.1)]
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
