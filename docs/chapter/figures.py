"""Figures of the chapter, drawn again from the packaged English model.

    python docs/chapter/figures.py                       # writes docs/pictures/chapter_*.svg
    python docs/chapter/figures.py OUT                   # into another folder

Nothing is sampled: the same model gives the same pictures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import larvatus as lv
from larvatus.core.drawing import Element, as_html, element

BLUE, RED, GREY = "#1a5fb4", "#c01c28", "#5e5c64"
CELL = 22
Values = npt.NDArray[np.floating]


def text(words: str, x: float, y: float, *, anchor: str = "start", size: int = 13, fill: str = "#1e1e1e") -> Element:
    return element("text", {"x": x, "y": y, "text-anchor": anchor, "font-size": size, "fill": fill}, words)


def bar(x: float, y: float, width: float, *, fill: str = BLUE, height: float = 12.0) -> Element:
    return element("rect", {"x": x, "y": y, "width": max(width, 0.5), "height": height, "fill": fill})


def svg(width: float, height: float, title: str, children: Sequence[Element]) -> str:
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {width:.0f} {height:.0f}",
        "width": int(width),
        "height": int(height),
        "font-family": "sans-serif",
        "role": "img",
    }
    return as_html(element("svg", attributes, element("title", {}, title), *children)) + "\n"


def heat_map(weights: Values, tokens: Sequence[str], left: float, top: float, *, names: bool) -> list[Element]:
    """Rows are queries, columns keys; `names` writes the tokens of the rows too."""
    out: list[Element] = []
    for i, token in enumerate(tokens):
        if names:
            out.append(text(token, left - 6, top + i * CELL + 15, anchor="end"))
        x, y = left + i * CELL + 14, top - 6
        turned = {"x": x, "y": y, "font-size": 13, "transform": f"rotate(-60 {x:.0f} {y:.0f})", "fill": "#1e1e1e"}
        out.append(element("text", turned, token))
        for j in range(len(tokens)):
            place = {"x": left + j * CELL, "y": top + i * CELL, "width": CELL, "height": CELL, "stroke": "#d5d5d5"}
            out.append(element("rect", {**place, "fill": BLUE, "fill-opacity": f"{weights[i, j]:.2f}"}))
    return out


def masks(model: lv.Model) -> str:
    """Fig. 11.1 and 11.2: weights over the whole sentence, and the same scores under a causal mask."""
    attention = model.attention("The keys to the cabinet are on the table.")
    weights = attention.weights[7, 1]
    causal = np.tril(weights)
    causal = causal / causal.sum(1, keepdims=True)  # softmax of masked scores: the weights that are left, scaled
    side, left, top = CELL * len(attention.tokens), 80, 90
    children = [
        text("all tokens", left, 20, size=15),
        text("causal mask", left + side + 40, 20, size=15),
        *heat_map(weights, attention.tokens, left, top, names=True),
        *heat_map(causal, attention.tokens, left + side + 40, top, names=False),
    ]
    return svg(left + 2 * side + 100, top + side + 10, "Attention weights with and without a causal mask", children)


def mlm(model: lv.Model) -> str:
    """Fig. 11.4: what the model reads, the tokens it must predict, their probabilities and losses."""
    words = ["So", "long", "and", "thanks", "for", "all", "the", "fish"]
    shown = ["So", "[MASK]", "and", "[MASK]", "for", "all", "apricot", "fish"]
    tokenizer = model.tokenizer
    ids = tokenizer.template.single.ids(tokenizer.encode(" ".join(words) + ".").ids)
    read = ids.copy()
    read[[2, 4]] = tokenizer.mask_id
    read[7] = tokenizer.encode(" apricot").ids[0]
    batch = lv.TokenBatch.of([read.tolist()]).map(torch.from_numpy)
    with torch.inference_mode():
        head = model.network.heads["masked-lm"]
        y = head.logits(model.encoder(batch), model.encoder.word_vectors).softmax(-1).numpy()
    width, children = 78, [text("reads", 0, 20, fill=GREY), text("predicts", 0, 60, fill=GREY)]
    for number, (word, seen) in enumerate(zip(words, shown, strict=True)):
        x, sampled = 80 + number * width, word != seen
        children.append(text(seen, x, 20, size=15, fill=RED if sampled else "#1e1e1e"))
        if not sampled:
            continue
        place = number + 1
        p = float(y[place, ids[place]])
        children += [text(word, x, 60, size=15), text(f"p = {p:.3f}", x, 80), text(f"−log p = {-np.log(p):.1f}", x, 98)]
        likely = ((int(token), tokenizer.token(int(token)).strip("Ġ")) for token in y[place].argsort()[::-1])
        for rank, (token, name) in enumerate(islice((pair for pair in likely if pair[1].isalpha()), 4)):
            row = 124 + rank * 34
            children += [text(name, x, row), bar(x, row + 5, 70 * float(y[place, token]))]
    children.append(text("most probable", 0, 124, fill=GREY))
    return svg(80 + 8 * width, 250, "Masked language modelling of one sentence", children)


def senses(model: lv.Model) -> str:
    """Fig. 11.9: cosines of two new instances with the vectors of four senses."""
    tagged = {
        "bank (money)": ["The *bank* keeps the shares of its customers.", "The *bank* raised its rates."],
        "bank (river)": ["Farms spread along the eastern *bank* of the Nile.", "He fished from the muddy *bank*."],
        "mouse (animal)": ["She crept in, as quiet as a *mouse*.", "The cat chased a *mouse* across the field."],
        "mouse (device)": [
            "He moved the pointer with the *mouse* of the computer.",
            "Click the left button of the *mouse*.",
        ],
    }
    instances = ("We walked along the *bank* of the stream.", "My *mouse* has two buttons and a wheel.")
    vectors = {sense: np.concatenate(model.embed(texts, unit="span")).mean(0) for sense, texts in tagged.items()}
    children: list[Element] = []
    for column, new in enumerate(instances):
        t, x = model.embed(new, unit="span")[0], column * 390
        children.append(text(new.replace("*", ""), x, 20, size=15))
        cosines = {sense: float(t @ v / np.linalg.norm(t) / np.linalg.norm(v)) for sense, v in vectors.items()}
        for row, (sense, cosine) in enumerate(cosines.items()):
            y, best = 52 + row * 26, cosine == max(cosines.values())
            children += [
                text(sense, x + 110, y, anchor="end", fill=RED if best else "#1e1e1e"),
                bar(x + 120, y - 11, 200 * cosine, fill=RED if best else BLUE),
                text(f"{cosine:.2f}", x + 126 + 200 * cosine, y),
            ]
    return svg(760, 145, "Cosines of two word instances with four sense vectors", children)


def lens(model: lv.Model) -> str:
    """The top word of each layer for a blank, and the probability of the model's answer."""
    blank = model.lens("The keys to the cabinet [MASK] on the table.").blanks[0]
    answer = blank.layers[-1].top[0].token
    children = [
        text("layer", 0, 20, fill=GREY),
        text("top word", 60, 20, fill=GREY),
        text("its probability", 150, 20, fill=GREY),
        text(f"probability of {answer}", 400, 20, fill=GREY),
    ]
    for row, layer in enumerate(reversed(blank.layers)):
        y, top = 46 + row * 24, layer.top[0]
        children += [
            text(str(len(blank.layers) - 1 - row), 0, y),
            text(top.token, 60, y),
            bar(150, y - 11, 180 * top.probability),
            text(f"{top.probability:.2f}", 156 + 180 * top.probability, y),
            bar(400, y - 11, 180 * layer.final, fill=RED),
            text(f"{layer.final:.2f}", 406 + 180 * layer.final, y),
        ]
    return svg(640, 46 + 24 * len(blank.layers), "What each layer would fill in", children)


FIGURES: dict[str, Callable[[lv.Model], str]] = {"masks": masks, "mlm": mlm, "senses": senses, "lens": lens}


def main(out: Path) -> None:
    model = lv.load(device="cpu")
    for name, draw in FIGURES.items():
        (out / f"chapter_{name}.svg").write_text(draw(model), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pictures")
