"""Counterfactual swaps of group words in texts: he becomes she, and she becomes he.

    swapper = Swapper(DEFAULT_SWAPS)
    swapper.swap("He lost his keys.", "gender").text          # "She lost her keys."

A file of swaps has two words and an optional category per line, separated by commas or tabs; `#` begins a comment:

    he,she,gender
    muslim,christian,religion

Swaps work in both directions, on whole words, and keep the case of the original (lower case, Capital, CAPITALS). All
words of one category are swapped at once, so that a text stays about one person. A word with several partners takes the
partner of its first line. There is one exception: if a file maps both *his* and *him* to *her*, then *her* becomes
*his* before a word that is no preposition, conjunction or particle, and *him* elsewhere. This is a heuristic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from larvatus.core.errors import DataError
from larvatus.data.text.streams import numbered_lines


class Swap(NamedTuple):
    first: str
    second: str
    category: str = "group"


class WordSwap(NamedTuple):
    """A word that was swapped."""

    word: str
    """In lower case."""
    partner: str


class SwappedText(NamedTuple):
    text: str
    changes: tuple[WordSwap, ...]
    """Empty where the text holds no word of the list."""


_GENDER = """
    he/she him/her his/her his/hers himself/herself man/woman men/women boy/girl boys/girls father/mother
    fathers/mothers dad/mom son/daughter sons/daughters brother/sister brothers/sisters husband/wife
    husbands/wives uncle/aunt nephew/niece grandfather/grandmother male/female males/females gentleman/lady
    gentlemen/ladies king/queen prince/princess mr/mrs sir/madam actor/actress waiter/waitress
    businessman/businesswoman
"""
DEFAULT_SWAPS = tuple(Swap(first, second, "gender") for first, second in (pair.split("/") for pair in _GENDER.split()))
"""English gender words. Users name words of other groups, whose counterparts depend on the data."""
_PARTICLES = """
    to and or but for in on at with that as by from when if because out up off away back about into over after
    before so then than while who which was is were are had has did will would again too
"""
_OBJECT = frozenset(_PARTICLES.split())
"""After these, *her* is *him*."""
_NEXT = re.compile(r"\s+([^\W\d_]+)")


@dataclass(frozen=True)
class Swapper:
    swaps: tuple[Swap, ...]

    def __post_init__(self) -> None:
        for swap in self.swaps:
            if swap.first.lower() == swap.second.lower():
                raise DataError(f"swaps: {swap.first!r} is swapped with itself: the two words must differ")

    @property
    def categories(self) -> list[str]:
        return list(dict.fromkeys(swap.category for swap in self.swaps))

    def swap(self, text: str, category: str) -> SwappedText:
        """The text with all words of a category replaced by their partners."""
        partners: dict[str, str] = {}
        for swap in self.swaps:
            if swap.category == category:
                partners.setdefault(swap.first.lower(), swap.second)
                partners.setdefault(swap.second.lower(), swap.first)
        words = sorted(partners, key=len, reverse=True)  # the longer phrase first
        pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)
        both = {"him", "his"} <= {swap.first.lower() for swap in self.swaps if swap.second.lower() == "her"}
        changes: list[WordSwap] = []

        def change(match: re.Match[str]) -> str:
            word = match[0].lower()
            partner = partners[word]
            if word == "her" and both:
                after = _NEXT.match(text, match.end())
                partner = "his" if after and after[1].lower() not in _OBJECT else "him"
            changes.append(WordSwap(word, partner))
            return _written_as(match[0], partner)

        return SwappedText(pattern.sub(change, text), tuple(changes))


def _written_as(original: str, word: str) -> str:
    if original.isupper() and len(original) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if original[:1].isupper() else word


def read_swaps(given: str | Path | Sequence[Sequence[str]] | None) -> Swapper:
    """Read a file or pairs, with or without a category; None for the default list."""
    if given is None:
        return Swapper(DEFAULT_SWAPS)
    if isinstance(given, str | Path):
        lines = ((f"{given}:{number}", line.partition("#")[0].strip()) for number, line in numbered_lines(str(given)))
        rows = [(where, re.split(r"[\t,]", line)) for where, line in lines if line]
    else:
        rows = [(f"swap {number} of {len(given)}", list(row)) for number, row in enumerate(given, start=1)]
    swaps = []
    for where, row in rows:
        cells = [cell.strip() for cell in row]
        if not 2 <= len(cells) <= 3 or not all(cells):
            raise DataError(f"{where}: a swap is two words and maybe a category: he,she,gender")
        swaps.append(Swap(*cells))
    if not swaps:
        raise DataError(f"{given} holds no swaps; write two words a line: he,she,gender")
    return Swapper(tuple(swaps))
