r"""Which regular expressions of a foreign `tokenizer.json` may run.

The `tokenizers` library matches with a backtracking engine that cannot be interrupted, so ``(a+)+$`` in a downloaded
file is a denial of service. A pattern is split at its top-level ``|``, and each branch must either be one that
published vocabularies use (`PUBLISHED`), or be such that it cannot backtrack far: atoms (a character, an escape, a
class), each with ``?`` or a bounded repeat, and at most one unbounded repeat, at the very end. Groups may hold such
branches without unbounded repeats and may be optional. The product of all choices is bounded. No look-around, no
back-reference. Anything else is refused by name.
"""

from __future__ import annotations

import re
from typing import Any

from larvatus.errors import ArtefactError

MOST_WAYS = 256
"""In how many ways one branch may be tried at one place of the text: the product of its choices."""
LONGEST_PATTERN = 2_000
LARGEST_GROWTH = 4_096
"""How many times longer than the text its normalised form may get by the file's own replacements."""

# Branches of GPT-2, cl100k, Llama 3, Qwen, o200k and their kin that look around or repeat twice, known to be linear.
PUBLISHED = frozenset(
    [
        r"\s+(?!\S)",
        r"\s*[\r\n]+",
        r"\s*[\r\n]",
        r"\s*\n+",
        r"\s*[\r\n]+(?!\S)",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    ]
)

_ATOM = re.compile(
    r"""\\[pP]\{\^?[\w &=-]+\}            # a Unicode property
      | \\x\{[0-9A-Fa-f]+\} | \\x[0-9A-Fa-f]{2} | \\u[0-9A-Fa-f]{4}
      | \\[^0-9kgGXRKQE]                  # an escape, no back-reference
      | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\\\[\]])*\]   # a class
      | [^\\()\[\]|*+?{}]                 # a plain character, also . ^ $""",
    re.VERBOSE | re.DOTALL,
)
_REPEAT = re.compile(r"[*+?][+?]?|\{(\d*)(,?)(\d*)\}[+?]?")


def check_patterns(settings: dict[str, Any], name: str) -> None:
    """Refuse a parsed `tokenizer.json` whose expressions could run away, or whose replacements could explode."""
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        growth = 1
        for key, value in _walk(settings.get(part)):
            if key == "Regex" and not is_linear(str(value)):
                raise ArtefactError(
                    f"{name}: the pattern {_short(str(value))} could take for ever on some text; "
                    "only patterns that cannot backtrack far are run"
                )
            if key in ("content", "prepend") and isinstance(value, str) and part != "post_processor":
                growth *= max(1, len(value))
        if growth > LARGEST_GROWTH:
            raise ArtefactError(f"{name}: its replacements could make a text {growth:,} times longer; refused")


def _walk(value: Any) -> Any:
    """All (key, value) pairs of nested JSON. Iterative, so depth costs no stack."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            for key, inner in node.items():
                yield key, inner
                stack.append(inner)
        elif isinstance(node, list):
            stack.extend(node)


def is_linear(pattern: str) -> bool:
    r"""Whether a pattern cannot backtrack far.

    >>> is_linear(r"'s| ?\p{L}+|\s+(?!\S)|\s+"), is_linear("(a+)+$"), is_linear("(a|a)*b")
    (True, False, False)
    """
    if len(pattern) > LONGEST_PATTERN:
        return False
    branches = _branches(pattern)
    return branches is not None and all(
        branch in PUBLISHED or 0 < _ways(branch, inside=False) <= MOST_WAYS for branch in branches
    )


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


def _ways(branch: str, *, inside: bool) -> int:
    """In how many ways a branch may be tried at one place (its last repeat aside); 0 where it is not simple."""
    place, ways = 0, 1
    while place < len(branch):
        group = branch[place] == "("
        if group:
            end = _group_end(branch, place)
            inner = re.sub(r"\A\?[ims]*:", "", branch[place + 1 : end - 1])
            alternatives = [] if inner.startswith(("?", "*")) else _branches(inner)
            inner_ways = [_ways(alternative, inside=True) for alternative in alternatives or [")"]]
            if not all(inner_ways):
                return 0
            ways *= sum(inner_ways)
        else:
            atom = _ATOM.match(branch, place)
            if atom is None:
                return 0
            end = atom.end()
        repeat = _REPEAT.match(branch, end)
        place = repeat.end() if repeat else end
        if repeat is not None:
            low, high = _bounds(repeat)
            if high is None and (inside or group or place < len(branch)):
                return 0
            if group and high is not None and high > 1:
                return 0
            ways *= 1 if high is None else max(1, high - low + 1)
        if ways > MOST_WAYS:
            return 0
    return ways


def _bounds(repeat: re.Match[str]) -> tuple[int, int | None]:
    """Fewest and most times of a repeat; None for no limit."""
    if repeat[0][0] == "{":
        low = int(repeat[1] or 0)
        return low, int(repeat[3]) if repeat[3] else None if repeat[2] else low
    return (0, 1) if repeat[0][0] == "?" else (0, None)


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


def _short(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:57] + "…")
