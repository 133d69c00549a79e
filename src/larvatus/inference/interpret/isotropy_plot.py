"""Isotropy of all layers as a picture: expected cosine, IsoScore*, and self-similarity against frequency.

    draw(report, Path("isotropy.png"), title="runs/mine")

Wants matplotlib, the extra `plots`; `plots.can_draw` says whether it is there.
"""

from __future__ import annotations

import math
from pathlib import Path

from larvatus.core.outputs import new_output
from larvatus.inference.interpret.isotropy import Isotropy, IsotropyReport

COLOURS = {"plain": "#D55E00", "standardised": "#0072B2"}  # of Okabe and Ito's palette
MARKERS = {"plain": "o", "standardised": "s"}


def draw(report: IsotropyReport, path: Path, *, title: str) -> None:
    """Write the plot as PNG."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(12, 4.2), dpi=150, layout="constrained")
    cosine, score, frequency = figure.subplots(1, 3)
    layers = [layer.layer for layer in report.layers]
    for name, by_layer in _kinds(report).items():
        style = {"color": COLOURS[name], "marker": MARKERS[name], "linewidth": 1.6, "markersize": 5, "label": name}
        errors = [isotropy.standard_error for isotropy in by_layer]
        cosine.errorbar(layers, [isotropy.expected for isotropy in by_layer], yerr=errors, capsize=2, **style)
        score.plot(layers, [isotropy.isoscore for isotropy in by_layer], **style)
        effect = by_layer[-1].frequency
        if effect is not None:
            middles = [math.sqrt(frequency_bin.low * frequency_bin.high) for frequency_bin in effect.bins]
            frequency.plot(middles, [frequency_bin.similarity for frequency_bin in effect.bins], **style)
    cosine.axhline(0, color="#888888", linewidth=1, linestyle=":", zorder=1)
    cosine.set_title("expected cosine of two word instances", fontsize=10, loc="left")
    score.set_title("IsoScore*", fontsize=10, loc="left")
    score.set_ylim(bottom=0)
    frequency.set_title(f"cosine of instances of one word, layer {layers[-1]}", fontsize=10, loc="left")
    frequency.set_xscale("log")
    frequency.set_xlabel(f"occurrences in {report.counted:,} words")
    for axes in (cosine, score):
        axes.set_xlabel("layer (0: embeddings)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (cosine, score, frequency):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
    if report.standardise:
        cosine.legend(frameon=False)
    figure.suptitle(f"{title} · {report.instances:,} word instances", x=0.01, ha="left", fontsize=11)
    with new_output(path) as aside:
        figure.savefig(aside, format="png")


def _kinds(report: IsotropyReport) -> dict[str, list[Isotropy]]:
    kinds = {"plain": [layer.plain for layer in report.layers]}
    after = [layer.standardised for layer in report.layers if layer.standardised is not None]
    return {**kinds, "standardised": after} if after else kinds
