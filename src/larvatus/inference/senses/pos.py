"""WordNet's parts of speech, by their letters: noun, verb, adjective, adverb."""

from __future__ import annotations

from typing import Literal

POS = Literal["n", "v", "a", "r"]
