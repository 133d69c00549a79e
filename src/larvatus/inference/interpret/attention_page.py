"""The heads of a text as a web page: choose layer and head, hover a token to see what it looks at.

    path.write_text(attention_page(attention))

A head's T × T weights are bytes 255·√α, deflated, one block a head: small weights keep their digits (no weight is off
by more than 0.002 + α/250), and the browser unpacks only the head that is chosen.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.inference.interpret.attention import TextAttention, check_head
from larvatus.inference.interpret.heads import text_statistics
from larvatus.inference.search.page import asset, whole_page

_TITLE = 70


def attention_page(attention: TextAttention, *, layer: int = 1, head: int = 1) -> str:
    """`layer` and `head` are what it shows first."""
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
    return whole_page(
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
