"""Words of passages matched with words of a query, against a loop over all pairs in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

import larvatus as lv
from larvatus.inference.search.word_matches import WEAKEST, match_words

QUERY = "the river bank ?"
PASSAGES = ["The bank of the river was deep.", "Please turn your homework in !", "A river — a wide river bank."]


@pytest.fixture(scope="module")
def model(tiny_directory):
    return lv.load(tiny_directory, device="cpu")


def test_matches_are_those_of_a_loop_over_all_pairs(model):
    rarity = {"the": 0.5, "river": 1.0, "bank": 0.9}.__getitem__
    given = match_words(model, QUERY, PASSAGES, rarity=rarity)
    assert [QUERY[start:end] for start, end in given.words] == ["the", "river", "bank"]
    asked, *read = model.vectors([QUERY, *PASSAGES], unit="word")
    kept = [[n for n, word in enumerate(each.units) if any(c.isalnum() for c in word)] for each in read]
    rows = [each.vectors[n].astype(np.float64) for each, places in zip(read, kept, strict=True) for n in places]
    mean = sum(rows) / len(rows)
    for each, places, matches in zip(read, kept, given.passages, strict=True):
        expected = []
        for n in places:
            scores = []
            for j, word in enumerate(["the", "river", "bank"]):
                p, q = each.vectors[n] - mean, asked.vectors[j] - mean
                scores.append(rarity(word) * float(p @ q) / (math.sqrt(p @ p) * math.sqrt(q @ q)))
            if max(scores) >= WEAKEST:
                expected.append((*each.spans[n].tolist(), scores.index(max(scores)), max(scores)))
        assert [(m.start, m.end, m.query) for m in matches] == [each[:3] for each in expected]
        assert [m.strength for m in matches] == pytest.approx([each[3] for each in expected], abs=1e-5)
    assert any(given.passages)


def test_texts_without_words_match_nothing(model):
    assert match_words(model, "?", PASSAGES).passages == ((), (), ())
    assert match_words(model, QUERY, ["!", "…"]).passages == ((), ())
    assert match_words(model, QUERY, []).passages == ()
