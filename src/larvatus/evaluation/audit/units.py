"""What an audit resamples for its 95% intervals: every report, table, JSON and card states it.

    >>> resampled(OCCUPATIONS)
    '95% intervals: occupations resampled, separately for each stereotype'

The unit is what another sample would have had others of. Rows that share it (sentences about one occupation) are no
independent evidence.
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
    """Factors that are resampled; one of a single level is fixed.

    >>> template_unit(6, 6), template_unit(1, 6)
    ('sentences × attribute words', 'attribute words; one sentence, fixed')
    """
    if sentences == 1:
        return "attribute words; one sentence, fixed"
    return "sentences; one attribute word, fixed" if words == 1 else "sentences × attribute words"


def resampled(unit: str) -> str:
    """A line below a table."""
    what, how = (unit, "") if (end := re.search("[,;]", unit)) is None else (unit[: end.start()], unit[end.start() :])
    return f"95% intervals: {what} resampled{how}"
