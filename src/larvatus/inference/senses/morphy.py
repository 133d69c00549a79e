"""`morphy`, WordNet's own morphology: the lemmas that an inflected word may come from (morphy(7WN)).

    >>> base_forms("axes", "n", {"axes": ["ax", "axis"]}, lambda lemma, pos: lemma in ("ax", "axis", "axe"))
    ['ax', 'axis']

The word itself comes first; then what the exception list says or, where it says nothing, what is left when endings are
detached by rule. What is no lemma of WordNet is left out. Of a phrase each word is taken to its lemma
(`attorneys_general`, `took_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from larvatus.inference.senses.pos import POS

DETACHMENT: dict[str, tuple[tuple[str, str], ...]] = {
    "n": (
        ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"),
        ("ies", "y"),
    ),
    "v": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}  # fmt: skip
"""Endings and what stands in their place."""
MOST = 64
"""Forms of a phrase that are tried: each word of it may have some."""

Has = Callable[[str, POS], bool]


def base_forms(word: str, pos: POS, exceptions: Mapping[str, Sequence[str]], has: Has) -> list[str]:
    """The lemmas of this part of speech that a word (lower case, underscores for spaces) may be a form of."""
    forms = [word, *_stems(word, pos, exceptions, has)]
    if "_" in word and len(forms) == 1:
        each = [[part, *_stems(part, pos, exceptions, has)] for part in word.split("_")]
        forms = ["_".join(parts) for _, parts in zip(range(MOST), product(*each), strict=False)]
    return list(dict.fromkeys(form for form in forms if has(form, pos)))


def _stems(word: str, pos: POS, exceptions: Mapping[str, Sequence[str]], has: Has) -> list[str]:
    if word in exceptions:
        return list(exceptions[word])
    ending = ""
    if pos == "n":
        if word.endswith("ful"):  # boxesful: a boxful
            word, ending = word[:-3], "ful"
        elif word.endswith("ss") or len(word) <= 2:
            return []
    stems = [word[: len(word) - len(end)] + new for end, new in DETACHMENT[pos] if word.endswith(end)]
    return [stem + ending for stem in stems if has(stem, pos)]
