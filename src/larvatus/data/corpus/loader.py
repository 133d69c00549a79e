"""The loader: batches whose order and content are a function of (seed, epoch, position) alone.

    loader = Loader(corpus, packing=SentencePairsConfig(), length=128, corruption=mask, tokens=65_536, seed=1)
    for batch, cursor in loader.steps():     # the cursor says where the next step begins: steps(cursor) continues there
        …

Each epoch permutes the chunks of the corpus and takes them in blocks of about two million tokens (where languages are
mixed in other shares than they come in, `mixture.py` says which stretches of which chunks). A block is packed,
its sequences are shuffled and corrupted, all in one worker; a sequence is known as (epoch, block, place in the
block), and every random choice about it hangs on that name. Steps of `tokens` tokens are cut from the row of blocks
in this process, on across blocks and epochs, so each is full and no number of workers, and no resume, can change any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, RecipeError
from larvatus.data.corpus.block_maker import (
    BlockMaker,
    BlockOutline,
    CorruptionFunction,
    LoaderOptions,
    plan_blocks,
    tokens_of,
)
from larvatus.data.corpus.mixture import ChunkPart, check_chunk_languages
from larvatus.data.corpus.packing import PackingConfig
from larvatus.data.corpus.processes import Workers
from larvatus.data.corpus.steps import Cursor, LoadedBlock, RankAssignment, RankShare, StepPlan, cut_steps, read_share
from larvatus.data.corpus.store import Corpus

__all__ = ["CorruptionFunction", "Cursor", "Loader", "LoaderOptions", "RankAssignment", "RankShare", "plan_blocks"]

BLOCK_TOKENS = 1 << 21
_WHAT, _FIX = "a loader worker", "the run continues from its last checkpoint with --resume"
BlockTask = tuple[int, int, list[ChunkPart], int]
"""A block to make: epoch, number, text, and how much text comes before it."""


def _make(maker: BlockMaker, task: BlockTask) -> TrainingBatch[Ints]:
    return maker.make(*task)


def _outline(maker: BlockMaker, task: BlockTask) -> BlockOutline:
    return maker.outline(*task)


class Loader:
    block_tokens = BLOCK_TOKENS

    def __init__(
        self,
        corpus: Corpus,
        *,
        packing: PackingConfig,
        length: int,
        corruption: CorruptionFunction | None,
        tokens: int,
        seed: int,
        workers: int = 0,
        reading: LoaderOptions = LoaderOptions(),
    ) -> None:
        language = reading.language
        if tokens < length:
            raise RecipeError(
                f"a step of {tokens:,} tokens cannot hold one sequence of {length:,}; make the batch larger"
            )
        packing.check(corpus.manifest.counts)
        if reading.mixture.alpha < 1 or language is not None:
            check_chunk_languages(str(corpus.path), corpus.chunks, corpus.manifest.languages)
        if language is not None and language not in corpus.manifest.languages:
            raise DataError(f"{corpus.path} has no text in {language!r}; it has {', '.join(corpus.manifest.languages)}")
        self._corpus, self._tokens, self._count = corpus, tokens, workers
        self._under_way: list[Workers[BlockMaker, Any, Any]] = []
        self._maker = BlockMaker(
            path=corpus.path,
            template=corpus.tokenizer.template,
            packing=packing,
            length=length,
            corruption=corruption,
            seed=seed,
            reading=reading,
            block_tokens=self.block_tokens,
        )

    def steps(self, cursor: Cursor = Cursor()) -> Iterator[tuple[TrainingBatch[Ints], Cursor]]:
        """Step batches without end from `cursor` on, each with the cursor of the next."""
        self._refuse_too_little()
        return self._steps(cursor)

    def _steps(self, cursor: Cursor) -> Iterator[tuple[TrainingBatch[Ints], Cursor]]:
        with self._workers_of(self._count, _make) as workers:
            tasks = _Tasks(self._maker, self._corpus, cursor)
            rows = (tasks.row(batch, batch.tokens.lengths) for batch in workers.map(tasks))
            for stretches, after in cut_steps(rows, cursor.sequence, self._tokens):
                yield TrainingBatch.join([batch.cut(first, last) for batch, first, last in stretches]), after

    def shares(
        self, cursor: Cursor, deal: RankAssignment, microbatch: Callable[[], int]
    ) -> Iterator[tuple[RankShare | TrainingBatch[Ints], Cursor]]:
        """The same steps, of each what one of several ranks reads, cut into microbatches of so many tokens.

        Where it is a matter of chance how long sequences are, nobody knows where a step ends before all of it is
        corrupted: then steps come whole.
        """
        self._refuse_too_little()
        return self._shares(cursor, deal, microbatch) if self._maker.knows_lengths else self._steps(cursor)

    def _shares(
        self, cursor: Cursor, deal: RankAssignment, microbatch: Callable[[], int]
    ) -> Iterator[tuple[RankShare, Cursor]]:
        """One group of workers says where sequences begin and end, the other reads what is this rank's."""
        planners = -(-self._count // 4)
        waiting: deque[tuple[StepPlan, int, Cursor]] = deque()
        with (
            self._workers_of(planners, _outline) as planning,
            self._workers_of(max(self._count - planners, min(self._count, 1)), read_share) as reading,
        ):
            tasks = _Tasks(self._maker, self._corpus, cursor)
            rows = (tasks.row(outline, outline.lengths) for outline in planning.map(tasks))

            def to_read() -> Iterator[Any]:
                for stretches, after in cut_steps(rows, cursor.sequence, self._tokens):
                    waiting.append((StepPlan(stretches), microbatch(), after))
                    yield waiting[-1][0].tasks(waiting[-1][1], deal)

            for batches in reading.map(to_read()):
                plan, budget, after = waiting.popleft()
                yield RankShare(plan, budget, deal, batches, lambda task: read_share(self._maker, task)), after

    def _workers_of(self, count: int, function: Any) -> Workers[BlockMaker, Any, Any]:
        workers: Workers[BlockMaker, Any, Any] = Workers(count, lambda: self._maker, function, what=_WHAT, fix=_FIX)
        self._under_way.append(workers)
        return workers

    def _refuse_too_little(self) -> None:
        if self._corpus.tokens < self._tokens:
            raise DataError(
                f"{self._corpus.path} has {self._corpus.tokens:,} tokens, and one step takes {self._tokens:,}; "
                "give more text, or a smaller batch (--set batch=…)"
            )

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

    def plan(self, epoch: int) -> list[list[ChunkPart]]:
        """The chunks of each block of an epoch, or stretches of them."""
        return self._maker.plan(self._corpus, epoch)

    def close(self) -> None:
        """End the workers, from any thread: who waits for one of them gets an error."""
        for workers in self._under_way:
            workers.close()


class _Tasks:
    """Block after block from the cursor's on, without end; remembers the names of those under way."""

    def __init__(self, maker: BlockMaker, corpus: Corpus, cursor: Cursor) -> None:
        self._maker, self._corpus, self._cursor = maker, corpus, cursor
        self._names: deque[tuple[int, int]] = deque()

    def __iter__(self) -> Iterator[BlockTask]:
        epoch, first = self._cursor.epoch, self._cursor.block
        while True:
            plan = self._maker.plan(self._corpus, epoch)
            if first >= len(plan):
                raise DataError(f"{self._corpus.path} has no block {first}: {self._cursor} belongs to another corpus")
            before = edges(np.array([tokens_of(parts) for parts in plan])).tolist()
            for block in range(first, len(plan)):
                self._names.append((epoch, block))
                yield epoch, block, plan[block], epoch * before[-1] + before[block]
            epoch, first = epoch + 1, 0

    def row(self, content: Any, lengths: Ints) -> LoadedBlock[Any]:
        """What came of the oldest task that is not yet answered."""
        return LoadedBlock(*self._names.popleft(), content, lengths)
