"""Passages: every visible character is in one, they fit, overlap as they should, and are the text at their offsets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import UsageError
from larvatus.inference.search.sources import PassageSettings, passage_spans

WORDS = st.sampled_from(["The", "bank", "Mt.", "ran.", "Why?", "x" * 90, "山を見た。", "\n\n", "\t", "é", "Stop!", "a"])
TEXTS = st.lists(WORDS, max_size=60).map(" ".join)


@given(TEXTS, st.integers(20, 120), st.integers(0, 119))
def test_passages_cover_the_text_fit_and_move_on(text, most, overlap):
    overlap = min(overlap, most - 1)
    spans = list(passage_spans(text, PassageSettings(passage=most, overlap=overlap)))
    covered = set()
    for start, end in spans:
        passage = text[start:end]
        assert passage == passage.strip() != ""
        assert len(passage) <= most
        covered |= set(range(start, end))
    assert all(text[at].isspace() for at in set(range(len(text))) - covered)
    for (start, end), (following, after) in itertools.pairwise(spans):
        assert start < following
        assert end < after
        assert end - following <= overlap


def test_neighbours_share_whole_sentences_up_to_the_overlap():
    sentences = [f"Sentence number {number:02d} is here." for number in range(6)]  # 27 characters each
    text = " ".join(sentences)

    def cut(**settings):
        return [text[start:end] for start, end in passage_spans(text, PassageSettings(**settings))]

    assert cut(passage=90, overlap=0) == [" ".join(sentences[:3]), " ".join(sentences[3:])]
    assert cut(passage=90, overlap=30) == [" ".join(sentences[n : n + 3]) for n in (0, 2)] + [" ".join(sentences[4:])]
    assert cut(passage=90, overlap=26) == cut(passage=90, overlap=0)  # half a sentence is not shared


def test_an_overlap_as_long_as_a_passage_is_refused():
    with pytest.raises(UsageError, match="--overlap 50 must be smaller than --passage 50"):
        PassageSettings(passage=50, overlap=50)
