"""Contiguous packing against a loop over tokens, and the targets that text gives by itself."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.batch import TokenBatch, edges
from larvatus.core.pretraining_targets import NextTokens, PreviousTokens
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing import ContiguousConfig, pack
from larvatus.data.text.template import Template

SENTENCES = st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=6), min_size=1, max_size=3)
DOCUMENTS = st.lists(SENTENCES, min_size=1, max_size=6)
FRAMES = st.sampled_from(
    [Template.bert(1, 2), Template.bert(None, 2), Template.bert(None, None), Template.roberta(1, 2)]
)


def sequences(batch: TokenBatch) -> list[list[int]]:
    return [batch.ids[a:b].tolist() for a, b in pairwise(edges(batch.lengths))]


def packed(documents, length, template, *, dressed, languages=None):
    block = TextBlock.of(documents)
    if languages is not None:
        block = TextBlock(block.ids, block.words, block.sentences, block.documents, block.numbers, np.array(languages))
    config = ContiguousConfig(dressed=dressed)
    return pack(block, config, length=length, template=template, random=np.random.default_rng(0)).tokens


@settings(deadline=None)
@given(DOCUMENTS, st.integers(5, 12), FRAMES)
def test_undressed_text_is_cut_every_so_many_tokens(documents, length, template):
    stream = []
    for document in documents:
        stream += [token for sentence in document for token in sentence] + list(template.single.gaps[-1][-1:])
    wanted = [stream[at : at + length] for at in range(0, len(stream), length)]
    assert sorted(sequences(packed(documents, length, template, dressed=False))) == sorted(wanted)


@settings(deadline=None)
@given(DOCUMENTS, st.integers(5, 12), FRAMES)
def test_dressed_text_is_cut_to_the_room_that_a_text_has(documents, length, template):
    stream = [token for document in documents for sentence in document for token in sentence]
    room = template.single.text_length(length)
    wanted = [template.single.ids(np.array(stream[at : at + room])).tolist() for at in range(0, len(stream), room)]
    assert sorted(sequences(packed(documents, length, template, dressed=True))) == sorted(wanted)


def test_a_new_language_begins_a_new_sequence():
    batch = packed(
        [[[11, 12, 13]], [[21, 22]], [[31]]], 5, Template.bert(None, None), dressed=False, languages=[0, 1, 1]
    )
    assert sorted(sequences(batch)) == [[11, 12, 13], [21, 22, 31]]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 50), max_size=5), min_size=1, max_size=5))
def test_neighbours_stay_within_their_sequence(rows):
    batch = TokenBatch.of(rows)
    flat = [token for row in rows for token in row]
    following, before = NextTokens.of_text(batch), PreviousTokens.of_text(batch)
    assert following.ids.tolist() == [token for row in rows for token in row[1:]]
    assert before.ids.tolist() == [token for row in rows for token in row[:-1]]
    assert [flat[place] for place in following.places] == [token for row in rows for token in row[:-1]]
    assert [flat[place] for place in before.places] == [token for row in rows for token in row[1:]]
