"""Attention of a text as a web page, and as heat maps in PNG (with matplotlib, the extra `plots`).

    path.write_text(attention_page(attention))                      # choose layer and head, hover a token
    draw_head(attention, Path("head.png"), layer=3, head=1)         # one head with its tokens
    draw_heads(attention, Path("heads.png"))                        # all heads, small

The page stores the T × T weights of a head as bytes 255·√α, deflated, one block per head: small weights keep their
digits (no weight is off by more than 0.002 + α/250), and the browser unpacks only the selected head.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.outputs import escape_dollars, new_output
from larvatus.inference.interpret.attention import TextAttention, check_head
from larvatus.inference.interpret.heads import text_statistics
from larvatus.inference.web_page import asset, build_page

_TITLE = 70


def attention_page(attention: TextAttention, *, layer: int = 1, head: int = 1) -> str:
    """`layer` and `head` are shown first."""
    layers, heads, tokens, _ = attention.weights.shape
    check_head(layer, head, layers=layers, heads=heads)
    text = attention.text if len(attention.text) <= _TITLE else attention.text[: _TITLE - 1] + "…"
    blobs = {
        f"w-{row + 1}-{column + 1}": zlib.compress(packed(attention.weights[row, column]).tobytes(), 6)
        for row in range(layers)
        for column in range(heads)
    }
    data = {
        "tokens": list(attention.tokens),
        "layers": layers,
        "heads": heads,
        "layer": layer,
        "head": head,
        "about": f"{' '.join(text.split())} · {tokens:,} tokens, {layers} layers × {heads} heads",
        "table": [
            {"type": row.type, "entropy": row.entropy, "uniform": row.uniform, "distance": row.distance}
            for row in text_statistics(attention)
        ],
    }
    package = "larvatus.inference.interpret"
    return build_page(
        f"attention · {text}",
        body=asset(package, "attention.html"),
        script=asset(package, "attention.js"),
        data=data,
        blobs=blobs,
    )


def packed(weights: Floats) -> npt.NDArray[np.uint8]:
    """255·√α, rounded."""
    squeezed: npt.NDArray[np.uint8] = np.rint(255 * np.sqrt(weights)).astype(np.uint8)
    return squeezed


_NAMED = 64
"""Most tokens whose names are drawn."""
_MAP = "magma_r"


def draw_head(attention: TextAttention, path: Path, *, layer: int, head: int) -> None:
    """Draw one head; rows attend to columns."""
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
    figure.colorbar(image, ax=axes, shrink=0.7, label="attention weight")
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
    figure.suptitle(escape_dollars(f"layer-head, rows attend to columns: {short}"), fontsize=9, x=0.01, ha="left")
    with new_output(path) as aside:
        figure.savefig(aside, format="png")
