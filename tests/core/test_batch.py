"""`TokenBatch` and `TrainingBatch`: cutting and joining are each other's opposites, and budgets hold."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.batch import TokenBatch, TrainingBatch, runs
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels


@st.composite
def training_batches(draw):
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    tokens = TokenBatch.of([[10 * i + j for j in range(n)] for i, n in enumerate(lengths)])
    places = np.flatnonzero([draw(st.booleans()) for _ in range(tokens.size)])
    masked = MaskedTokens(places=places, ids=tokens.ids[places])
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=len(lengths), max_size=len(lengths))))
    return TrainingBatch(tokens=tokens, targets={MaskedTokens: masked, PairLabels: PairLabels(labels=labels)})


@given(training_batches(), st.integers(1, 20))
def test_cuts_joined_again_are_the_batch(batch, budget):
    parts = list(batch.cuts(budget))
    whole = TrainingBatch.join(parts)
    for name in ("ids", "lengths", "positions", "segments", "words"):
        assert getattr(whole.tokens, name).tolist() == getattr(batch.tokens, name).tolist()
    for kind, fields in {MaskedTokens: ("places", "ids"), PairLabels: ("labels",)}.items():
        for name in fields:
            assert getattr(whole.targets[kind], name).tolist() == getattr(batch.targets[kind], name).tolist()


@given(training_batches(), st.integers(1, 20))
def test_a_cut_keeps_its_budget_and_its_targets_point_at_the_same_tokens(batch, budget):
    for part in batch.cuts(budget):
        assert part.tokens.size <= budget or part.tokens.count == 1
        masked = part.targets[MaskedTokens]
        assert part.tokens.ids[masked.places].tolist() == masked.ids.tolist()
        assert len(part.targets[PairLabels].labels) == part.tokens.count


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 40))
def test_runs_cover_every_sequence_once(lengths, budget):
    covered = [i for first, last in runs(np.array(lengths, dtype=np.int64), budget) for i in range(first, last)]
    assert covered == list(range(len(lengths)))


def test_map_reaches_every_array():
    batch = TrainingBatch(
        tokens=TokenBatch.of([[1, 2], [3]]),
        targets={MaskedTokens: MaskedTokens(places=np.array([1]), ids=np.array([2]))},
    )
    doubled = batch.map(lambda array: array * 2)
    assert doubled.tokens.ids.tolist() == [2, 4, 6]
    assert doubled.targets[MaskedTokens].places.tolist() == [2]


@given(training_batches(), st.integers(1, 20))
def test_an_even_split_is_the_batch_in_as_few_runs_as_the_budget_asks_for(batch, budget):
    parts = list(batch.split(budget))
    assert TrainingBatch.join(parts).tokens.ids.tolist() == batch.tokens.ids.tolist()
    assert len(parts) <= -(-batch.tokens.size // budget)
    longest = int(batch.tokens.lengths.max())
    assert all(part.tokens.size <= batch.tokens.size / -(-batch.tokens.size // budget) + longest for part in parts)


def test_sequences_that_are_scored_together_are_never_cut_apart() -> None:
    tokens = TokenBatch.of([[2, n, 3] for n in range(9)])
    batch = TrainingBatch(tokens=dataclasses.replace(tokens, groups=np.array([4, 2, 3])), targets={})
    for parts in (list(batch.split(5)), list(batch.cuts(5)), list(batch.split(20))):
        assert [count for part in parts for count in part.tokens.groups.tolist()] == [4, 2, 3]
        assert all(part.tokens.groups.sum() == part.tokens.count for part in parts)
        again = TrainingBatch.join(parts).tokens
        assert (again.ids.tolist(), again.groups.tolist()) == (tokens.ids.tolist(), [4, 2, 3])
    assert len(list(batch.split(5))) == 3
