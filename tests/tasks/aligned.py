"""Texts, or lists of words, aligned with the tokens of a tokenizer, as they are written."""

from __future__ import annotations

from collections.abc import Sequence

from larvatus.data.text.align import Alignment, join_words
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words


def align_texts(tokenizer: Tokenizer, texts: Sequence[str | Sequence[str]]) -> list[Alignment]:
    """Texts with their words: as they come cut, or by the house's rule."""
    joined = [(text, segment_words(text)) if isinstance(text, str) else join_words(text) for text in texts]
    return tokenizer.encode_many([text for text, _ in joined], [spans for _, spans in joined])
