"""Results of `explain`: scores of words by method, as a table, as marked text, as JSON.

print(explanation)                  # the words in their order, a column for each method
explanation.top(2)                  # the two words with the highest scores of the first method
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from larvatus.core.drawing import Element, element, folded_table, in_notebook
from larvatus.core.tables import Table, Tabular, flatten
from larvatus.inference.interpret.lens_results import shade

ROLLOUT = "attention-rollout"


@dataclass(frozen=True)
class AttributedWord:
    """A word and its scores."""

    text: str
    part: int
    """0: the text, or the first of a pair (a question); 1: the second (its passage)."""
    start: int
    end: int
    """Characters [start, end) of its text."""
    scores: Mapping[str, float]
    """By method, in nats; of attention rollout shares of attention."""


@dataclass(frozen=True)
class Explanation(Tabular):
    """A prediction attributed to the words of its text."""

    texts: tuple[str, ...]
    label: str
    """What is explained: a class, a tag and its word, an answer, a fill."""
    score: float
    """Its log-probability; the number of a regression."""
    is_number: bool
    """Whether the score is a number, not a log-probability."""
    baseline: str | None
    """Word vectors that gradients compare with: mask or zero; None without a method that uses gradients."""
    words: tuple[AttributedWord, ...]
    gap: float | None
    """Completeness gap of integrated gradients: sum of their scores, minus the score's difference to the baseline."""
    steps: int | None
    """Steps of integrated gradients."""
    tolerance: float

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(self.words[0].scores) if self.words else ()

    @property
    def probability(self) -> float | None:
        """Probability of what is explained; None of a number."""
        return None if self.is_number else math.exp(self.score)

    def top(self, count: int, method: str | None = None) -> list[AttributedWord]:
        """The words with the highest scores."""
        name = method or self.methods[0]
        return sorted(self.words, key=lambda word: -word.scores[name])[:count]

    @property
    def notes(self) -> tuple[str, ...]:
        """What integrated gradients began from, and how complete they are."""
        if self.gap is None:
            return ()
        size = abs(self.gap)
        complete = "complete" if size <= self.tolerance else f"NOT complete (tolerance {self.tolerance:g})"
        words = f"integrated gradients from the {self.baseline} baseline: {complete}, gap {self.gap:+.4f}"
        return (f"{words} after {self.steps:,} steps",)

    @property
    def title(self) -> str:
        shown = f"{self.score:.4f}" if self.probability is None else f"{self.probability:.4f}"
        return f"{self.label} {shown}"

    def to_dict(self) -> dict[str, Any]:
        names = ("text", "pair")
        record: dict[str, Any] = dict(zip(names, self.texts, strict=False))
        record |= {"label": self.label, "score": self.score, "probability": self.probability}
        record |= {"baseline": self.baseline, "gap": self.gap, "steps": self.steps}
        return {**record, "words": [asdict(word) for word in self.words]}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each word, with a column `scores.METHOD` for each method."""
        return [{"label": self.label, **flatten(asdict(word))} for word in self.words]

    def tables(self) -> Iterator[Table]:
        """One table: the words in their order, a column for each method."""
        rows = [
            [word.text, *(f"{word.scores[name]:{'.3f' if name == ROLLOUT else '+.3f'}}" for name in self.methods)]
            for word in self.words
        ]
        yield Table(("word", *self.methods), rows, title=self.title, notes=self.notes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.tables()))

    def picture(self) -> Element:
        """The text with its words marked, blue where they raise the score and red where they lower it."""
        drawn: list[Element] = [element("p", {"class": "lv-note"}, element("strong", {}, self.title))]
        for method in self.methods:
            drawn.append(element("p", {"class": "lv-note"}, method))
            drawn += (self._marked(part, method) for part in range(len(self.texts)))
        colours = "Blue words raise the score, red ones lower it; the largest of a method is darkest."
        if ROLLOUT in self.methods:
            colours += " Attention rollout has no sign."
        drawn += (element("p", {"class": "lv-note"}, note) for note in (colours, *self.notes))
        rows = ([word.text, *(f"{word.scores[name]:.4f}" for name in self.methods)] for word in self.words)
        return element("div", {"class": "lv"}, *drawn, folded_table("scores of words", ("word", *self.methods), rows))

    def _repr_html_(self) -> str:
        return in_notebook(self.picture())

    def _marked(self, part: int, method: str) -> Element:
        text, most = self.texts[part], max((abs(word.scores[method]) for word in self.words), default=0.0)

        def pieces() -> Iterator[Element | str]:
            at = 0
            for word in (word for word in self.words if word.part == part):
                yield text[at : word.start]
                share = word.scores[method] / most if most else 0.0
                title = f"{word.scores[method]:+.4f}"
                yield element("span", {"style": shade(share), "title": title}, text[word.start : word.end])
                at = word.end
            yield text[at:]

        return element("p", {"class": "lv-text", "dir": "auto"}, *pieces())
