"""Corruption of a batch: choose tokens, hide them, keep what they were as targets. Pure functions of arrays and a seed.

    >>> from larvatus.batch import TokenBatch
    >>> batch = TrainingBatch(tokens=TokenBatch.of([[1, 7, 8, 9, 2]], words=[[-1, 0, 1, 2, -1]]), targets={})
    >>> vocabulary = MaskVocabulary(mask_id=3, size=10, special_ids={0, 1, 2, 3})
    >>> config = MaskingConfig(mask=1.0, random=0.0, keep=0.0)
    >>> hidden = corrupt(batch, config, vocabulary=vocabulary, seed=1, epoch=0, items=np.array([0]))
    >>> int((hidden.tokens.ids == 3).sum()), len(hidden.targets[MaskedTokens].ids)
    (1, 1)

The random numbers of a token belong to (seed, epoch, item of its sequence, place in it): fresh each epoch, the same
whatever the batch, the worker or the machine; an evaluation that always says epoch 0 always sees the same masks.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from larvatus.batch import NO_WORD, Ints, MaskedTokens, TrainingBatch, ranges
from larvatus.corrupt.masking import MaskingConfig
from larvatus.corrupt.replacement import MaskVocabulary, replaced
from larvatus.corrupt.whole_words import WholeWordConfig
from larvatus.rng import random_bits

CorruptionConfig = MaskingConfig | WholeWordConfig

AT_ONCE = 1 << 16  # tokens: what stays in the caches (1.7 times faster than a whole block)


def corrupt(
    batch: TrainingBatch[Ints],
    config: CorruptionConfig,
    *,
    vocabulary: MaskVocabulary,
    seed: int,
    epoch: int,
    items: Ints,
) -> TrainingBatch[Ints]:
    """The batch with tokens hidden, and with ``targets[MaskedTokens]``. `items` [B] names its sequences."""
    tokens = batch.tokens
    if len(items) != tokens.count:
        raise ValueError(f"{len(items)} items for {tokens.count} sequences")
    ordinary_T = np.flatnonzero((tokens.words != NO_WORD) & vocabulary.ordinary[tokens.ids])
    sequences_T = np.repeat(np.arange(tokens.count), tokens.lengths)[ordinary_T]
    draws_T = ranges(tokens.lengths)[ordinary_T]
    bits_4T = random_bits(seed, "mask", epoch, items=items[sequences_T], draws=draws_T)
    chosen_M = np.sort(config.choose(bits_4T[0], sequences_T, tokens.words[ordinary_T], count=tokens.count))
    places_M = ordinary_T[chosen_M]
    ids = tokens.ids.copy()
    ids[places_M] = replaced(tokens.ids[places_M], bits_4T[1:, chosen_M], config, vocabulary)
    targets = {**batch.targets, MaskedTokens: MaskedTokens(places=places_M, ids=tokens.ids[places_M])}
    return TrainingBatch(tokens=dataclasses.replace(tokens, ids=ids), targets=targets)


@dataclasses.dataclass(frozen=True)
class Corruption:
    """Corruption with everything settled but the batch: what a loader calls, here or in a worker."""

    config: CorruptionConfig
    vocabulary: MaskVocabulary
    seed: int

    def __call__(self, batch: TrainingBatch[Ints], epoch: int, first: int, /) -> TrainingBatch[Ints]:
        """`first` is the item of the batch's first sequence; the others follow. A large batch goes in parts."""
        parts = []
        for part in batch.cuts(AT_ONCE):
            items = first + np.arange(part.tokens.count)
            first += part.tokens.count
            known = self.vocabulary
            parts.append(corrupt(part, self.config, vocabulary=known, seed=self.seed, epoch=epoch, items=items))
        return TrainingBatch.join(parts)
