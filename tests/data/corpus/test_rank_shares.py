"""What a rank reads of a step is, bit by bit, what the whole step has there; and it makes no more than that."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import NextTokens
from larvatus.data.corpus.block_maker import BlockMaker
from larvatus.data.corpus.loader import Cursor, Loader, LoaderOptions, RankAssignment, RankShare
from larvatus.data.corpus.packing import (
    ContiguousConfig,
    FullSentencesConfig,
    PackingConfig,
    SentencePairsConfig,
    SingleSegmentConfig,
)
from larvatus.data.corpus.store import Corpus
from larvatus.data.corruption import (
    Corruption,
    CorruptionConfig,
    MaskingConfig,
    MaskVocabulary,
    NoiseConfig,
    RunPosition,
    SampledConfig,
)
from larvatus.data.corruption.sentinels import SentinelsConfig
from larvatus.data.corruption.spans import SpanCorruptionConfig
from tests.data.corpus.test_loader import same

KINDS: dict[str, tuple[PackingConfig, CorruptionConfig | None]] = {
    "bert": (SentencePairsConfig(), MaskingConfig(replacement="uniform")),
    "electra": (SingleSegmentConfig(), SampledConfig(replacement="uniform")),
    "spanbert": (SingleSegmentConfig(), SpanCorruptionConfig(replacement="uniform")),
    "falling": (SentencePairsConfig(), MaskingConfig(first_rate=0.4, replacement="uniform")),
    "t5": (ContiguousConfig(dressed=True), SentinelsConfig()),
    "t5 over documents": (FullSentencesConfig(), SentinelsConfig()),
    "gpt": (ContiguousConfig(), None),
}
BUDGET, COUNT = 300, 3


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "block_tokens", 5000)


def loader(corpus: Corpus, packing: PackingConfig, config: CorruptionConfig | None, workers: int = 0) -> Loader:
    sentinels = np.arange(60, 56, -1)  # few, so that long sequences have longer spans
    special = {0, 1, 2, 3, 4}
    vocabulary = MaskVocabulary(mask_id=4, size=corpus.tokenizer.size, special_ids=special, sentinels=sentinels)
    course = RunPosition(first=0, steps=60, tokens=1024)
    return Loader(
        corpus,
        packing=packing,
        length=48,
        corruption=None if config is None else Corruption(config, vocabulary, 7, limit=48, course=course),
        tokens=1024,
        seed=3,
        workers=workers,
        reading=LoaderOptions(from_text=() if config is not None else (NextTokens,), words=False),
    )


@pytest.mark.parametrize("name", KINDS)
def test_shares_are_what_the_whole_step_has_there(corpus: Corpus, name: str) -> None:
    """At the beginning and from one epoch into the next, with any microbatch: as it was read, and cut again."""
    steps = list(islice(loader(corpus, *KINDS[name]).steps(), 60))
    turn = next(at for at, (_, cursor) in enumerate(steps) if cursor.epoch >= 1)
    for start, whole in ((Cursor(), steps[:6]), (steps[turn - 6][1], steps[turn - 5 : turn + 5])):
        assert_shares(corpus, name, start, whole)


def assert_shares(
    corpus: Corpus, name: str, start: Cursor, whole: list[tuple[TrainingBatch[np.ndarray], Cursor]]
) -> None:
    splits = [{budget: list(batch.split(budget, COUNT)) for budget in (BUDGET, 200)} for batch, _ in whole]
    for rank in range(COUNT):
        shares = loader(corpus, *KINDS[name]).shares(start, RankAssignment(rank, COUNT), lambda: BUDGET)
        for (batch, cursor), split, (share, after) in zip(whole, splits, islice(shares, len(whole)), strict=True):
            assert isinstance(share, RankShare)
            assert cursor == after
            assert share.size == batch.tokens.size
            for budget, expected in split.items():
                micros = share.split(budget, COUNT)
                assert len(expected) == len(micros) >= COUNT
                for item, (micro, other) in enumerate(zip(micros, expected, strict=True)):
                    assert (micro is not None) == (item % COUNT == rank)
                    assert micro is None or same(micro, other)


def test_a_resume_in_the_middle_and_workers_change_nothing(corpus: Corpus) -> None:
    packing, config = KINDS["bert"]
    deal = RankAssignment(1, 2)
    steps = list(islice(loader(corpus, packing, config).shares(Cursor(), deal, lambda: BUDGET), 12))
    again = loader(corpus, packing, config, workers=1).shares(steps[4][1], deal, lambda: BUDGET)
    for (share, cursor), (other, after) in zip(steps[5:], islice(again, 7), strict=True):
        assert cursor == after
        assert isinstance(share, RankShare)
        assert isinstance(other, RankShare)
        assert all(map(same, share.batches, other.batches))


def test_a_rank_makes_its_share_and_no_more(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = [0], BlockMaker.sequences

    def counted(self: BlockMaker, *arguments: object) -> TrainingBatch[np.ndarray]:
        batch = real(self, *arguments)  # type: ignore[arg-type]
        made[0] += batch.tokens.size
        return batch

    monkeypatch.setattr(BlockMaker, "sequences", counted)
    monkeypatch.setattr(BlockMaker, "make", lambda *arguments: pytest.fail("a whole block was made"))
    shares = list(islice(loader(corpus, *KINDS["bert"]).shares(Cursor(), RankAssignment(0, 4), lambda: BUDGET), 20))
    tokens = sum(share.size for share, _ in shares if isinstance(share, RankShare))
    assert made[0] == pytest.approx(tokens / 4, rel=0.1)


def test_steps_come_whole_where_lengths_are_a_matter_of_chance(corpus: Corpus) -> None:
    noise = NoiseConfig(delete=0.2, replacement="uniform")
    steps = loader(corpus, SingleSegmentConfig(), noise).steps()
    shares = loader(corpus, SingleSegmentConfig(), noise).shares(Cursor(), RankAssignment(1, 2), lambda: BUDGET)
    for (batch, cursor), (share, after) in zip(islice(steps, 5), islice(shares, 5), strict=True):
        assert isinstance(share, TrainingBatch)
        assert same(batch, share)
        assert cursor == after
