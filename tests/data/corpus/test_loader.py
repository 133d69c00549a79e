"""The loader: the same batches whatever the workers and wherever a run is resumed; full steps; dead workers named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import DataError, LarvatusError, RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels
from larvatus.data.corpus import loader as loader_module
from larvatus.data.corpus.build import build_corpus
from larvatus.data.corpus.loader import Cursor, Loader, LoaderOptions, plan_blocks
from larvatus.data.corpus.packing import FullSentencesConfig, PackingConfig, SentencePairsConfig, SingleSegmentConfig
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.tokenizer import Tokenizer
from tests.data.corpus.made_up import SMALL, hide

PAIRS = SentencePairsConfig()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loader, "block_tokens", 5000)


def loader(corpus: Corpus, packing: PackingConfig = PAIRS, **changes: object) -> Loader:
    given = {"length": 48, "corruption": hide, "tokens": 2048, "seed": 3, "workers": 0} | changes
    reading = LoaderOptions(purpose=str(given.pop("purpose", "train")))
    return Loader(corpus, packing=packing, reading=reading, **given)  # type: ignore[arg-type]


def same(a: TrainingBatch[Ints], b: TrainingBatch[Ints]) -> bool:
    arrays: list[list[Ints]] = [[], []]
    for found, batch in zip(arrays, (a, b), strict=True):
        batch.map(lambda array, found=found: found.append(array) or array)
    return a.targets.keys() == b.targets.keys() and all(map(np.array_equal, *arrays))


def test_workers_change_nothing(corpus: Corpus) -> None:
    steps = [list(islice(loader(corpus, workers=workers).steps(), 60)) for workers in (0, 2)]
    assert steps[0][-1][1].epoch >= 1, "the comparison crosses an epoch"
    for others in steps[1:]:
        for (batch, cursor), (other, other_cursor) in zip(steps[0], others, strict=True):
            assert same(batch, other)
            assert cursor == other_cursor


def test_a_resume_at_any_cursor_goes_on_with_the_same_batches(corpus: Corpus) -> None:
    steps = list(islice(loader(corpus).steps(), 50))
    assert steps[-1][1].epoch >= 1
    for at, (_, cursor) in enumerate(steps[:-1]):
        kept = msgspec.json.decode(msgspec.json.encode(cursor), type=Cursor)
        batch, after = next(loader(corpus).steps(kept))
        assert same(batch, steps[at + 1][0])
        assert after == steps[at + 1][1]


@given(tokens=st.integers(48, 3000), length=st.integers(12, 48), seed=st.integers(0, 5), at=st.integers(0, 20))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch_size_any_resume_same_stream_of_sequences(
    corpus: Corpus, tokens: int, length: int, seed: int, at: int
) -> None:
    """Steps are cut from one stream: their size and where they are resumed change nothing about it."""

    def sequences(steps: Iterator[tuple[TrainingBatch[Ints], Cursor]], count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            found += next(steps)[0].tokens.ids.tolist()
        return found[:count]

    reference = loader(corpus, tokens=1500, length=length, seed=seed)
    other = loader(corpus, tokens=tokens, length=length, seed=seed)
    before: list[int] = []
    cursor = Cursor()
    for batch, after in islice(other.steps(), at):
        before += batch.tokens.ids.tolist()
        cursor = after
    stream = before + sequences(other.steps(cursor), 4000)
    assert stream == sequences(reference.steps(), len(stream))


def test_every_step_is_full_within_the_budget(corpus: Corpus) -> None:
    cursor = Cursor()
    for batch, cursor in islice(loader(corpus, tokens=1000).steps(), 80):  # noqa: B007
        assert 1000 - 48 < batch.tokens.size <= 1000
        assert len(batch.targets[PairLabels].labels) == batch.tokens.count
        assert (batch.tokens.ids[batch.targets[MaskedTokens].places] == 4).all()
    assert cursor.epoch >= 1


def test_an_epoch_holds_every_token_once_and_the_next_one_again_in_another_order(corpus: Corpus) -> None:
    steps = loader(corpus, FullSentencesConfig(), corruption=None).steps()
    epochs: dict[int, list[list[int]]] = {}
    cursor = Cursor()
    while cursor.epoch < 3:
        batch, after = next(steps)
        if after.epoch == cursor.epoch or after == Cursor(after.epoch):
            epochs.setdefault(cursor.epoch, []).append(batch.tokens.ids.tolist())
        else:  # the step lies across the border: leave its sequences to both
            for epoch in (cursor.epoch, after.epoch):
                epochs.setdefault(epoch, []).append(batch.tokens.ids.tolist())
        cursor = after
    whole = Counter(corpus.block(range(len(corpus.chunks))).ids.tolist())
    for epoch in (0, 1, 2):
        found = Counter(token for batch in epochs[epoch] for token in batch)
        assert all(found[token] >= count for token, count in whole.items())
        assert sum(found.values()) < corpus.tokens * 1.25
    assert epochs[0][1] != epochs[1][1] != epochs[2][1]


def test_masks_differ_between_epochs_and_blocks_and_belong_to_the_sequence(corpus: Corpus) -> None:
    """The corruption is told (epoch, block << 32): no two sequences of a run share a name."""
    told: list[tuple[int, int, int]] = []

    def note(batch: TrainingBatch[Ints], epoch: int, first: int) -> TrainingBatch[Ints]:
        told.append((epoch, first, batch.tokens.count))
        return batch

    for _, cursor in loader(corpus, corruption=note).steps():
        if cursor.epoch == 2:
            break
    names = [(epoch, first + i) for epoch, first, count in told for i in range(count)]
    assert len(set(names)) == len(names)
    assert {first >> 32 for _, first, _ in told} == set(range(max(first >> 32 for _, first, _ in told) + 1))


def test_the_seed_changes_the_order(corpus: Corpus) -> None:
    assert not same(next(loader(corpus, seed=1).steps())[0], next(loader(corpus, seed=2).steps())[0])


def test_evaluation_is_fixed_and_takes_each_sequence_once(corpus: Corpus) -> None:
    held_out = loader(corpus, SingleSegmentConfig(), purpose="valid", corruption=None)
    batches = list(held_out.evaluation())
    counts = Counter(token for batch in batches for token in batch.tokens.ids.tolist())
    whole = Counter(corpus.block(range(len(corpus.chunks))).ids.tolist())
    assert all(counts[token] == count for token, count in whole.items())
    assert all(batch.tokens.size <= 2048 for batch in batches)
    again = list(held_out.evaluation())
    assert all(map(same, batches, again))
    some = list(held_out.evaluation(limit_tokens=3000))
    assert 3000 - 48 < sum(batch.tokens.size for batch in some) <= 3000
    assert same(some[0], batches[0])


def test_a_corpus_smaller_than_one_step_is_an_error_and_no_hang(corpus: Corpus) -> None:
    with pytest.raises(DataError, match=rf"has {corpus.tokens:,} tokens, and one step takes .*smaller batch"):
        loader(corpus, tokens=corpus.tokens + 1).steps()
    batch, _ = next(loader(corpus, tokens=corpus.tokens).steps())
    assert corpus.tokens - 48 < batch.tokens.size <= corpus.tokens


def test_a_step_that_cannot_hold_a_sequence_is_refused(corpus: Corpus) -> None:
    with pytest.raises(RecipeError, match="cannot hold"):
        loader(corpus, tokens=40)


def test_a_cursor_of_another_corpus_is_refused(corpus: Corpus) -> None:
    with pytest.raises(DataError, match="another corpus"):
        next(loader(corpus).steps(Cursor(0, 10_000, 0)))


def test_sentence_pairs_without_sentences_are_refused_before_anything_is_read(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (tmp_path / "headings.txt").write_text("\n\n".join(f"the river {i}" for i in range(50)))
    build_corpus([tmp_path / "headings.txt"], tokenizer, tmp_path / "corpus", SMALL)
    with pytest.raises(DataError, match="without sentences"):
        loader(Corpus.open(tmp_path / "corpus"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of the workers of loaders."""
    pids: list[int] = []

    class Watched(loader_module.Workers):  # type: ignore[type-arg]
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            pids.extend(self.pids)

    monkeypatch.setattr(loader_module, "Workers", Watched)
    return pids


def test_a_killed_worker_is_named_and_the_way_out_is_told(corpus: Corpus, started: list[int]) -> None:
    """FAULTS 24: kill -9 a loader worker."""
    steps = loader(corpus, workers=2).steps()
    next(steps)
    os.kill(started[1], signal.SIGKILL)
    with pytest.raises(LarvatusError, match=rf"loader worker \(pid {started[1]}\) was killed \(SIGKILL.*--resume"):
        list(islice(steps, 10_000))


def test_workers_end_with_the_iterator_and_ignore_signals_meant_for_the_run(corpus: Corpus, started: list[int]) -> None:
    steps = loader(corpus, workers=1).steps()
    next(steps)
    os.kill(started[0], signal.SIGTERM)
    list(islice(steps, 40))  # continues: the trainer decides what SIGTERM means
    steps.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_blocks_are_even_and_hold_two_documents_where_pairs_need_them(corpus: Corpus) -> None:
    order = np.arange(len(corpus.chunks))
    blocks = plan_blocks(corpus, order, 5000, different=1)
    assert [k for block in blocks for k in block] == order.tolist()
    sizes = [sum(corpus.chunks[k].tokens for k in block) for block in blocks]
    assert max(sizes) < 2 * min(sizes)


def test_a_long_document_never_fills_a_block_of_pairs_alone(tokenizer: Tokenizer, tmp_path: Path) -> None:
    novel = "The river was wide. Old men sat on its bank. " * 1500
    (tmp_path / "text.txt").write_text(f"A boat went by. It was old.\n\n{novel}\n\nThe sun was low. They sat.")
    build_corpus([tmp_path / "text.txt"], tokenizer, tmp_path / "corpus", SMALL)
    corpus = Corpus.open(tmp_path / "corpus")
    assert len(corpus.chunks) > 8
    for seed in range(5):
        for batch, cursor in loader(corpus, seed=seed).steps():
            assert batch.tokens.count
            if cursor.epoch:
                break


def test_the_room_needs_no_torch() -> None:
    code = "import sys, larvatus.data.corpus.loader, larvatus.data.corpus.build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
