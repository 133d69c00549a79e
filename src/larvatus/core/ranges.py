"""Ranges: what every number of a setting may be, and one line where it is not.

    class OptimizerConfig(Settings, path="optimizer.", error=RecipeError):     # core/settings.py
        clip: Clip = 1.0                                # Annotated[float, Range(0, 1e6)]

    optimizer.clip = -1 must lie between 0 and 1,000,000                                           (exit 3)

NaN and infinities lie in no range, and neither do truth values. Bounds are far beyond what anybody trains: they refuse
what can only be a mistake, not what is unwise. How one setting relates to another, and whether a model
of some size fits into memory, is checked elsewhere.
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from msgspec import UNSET

from larvatus.core.errors import LarvatusError, UsageError


@dataclass(frozen=True)
class Range:
    """From `least` to `most`; `above` and `below` leave out the ends themselves."""

    least: float
    most: float
    above: bool = False
    below: bool = False
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if self.whole else numbers.Real):
            return False
        number: Any = value
        low = number > self.least if self.above else number >= self.least
        return bool(low and (number < self.most if self.below else number <= self.most))

    def __str__(self) -> str:
        """``between 0 and 1``, ``above 0 and at most 1``, ``at least 0 and below 1``."""
        least, most = _plain(self.least), _plain(self.most)
        if not (self.above or self.below):
            return f"between {least} and {most}"
        return f"{'above' if self.above else 'at least'} {least} and {'below' if self.below else 'at most'} {most}"

    def check(self, value: object, name: str, error: type[LarvatusError] = UsageError) -> None:
        if value not in self:
            raise error(f"{name} = {short_repr(value)} {self.rule(value)}")

    def rule(self, value: object) -> str:
        """What a value outside must be."""
        if self.whole and not isinstance(value, numbers.Integral):
            return f"must be a whole number {self}"
        return f"must {'be' if self.above or self.below else 'lie'} {self}"

    def read(self, given: Any) -> Any:
        """A number as it was written on the command line; ValueError says what it must be."""
        value = given
        if isinstance(given, str):
            try:
                value = int(given) if self.whole else float(given)
            except ValueError:
                value = None
        if value not in self:
            raise ValueError(f"{short_repr(given)} {self.rule(value)}")
        return value


def whole(least: int, most: int) -> Range:
    return Range(least, most, whole=True)


LARGEST_SIZE = 2**24
SHARE = Range(0, 1)
POSITIVE_SHARE = Range(0, 1, above=True)
BETWEEN = Range(0, 1, above=True, below=True)
DROPOUT = Range(0, 1, below=True)
RATE = Range(0, 100, above=True)
FACTOR = Range(0, 1e6, above=True)
DECAY = Range(0, 100)
FOCAL = Range(0, 100)
WEIGHT = Range(0, 1e6)
SIZE = whole(1, LARGEST_SIZE)
SIZE_OR_NONE = whole(0, LARGEST_SIZE)
COUNT = whole(1, 10**9)
COUNT_OR_NONE = whole(0, 10**9)
SEED = whole(0, 2**63 - 1)
SMALL_SEED = whole(0, 2**32 - 1)
STEPS = whole(1, 10**12)

Share = Annotated[float, SHARE]
"""Fraction of a whole, from 0 to 1."""
PositiveShare = Annotated[float, POSITIVE_SHARE]
DropoutRate = Annotated[float, DROPOUT]
"""0: none. At 1 nothing would be left."""
ShareBetween = Annotated[float, BETWEEN]
Beta = Annotated[float, Range(0, 1, below=True)]
"""How much of a running mean stays at each step."""
LearningRate = Annotated[float, RATE]
Factor = Annotated[float, FACTOR]
"""Multiplier of a rate or a scale."""
Decay = Annotated[float, DECAY]
"""0: none."""
Clip = Annotated[float, Range(0, 1e6)]
"""Largest norm of a gradient; 0: not clipped."""
Weight = Annotated[float, WEIGHT]
"""Weight of a term in a sum; 0 removes it."""
PositiveWeight = Annotated[float, Range(0, 1e6, above=True)]
Focal = Annotated[float, FOCAL]
Epsilon = Annotated[float, Range(0, 1)]
"""Added to a variance."""
PositiveEpsilon = Annotated[float, Range(0, 1, above=True)]
Deviation = Annotated[float, Range(0, 100)]
"""Standard deviation of random initial weights."""
Temperature = Annotated[float, Range(1e-6, 1e6)]
RotaryBase = Annotated[float, Range(1, 1e15, above=True)]
Score = Annotated[float, Range(-1e15, 1e15)]
"""A difference of logits, such as a threshold: any finite one."""

Size = Annotated[int, SIZE]
"""Size of vectors, vocabularies, sequences."""
SizeOrNone = Annotated[int, SIZE_OR_NONE]
"""0 has a special meaning, which the setting documents."""
Length = Annotated[int, whole(8, LARGEST_SIZE)]
"""Length of a training sequence, special tokens included."""
Run = Annotated[int, whole(1, 1000)]
"""Number of words masked together."""
Neighbours = Annotated[int, whole(2, 1000)]
Layers = Annotated[int, whole(1, 10_000)]
LayersOrNone = Annotated[int, whole(0, 10_000)]
Count = Annotated[int, COUNT]
"""Number of examples, passes, candidates."""
CountOrNone = Annotated[int, COUNT_OR_NONE]
Instances = Annotated[int, whole(2, 10**9)]
"""Number of instances of a word; one instance has no spread."""
Steps = Annotated[int, STEPS]
Seed = Annotated[int, SEED]
SmallSeed = Annotated[int, SMALL_SEED]
"""For libraries that take 32 bits."""
Tally = Annotated[int, whole(0, 2**63 - 1)]
"""What was counted, in a manifest: bytes, tokens, documents."""


def check_ranges(settings: Any, path: str, error: type[LarvatusError] = UsageError) -> None:
    """Refuse settings with a number out of its range. `path` precedes the names, such as ``optimizer.``."""
    for name, (limits, optional) in ranges_of(settings.__class__).items():
        value = getattr(settings, name)
        if value is UNSET or (value is None and optional):
            continue
        if isinstance(value, Mapping):
            for key, each in value.items():
                limits.check(each, f"{path}{name}.{key}", error)
        elif isinstance(value, list | tuple):
            for each in value:
                limits.check(each, f"{path}{name}", error)
        else:
            limits.check(value, f"{path}{name}", error)


@functools.cache
def ranges_of(kind: Any) -> dict[str, tuple[Range, bool]]:
    """The ranges of a class's fields, by name, and whether a field may be None."""
    hints = get_type_hints(kind, include_extras=True)
    limits_of = {name: (_range(hint), type(None) in get_args(hint)) for name, hint in hints.items()}
    return {name: (limits, optional) for name, (limits, optional) in limits_of.items() if limits is not None}


def short_repr(value: Any) -> str:
    """A value as an error shows it: short, on one line, however long it was written.

    >>> short_repr(float("nan")), short_repr(10**30), short_repr("x" * 1000)
    ('nan', '1000000000000000000000000000000', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…")
    """
    try:
        text = repr(value) if isinstance(value, str) else str(value).replace("\n", " ")
    except ValueError:  # Python writes no number of more than 4,300 digits
        return f"a number of about {int(math.log10(abs(value))):,} digits"
    return text if len(text) <= 40 else f"{text[:31]}…"


def digits(text: str) -> int | None:
    """The number that plain digits spell, None for all else: ``²`` and ``٣`` are digits to Python, but no ids here.

    >>> digits("12"), digits("-1"), digits("²"), digits("9" * 5000)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _range(hint: Any) -> Range | None:
    for part in getattr(hint, "__metadata__", ()):
        if isinstance(part, Range):
            return part
    return next((limits for inner in get_args(hint) if (limits := _range(inner)) is not None), None)


def _plain(bound: float) -> str:
    return f"{int(bound):,}" if float(bound).is_integer() and abs(bound) < 1e13 else f"{bound:g}"
