"""What gets a vector, and how the tokens of one such unit become one: the words of `EmbedOptions` and of standardisers.

Unit: token, word, span, sentence, document             Pool: mean, sum, max, first, last, cls
"""

from __future__ import annotations

from typing import Literal

Unit = Literal["token", "word", "span", "sentence", "document"]
Pool = Literal["mean", "sum", "max", "first", "last", "cls"]

PARTS = ("token", "word", "span")
"""Units of which a text has several; the others are the text itself."""
