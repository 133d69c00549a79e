"""What compiled models need: functions that stay uncompiled, and batches of fixed shapes.

    @uncompiled                           # a compiled model breaks its graph there
    def attend_grouped(…): …

    step = fill_batch(batch, tokens=32_768, sequences=512, targets=5_120, limit=128, pad_id=0)

A compiled training step recompiles for every new shape, so batches are padded to fixed totals. Filler tokens form
sequences of their own at the end, filler sequences are empty, and filler targets are labelled −100, which every
objective excludes from its sums and counts: losses and gradients are those of the batch itself.

`uncompiled` is `torch.compiler.disable` where a model is compiled. Elsewhere the function itself is called, so that a
process that compiles nothing never imports torch's compiler, which takes two seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from larvatus.core.arrays import Ints, pad_array
from larvatus.core.batch import NO_WORD, TokenBatch, TrainingBatch, ranges
from larvatus.core.errors import UsageError
from larvatus.core.pretraining_targets import IGNORE, PaddedSizes

P = ParamSpec("P")
T = TypeVar("T")

_disable_dynamo: Any
try:
    from torch._compile import _disable_dynamo  # torch uses it in its optimizers; it imports the compiler when called
except ImportError:
    _disable_dynamo = torch.compiler.disable


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function out of compiled code: a compiled model breaks its graph where it is called."""
    disabled = _disable_dynamo(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # traced, this is true; a frame that runs as it is has no compiler to be kept from
        return disabled(*args, **kwargs) if torch.compiler.is_compiling() else function(*args, **kwargs)

    return call


__all__ = ["IGNORE", "fill_batch", "filler_lengths"]


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
    return pad_array(np.concatenate([lengths, np.array(filler, dtype=np.int64)]), sequences, 0)


def fill_batch(
    batch: TrainingBatch[Ints], *, tokens: int, sequences: int, targets: int, limit: int, pad_id: int
) -> TrainingBatch[Ints]:
    """The batch with exactly these totals: tokens (N), sequences (B), predicted tokens (M).

    Each kind of target defines its own filling (`Targets.filled`).
    """
    old = batch.tokens
    lengths = filler_lengths(old.lengths, tokens=tokens, sequences=sequences, limit=limit)
    filled = TokenBatch(
        ids=pad_array(old.ids, tokens, pad_id),
        lengths=lengths,
        positions=np.concatenate([old.positions, ranges(lengths[old.count :])]),
        segments=pad_array(old.segments, tokens, 0),
        words=pad_array(old.words, tokens, NO_WORD),
    )
    totals = PaddedSizes(tokens=tokens, sequences=sequences, targets=targets)
    return TrainingBatch(tokens=filled, targets={kind: t.filled(totals) for kind, t in batch.targets.items()})
