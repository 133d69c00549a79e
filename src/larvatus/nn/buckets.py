"""Bring a batch to fixed totals, so that a compiled training step sees the same shapes every time and never recompiles.

Filler tokens form sequences of their own at the end, filler sequences are empty, filler targets are labelled −100,
which every objective leaves out of its sums and counts: losses and gradients are those of the batch itself.

    step = fill(batch, tokens=32_768, sequences=512, targets=5_120, limit=128, pad_id=0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from larvatus.arrays import Ints
from larvatus.batch import (
    NO_WORD,
    MaskedTokens,
    OrderLabels,
    PairLabels,
    ReplacedTokens,
    SequenceLabels,
    SpanTargets,
    TokenBatch,
    TrainingBatch,
    ranges,
)
from larvatus.errors import UsageError

IGNORE = -100
"""The label that no objective counts (as in `torch.nn.functional.cross_entropy`)."""


def _grown(array: Ints, size: int, value: int) -> Ints:
    return np.concatenate([array, np.full(size - len(array), value, dtype=np.int64)])


def _masked_tokens(masked: MaskedTokens[Ints], *, tokens: int, sequences: int, targets: int) -> MaskedTokens[Ints]:
    return MaskedTokens(places=_grown(masked.places, targets, tokens - 1), ids=_grown(masked.ids, targets, IGNORE))


def _sequence_labels(given: SequenceLabels[Ints], *, tokens: int, sequences: int, targets: int) -> SequenceLabels[Ints]:
    return type(given)(labels=_grown(given.labels, sequences, IGNORE))


def _span_targets(spans: SpanTargets[Ints], *, tokens: int, sequences: int, targets: int) -> SpanTargets[Ints]:
    return SpanTargets(
        left=_grown(spans.left, targets, tokens - 1),
        right=_grown(spans.right, targets, tokens - 1),
        place=_grown(spans.place, targets, 0),
        ids=_grown(spans.ids, targets, IGNORE),
    )


def _replaced_tokens(found: ReplacedTokens[Ints], *, tokens: int, sequences: int, targets: int) -> ReplacedTokens[Ints]:
    return ReplacedTokens(labels=_grown(found.labels, tokens, IGNORE), draws=_grown(found.draws, tokens, 0))


FILLERS: dict[type, Callable[..., Any]] = {
    MaskedTokens: _masked_tokens,
    PairLabels: _sequence_labels,
    SpanTargets: _span_targets,
    OrderLabels: _sequence_labels,
    ReplacedTokens: _replaced_tokens,
}


def filler_lengths(lengths: Ints, *, tokens: int, sequences: int, limit: int) -> Ints:
    """The lengths with filler sequences (each at most `limit` long) and then empty ones: [B] → [sequences]."""
    missing = tokens - int(lengths.sum())
    full, rest = divmod(missing, limit)
    filler = [limit] * full + [rest] * (rest > 0)
    if missing < 0 or len(lengths) + len(filler) > sequences or (len(lengths) and int(lengths.max()) > limit):
        raise UsageError(
            f"a batch of {int(lengths.sum())} tokens in {len(lengths)} sequences up to {int(lengths.max(initial=0))} "
            f"does not fit {tokens} tokens in {sequences} sequences of at most {limit}; raise these or cut the batch"
        )
    return _grown(np.concatenate([lengths, np.array(filler, dtype=np.int64)]), sequences, 0)


def fill(
    batch: TrainingBatch[Ints], *, tokens: int, sequences: int, targets: int, limit: int, pad_id: int
) -> TrainingBatch[Ints]:
    """The batch with exactly these totals: tokens (N), sequences (B), predicted tokens (M)."""
    old = batch.tokens
    lengths = filler_lengths(old.lengths, tokens=tokens, sequences=sequences, limit=limit)
    masked = batch.targets.get(MaskedTokens)
    if masked is not None and len(masked.places) > targets:
        raise UsageError(f"a batch of {len(masked.places)} predicted tokens does not fit {targets}; raise targets")
    filled = TokenBatch(
        ids=_grown(old.ids, tokens, pad_id),
        lengths=lengths,
        positions=np.concatenate([old.positions, ranges(lengths[old.count :])]),
        segments=_grown(old.segments, tokens, 0),
        words=_grown(old.words, tokens, NO_WORD),
    )
    totals = {"tokens": tokens, "sequences": sequences, "targets": targets}
    return TrainingBatch(tokens=filled, targets={kind: FILLERS[kind](t, **totals) for kind, t in batch.targets.items()})
