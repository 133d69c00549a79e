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

from larvatus.batch import Ints, MaskedTokens, TrainingBatch
from larvatus.corrupt.masking import MaskingConfig
from larvatus.corrupt.replacement import MaskVocabulary, Text, replaced
from larvatus.corrupt.sampled import SampledConfig
from larvatus.corrupt.spans import SpansConfig
from larvatus.corrupt.whole_words import WholeWordConfig
from larvatus.errors import DataError

CorruptionConfig = MaskingConfig | WholeWordConfig | SpansConfig | SampledConfig

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
    """The batch with tokens hidden, and with the targets that `config` gives. `items` [B] names its sequences."""
    tokens = batch.tokens
    if len(items) != tokens.count:
        raise ValueError(f"{len(items)} items for {tokens.count} sequences")
    hidden = config.hide(Text(tokens, vocabulary, seed, epoch, items))
    places_M = hidden.places_M
    ids = tokens.ids.copy()
    ids[places_M] = replaced(tokens.ids[places_M], hidden.bits_3M, config, vocabulary)
    masked = MaskedTokens(places=places_M, ids=tokens.ids[places_M])
    targets = {**batch.targets, MaskedTokens: masked, **hidden.targets}
    return TrainingBatch(tokens=dataclasses.replace(tokens, ids=ids), targets=targets)


@dataclasses.dataclass(frozen=True)
class Corruption:
    """Corruption with everything settled but the batch: what a loader calls, here or in a worker."""

    config: CorruptionConfig
    vocabulary: MaskVocabulary
    seed: int

    def __call__(self, batch: TrainingBatch[Ints], epoch: int, first: int, /) -> TrainingBatch[Ints]:
        """`first` is the item of the batch's first sequence; the others follow. A large batch goes in parts.

        A sequence in which nothing can be hidden simply has no targets; a batch of nothing else is refused.
        """
        parts = []
        for part in batch.cuts(AT_ONCE):
            items = first + np.arange(part.tokens.count)
            first += part.tokens.count
            known = self.vocabulary
            parts.append(corrupt(part, self.config, vocabulary=known, seed=self.seed, epoch=epoch, items=items))
        whole = TrainingBatch.join(parts)
        if self.config.rate > 0 and whole.targets[MaskedTokens].count == 0:
            raise DataError(
                f"nothing can be hidden in {batch.tokens.count:,} sequences of {batch.tokens.size:,} tokens: no word "
                f"fits {self.config.rate:g} of its sequence; give longer texts, or raise corruption.rate"
            )
        return whole
