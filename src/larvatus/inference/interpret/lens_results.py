"""Results of the lens: words by layer, and their picture.

print(result)                       # a table for each blank
result.blanks[0].layers[4].top[0].token
result.to_dicts()                   # a row for each blank, layer and word
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from larvatus.core.drawing import Element, element, in_notebook
from larvatus.core.tables import Cell, Column, Table, Tabular

MOST_CONTEXT = 3
"""Words of the context that are named."""


@dataclass(frozen=True)
class LensWord:
    token: str
    probability: float


@dataclass(frozen=True)
class LensLayer:
    """What a layer would fill in."""

    layer: int
    """0: the embeddings."""
    top: tuple[LensWord, ...]
    """Most probable first."""
    final: float
    """Probability of the last layer's top word."""
    kl: float
    """KL(p_L ‖ p_l) to the last layer, in nats."""


@dataclass(frozen=True)
class ContextWord:
    """A word of the context, and what masking it changes at the deciding layer."""

    text: str
    start: int
    end: int
    """Characters [start, end) of the text."""
    kl: float
    """KL(p ‖ p without the word), in nats."""
    change: float
    """Log-probability of the top word, minus that without the word."""


@dataclass(frozen=True)
class LensBlank:
    """A blank through the layers."""

    start: int
    end: int
    """Characters [start, end) of its mark in the text."""
    layers: tuple[LensLayer, ...]
    decided: int
    """The lowest layer from which on the top word is that of the last layer."""
    context: tuple[ContextWord, ...]
    """Words of the context, that with the strongest effect first; empty if the blank is decided at layer 0."""

    @property
    def word(self) -> str:
        """The top word of the last layer."""
        return self.layers[-1].top[0].token

    def summary(self) -> str:
        """When it is decided, and by which words."""
        if not self.context:
            return f"{self.word}: decided at layer {self.decided}"
        words = ", ".join(f"{word.text} ({word.kl:.2f})" for word in self.context[:MOST_CONTEXT])
        return f"{self.word}: decided at layer {self.decided}; masking changes it most (KL in nats): {words}"


@dataclass(frozen=True)
class LensResult(Tabular):
    """What each layer would fill into the blanks of a text."""

    text: str
    blanks: tuple[LensBlank, ...]
    tuned: str | None
    """Name of the tuned lens; None for the logit lens."""

    @property
    def lens(self) -> str:
        return "logit lens" if self.tuned is None else f"tuned lens {self.tuned}"

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "tuned": self.tuned, "blanks": [asdict(blank) for blank in self.blanks]}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each blank, layer and word."""
        return [
            {"text": self.text, "blank": number, "layer": layer.layer, "kl": layer.kl, "rank": rank, **asdict(word)}
            for number, blank in enumerate(self.blanks, start=1)
            for layer in blank.layers
            for rank, word in enumerate(layer.top, start=1)
        ]

    def tables(self) -> Iterator[Table]:
        """A table for each blank, the last layer first."""
        for number, blank in enumerate(self.blanks, start=1):
            width = max(len(layer.top) for layer in blank.layers)
            words = [column for _ in range(width) for column in (Column("", right=False), Column(""))]
            rows: list[list[str | Cell]] = []
            for layer in reversed(blank.layers):
                style = "bold" if layer.layer == blank.decided else ""
                cells = [Cell(text, style) for word in layer.top for text in (word.token, f"{word.probability:.3f}")]
                rows.append([f"{layer.layer}", f"{layer.kl:.3f}", f"{layer.final:.3f}", *cells])
            yield Table(
                ("layer", "KL", f"p({blank.word})", *words),
                rows,
                title=f"blank {number} of {len(self.blanks)} · {self.lens}" if len(self.blanks) > 1 else self.lens,
                left=0,
                notes=(blank.summary(),),
            )

    def __str__(self) -> str:
        return "\n".join([self.text, *map(str, self.tables())])

    def picture(self) -> Element:
        """Words by layer, darker where they are more probable."""
        return element("div", {"class": "lv"}, *(each for blank in self.blanks for each in self._drawn(blank)))

    def _repr_html_(self) -> str:
        return in_notebook(self.picture())

    def _drawn(self, blank: LensBlank) -> Iterator[Element]:
        mark = element("strong", {}, self.text[blank.start : blank.end])
        yield element("p", {"class": "lv-text", "dir": "auto"}, self.text[: blank.start], mark, self.text[blank.end :])
        ranks = range(1, 1 + max(len(layer.top) for layer in blank.layers))
        names = ("layer", *(f"word {rank}" for rank in ranks), f"p({blank.word})", "KL")
        head = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in names))
        rows = (_row(layer, decided=layer.layer == blank.decided) for layer in reversed(blank.layers))
        table = element("table", {}, element("thead", {}, head), element("tbody", {}, *rows))
        yield element("div", {"class": "lv-wide"}, table)
        yield element("p", {"class": "lv-note"}, f"{self.lens}. {blank.summary()}.")


def _row(layer: LensLayer, *, decided: bool) -> Element:
    cells = (
        element("td", {"dir": "auto", "style": shade(word.probability)}, f"{word.token} {word.probability:.3f}")
        for word in layer.top
    )
    name = f"{layer.layer} decided" if decided else f"{layer.layer}"
    numbers = (element("td", {}, f"{number:.3f}") for number in (layer.final, layer.kl))
    return element("tr", {}, element("th", {"scope": "row"}, name), *cells, *numbers)


def shade(share: float) -> str:
    """Background of a cell, from none to strong; blue, or red for a negative share."""
    hue = 205 if share >= 0 else 5
    return f"background:hsla({hue},65%,50%,{0.6 * min(1.0, abs(share)):.2f})"
