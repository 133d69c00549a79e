"""Corruption of a batch: choose tokens, hide them, keep what they were as targets. Pure functions of arrays and a seed.

    >>> from larvatus.core.batch import TokenBatch
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
import itertools
from collections.abc import Iterator

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corruption.masking import MaskingConfig, SampledConfig, WholeWordConfig
from larvatus.data.corruption.noise import NoiseConfig
from larvatus.data.corruption.permutation import PermutationConfig
from larvatus.data.corruption.replacement import CorruptionInput, MaskVocabulary, ReplacementConfig, RunPosition
from larvatus.data.corruption.sentinels import SentinelsConfig
from larvatus.data.corruption.spans import NGramsConfig, SpanCorruptionConfig

CorruptionConfig = (
    MaskingConfig
    | WholeWordConfig
    | SpanCorruptionConfig
    | NGramsConfig
    | NoiseConfig
    | SampledConfig
    | PermutationConfig
    | SentinelsConfig
)  # fmt: skip

__all__ = [
    "Corruption",
    "CorruptionConfig",
    "MaskVocabulary",
    "MaskingConfig",
    "NGramsConfig",
    "NoiseConfig",
    "PermutationConfig",
    "RunPosition",
    "SampledConfig",
    "SentinelsConfig",
    "SpanCorruptionConfig",
    "WholeWordConfig",
    "at_place",
    "check_mask",
    "corrupt",
    "packed_length",
]

AT_ONCE = 1 << 16  # tokens: what stays in the caches (1.7 times faster than a whole block)
LEVELS = 256
"""Parts of a run that have one share each, where the share changes from its first step to its last."""


def corrupt(
    batch: TrainingBatch[Ints],
    config: CorruptionConfig,
    *,
    vocabulary: MaskVocabulary,
    seed: int,
    epoch: int,
    items: Ints,
    limit: int | None = None,
) -> TrainingBatch[Ints]:
    """The batch with tokens hidden, and with the targets that `config` gives. `items` [B] names its sequences.

    No sequence grows beyond `limit` tokens.
    """
    if len(items) != batch.tokens.count:
        raise ValueError(f"{len(items)} items for {batch.tokens.count} sequences")
    tokens, targets = config.apply(CorruptionInput(batch.tokens, vocabulary, seed, epoch, items, limit))
    return TrainingBatch(tokens=tokens, targets={**batch.targets, **targets})


def check_mask(config: CorruptionConfig | None, mask_id: int | None) -> None:
    """Refuse to hide tokens behind a mask token that the vocabulary does not have."""
    if config is not None and config.needs_mask and mask_id is None:
        raise RecipeError(
            f'corruption "{config.__struct_config__.tag}" needs a mask token, but the vocabulary has none; '
            "name it as mask_token in tokenizer_config.json, or set corruption.mask = 0"
        )


def packed_length(config: CorruptionConfig | None, length: int) -> int:
    """How long sequences are packed so that they have at most `length` tokens once they are corrupted."""
    return length if config is None else config.text_length(length)


def at_place(config: CorruptionConfig | None, place: float) -> CorruptionConfig | None:
    """The settings at a place of a run, from 0 to 1."""
    return config.at(place) if isinstance(config, ReplacementConfig) else config


@dataclasses.dataclass(frozen=True)
class Corruption:
    """Corruption with everything settled but the batch: what a loader calls, here or in a worker."""

    config: CorruptionConfig
    vocabulary: MaskVocabulary
    seed: int
    limit: int | None = None
    """Longest sequence, special tokens included; only noise that inserts makes any longer than it was."""
    course: RunPosition | None = None
    """Where in a run the batch is read; None: in none (held-out text), and the share is always the config's `rate`."""

    def __post_init__(self) -> None:
        check_mask(self.config, self.vocabulary.mask_id)

    def __call__(self, batch: TrainingBatch[Ints], epoch: int, first: int, /) -> TrainingBatch[Ints]:
        """`first` is the item of the batch's first sequence; the others follow. A large batch goes in parts.

        A sequence in which nothing is hidden simply has no targets; a batch in which nothing can be is refused.
        """
        whole = self.hide(batch, epoch, first)
        hidden = whole.targets.get(MaskedTokens)
        if hidden is not None and hidden.count == 0 and not self._may_hide(batch, epoch):
            raise DataError(
                f"nothing can be hidden in {batch.tokens.count:,} sequences of {batch.tokens.size:,} tokens: "
                f"{self.config.why_nothing}"
            )
        return whole

    @property
    def knows_lengths(self) -> bool:
        """Whether it is known how long sequences will be before they are corrupted."""
        return self.config.knows_lengths

    def lengths(self, lengths: Ints, texts: Ints) -> Ints:
        """How long sequences are once they are corrupted; `texts` counts the tokens between their special tokens."""
        return self.config.lengths(lengths, texts, self.vocabulary)

    def hide(self, batch: TrainingBatch[Ints], epoch: int, first: int) -> TrainingBatch[Ints]:
        """The same of a few sequences, in which there may be nothing to hide."""
        before, after = [], []
        for config, part in self._parts(batch):
            items = first + np.arange(part.tokens.count)
            first += part.tokens.count
            before.append(part)
            after.append(
                corrupt(
                    part,
                    config,
                    vocabulary=self.vocabulary,
                    seed=self.seed,
                    epoch=epoch,
                    items=items,
                    limit=self.limit,
                )
            )
        return _joined(batch, before, after)

    def after(self, tokens: int) -> Corruption:
        """The same for sequences before which the steps of the loader have about `tokens` tokens."""
        return self if self.course is None else dataclasses.replace(self, course=self.course.after(tokens))

    def _parts(self, batch: TrainingBatch[Ints]) -> Iterator[tuple[CorruptionConfig, TrainingBatch[Ints]]]:
        """Stretches of the batch, each with the settings of its share."""
        config = self.config
        if self.course is None or not isinstance(config, ReplacementConfig) or len(config.shares) == 1:
            yield from ((config, part) for part in batch.cuts(AT_ONCE))
            return
        levels_B = (self.course.places(batch.tokens.lengths) * (LEVELS - 1)).round().astype(np.int64)
        borders = [0, *(np.flatnonzero(np.diff(levels_B)) + 1).tolist(), batch.tokens.count]
        for start, end in itertools.pairwise(borders):
            share = config.at(int(levels_B[start]) / (LEVELS - 1))
            yield from ((share, part) for part in batch.cut(start, end).cuts(AT_ONCE))

    def _may_hide(self, batch: TrainingBatch[Ints], epoch: int) -> bool:
        items = np.arange(batch.tokens.count)
        return self.config.may_hide(CorruptionInput(batch.tokens, self.vocabulary, self.seed, epoch, items))


def _joined(
    batch: TrainingBatch[Ints], before: list[TrainingBatch[Ints]], after: list[TrainingBatch[Ints]]
) -> TrainingBatch[Ints]:
    """The parts end to end; where nothing but ids changed, all else is what the batch had, and is not copied."""
    columns = ("lengths", "positions", "segments", "words")
    pairs = list(zip(before, after, strict=True))
    if not all(getattr(old.tokens, name) is getattr(new.tokens, name) for old, new in pairs for name in columns):
        return TrainingBatch.join(after)
    tokens = dataclasses.replace(batch.tokens, ids=np.concatenate([part.tokens.ids for part in after]))
    starts = edges(np.array([part.tokens.size for part in after])).tolist()
    firsts = edges(np.array([part.tokens.count for part in after])).tolist()
    targets = dict(batch.targets)
    for kind in after[0].targets:
        if any(old.targets.get(kind) is not new.targets[kind] for old, new in pairs):
            values = [part.targets[kind] for part in after]
            targets[kind] = kind.join(list(zip(values, starts, firsts, strict=False)))  # type: ignore[attr-defined]
    return TrainingBatch(tokens=tokens, targets=targets)
