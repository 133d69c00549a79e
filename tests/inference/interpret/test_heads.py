"""Head statistics equal plain loops over the weights; types follow the thresholds that are stated."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.documents import Document
from larvatus.inference.interpret.attention import attend
from larvatus.inference.interpret.heads import (
    HeadStatistics,
    head_statistics,
    passage_sums,
    read_passages,
    text_statistics,
)

NAMES = ("entropy", "uniform", "distance", "to_self", "previous", "next", "cls", "separator", "punctuation")


def loop(weights: np.ndarray, punctuation: np.ndarray) -> dict[str, float]:
    """The sums of one head, query by query and key by key: [T, T] in float64."""
    size = len(weights)
    sums = dict.fromkeys(NAMES, 0.0)
    for i in range(size):
        sums["uniform"] += math.log(size)
        for j in range(size):
            a = float(weights[i, j])
            sums["entropy"] -= a * math.log(a) if a else 0.0
            sums["distance"] += a * abs(i - j)
            sums["to_self"] += a * (i == j)
            sums["previous"] += a * (j == i - 1)
            sums["next"] += a * (j == i + 1)
            sums["cls"] += a * (j == 0)
            sums["separator"] += a * (j == size - 1)
            sums["punctuation"] += a * bool(punctuation[j])
    return sums


@given(size=st.integers(2, 9), seed=st.integers(0, 1_000), sharp=st.floats(0.1, 30))
def test_sums_of_a_passage_equal_the_loop(size: int, seed: int, sharp: float) -> None:
    draw = np.random.default_rng(seed)
    scores = sharp * draw.normal(size=(3, size, size))
    weights = torch.softmax(torch.from_numpy(scores), -1)
    weights[0, 0] = torch.eye(size, dtype=torch.float64)[size - 1]  # zeros are no NaN
    punctuation = draw.random(size) < 0.3
    found = passage_sums(weights, punctuation)
    for head in range(3):
        expected = loop(weights[head].numpy(), punctuation)
        assert_allclose(found[:, head], [expected[name] for name in NAMES], atol=1e-9)


def documents(*texts: str) -> list[Document]:
    return [Document(text, "made.txt", number + 1) for number, text in enumerate(texts)]


def test_statistics_over_passages_are_means_over_their_tokens(tiny_model, tiny_tokenizer) -> None:
    encoder = tiny_model(layers=2).encoder
    given_documents = documents("the river, was wide.", "", "please turn your homework in! and run. " * 12, "a")
    passages = list(read_passages(given_documents, tiny_tokenizer, length=20, limit=100))
    assert len(passages) > 4  # the long one in several windows
    assert max(len(passage.ids) for passage in passages) == 20
    rows = head_statistics(encoder, passages)
    assert [(row.layer, row.head) for row in rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    totals = {(row.layer, row.head): dict.fromkeys(NAMES, 0.0) for row in rows}
    queries = sum(len(passage.ids) for passage in passages)
    for passage in passages:
        text = " ".join(passage.tokens[1:-1])
        alone = attend(encoder, tiny_tokenizer, text)
        assert alone.tokens == passage.tokens
        for row in rows:
            own = loop(alone.head(row.layer, row.head).astype(np.float64), passage.punctuation)
            for name in NAMES:
                totals[row.layer, row.head][name] += own[name]
    for row in rows:
        for name in NAMES:
            count = queries - len(passages) if name in ("previous", "next") else queries
            assert_allclose(getattr(row, name), totals[row.layer, row.head][name] / count, atol=1e-5)


def test_the_statistics_of_one_text_are_those_of_its_passage(tiny_model, tiny_tokenizer) -> None:
    encoder = tiny_model().encoder
    text = "the river, was wide."
    found = attend(encoder, tiny_tokenizer, text)
    assert found.tokens == ("[CLS]", "the", "river", ",", "was", "wide", ".", "[SEP]")
    assert found.punctuation.tolist() == [token in ",." for token in found.tokens]
    passages = list(read_passages(documents(text), tiny_tokenizer, length=32, limit=1))
    for one, other in zip(text_statistics(found), head_statistics(encoder, passages), strict=True):
        assert_allclose([getattr(one, n) for n in NAMES], [getattr(other, n) for n in NAMES], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"separator": 0.5}, "separator"),
        ({"separator": 0.49}, "mixed"),
        ({"previous": 0.7, "punctuation": 0.6}, "previous"),
        ({"next": 0.9, "entropy": 2.0}, "next"),
        ({"punctuation": 0.55}, "punctuation"),
        ({"to_self": 0.55}, "self"),
        ({"cls": 0.95}, "cls"),
        ({"entropy": 1.6}, "broad"),
        ({"entropy": 1.59}, "mixed"),
    ],
)
def test_the_type_of_a_head_follows_stated_thresholds(fields: dict[str, float], expected: str) -> None:
    plain = {**dict.fromkeys(NAMES, 0.1), "uniform": 2.0, "entropy": 1.0}
    row = HeadStatistics(layer=1, head=1, **{**plain, **fields})
    assert row.type == expected
    assert row.to_dict()["type"] == expected


def test_no_more_passages_are_read_than_asked_for(tiny_tokenizer) -> None:
    many = documents(*["the river was wide."] * 9)
    assert len(list(read_passages(many, tiny_tokenizer, length=32, limit=4))) == 4


def test_what_cannot_be_looked_at_is_one_line(tiny_model, tiny_tokenizer) -> None:
    encoder = tiny_model().encoder
    with pytest.raises(UsageError, match="the text has 40 tokens and the model's window has 30; shorten it"):
        attend(encoder, tiny_tokenizer, "river " * 40)
    with pytest.raises(UsageError, match="the text has no token"):
        attend(encoder, tiny_tokenizer, "  ")
    with pytest.raises(UsageError, match="there is no layer 3, head 1: the model has layers 1 to 2 with heads 1 to 2"):
        attend(encoder, tiny_tokenizer, "river").head(3, 1)
    with pytest.raises(DataError, match="no passage"):
        head_statistics(encoder, [])
