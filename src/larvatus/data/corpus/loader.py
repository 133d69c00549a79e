"""The loader: batches whose order and content are a function of (seed, epoch, position) only.

    loader = Loader(corpus, packing=SentencePairsConfig(), length=128, corruption=mask, tokens=65_536, seed=1)
    for batch, cursor in loader.steps():     # the cursor is where the next step begins: steps(cursor) resumes there
        …

Each epoch permutes the chunks of the corpus and takes them in blocks of about two million tokens (where languages are
mixed, `mixture.py` decides which parts of which chunks). A block is packed, its sequences are shuffled and corrupted,
all in one worker; a sequence is identified by (epoch, block, place in the block), and every random choice about it
depends on that name. Steps of `tokens` tokens are cut from the row of blocks in this process, by lengths only and
across blocks and epochs, so each is full and neither workers nor a resume can change any.

Of several ranks each lays out and corrupts only its own microbatches. All ranks cut the same step into the same
microbatches, a multiple of the ranks where there are enough sequences, and deal them out in turn. So a share is, bit by
bit, what the whole step has there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from larvatus.core.arrays import Ints, even_runs
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
from larvatus.data.corpus.store import Corpus

__all__ = ["CorruptionFunction", "Cursor", "Loader", "LoaderOptions", "RankAssignment", "RankShare", "plan_blocks"]

BLOCK_TOKENS = 1 << 21
_WHAT, _FIX = "a loader worker", "the run continues from its last checkpoint with --resume"
BlockTask = tuple[int, int, list[ChunkPart], int]
"""A block to make: epoch, number, text, and how much text comes before it."""
Task = list[list[tuple[BlockOutline, int]]]
"""Microbatches, each as stretches of blocks with the place in its block where each begins."""
Content = TypeVar("Content")


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sequence that comes next; all that a resume needs."""

    epoch: int = 0
    block: int = 0
    sequence: int = 0


class LoadedBlock(NamedTuple, Generic[Content]):
    """A block in its place: what it holds, and how long its sequences are."""

    epoch: int
    block: int
    content: Content
    lengths: Ints


class SequenceRange(NamedTuple, Generic[Content]):
    """Sequences first … last − 1 of a block."""

    content: Content
    first: int
    last: int


def cut_steps(
    blocks: Iterator[LoadedBlock[Content]], first: int, budget: int
) -> Iterator[tuple[list[SequenceRange[Content]], Cursor]]:
    """Cut the row of blocks into steps of whole sequences within the budget; a step may take from several blocks."""
    stretches: list[SequenceRange[Content]] = []
    room = budget
    for epoch, block, content, lengths in blocks:
        edge = edges(lengths)
        while first < len(lengths):
            last = int(np.searchsorted(edge, edge[first] + room, side="right")) - 1
            if last > first:
                stretches.append(SequenceRange(content, first, last))
                room -= int(edge[last] - edge[first])
                first = last
            if first < len(lengths):  # the next sequence does not fit: the step is full
                yield stretches, Cursor(epoch, block, first)
                stretches, room = [], budget
        first = 0  # what room is left goes to the next block


@dataclass(frozen=True)
class RankAssignment:
    """Which rank this is, of how many."""

    rank: int
    count: int

    def takes(self, item: int) -> bool:
        return item % self.count == self.rank


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A step by its borders: which sequences of which blocks."""

    stretches: Sequence[SequenceRange[BlockOutline]]

    @cached_property
    def lengths(self) -> Ints:
        return np.concatenate([outline.lengths[first:last] for outline, first, last in self.stretches])

    def runs(self, budget: int, count: int) -> list[tuple[int, int]]:
        """The microbatches of the whole step, in sequences."""
        return even_runs(edges(self.lengths), budget, count)

    def tasks(self, budget: int, deal: RankAssignment) -> Task:
        """What a rank reads of it."""
        runs = enumerate(self.runs(budget, deal.count))
        return [list(self._stretches(*run)) for item, run in runs if deal.takes(item)]

    def _stretches(self, first: int, last: int) -> Iterator[tuple[BlockOutline, int]]:
        before = 0
        for outline, begin, end in self.stretches:
            low, high = max(first, before), min(last, before + end - begin)
            if low < high:
                yield outline.cut(begin + low - before, begin + high - before), begin + low - before
            before += end - begin


@dataclass(frozen=True, eq=False)
class RankShare:
    """A step of which one rank has its own microbatches."""

    plan: StepPlan
    microbatch: int
    deal: RankAssignment
    batches: Sequence[TrainingBatch[Ints]]
    """Microbatches of this rank."""
    read: Callable[[Task], Sequence[TrainingBatch[Ints]]]
    """Reads others, where memory ran out and the step is cut again."""

    @property
    def size(self) -> int:
        """Tokens of the whole step."""
        return int(self.plan.lengths.sum())

    def split(self, budget: int, multiple: int) -> list[TrainingBatch[Ints] | None]:
        """The microbatches of the whole step; None in place of those of other ranks."""
        batches = self.batches if budget == self.microbatch else self.read(self.plan.tasks(budget, self.deal))
        items, mine = range(len(self.plan.runs(budget, multiple))), iter(batches)
        return [next(mine) if self.deal.takes(item) else None for item in items]


def read_share(maker: BlockMaker, task: Task) -> list[TrainingBatch[Ints]]:
    """The microbatches of a task."""
    return [TrainingBatch.join([maker.sequences(outline, first) for outline, first in stretches]) for stretches in task]


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
        """The same steps, of each what one of several ranks reads, cut into microbatches.

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
