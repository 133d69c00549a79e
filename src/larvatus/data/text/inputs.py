"""Texts as the model reads them: one text, or the two of a pair, dressed with special tokens and laid end to end.

    batch = inputs(tokenizer, ["One text.", ("A question?", "Its context.")])

How they are dressed the tokenizer's `Frame` says. Special tokens belong to no word; the words of a pair's second text
are counted on from the first's. Nothing is cut: who has a limit windows the text first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD, TokenBatch
from larvatus.data.text.tokenizer import Tokenizer


def inputs(tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]]) -> TokenBatch[Ints]:
    """One sequence for each text or pair of texts. A special token written out in a text is text."""
    rows: list[list[tuple[Ints, Ints]]] = []
    for text in texts:
        row, before = [], 0
        for part in [text] if isinstance(text, str) else text:
            encoding = tokenizer.encode(part)
            row.append((encoding.ids, np.where(encoding.words == NO_WORD, NO_WORD, encoding.words + before)))
            before += len(encoding.word_spans)
        rows.append(row)
    return framed(tokenizer, rows)


def framed(tokenizer: Tokenizer, rows: Sequence[Sequence[tuple[Ints, Ints]]]) -> TokenBatch[Ints]:
    """The same for what is encoded already: each row holds (ids, words) of one or two texts."""
    ids, segments, words = [], [], []
    for row in rows:
        dress = tokenizer.frame.of(len(row))
        ids.append(dress.ids(*(part for part, _ in row)).tolist())
        segments.append(dress.segments(*(len(part) for part, _ in row)).tolist())
        words.append(dress.filled(NO_WORD, *(part for _, part in row)).tolist())
    return TokenBatch.of(ids, segments=segments, words=words)
