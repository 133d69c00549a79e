"""A pattern: a text with slots for what is classified, and one blank where a word stands for the label (PET).

    pattern = Pattern.read("{text} It was {blank}.")
    pattern.filled(["A dull film."], "great")        # "A dull film. It was great."
    Pattern.read("{first} ? {blank} , {second}")     # of a pair

A null prompt (Logan et al. 2022) is the text and a blank with nothing around them: `Pattern.read("null")`. A brace that
is meant as such is written twice, as in Python: ``{{``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Literal

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import short_repr
from larvatus.core.text_inputs import refuse_surrogates

Slot = Literal["text", "first", "second", "blank"]
NULL = "null"
SINGLE, PAIR = ("text",), ("first", "second")
WORKS = 'such as "{text} It was {blank}.", of pairs "{first}? {blank}, {second}", or null'
NULL_OF_TEXT, NULL_OF_PAIR = "{text} {blank}", "{first} {second} {blank}"


@dataclass(frozen=True)
class PatternPart:
    """Literal text, or a slot."""

    slot: Slot | None
    literal: str = ""
    spaced: bool = False
    """Of a slot: a space stands before it, and belongs to it: in byte-level vocabularies it is part of the word."""


@dataclass(frozen=True)
class Pattern:
    source: str
    """As it was written."""
    pieces: tuple[PatternPart, ...]

    @classmethod
    def read(cls, source: str, *, pair: bool = False) -> Pattern:
        """Parsed and checked. `pair`: what a null prompt is about."""
        refuse_surrogates(source, "the pattern")
        written = source if source != NULL else NULL_OF_PAIR if pair else NULL_OF_TEXT
        pieces = tuple(_pieces(written))
        slots = [piece.slot for piece in pieces if piece.slot is not None]
        said = f"the pattern {short_repr(source)}"
        for slot in slots:
            if slots.count(slot) > 1:
                raise UsageError(f"{said} has {{{slot}}} {slots.count(slot)} times; write each slot once, {WORKS}")
        if "blank" not in slots:
            raise UsageError(f"{said} has no {{blank}} for the word of a label; write one, {WORKS}")
        texts = sorted(slot for slot in slots if slot != "blank")
        if not texts:
            raise UsageError(f"{said} has no place for the text; write {{text}}, {WORKS}")
        if tuple(texts) not in (SINGLE, PAIR):
            raise UsageError(
                f"{said} has {{{'} and {'.join(texts)}}}; write {{text}} alone, or {{first}} and {{second}}"
            )
        return cls(source, pieces)

    @property
    def pair(self) -> bool:
        """Whether it is about pairs of texts."""
        return any(piece.slot == "first" for piece in self.pieces)

    @property
    def order(self) -> tuple[int, ...]:
        """Which of an example's texts comes first, which second."""
        slots = [piece.slot for piece in self.pieces if piece.slot not in (None, "blank")]
        return tuple(int(slot == "second") for slot in slots)

    def filled(self, texts: Sequence[str], word: str) -> str:
        """The whole text, with a word in its blank."""
        values = {"text": texts[0], "first": texts[0], "second": texts[-1], "blank": word}
        return "".join(
            piece.literal if piece.slot is None else " " * piece.spaced + values[piece.slot] for piece in self.pieces
        )


def _pieces(source: str) -> Iterator[PatternPart]:
    """Literal text and slots; white space before a slot goes to the slot, as one space."""
    known = ("text", "first", "second", "blank")
    try:
        parsed = list(Formatter().parse(source))
    except ValueError as fault:
        raise UsageError(f"the pattern {short_repr(source)}: {fault}; a brace as such is written twice, {{{{") from None
    for literal, field, form, conversion in parsed:
        if field is None:
            if literal:
                yield PatternPart(None, literal)
            continue
        if field not in known or form or conversion:
            asked = field + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise UsageError(f"the pattern has no slot {{{asked}}}{did_you_mean(field, known)}; write one {WORKS}")
        stripped = literal.rstrip()
        if stripped:
            yield PatternPart(None, stripped)
        yield PatternPart(field, spaced=stripped != literal)  # type: ignore[arg-type]
