r"""Which regular expressions of a foreign `tokenizer.json` may run.

The `tokenizers` library matches with a backtracking engine that cannot be interrupted, so ``(a+)+$`` in a downloaded
file is a denial of service. A pattern is split at its top-level ``|``, and each branch must either be one that
published vocabularies use (`PUBLISHED`), in the company that makes it linear, or be such that it cannot backtrack far:
atoms (a character, an escape, a class), each with ``?`` or a bounded repeat, and at most one unbounded repeat, at the
very end. Groups may hold such branches without unbounded repeats and may be optional. What all branches together may
try at one place of a text is bounded. No look-around, no back-reference. Anything else is refused by name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_TRIED = 4_096
"""Characters that a pattern may look at from one place of a text, over all branches and all ways to try them."""
LONGEST_REPEAT = 256
LONGEST_PATTERN = 2_000
MOST_GROUPS = 64

_SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_SPACES = (r"\s*[\r\n]+", r"\s*[\r\n]", r"\s*\n+", r"\s*[\r\n]+(?!\S)")
_SPACES_END = (r"\s+(?!\S)", r"\s+")

# Branches of GPT-2, cl100k, Llama 3, Qwen, o200k and their kin that look around or repeat twice.
PUBLISHED = frozenset(
    [
        *_SPACES,
        r"\s+(?!\S)",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        *(f"{_CASED}{_UPPER}{first}{_LOWER}{last}{end}" for first, last in ("*+", "+*") for end in (_SUFFIX, "")),
    ]
)


class _Shape(NamedTuple):
    """What a branch can do at one place of a text, its last unbounded repeat aside."""

    ways: int
    """In how many ways it may be tried."""
    longest: int
    """Characters that one way looks at, at most …"""
    shortest: int
    """… and that a match takes, at least."""


_ATOM = re.compile(
    r"""\\[pP]\{\^?[\w &=-]+\}            # a Unicode property
      | \\x\{[0-9A-Fa-f]+\} | \\x[0-9A-Fa-f]{2} | \\u[0-9A-Fa-f]{4}
      | \\[^0-9kgGXRKQEcCMyY]             # an escape, no back-reference, none that takes the next character
      | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\\\[\]])*\]   # a class
      | [^\\()\[\]|*+?{}]                 # a plain character, also . ^ $""",
    re.VERBOSE | re.DOTALL,
)
_ANCHORS = frozenset(["^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"])
_REPEAT = re.compile(r"[*+?][+?]?|\{(\d{0,6})(,?)(\d{0,6})\}(\??)")  # {1,9}+ is a repeat of a repeat, not possessive


def is_linear(pattern: str) -> bool:
    r"""Whether a pattern cannot backtrack far.

    >>> is_linear(r"'s| ?\p{L}+|\s+(?!\S)|\s+"), is_linear("(a+)+$"), is_linear("(a|a)*b")
    (True, False, False)
    """
    if len(pattern) > LONGEST_PATTERN or pattern.count("(") > MOST_GROUPS:
        return False
    branches = _branches(pattern)
    if branches is None:
        return False
    tried = 0
    for place, branch in enumerate(branches):
        if branch in PUBLISHED:
            if not _in_company(branch, branches[place + 1 :]):
                return False
            continue
        shape = _shape(branch, inside=False)
        if shape is None:
            return False
        tried += shape.ways * max(1, shape.longest)
    return tried <= MOST_TRIED


def shortest_match(pattern: str) -> int:
    """Characters that a match of a linear pattern takes, at least."""
    shapes = [
        _Shape(1, 1, 1) if branch in PUBLISHED else _shape(branch, inside=False)
        for branch in _branches(pattern) or [""]
    ]
    return min(shape.shortest if shape else 0 for shape in shapes)


def _in_company(branch: str, rest: list[str]) -> bool:
    """Whether the branches after a published one take what it looked at in vain, so that this is not done again.

    ``\\s*[\\r\\n]+`` by itself would scan a long run of spaces from each of them, ``[A-Z]*[a-z]+`` capitals.
    """
    if branch in _SPACES:
        return bool(rest) and rest[-1] in _SPACES_END and all(step in (*_SPACES, *_SPACES_END) for step in rest)
    if branch.startswith(f"{_CASED}{_UPPER}*"):
        return rest[:1] == [branch.replace(f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*")]
    return True


def _branches(pattern: str) -> list[str] | None:
    """The top-level alternatives of a pattern; None where brackets do not match."""
    branches, depth, begin, place = [], 0, 0, 0
    while place < len(pattern):
        atom = _ATOM.match(pattern, place)
        if atom:
            place = atom.end()
            continue
        char = pattern[place]
        if char == "\\":
            return None
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            branches.append(pattern[begin:place])
            begin = place + 1
        if depth < 0 or char in "[]":
            return None
        place += 1
    return [*branches, pattern[begin:]] if depth == 0 else None


def _shape(branch: str, *, inside: bool) -> _Shape | None:
    """What a branch can do; None where it is not simple."""
    place, ways, longest, shortest = 0, 1, 0, 0
    while place < len(branch):
        group = branch[place] == "("
        if group:
            end = _group_end(branch, place)
            inner = re.sub(r"\A\?[ims]*:", "", branch[place + 1 : end - 1])
            part = None if inner.startswith(("?", "*")) else _any_of(_branches(inner) or [])
        else:
            atom = _ATOM.match(branch, place)
            part = None if atom is None else _Shape(1, 1, 0 if atom[0] in _ANCHORS else 1)
            end = place if atom is None else atom.end()
        if part is None:
            return None
        repeat = _REPEAT.match(branch, end)
        place = repeat.end() if repeat else end
        low, high = (1, 1) if repeat is None else _bounds(repeat)
        if high is None and (inside or group or place < len(branch) or low > LONGEST_REPEAT):
            return None
        if high is not None and (high < low or high > LONGEST_REPEAT or (group and high > 1)):
            return None
        ways *= part.ways * (1 if high is None else high - low + 1)
        longest += part.longest * (low if high is None else high)
        shortest += part.shortest * low
        if ways * max(1, longest) > MOST_TRIED:
            return None
    return _Shape(ways, longest, shortest)


def _any_of(branches: list[str]) -> _Shape | None:
    """A group of alternatives."""
    shapes = [_shape(branch, inside=True) for branch in branches]
    known = [shape for shape in shapes if shape is not None]
    if not known or len(known) < len(shapes):
        return None
    return _Shape(
        sum(shape.ways for shape in known),
        max(shape.longest for shape in known),
        min(shape.shortest for shape in known),
    )


def _bounds(repeat: re.Match[str]) -> tuple[int, int | None]:
    """Fewest and most times of a repeat; None for no limit. {3}? is three times or not at all."""
    if repeat[0][0] == "{":
        low = int(repeat[1] or 0)
        high = int(repeat[3]) if repeat[3] else None if repeat[2] else low
        if not repeat[1] and not repeat[3]:
            return 1, 0  # {} and {,} are no repeats: refused
        return (0 if repeat[4] and not repeat[2] else low), high
    return ({"?": 0, "*": 0, "+": 1}[repeat[0][0]], 1 if repeat[0][0] == "?" else None)


def _group_end(branch: str, start: int) -> int:
    depth, place = 0, start
    while place < len(branch):
        atom = _ATOM.match(branch, place)
        if atom:
            place = atom.end()
            continue
        depth += (branch[place] == "(") - (branch[place] == ")")
        place += 1
        if depth == 0:
            return place
    return place
