"""Say what reading a corpus left out, for commands whose answer does not: bad lines, links, what cannot be opened.

skipped = Skipped()
…                              # read with it
say_left_out(skipped)          # left out: 2 × bad UTF-8 · 1 × linked folder left out (texts/more)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from larvatus.data.text.documents import Skipped


def say_left_out(skipped: Skipped) -> None:
    """One line on standard error, where anything was left out that may be text."""
    if skipped.total or skipped.left:
        print(f"left out: {skipped}", file=sys.stderr)


def say_counts(skipped: Mapping[str, int]) -> None:
    """The same of a corpus that was built to be read once: counts by reason."""
    if skipped:
        print("left out: " + " · ".join(f"{count:,} × {reason}" for reason, count in skipped.items()), file=sys.stderr)
