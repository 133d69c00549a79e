"""A batch of sequences of single-token words, with labelled spans."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from larvatus.core.batch import TokenBatch, TrainingBatch, WordTokens
from larvatus.core.targets import WordSpans


def span_batch(counts: Sequence[int], gold: Sequence[Sequence[tuple[int, int, int]]], **targets: Any) -> TrainingBatch:
    """Sequences of so many words, each with its spans: first word, last word, type."""
    tokens = TokenBatch.of([[2, *range(5, 5 + count), 3] for count in counts])
    starts = np.cumsum([0, *counts[:-1]])
    first, last, types = np.array(
        [(i + at, j + at, t) for own, at in zip(gold, starts, strict=True) for i, j, t in own]
    ).T
    rows = [np.arange(1, n + 1) + at + 2 * number for number, (n, at) in enumerate(zip(counts, starts, strict=True))]
    each = np.array(counts)
    total = int(each.sum())
    pieces = WordTokens(rows=np.concatenate(rows), words=np.arange(total), counts=each, starts=each, total=total)
    golds = np.array([len(own) for own in gold])
    spans = WordSpans(counts=each, first=first, last=last, types=types, golds=golds, **targets)
    return TrainingBatch(tokens=dataclasses.replace(tokens, word_tokens=pieces), targets={WordSpans: spans})
