"""Heat maps of attention as PNG, with matplotlib (the extra `plots`): one head with its tokens, or all heads, small.

draw_head(attention, Path("head.png"), layer=3, head=1)
draw_heads(attention, Path("heads.png"))
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from larvatus.core.outputs import escape_dollars, new_output
from larvatus.inference.interpret.attention import TextAttention
from larvatus.inference.interpret.heads import text_statistics

_NAMED = 64
"""Tokens that still have room for their names."""
_MAP = "magma_r"


def draw_head(attention: TextAttention, path: Path, *, layer: int, head: int) -> None:
    """Rows look at columns."""
    from matplotlib.figure import Figure  # no pyplot: nothing global, no window

    weights = attention.head(layer, head)
    count = len(attention.tokens)
    side = min(11.0, max(4.6, 0.3 * count + 2))
    figure = Figure(figsize=(side + 0.9, side), dpi=110, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(weights, cmap=_MAP, vmin=0, vmax=max(0.05, float(weights.max())), interpolation="nearest")
    if count <= _NAMED:
        names = [escape_dollars(token) for token in attention.tokens]
        size = 9 if count <= 32 else 6
        axes.set_xticks(np.arange(count), names, rotation=90, fontsize=size)
        axes.set_yticks(np.arange(count), names, fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    row = text_statistics(attention)[(layer - 1) * attention.weights.shape[1] + head - 1]
    axes.set_title(f"layer {layer}, head {head}: {row.type}", loc="left", fontsize=11)
    figure.colorbar(image, ax=axes, shrink=0.7, label="weight of attention")
    with new_output(path) as aside:
        figure.savefig(aside, format="png")


def draw_heads(attention: TextAttention, path: Path) -> None:
    """All heads, layers from top to bottom; colours by √α, so that small weights show."""
    from matplotlib.figure import Figure

    layers, heads = attention.weights.shape[:2]
    types = [row.type for row in text_statistics(attention)]
    figure = Figure(figsize=(0.95 * heads + 0.6, 1.12 * layers + 0.5), dpi=110, layout="constrained")
    grid = figure.subplots(layers, heads, squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            axes = grid[layer][head]
            axes.imshow(np.sqrt(attention.weights[layer, head]), cmap=_MAP, vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("#cccccc")
            axes.set_title(f"{layer + 1}-{head + 1} {types[layer * heads + head]}", fontsize=6.5, pad=2)
    text = " ".join(attention.text.split())
    short = text if len(text) <= 80 else text[:79] + "…"
    figure.suptitle(escape_dollars(f"layer-head, rows look at columns: {short}"), fontsize=9, x=0.01, ha="left")
    with new_output(path) as aside:
        figure.savefig(aside, format="png")
