"""The pretraining data loader: batches whose order and content depend only on (seed, epoch, position).

    loader = Loader(corpus, packing=SentencePairsConfig(), length=128, corruption=mask, tokens=65_536, seed=1)
    for batch, cursor in loader.steps():     # `steps(cursor)` resumes with the step after this batch
        …

A *chunk* is the unit in which the corpus is stored, a *block* is about two million tokens of chunks, and a *step* is
the batch of one optimizer update. Each epoch permutes the chunks and groups them into blocks (if languages are mixed,
`mixture.py` selects the parts of chunks). One worker packs a block into sequences, shuffles and corrupts them. Every
random choice about a sequence depends only on the seed and on its key (epoch, block, index in the block). The main
process joins the blocks end to end and cuts them into steps of at most `tokens` tokens. It looks only at the lengths of
sequences, and a step may cross blocks and epochs. So every step is full, and neither the number of workers nor a resume
changes it.

With several ranks, all ranks cut a step into the same microbatches, whose number is a multiple of the number of ranks
if there are enough sequences. Rank r of R takes microbatches r, r + R, r + 2R, … and assembles and corrupts only those.
They are bit-identical to the same sequences of the whole step.
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
"""Tokens of corpus text in a block, approximately."""
_WHAT, _FIX = "a loader worker", "the run continues from its last checkpoint with --resume"
BlockTask = tuple[int, int, list[ChunkPart], int]
"""A block to make: epoch, block number, chunk parts, and the tokens of text before it (earlier epochs included)."""
Task = list[list[tuple[BlockOutline, int]]]
"""Microbatches to read: for each, its parts of blocks and the index of each part's first sequence in its block."""
Content = TypeVar("Content")
"""A block as far as it is known: its batch (`TrainingBatch`) or only its outline (`BlockOutline`)."""


class Cursor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Position of the next sequence to read: the only loader state that a checkpoint stores."""

    epoch: int = 0
    block: int = 0
    """Block of the epoch, from 0."""
    sequence: int = 0
    """Sequence of the block, from 0."""


class LoadedBlock(NamedTuple, Generic[Content]):
    """A block with its epoch, its number in the epoch and the lengths of its sequences."""

    epoch: int
    block: int
    content: Content
    lengths: Ints  # [sequences] in tokens


class SequenceRange(NamedTuple, Generic[Content]):
    """Sequences first … last − 1 of a block."""

    content: Content
    first: int
    last: int


def cut_steps(
    blocks: Iterator[LoadedBlock[Content]], first: int, budget: int
) -> Iterator[tuple[list[SequenceRange[Content]], Cursor]]:
    """Cut blocks into steps of whole sequences; yield the ranges of each step and the cursor of the next step.

    `first` is the first sequence to read of the first block, and `budget` the most tokens of a step. A step may take
    sequences from several blocks.
    """
    ranges: list[SequenceRange[Content]] = []
    tokens_left = budget
    for epoch, block, content, lengths in blocks:
        edge = edges(lengths)
        while first < len(lengths):
            last = int(np.searchsorted(edge, edge[first] + tokens_left, side="right")) - 1
            if last > first:
                ranges.append(SequenceRange(content, first, last))
                tokens_left -= int(edge[last] - edge[first])
                first = last
            if first < len(lengths):  # the next sequence does not fit: the step is full
                yield ranges, Cursor(epoch, block, first)
                ranges, tokens_left = [], budget
        first = 0  # the next block fills the rest of the step


@dataclass(frozen=True)
class RankAssignment:
    """Assigns microbatches to `count` ranks in turn; `rank` is this one, from 0."""

    rank: int
    count: int

    def takes(self, item: int) -> bool:
        """Whether this rank computes microbatch number `item` of a step."""
        return item % self.count == self.rank


@dataclass(frozen=True, eq=False)
class StepPlan:
    """The sequences of a step, as ranges of blocks, before any token is read."""

    ranges: Sequence[SequenceRange[BlockOutline]]

    @cached_property
    def lengths(self) -> Ints:
        """[sequences] tokens of each sequence of the step."""
        return np.concatenate([outline.lengths[first:last] for outline, first, last in self.ranges])

    def runs(self, budget: int, count: int) -> list[tuple[int, int]]:
        """The microbatches of the whole step, each as its sequences (first, last + 1).

        A microbatch has about `budget` tokens. The number of microbatches is a multiple of `count` if there are enough
        sequences.
        """
        return even_runs(edges(self.lengths), budget, count)

    def tasks(self, budget: int, deal: RankAssignment) -> Task:
        """The microbatches that one rank reads."""
        runs = enumerate(self.runs(budget, deal.count))
        return [list(self._block_parts(*run)) for item, run in runs if deal.takes(item)]

    def _block_parts(self, first: int, last: int) -> Iterator[tuple[BlockOutline, int]]:
        """Sequences first … last − 1 of the step: each part of a block, with its first sequence in that block."""
        before = 0  # sequences of the step in earlier ranges
        for outline, begin, end in self.ranges:
            low, high = max(first, before), min(last, before + end - begin)
            if low < high:
                yield outline.cut(begin + low - before, begin + high - before), begin + low - before
            before += end - begin


@dataclass(frozen=True, eq=False)
class RankShare:
    """One rank's microbatches of a step."""

    plan: StepPlan
    microbatch: int
    """Tokens of a microbatch, approximately."""
    deal: RankAssignment
    batches: Sequence[TrainingBatch[Ints]]
    """Microbatches of this rank."""
    read: Callable[[Task], Sequence[TrainingBatch[Ints]]]
    """Reads the step again in smaller microbatches after an out-of-memory error."""

    @property
    def size(self) -> int:
        """Tokens of the whole step."""
        return int(self.plan.lengths.sum())

    def split(self, budget: int, multiple: int) -> list[TrainingBatch[Ints] | None]:
        """The microbatches of the whole step, with None for those of other ranks.

        Args:
            budget: Tokens of a microbatch, approximately.
            multiple: The number of microbatches is a multiple of this if there are enough sequences.
        """
        batches = self.batches if budget == self.microbatch else self.read(self.plan.tasks(budget, self.deal))
        items, mine = range(len(self.plan.runs(budget, multiple))), iter(batches)
        return [next(mine) if self.deal.takes(item) else None for item in items]


def read_share(maker: BlockMaker, task: Task) -> list[TrainingBatch[Ints]]:
    """Assemble and corrupt the microbatches of a task."""
    return [TrainingBatch.join([maker.sequences(outline, first) for outline, first in parts]) for parts in task]


def _make(maker: BlockMaker, task: BlockTask) -> TrainingBatch[Ints]:
    return maker.make(*task)


def _outline(maker: BlockMaker, task: BlockTask) -> BlockOutline:
    return maker.outline(*task)


class Loader:
    """Reads a corpus in steps for training, or once through for evaluation.

    Args:
        corpus: Tokenized text in shards.
        packing: How sentences are packed into sequences.
        length: Longest sequence, in tokens, with its special tokens.
        corruption: Masks or replaces tokens and adds the targets; None leaves the text as it is.
        tokens: Most tokens of a step; in `evaluation`, of a batch.
        seed: Of the order of chunks and of packing.
        workers: Processes that make blocks; 0 makes them in this process.
        reading: Which text is read, in which order.
    """

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
        self._corpus, self._tokens, self._worker_count = corpus, tokens, workers
        self._running: list[Workers[BlockMaker, Any, Any]] = []
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
        """Endless (batch, cursor) pairs from `cursor` on; each pair has the cursor of the step after its batch."""
        self._check_enough_text()
        return self._steps(cursor)

    def _steps(self, cursor: Cursor) -> Iterator[tuple[TrainingBatch[Ints], Cursor]]:
        with self._start_workers(self._worker_count, _make) as workers:
            tasks = _BlockTasks(self._maker, self._corpus, cursor)
            blocks = (tasks.identify(batch, batch.tokens.lengths) for batch in workers.map(tasks))
            for ranges, after in cut_steps(blocks, cursor.sequence, self._tokens):
                yield TrainingBatch.join([batch.cut(first, last) for batch, first, last in ranges]), after

    def shares(
        self, cursor: Cursor, deal: RankAssignment, microbatch: Callable[[], int]
    ) -> Iterator[tuple[RankShare | TrainingBatch[Ints], Cursor]]:
        """The steps of `steps`, but of each only the microbatches of one rank.

        If corruption changes the lengths of sequences at random, a step's end is known only after all of it is
        corrupted. Every rank then gets whole steps, as from `steps`.

        Args:
            cursor: Where the first step begins.
            deal: Which microbatches this rank takes.
            microbatch: Returns the current tokens of a microbatch, which fall when memory runs out.
        """
        self._check_enough_text()
        return self._shares(cursor, deal, microbatch) if self._maker.knows_lengths else self._steps(cursor)

    def _shares(
        self, cursor: Cursor, deal: RankAssignment, microbatch: Callable[[], int]
    ) -> Iterator[tuple[RankShare, Cursor]]:
        """A quarter of the workers outline blocks (borders and lengths); the others read this rank's microbatches."""
        planners = -(-self._worker_count // 4)
        readers = max(self._worker_count - planners, min(self._worker_count, 1))
        planned: deque[tuple[StepPlan, int, Cursor]] = deque()  # steps that are being read, oldest first
        with (
            self._start_workers(planners, _outline) as planning,
            self._start_workers(readers, read_share) as reading,
        ):
            tasks = _BlockTasks(self._maker, self._corpus, cursor)
            blocks = (tasks.identify(outline, outline.lengths) for outline in planning.map(tasks))

            def read_tasks() -> Iterator[Task]:
                for ranges, after in cut_steps(blocks, cursor.sequence, self._tokens):
                    plan, budget = StepPlan(ranges), microbatch()
                    planned.append((plan, budget, after))
                    yield plan.tasks(budget, deal)

            for batches in reading.map(read_tasks()):
                plan, budget, after = planned.popleft()
                yield RankShare(plan, budget, deal, batches, lambda task: read_share(self._maker, task)), after

    def _start_workers(self, count: int, function: Any) -> Workers[BlockMaker, Any, Any]:
        workers: Workers[BlockMaker, Any, Any] = Workers(count, lambda: self._maker, function, what=_WHAT, fix=_FIX)
        self._running.append(workers)
        return workers

    def _check_enough_text(self) -> None:
        if self._corpus.tokens < self._tokens:
            raise DataError(
                f"{self._corpus.path} has {self._corpus.tokens:,} tokens, and one step takes {self._tokens:,}; "
                "give more text, or a smaller batch (--set batch=…)"
            )

    def evaluation(self, limit_tokens: int | None = None) -> Iterator[TrainingBatch[Ints]]:
        """Each sequence once, in a fixed order, in batches of at most `tokens` tokens; `limit_tokens` in all.

        The first sequence is read even if it is longer than `limit_tokens`. None reads all.
        """
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
        """For each block of an epoch, its chunks or parts of chunks."""
        return self._maker.plan(self._corpus, epoch)

    def close(self) -> None:
        """End the workers. Any thread may call this; a thread that waits for a worker gets an error."""
        for workers in self._running:
            workers.close()


class _BlockTasks:
    """Endless block tasks from the cursor's block on. Keeps the (epoch, block) of tasks whose result is pending."""

    def __init__(self, maker: BlockMaker, corpus: Corpus, cursor: Cursor) -> None:
        self._maker, self._corpus, self._cursor = maker, corpus, cursor
        self._pending: deque[tuple[int, int]] = deque()

    def __iter__(self) -> Iterator[BlockTask]:
        epoch, first = self._cursor.epoch, self._cursor.block
        while True:
            plan = self._maker.plan(self._corpus, epoch)
            if first >= len(plan):
                raise DataError(f"{self._corpus.path} has no block {first}: {self._cursor} belongs to another corpus")
            before = edges(np.array([tokens_of(parts) for parts in plan])).tolist()
            for block in range(first, len(plan)):
                self._pending.append((epoch, block))
                yield epoch, block, plan[block], epoch * before[-1] + before[block]
            epoch, first = epoch + 1, 0

    def identify(self, content: Any, lengths: Ints) -> LoadedBlock[Any]:
        """Give the result of the oldest pending task its epoch and block; workers return results in task order."""
        return LoadedBlock(*self._pending.popleft(), content, lengths)
