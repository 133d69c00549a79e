"""Lemmas as edit scripts (Chrupała 2006; Straka 2018): how the form of a word becomes its lemma, as a class.

    >>> edit_script("Running", "run"), edit_script("Bush", "Bush"), edit_script("went", "go")
    ('lower|0||4|', 'keep|0||0|', '=go')
    >>> apply_script("lower|0||4|", "Sitting")
    'sit'

A script changes the case of the form, then replaces some characters at its beginning and its end. Of the four ways to
change the case the one with the fewest replacements is used. Where form and lemma have no letter in common, the script
is the lemma itself.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from functools import lru_cache

from larvatus.core.ranges import digits

CASES: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "keep": str,
    "title": lambda form: form[:1].upper() + form[1:].lower(),
    "upper": str.upper,
}
"""Ways to change the case, in order of preference."""
WHOLE = "="
"""Begins a script that is the lemma itself."""
PART = "|"


@lru_cache(maxsize=1 << 16)
def edit_script(form: str, lemma: str) -> str:
    """The script that makes the lemma from the form."""
    scripts = []
    for number, (name, change) in enumerate(CASES.items()):
        base = change(form)
        match = SequenceMatcher(None, base, lemma, autojunk=False).find_longest_match()
        if not match.size:
            continue
        before, after = base[: match.a], base[match.a + match.size :]
        first, last = lemma[: match.b], lemma[match.b + match.size :]
        cost = len(before) + len(after) + len(first) + len(last)
        if PART not in first + last:
            scripts.append((cost, number, PART.join([name, str(len(before)), first, str(len(after)), last])))
    return min(scripts)[2] if scripts else WHOLE + lemma


def apply_script(script: str, form: str) -> str | None:
    """The lemma; None if the form is too short for the script."""
    if script.startswith(WHOLE):
        return script[len(WHOLE) :]
    name, before, first, after, last = script.split(PART)
    base, start, end = CASES[name](form), digits(before) or 0, digits(after) or 0
    if start + end >= len(base):
        return None
    return first + base[start : len(base) - end] + last
