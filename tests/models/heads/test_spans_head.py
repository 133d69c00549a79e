"""The head that scores spans: its loss against a loop, negatives, cutting of batches, and the way to disk and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import WordSpans
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.spans import span_count
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from tests.models.heads.span_batches import span_batch

SHAPE = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=16, init=0.3)
GOLD = [[(0, 1, 0), (0, 2, 1)], [], [(2, 2, 1), (0, 3, 0)]]  # words first … last, type
COUNTS = [4, 1, 5]


def config(**settings) -> SpansConfig:
    return SpansConfig(**{"labels": ("ORG", "PER"), "longest": 3, "hidden": 8, "dropout": 0.0, **settings})


def head(**settings) -> Network:
    return Network.build(SHAPE, [config(**settings)], 20, seed=1)


def batch() -> TrainingBatch:
    return span_batch(COUNTS, GOLD)


def spans() -> list[tuple[int, int, int]]:
    """Sequence, first word and last word of every span of up to three words."""
    return [(b, i, j) for b, n in enumerate(COUNTS) for i in range(n) for j in range(i, min(n, i + 3))]


def gold_of(b: int, i: int, j: int) -> int:
    return next((1 + t for x, y, t in GOLD[b] if (x, y) == (i, j)), 0)


def test_eq_11_27_the_loss_is_the_cross_entropy_of_every_span_with_its_weight() -> None:
    model = head(null_weight=0.25).eval()
    tensors = on_device(batch(), "cpu")
    own = model.heads["spans"]
    with torch.inference_mode():
        scores = own.scores(model.encoder(tensors.tokens), tensors).double()
        (loss,) = model(tensors, accuracy=True).values()
    gold = [gold_of(*span) for span in spans()]
    each = [-torch.log_softmax(row, 0)[label] for row, label in zip(scores, gold, strict=True)]
    wanted = sum(one * (1.0 if label else 0.25) for one, label in zip(each, gold, strict=True))
    assert_close(loss.total.double(), wanted, rtol=1e-5, atol=1e-5)
    assert int(loss.count) == len(gold)
    assert int(loss.correct) == sum(int(row.argmax()) == label for row, label in zip(scores, gold, strict=True))
    assert sum(label > 0 for label in gold) == 3  # the gold span of four words is longer than any that is looked at
    assert own.size(batch()) == pytest.approx(3 + 0.25 * (len(gold) - 3))


def test_negatives_are_drawn_while_learning_and_gold_spans_always_learnt() -> None:
    model = head(negatives=0.4)
    tensors = on_device(batch(), "cpu")
    counts = []
    for step in range(100):
        torch.manual_seed(step)
        counts.append(int(model.train()(tensors)["spans"].count))
    others = len(spans()) - 3
    assert abs(np.mean(counts) - (3 + 0.4 * others)) < 4 * np.sqrt(0.24 * others / 100)
    assert min(counts) >= 3
    assert len(set(counts)) > 3
    assert int(model.eval()(tensors)["spans"].count) == len(spans())
    assert model.heads["spans"].size(batch()) == pytest.approx(3 + 0.4 * others)


def test_batches_cut_and_joined_again_lose_nothing() -> None:
    whole = batch()
    again = TrainingBatch.join([whole.cut(0, 1), whole.cut(1, 3)])
    for name in ("counts", "first", "last", "types", "golds"):
        assert getattr(again.targets[WordSpans], name).tolist() == getattr(whole.targets[WordSpans], name).tolist()
    for name in ("rows", "words", "counts", "starts"):
        assert getattr(again.tokens.word_tokens, name).tolist() == getattr(whole.tokens.word_tokens, name).tolist()
    model = head().eval()
    parts = [model(on_device(whole.cut(n, n + 1), "cpu"))["spans"].total for n in range(3)]
    assert_close(sum(parts), model(on_device(whole, "cpu"))["spans"].total)


@given(counts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4), longest=st.integers(1, 12))
def test_spans_are_counted_without_being_listed(counts, longest) -> None:
    words = np.array([max(pair) for pair in counts], np.int64)
    starts = np.array([min(pair) for pair in counts], np.int64)
    wanted = sum(min(longest, n - i) for n, s in zip(words, starts, strict=True) for i in range(s))
    assert span_count(words, starts, longest) == wanted


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"labels": ()}, "at least one type"),
        ({"labels": ("A", "A")}, "named once"),
        ({"longest": 0}, "longest = 0 must lie between 1"),
        ({"negatives": 0.0}, "negatives = 0.0 must be above 0"),
        ({"threshold": 1.5}, "threshold"),
        ({"mix": True, "pool": "max"}, "first or mean"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, said) -> None:
    with pytest.raises(UsageError, match=said):
        config(**settings)
