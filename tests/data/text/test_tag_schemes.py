"""Tag schemes: what is written is read again, in every scheme, and the table of legal tags agrees with the reader."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Tokens

from larvatus.core.errors import DataError
from larvatus.data.text.tag_schemes import (
    LETTERS,
    convert,
    detect_scheme,
    find_illegal,
    legal_transitions,
    read_entities,
    read_leniently,
    repair,
    write_tags,
)

SCHEMES = ("BIO", "IOB1", "BIOES", "BILOU")
TYPES = ("PER", "LOC", "A-B")
THEIRS = {"BIO": IOB2, "IOB1": IOB1, "BIOES": IOBES, "BILOU": BILOU}


@st.composite
def entity_lists(draw):
    """Entities side by side or apart, and the number of words."""
    at, found = 0, []
    for gap, size, label in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(TYPES)), max_size=5)
    ):
        found.append((at + gap, at + gap + size, label))
        at += gap + size
    return found, at + draw(st.integers(0, 2))


def all_tags(scheme):
    return ["O", *(f"{letter}-{label}" for label in TYPES for letter in LETTERS[scheme][1:])]


def any_tags(scheme):
    return st.lists(st.sampled_from(all_tags(scheme)), max_size=9)


schemes_and_tags = st.sampled_from(SCHEMES).flatmap(lambda scheme: st.tuples(st.just(scheme), any_tags(scheme)))


@given(case=entity_lists(), source=st.sampled_from(SCHEMES), target=st.sampled_from(SCHEMES))
def test_entities_are_read_as_they_were_written_and_survive_conversion(case, source, target):
    entities, length = case
    tags = write_tags(reversed(entities), length, source)
    assert read_entities(tags, source) == read_leniently(tags, source) == entities
    assert find_illegal(tags, source) == []
    assert repair(tags, source) == tags
    there = convert(tags, source, target)
    assert read_entities(there, target) == entities
    assert convert(there, target, source) == tags


@given(case=schemes_and_tags)
def test_the_table_the_list_of_illegal_tags_and_the_strict_reader_agree(case):
    scheme, tags = case
    names = all_tags(scheme)
    table = legal_transitions(names, scheme)
    ids = [names.index(tag) for tag in tags]
    legal = not ids or bool(
        table.starts[ids[0]]
        and table.ends[ids[-1]]
        and all(table.transitions[a, b] for a, b in itertools.pairwise(ids))
    )
    assert legal == (find_illegal(tags, scheme) == [])
    assert legal == (write_tags(read_entities(tags, scheme), len(tags), scheme) == tags)


@given(case=schemes_and_tags)
def test_repaired_tags_are_legal_and_mean_what_conlleval_reads(case):
    scheme, tags = case
    repaired = repair(tags, scheme)
    assert find_illegal(repaired, scheme) == []
    assert read_entities(repaired, scheme) == read_leniently(tags, scheme)


@given(case=schemes_and_tags)
def test_both_readings_are_those_of_seqeval(case):
    scheme, tags = case
    if scheme != "IOB1" or not find_illegal(tags, scheme):  # on illegal IOB1, seqeval drops legal neighbours too
        theirs = [(found.start, found.end, found.tag) for found in Tokens(tags, THEIRS[scheme]).entities]
        assert read_entities(tags, scheme) == theirs
    if scheme != "BILOU":
        assert read_leniently(tags, scheme) == [(start, end + 1, label) for label, start, end in get_entities(tags)]


@given(case=schemes_and_tags)
def test_what_is_called_legal_in_place_of_an_illegal_tag_is_legal(case):
    scheme, tags = case
    for found in find_illegal(tags, scheme):
        for tag in found.legal:
            left = find_illegal([*tags[: found.index], tag, *tags[found.index + 1 :]], scheme)
            assert all(other.index != found.index for other in left)


@pytest.mark.parametrize(
    ("scheme", "tags", "message"),
    [
        ("BIO", ["O", "I-PER"], "I-PER after O; the first tag of an entity is B-PER"),
        ("BIO", ["I-PER"], "I-PER at the start; the first tag of an entity is B-PER"),
        ("BIO", ["B-LOC", "I-PER"], "I-PER after B-LOC; the first tag of an entity is B-PER"),
        ("IOB1", ["O", "B-PER"], "B-PER after O; the first tag of an entity is I-PER, but after one of its own type"),
        ("BIOES", ["B-PER", "O"], "O after B-PER; the last tag of an entity is E-PER, its only one S-PER"),
        ("BILOU", ["U-X", "B-PER"], "B-PER at the end; the last tag of an entity is L-PER, its only one U-PER"),
        ("BIOES", ["O", "E-PER"], "E-PER after O; the first tag of an entity is B-PER or, as its only word, S-PER"),
    ],
)
def test_an_illegal_tag_is_named_with_the_legal_one(scheme, tags, message):
    assert [found.message for found in find_illegal(tags, scheme)] == [message]
    with pytest.raises(DataError, match=message):
        convert(tags, scheme, "BIO")


def test_what_would_be_legal():
    assert find_illegal(["O", "I-PER"], "BIO")[0].legal == ("O", "B-PER")
    (found,) = find_illegal(["B-X"], "BIOES")
    assert (found.index, found.legal) == (0, ("O", "S-X"))


@pytest.mark.parametrize(
    ("sequences", "scheme"),
    [
        ([["B-PER", "I-PER", "O"], ["O", "B-LOC"]], "BIO"),
        ([["B-PER", "I-PER", "O", "B-PER"], ["I-LOC", "O"]], "BIO"),  # one mistake
        ([["I-PER", "I-PER", "B-PER", "O"], ["O", "I-LOC"]], "IOB1"),
        ([["S-PER", "O"], ["B-PER", "E-PER"]], "BIOES"),
        ([["U-PER", "O"], ["B-PER", "L-PER"]], "BILOU"),
        ([["DET", "NOUN"]], "none"),
        ([["O", "E", "S"]], "none"),
        ([["O", "B-PER"], ["NOUN"]], "none"),
        ([["B", "I", "O"]], "BIO"),
        ([["O"]], "BIO"),
        ([], "BIO"),
    ],
)
def test_the_scheme_is_seen_from_the_tags(sequences, scheme):
    assert detect_scheme(sequences) == scheme


@given(cases=st.lists(entity_lists(), min_size=1), scheme=st.sampled_from(["BIO", "IOB1"]))
def test_a_scheme_that_shows_is_detected(cases, scheme):
    sequences = [write_tags(*case, scheme) for case in cases]
    if any(entities for entities, _ in cases):
        assert detect_scheme(sequences) == scheme


def test_parts_of_speech_may_follow_each_other_as_they_like():
    table = legal_transitions(["NOUN", "VERB"], "none")
    assert table.starts.all()
    assert table.transitions.shape == (2, 2)
    assert table.transitions.all()
    assert find_illegal(["NOUN"], "none") == read_entities(["NOUN"], "none") == []
    assert convert(["NOUN"], "none", "none") == repair(["NOUN"], "none") == ["NOUN"]


def test_tags_and_entities_that_cannot_be_are_refused():
    for tag in ("S-PER", "PER", "B-", "", "O-PER", "BPER"):
        with pytest.raises(DataError, match=r"is no tag of the scheme BIO, which has O, B-TYPE, I-TYPE"):
            read_entities([tag], "BIO")
    for entities in ([(0, 2, "A"), (1, 3, "B")], [(2, 4, "A")], [(1, 1, "A")], [(-1, 1, "A")]):
        with pytest.raises(DataError, match="overlaps another entity or is not within 3 words"):
            write_tags(entities, 3, "BIO")
    with pytest.raises(DataError, match="choose BIO"):
        write_tags([], 3, "none")
