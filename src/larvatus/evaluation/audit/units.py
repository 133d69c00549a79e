"""Units that audits resample for their 95% intervals; reports, tables, JSON and cards state them.

    >>> resampled(OCCUPATIONS)
    '95% intervals: occupations resampled, separately for each stereotype'

Rows that share a unit (sentences about one occupation) are not independent evidence.
"""

from __future__ import annotations

import re

PAIRS = "sentence pairs"
TERMS = "target terms"
OCCUPATIONS = "occupations, separately for each stereotype"
TARGETS = "target words, separately for each set"
TEXTS = "texts"
PROMPTS = "prompts"
TEMPLATES = "templates that both groups have"
DOCUMENTS = "documents"
CANARIES = "canaries"


def template_unit(sentences: int, words: int) -> str:
    """The resampled factors; a factor with one level is fixed.

    >>> template_unit(6, 6), template_unit(1, 6)
    ('sentences × attribute words', 'attribute words; one sentence, fixed')
    """
    if sentences == 1:
        return "attribute words; one sentence, fixed"
    return "sentences; one attribute word, fixed" if words == 1 else "sentences × attribute words"


def resampled(unit: str) -> str:
    """A line below a table that states the unit."""
    what, how = (unit, "") if (end := re.search("[,;]", unit)) is None else (unit[: end.start()], unit[end.start() :])
    return f"95% intervals: {what} resampled{how}"
