"""The loader: batches whose order and content are a function of (seed, epoch, position) alone.

    loader = Loader(corpus, packing=SentencePairsConfig(), length=128, corruption=mask, tokens=65_536, seed=1)
    for batch, cursor in loader.steps():     # the cursor says where the next step begins: steps(cursor) goes on there
        …

Each epoch permutes the chunks of the corpus and takes them in blocks of about two million tokens (where languages are
mixed in other shares than they come in, `mixture.py` says which stretches of which chunks). A block is packed,
its sequences are shuffled and corrupted, all in one worker; a sequence is known as (epoch, block, place in the
block), and every random choice about it hangs on that name. Steps of `tokens` tokens are cut from the row of blocks
in this process, on across blocks and epochs, so each is full and no number of workers, and no resume, can change any.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np

from larvatus import rng
from larvatus.arrays import Ints, repeated
from larvatus.batch import NO_WORD, TrainingBatch, edges
from larvatus.corpus.mixture import MixtureConfig, Part, epoch_tokens, mixed_plan, refuse_mixed_chunks
from larvatus.corpus.packing import PackingConfig, check, pack
from larvatus.corpus.processes import Workers
from larvatus.corpus.store import Corpus
from larvatus.errors import DataError, RecipeError
from larvatus.neighbours import FromText, made_from_text, wants_lexicon
from larvatus.text.characters import Lexicon
from larvatus.text.frame import Frame

BLOCK_TOKENS = 1 << 21
Task = tuple[int, int, list[Part], int]
"""A block to make: epoch, number, text, and how much text comes before it."""


class Corruption(Protocol):
    """Hides tokens: a picklable function of a batch, its epoch, and the item number of its first sequence."""

    def __call__(self, batch: TrainingBatch[Ints], epoch: int, first: int, /) -> TrainingBatch[Ints]: ...


@runtime_checkable
class FollowsRun(Corruption, Protocol):
    """A corruption that changes as a run goes on."""

    def after(self, tokens: int) -> Corruption:
        """The same for sequences that come after about so many tokens of this loader's steps."""


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sequence that comes next; all that a resume needs."""

    epoch: int = 0
    block: int = 0
    sequence: int = 0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which text of a corpus is read, in which order."""

    purpose: str = "train"
    """"train": chunks come in random order, another in each epoch; "valid": as they lie."""
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    """How often each language comes in training."""
    language: str | None = None
    """The only one to read; None: all."""
    from_text: tuple[type[FromText], ...] = ()
    """Targets that are made from the text itself."""
    words: bool = True
    """Whether batches say of which word each token is; to train no network asks, once the text is corrupted."""


@dataclass(frozen=True, kw_only=True)
class BlockMaker:
    """Makes any block of any epoch; small enough to be sent to a worker, which opens the corpus itself."""

    path: Path
    frame: Frame
    packing: PackingConfig
    length: int
    corruption: Corruption | None
    seed: int
    reading: Reading
    block_tokens: int

    def plan(self, corpus: Corpus, epoch: int) -> list[list[Part]]:
        """The chunks of each block of an epoch, or stretches of them."""
        languages = corpus.manifest.languages
        training, language = self.reading.purpose == "train", self.reading.language
        if training and self.reading.mixture.alpha < 1 and len(languages) > 1:
            tokens = epoch_tokens(languages, self.reading.mixture)
            return mixed_plan(corpus.chunks, tokens, epoch=epoch, size=self.block_tokens, shuffle=self._shuffled)
        order = np.arange(len(corpus.chunks))
        if language is not None:
            order = np.array([k for k in order.tolist() if corpus.chunks[k].language in ("", language)], np.int64)
        if training:
            order = rng.stream(self.seed, f"{self.reading.purpose}/order", epoch).permutation(order)
        blocks = plan_blocks(corpus, order, self.block_tokens, different=self.packing.different_documents)
        return [[Part(k, 0, corpus.chunks[k].tokens) for k in block] for block in blocks]

    def _shuffled(self, language: str, turn: int, chunks: Ints) -> Ints:
        return rng.stream(self.seed, f"{self.reading.purpose}/order/{language}", turn).permutation(chunks)

    def make(self, epoch: int, block: int, parts: list[Part], before: int = 0) -> TrainingBatch[Ints]:
        """A block of an epoch; `before`: tokens of text in all blocks that come before it, of earlier epochs, too."""
        random = rng.stream(self.seed, f"{self.reading.purpose}/pack", epoch, block)
        text = self._corpus.parts(parts)
        batch = pack(text, self.packing, length=self.length, frame=self.frame, random=random)
        batch = made_from_text(batch, self.reading.from_text, self._lexicon)
        corruption = self.corruption
        if isinstance(corruption, FollowsRun):  # text becomes as many tokens when it is packed as it does here
            corruption = corruption.after(before * batch.tokens.size // max(1, _tokens(parts)))
        if corruption is not None:
            batch = corruption(batch, epoch, block << 32)
        if self.reading.words:
            return batch
        tokens = replace(batch.tokens, words=repeated(NO_WORD, batch.tokens.size))
        return TrainingBatch(tokens=tokens, targets=batch.targets)

    @functools.cached_property
    def _lexicon(self) -> Lexicon | None:
        return Lexicon(self._corpus.tokenizer.pieces) if wants_lexicon(self.reading.from_text) else None

    @functools.cached_property
    def _corpus(self) -> Corpus:
        return Corpus.open(self.path, verify=False)  # whoever made the loader has verified it


def plan_blocks(corpus: Corpus, order: Ints, size: int, *, different: int) -> list[list[int]]:
    """Cut a row of chunks into blocks of about `size` tokens, each with at least `different` (1 or 2) documents.

    Blocks come out even: a short one at the end would have little to draw random sentences from.
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


def _tokens(parts: list[Part]) -> int:
    return sum(part.last - part.first for part in parts)


def _make(maker: BlockMaker, task: Task) -> TrainingBatch[Ints]:
    return maker.make(*task)


class Loader:
    block_tokens = BLOCK_TOKENS

    def __init__(
        self,
        corpus: Corpus,
        *,
        packing: PackingConfig,
        length: int,
        corruption: Corruption | None,
        tokens: int,
        seed: int,
        workers: int = 0,
        reading: Reading = Reading(),
    ) -> None:
        language = reading.language
        if tokens < length:
            raise RecipeError(
                f"a step of {tokens:,} tokens cannot hold one sequence of {length:,}; make the batch larger"
            )
        check(packing, corpus.manifest.counts)
        if reading.mixture.alpha < 1 or language is not None:
            refuse_mixed_chunks(str(corpus.path), corpus.chunks, corpus.manifest.languages)
        if language is not None and language not in corpus.manifest.languages:
            raise DataError(f"{corpus.path} has no text in {language!r}; it has {', '.join(corpus.manifest.languages)}")
        self._corpus, self._tokens, self._workers = corpus, tokens, workers
        self._under_way: Workers[BlockMaker, Task, TrainingBatch[Ints]] | None = None
        self._maker = BlockMaker(
            path=corpus.path,
            frame=corpus.tokenizer.frame,
            packing=packing,
            length=length,
            corruption=corruption,
            seed=seed,
            reading=reading,
            block_tokens=self.block_tokens,
        )

    def steps(self, cursor: Cursor = Cursor()) -> Iterator[tuple[TrainingBatch[Ints], Cursor]]:
        """Step batches without end from `cursor` on, each with the cursor of the next."""
        if self._corpus.tokens < self._tokens:
            raise DataError(
                f"{self._corpus.path} has {self._corpus.tokens:,} tokens, and one step takes {self._tokens:,}; "
                "give more text, or a smaller batch (--set batch=…)"
            )
        return _steps(self._blocks(cursor), cursor.sequence, self._tokens)

    def evaluation(self, limit_tokens: int | None = None) -> Iterator[TrainingBatch[Ints]]:
        """Each sequence once, in a fixed order, in batches within the token budget; up to `limit_tokens` in all."""
        left = limit_tokens
        plan = self._maker.plan(self._corpus, 0)
        for block, chunks in enumerate(plan):
            batch = self._maker.make(0, block, chunks)
            if left is not None:
                fit = int(np.searchsorted(edges(batch.tokens.lengths), left, side="right")) - 1
                batch = batch.cut(0, max(fit, 1) if block == 0 else fit)
                left -= batch.tokens.size
            yield from batch.cuts(self._tokens)
            if left is not None and left < self._maker.length:
                return

    def plan(self, epoch: int) -> list[list[Part]]:
        """The chunks of each block of an epoch, or stretches of them."""
        return self._maker.plan(self._corpus, epoch)

    def _blocks(self, cursor: Cursor) -> Iterator[tuple[int, int, TrainingBatch[Ints]]]:
        """Epoch, number and content of block after block, from the cursor's on, without end."""
        names: deque[tuple[int, int]] = deque()  # of the blocks under way

        def tasks() -> Iterator[Task]:
            epoch, first = cursor.epoch, cursor.block
            while True:
                plan = self._maker.plan(self._corpus, epoch)
                if first >= len(plan):
                    raise DataError(f"{self._corpus.path} has no block {first}: {cursor} belongs to another corpus")
                before = edges(np.array([_tokens(parts) for parts in plan])).tolist()
                for block in range(first, len(plan)):
                    names.append((epoch, block))
                    yield epoch, block, plan[block], epoch * before[-1] + before[block]
                epoch, first = epoch + 1, 0

        what, fix = "a loader worker", "the run goes on from its last checkpoint with --resume"
        with Workers(self._workers, lambda: self._maker, _make, what=what, fix=fix) as workers:
            self._under_way = workers
            for batch in workers.map(tasks()):
                yield *names.popleft(), batch

    def close(self) -> None:
        """End the workers, from any thread: who waits for one of them gets an error."""
        if self._under_way is not None:
            self._under_way.close()


def _steps(
    blocks: Iterator[tuple[int, int, TrainingBatch[Ints]]], first: int, budget: int
) -> Iterator[tuple[TrainingBatch[Ints], Cursor]]:
    """Cut the row of blocks into steps of whole sequences within the budget; a step may take from several blocks."""
    parts: list[TrainingBatch[Ints]] = []
    room = budget
    for epoch, block, batch in blocks:
        edge = edges(batch.tokens.lengths)
        while first < batch.tokens.count:
            last = int(np.searchsorted(edge, edge[first] + room, side="right")) - 1
            if last > first:
                parts.append(batch.cut(first, last))
                room -= int(edge[last] - edge[first])
                first = last
            if first < batch.tokens.count:  # the next sequence does not fit: the step is full
                yield TrainingBatch.join(parts), Cursor(epoch, block, first)
                parts, room = [], budget
        first = 0  # what room is left goes to the next block
