"""Plots of a benchmark: bars of throughput with those of peers, and scaling on logarithmic axes.

    draw(result, Path("bench.png"))
    draw_growth(growth, Path("length.png"))

Wants matplotlib, the extra `plots`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from larvatus.core.outputs import escape_dollars, new_output
from larvatus.evaluation.compare.plot import COLOURS, MARKERS
from larvatus.evaluation.speed.results import Benchmark
from larvatus.evaluation.speed.scaling import FIGURES, ScalingResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(result: Benchmark, path: Path) -> None:
    """Draw training, embedding and loading, one panel each."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    figure = Figure(figsize=(11, 4.2), dpi=150, layout="constrained")
    panels = figure.subplots(1, 3, gridspec_kw={"width_ratios": [2, 1.2, 1.4]})
    training = [each for each in result.measured if each.what.startswith("training")]
    for axes, measured in ((panels[0], training), (panels[1], [e for e in result.measured if e not in training])):
        for place, each in enumerate(measured):
            _bar(axes, place - 0.2, each.larvatus.tokens_per_second, 0, each.larvatus.low, each.larvatus.high)
            if each.theirs is not None:
                _bar(axes, place + 0.2, each.theirs.tokens_per_second, 1, each.theirs.low, each.theirs.high)
        axes.set_xticks(range(len(measured)), [each.what.replace(", ", ",\n") for each in measured])
        peer = next((each.peer for each in measured if each.peer), None)
        names = ["larvatus", *([peer] if peer else [])]
        marks = [axes.bar([0], [0], color=COLOURS[number], label=name) for number, name in enumerate(names)]
        axes.legend(handles=marks, frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    for place, loading in enumerate(result.loading):
        rate = loading.tokens_per_second
        _bar(panels[2], place, rate, 2, rate, rate)
    panels[2].set_xticks(range(len(result.loading)), [f"{each.workers}" for each in result.loading])
    panels[2].set_xlabel("workers that pack and corrupt")
    panels[0].set_ylabel("tokens of text a second")
    for axes in panels:
        _tidy(axes)
        axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    figure.suptitle(escape_dollars(f"{result.model} on {result.machine.name}"), x=0.01, ha="left", fontsize=11)
    _save(figure, path)


def draw_growth(growth: ScalingResult, path: Path) -> None:
    """Draw time and memory, with a line and an exponent for each figure."""
    from matplotlib.figure import Figure

    figures = growth.figures()
    figure = Figure(figsize=(11, 4.5), dpi=150, layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, ending, label in ((panels[0], "seconds", "seconds"), (panels[1], "bytes", "bytes")):
        for number, (name, pairs) in enumerate((n, p) for n, p in figures.items() if n.endswith(ending)):
            sizes, values = zip(*pairs, strict=True)
            power = growth.exponents[name]
            axes.plot(
                sizes,
                values,
                color=COLOURS[number],
                marker=MARKERS[number],
                linewidth=1.6,
                label=f"{FIGURES[name]}: grows with the power {power:.2f}",
            )
            middle = len(sizes) // 2
            slope = [values[middle] * (size / sizes[middle]) ** power for size in sizes]
            axes.plot(sizes, slope, color=COLOURS[number], linewidth=1, linestyle=":")
        axes.set_xscale("log", base=2 if growth.of != "corpus" else 10)
        axes.set_yscale("log")
        axes.set_xlabel(growth.unit)
        axes.set_ylabel(label)
        _tidy(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=9)
    title = f"{growth.model} on {growth.machine.name}: {growth.each}"
    figure.suptitle(escape_dollars(title), x=0.01, ha="left", fontsize=11)
    _save(figure, path)


def _bar(axes: Axes, place: float, height: float, colour: int, low: float, high: float) -> None:
    axes.bar([place], [height], width=0.38, color=COLOURS[colour], zorder=2)
    axes.vlines(place, low, high, color="#333333", linewidth=1, zorder=3)
    axes.annotate(_short(height), (place, max(height, high)), ha="center", va="bottom", fontsize=8)


def _short(rate: float) -> str:
    """
    >>> _short(433_210), _short(2_140_000)
    ('433k', '2.1M')
    """
    return f"{rate / 1e6:.1f}M" if rate >= 1e6 else f"{rate / 1e3:.0f}k" if rate >= 1e4 else f"{rate:,.0f}"


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)


def _save(figure: Figure, path: Path) -> None:
    with new_output(path) as aside:
        figure.savefig(aside, format="png")
