"""Makes the blocks of an epoch, whole or in part: what workers of the loader do.

    maker.make(epoch, block, parts)                  # all sequences of a block, packed, shuffled and corrupted
    outline = maker.outline(epoch, block, parts)     # where its sequences begin and end, and their lengths
    maker.sequences(outline.cut(10, 20), 10)         # ten of them, bit by bit what the whole block has there

A sequence is known as (epoch, block, place in the block), and every random choice about it hangs on that name.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from larvatus.core import rng
from larvatus.core.arrays import Ints, constant_array
from larvatus.core.batch import NO_WORD, TrainingBatch
from larvatus.core.pretraining_targets import TextTargets, add_text_targets, needs_lexicon
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.mixture import REPLAYED, ChunkPart, MixtureConfig, epoch_tokens, mixed_plan
from larvatus.data.corpus.packing import PackingConfig, pack, plan_sequences
from larvatus.data.corpus.packing.pieces import Pieces, PieceSizes, assemble, text_lengths
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.template import Template
from larvatus.data.text.vocabularies.characters import Lexicon


class CorruptionFunction(Protocol):
    """Hides tokens: a picklable function of a batch, its epoch, and the item number of its first sequence."""

    def __call__(self, batch: TrainingBatch[Ints], epoch: int, first: int, /) -> TrainingBatch[Ints]: ...


@runtime_checkable
class PartialCorruption(CorruptionFunction, Protocol):
    """A corruption that can be applied to a few sequences of a block."""

    @property
    def knows_lengths(self) -> bool:
        """Whether `lengths` are known before anything is corrupted."""

    def lengths(self, lengths: Ints, texts: Ints) -> Ints:
        """How long sequences will be, by how long they are with and without their special tokens."""

    def hide(self, batch: TrainingBatch[Ints], epoch: int, first: int) -> TrainingBatch[Ints]:
        """Corrupt a stretch of sequences, in which there may be nothing to hide."""


@runtime_checkable
class ScheduledCorruption(Protocol):
    """A corruption that changes as a run continues."""

    def after(self, tokens: int) -> Self:
        """The same for sequences that come after about `tokens` tokens of this loader's steps."""


class BlockOutline(NamedTuple):
    """The sequences of a block, or a stretch of them, before their tokens are laid out."""

    epoch: int
    block: int
    parts: list[ChunkPart]
    pieces: Pieces
    lengths: Ints
    passed: int
    """Tokens of earlier steps and of the block that come before its sequences, as many as they are expected to be."""

    def cut(self, first: int, last: int) -> BlockOutline:
        """Sequences first … last − 1."""
        passed = self.passed + int(self.lengths[:first].sum())
        return self._replace(pieces=self.pieces.part(first, last), lengths=self.lengths[first:last], passed=passed)


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """Which text of a corpus is read, in which order."""

    purpose: str = "train"
    """"train": chunks come in random order, another in each epoch; "valid": as they lie."""
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    """How often each language comes in training."""
    language: str | None = None
    """The only one to read; None: all."""
    from_text: tuple[type[TextTargets], ...] = ()
    """Targets that are made from the text itself."""
    words: bool = True
    """Whether batches have the word of each token; training does not need it once the text is corrupted."""


@dataclass(frozen=True, kw_only=True)
class BlockMaker:
    """Makes any block of any epoch; small enough to be sent to a worker, which opens the corpus itself."""

    path: Path
    template: Template
    packing: PackingConfig
    length: int
    corruption: CorruptionFunction | None
    seed: int
    reading: LoaderOptions
    block_tokens: int

    def plan(self, corpus: Corpus, epoch: int) -> list[list[ChunkPart]]:
        """The chunks of each block of an epoch, or stretches of them."""
        languages = corpus.manifest.languages
        training, language = self.reading.purpose == "train", self.reading.language
        mixed = self.reading.mixture.alpha < 1 or REPLAYED in languages
        if training and mixed and len(languages) > 1:
            tokens = epoch_tokens(languages, self.reading.mixture)
            return mixed_plan(corpus.chunks, tokens, epoch=epoch, size=self.block_tokens, shuffle=self._shuffled)
        order = np.arange(len(corpus.chunks))
        if language is not None:
            order = np.array([k for k in order.tolist() if corpus.chunks[k].language in ("", language)], np.int64)
        if training:
            order = rng.stream(self.seed, f"{self.reading.purpose}/order", epoch).permutation(order)
        blocks = plan_blocks(corpus, order, self.block_tokens, different=self.packing.different_documents)
        return [[ChunkPart(k, 0, corpus.chunks[k].tokens) for k in block] for block in blocks]

    def _shuffled(self, language: str, turn: int, chunks: Ints) -> Ints:
        return rng.stream(self.seed, f"{self.reading.purpose}/order/{language}", turn).permutation(chunks)

    def make(self, epoch: int, block: int, parts: list[ChunkPart], before: int = 0) -> TrainingBatch[Ints]:
        """All sequences of a block; `before`: tokens of text in all blocks before it, of earlier epochs, too."""
        text, random = self._corpus.parts(parts), self._random(epoch, block)
        batch = pack(text, self.packing, length=self.length, template=self.template, random=random)
        batch = add_text_targets(batch, self.reading.from_text, self._lexicon)
        if (corruption := self._after(passed(before, parts, batch.tokens.size))) is not None:
            batch = corruption(batch, epoch, block << 32)
        return self._without_words(batch)

    @property
    def knows_lengths(self) -> bool:
        """Whether `outline` knows the lengths of sequences."""
        return self.corruption is None or (
            isinstance(self.corruption, PartialCorruption) and self.corruption.knows_lengths
        )

    def _after(self, tokens: int) -> CorruptionFunction | None:
        """The corruption of sequences that come after these tokens."""
        return self.corruption.after(tokens) if isinstance(self.corruption, ScheduledCorruption) else self.corruption

    def outline(self, epoch: int, block: int, parts: list[ChunkPart], before: int = 0) -> BlockOutline:
        """The sequences of a block by their borders and lengths; nothing is laid out, nothing corrupted."""
        text, random = self._text(epoch, block, parts), self._random(epoch, block)
        pieces = plan_sequences(text, self.packing, length=self.length, template=self.template, random=random)
        sizes = PieceSizes.of(pieces, self.packing.sequence_template(self.template))
        lengths, packed = sizes.lengths, int(sizes.lengths.sum())
        if isinstance(self.corruption, PartialCorruption):
            lengths = self.corruption.lengths(lengths, text_lengths(pieces, sizes))
        return BlockOutline(epoch, block, parts, pieces, lengths, passed(before, parts, packed))

    def sequences(self, outline: BlockOutline, first: int) -> TrainingBatch[Ints]:
        """A stretch of a block, cut out of its outline; `first` is the place in the block where the stretch begins."""
        text = self._text(outline.epoch, outline.block, outline.parts)
        batch = assemble(text, outline.pieces, self.packing.sequence_template(self.template))
        batch = add_text_targets(batch, self.reading.from_text, self._lexicon)
        if isinstance(corruption := self._after(outline.passed), PartialCorruption):
            batch = corruption.hide(batch, outline.epoch, (outline.block << 32) + first)
        return self._without_words(batch)

    def _random(self, epoch: int, block: int) -> np.random.Generator:
        return rng.stream(self.seed, f"{self.reading.purpose}/pack", epoch, block)

    def _text(self, epoch: int, block: int, parts: list[ChunkPart]) -> TextBlock:
        """The text of a block; that of the last two stays at hand, since a step may take from both."""
        if (epoch, block) not in self._texts:
            while len(self._texts) > 1:
                del self._texts[next(iter(self._texts))]
            self._texts[epoch, block] = self._corpus.parts(parts)
        return self._texts[epoch, block]

    @functools.cached_property
    def _texts(self) -> dict[tuple[int, int], TextBlock]:
        return {}

    def _without_words(self, batch: TrainingBatch[Ints]) -> TrainingBatch[Ints]:
        if self.reading.words:
            return batch
        tokens = replace(batch.tokens, words=constant_array(NO_WORD, batch.tokens.size))
        return TrainingBatch(tokens=tokens, targets=batch.targets)

    @functools.cached_property
    def _lexicon(self) -> Lexicon | None:
        return Lexicon(self._corpus.tokenizer.tokens) if needs_lexicon(self.reading.from_text) else None

    @functools.cached_property
    def _corpus(self) -> Corpus:
        return Corpus.open(self.path, verify=False)  # verified when the loader was made


def tokens_of(parts: list[ChunkPart]) -> int:
    return sum(part.last - part.first for part in parts)


def passed(before: int, parts: list[ChunkPart], size: int) -> int:
    """Tokens that `before` tokens of text became when they were packed: as many for each as those of a block become."""
    return before * size // max(1, tokens_of(parts))


def plan_blocks(corpus: Corpus, order: Ints, size: int, *, different: int) -> list[list[int]]:
    """Cut a row of chunks into blocks of about `size` tokens, each with at least `different` (1 or 2) documents.

    Blocks come out even: a short one at the end would have few sentences to sample from.
    """
    tokens = np.array([corpus.chunks[k].tokens for k in order.tolist()], np.int64)
    count = max(1, round(int(tokens.sum()) / size))
    middles = np.cumsum(tokens) - tokens / 2
    home = np.minimum((middles * count / tokens.sum()).astype(np.int64), count - 1)
    blocks: list[list[int]] = []
    for block in np.split(order, np.flatnonzero(np.diff(home)) + 1):
        if blocks and different > 1 and (_one_document(corpus, blocks[-1]) or _one_document(corpus, block.tolist())):
            blocks[-1].extend(block.tolist())
        else:
            blocks.append(block.tolist())
    return blocks


def _one_document(corpus: Corpus, chunks: list[int]) -> bool:
    return len({number for k in chunks for number in corpus.chunks[k].documents}) == 1
