"""Relations in files: JSONL with numbers and with ids, brat, the way between them, and what is said of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place
from larvatus.data.labelled.span_records import (
    Span,
    SpanExample,
    SpannedWords,
    SpanRelation,
    ann_lines,
    binary,
    to_characters,
    to_words,
)
from larvatus.data.labelled.standoff import span_lines
from larvatus.data.labelled.tagged import read_spanned, read_spans
from larvatus.data.text.tag_schemes import EntitySpan

HERE = Place("x", 1)
TEXT = "Jane of United Airlines lives in Rome"
SPANS = [{"start": 33, "end": 37, "label": "LOC"}, {"start": 0, "end": 4, "label": "PER"}, [8, 23, "ORG"]]
SORTED = (EntitySpan(0, 1, "PER"), EntitySpan(2, 4, "ORG"), EntitySpan(6, 7, "LOC"))
RELATED = (SpanRelation(0, 1, "works-for"), SpanRelation(0, 2, "lives-in"))


def row(**more) -> str:
    return json.dumps({"text": TEXT, "spans": SPANS, **more}) + "\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@st.composite
def examples(draw) -> SpannedWords:
    words = draw(st.lists(st.sampled_from(["a", "bank", "river", "Jane"]), min_size=2, max_size=8))
    place = st.tuples(st.integers(0, len(words) - 1), st.integers(1, 3), st.sampled_from(["A", "B"]))
    found = draw(
        st.sets(place.map(lambda one: EntitySpan(one[0], min(len(words), one[0] + one[1]), one[2])), max_size=5)
    )
    numbers = range(len(found))
    pairs = [SpanRelation(a, b, label) for a in numbers for b in numbers if a != b for label in ("in", "of")]
    relations = draw(st.sets(st.sampled_from(pairs), max_size=4)) if pairs else set()
    return SpannedWords(tuple(words), tuple(sorted(found)), HERE, relations=tuple(sorted(relations)))


def said(data: Dataset[SpannedWords]) -> list[tuple]:
    return [(one.words, one.spans, one.relations) for one in data]


@settings(max_examples=40)
@given(data=st.lists(examples(), min_size=1, max_size=3))
def test_words_characters_jsonl_and_brat_say_the_same(data, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("relations")
    wanted = [(one.words, one.spans, one.relations) for one in data]
    assert said(Dataset(tuple(to_words(to_characters(one)) for one in data), "")) == wanted
    write(folder / "all.jsonl", "\n".join(span_lines(to_characters(one) for one in data)) + "\n")
    assert said(read_spanned(folder / "all.jsonl")) == wanted
    for number, one in enumerate(data):
        write(folder / f"{number}.txt", to_characters(one).text)
        write(folder / f"{number}.ann", "\n".join(ann_lines(to_characters(one))) + "\n")
    assert said(read_spanned(folder, format="brat")) == wanted


def test_jsonl_names_spans_by_their_number_as_written_or_by_their_id(tmp_path) -> None:
    by_number = [{"head": 1, "tail": 2, "label": "works-for"}, [1, 0, "lives-in"]]
    found = read_spanned(write(tmp_path / "a.jsonl", row(relations=by_number) + row(relations=[]) + row()))
    assert [(one.spans, one.relations) for one in found] == [(SORTED, RELATED), (SORTED, ()), (SORTED, ())]
    named = [
        {"id": 7, "start_offset": 33, "end_offset": 37, "label": "LOC"},
        {"id": 0, "start_offset": 0, "end_offset": 4, "label": "PER"},
        {"id": 3, "start_offset": 8, "end_offset": 23, "label": "ORG"},
    ]
    links = [{"from_id": 0, "to_id": 3, "type": "works-for"}, {"from_id": 0, "to_id": 7, "type": "lives-in"}]
    line = json.dumps({"text": TEXT, "entities": named, "relations": links})
    (example,) = read_spanned(write(tmp_path / "b.jsonl", line + "\n"))
    assert (example.spans, example.relations) == (SORTED, RELATED)


@pytest.mark.parametrize(
    ("relations", "message"),
    [
        ([{"head": 1, "tail": 3, "label": "in"}], r"the relation 'in' names the span 3, .*3 spans, numbered from 0"),
        ([[-1, 0, "in"]], "names the span -1"),
        ([{"head": 1, "label": "in"}], "write head, tail and label"),
        ([[0, 1, ""]], "write head, tail and label"),
        ([[True, 1, "in"]], "write head, tail and label"),
        ([[1, 1, "in"]], "with itself"),
        (["x"], "write head, tail and label"),
        ({"head": 0}, "not a list"),
    ],
)
def test_bad_relations_of_jsonl_are_one_line_with_their_place(tmp_path, relations, message) -> None:
    path = write(tmp_path / "a.jsonl", row() + row(relations=relations))
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
        read_spanned(path)


def test_ids_that_are_missing_or_given_twice_are_refused(tmp_path) -> None:
    spans = [{"id": "a", "start": 0, "end": 4, "label": "PER"}, {"id": "a", "start": 33, "end": 37, "label": "LOC"}]
    line = json.dumps({"text": TEXT, "spans": spans, "relations": []})
    with pytest.raises(DataError, match=r"a\.jsonl:1: two spans have the id 'a'"):
        read_spanned(write(tmp_path / "a.jsonl", line + "\n"))
    spans[1]["id"] = "b"
    line = json.dumps({"text": TEXT, "spans": spans, "relations": [["a", "c", "in"]]})
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*names the span 'c', which does not exist \(2 spans have an id"):
        read_spanned(write(tmp_path / "a.jsonl", line + "\n"))


ANN = "R1\tworks-for Arg2:T2 Arg1:T1\t\nT1\tPER 0 4\tJane\nT2\tORG 8 23\tUnited Airlines\n*\tEquiv T1 T2\n"


def brat(folder: Path, ann: str) -> Path:
    write(folder / "one.txt", TEXT)
    return write(folder / "one.ann", ann)


def test_brat_relations_may_come_before_their_spans_and_arguments_in_any_order(tmp_path) -> None:
    (example,) = read_spans(brat(tmp_path, ANN))
    assert example.relations == (SpanRelation(0, 1, "works-for"),)
    (swapped,) = read_spans(brat(tmp_path, "T9\tORG 8 23\nT1\tPER 0 4\nR1\tworks-for From:T1 To:T9\n"))
    assert swapped.relations == (SpanRelation(0, 1, "works-for"),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("R2\tin Arg1:T1 Arg2:T7", r"one\.ann:5: R2 names T7, which does not exist"),
        ("R2\tin Arg1:T1 Arg2:T1", r"one\.ann:5: R2 joins T1 with itself"),
        ("R2\tin Arg1:T1", r"one\.ann:5: R2 is no relation"),
        ("R2", r"one\.ann:5: R2 is no relation"),
        ("R2\tin Arg1:T1 Arg2:E1", r"one\.ann:5: R2 names E1, which is not read as one span"),
    ],
)
def test_bad_relations_of_brat_are_one_line_with_their_place(tmp_path, line, message) -> None:
    with pytest.raises(DataError, match=message):
        read_spanned(brat(tmp_path, ANN + line + "\n"))


def test_a_relation_goes_with_a_span_that_is_set_aside(tmp_path) -> None:
    problems = Problems()
    path = brat(tmp_path, ANN + "T3\tORG 0 4;8 14\tJane United\nR2\tin Arg1:T1 Arg2:T3\n")
    (example,) = read_spanned(path, problems=problems)
    assert example.relations == (SpanRelation(0, 1, "works-for"),)
    assert dict(problems.counts) == {"discontinuous span": 1, "relation without its spans": 1}
    cut = SpanExample("Jane  Rome", (Span(0, 4, "P"), Span(4, 5, "X"), Span(6, 10, "L")), HERE, None, RELATED)
    problems = Problems()
    assert to_words(cut, problems).relations == (SpanRelation(0, 1, "lives-in"),)
    assert dict(problems.counts) == {"span without a word": 1, "relation without its spans": 1}


def test_types_read_as_one_keep_the_relations_of_different_words() -> None:
    spans = (EntitySpan(0, 1, "A"), EntitySpan(0, 1, "B"), EntitySpan(1, 2, "A"))
    relations = (SpanRelation(0, 1, "same"), SpanRelation(1, 2, "in"))
    (example,) = binary(Dataset((SpannedWords(("a", "b"), spans, HERE, relations=relations),), "x"))
    assert (len(example.spans or ()), example.relations) == (2, (SpanRelation(0, 1, "in"),))


def test_what_cannot_be_held_or_written_is_refused() -> None:
    with pytest.raises(DataError, match=r"x:1: the relation 'in' joins spans 0 and 1, but there are 1"):
        SpannedWords(("a",), (EntitySpan(0, 1, "A"),), HERE, relations=(SpanRelation(0, 1, "in"),))
    spaced = SpanExample("a b", (Span(0, 1, "A"), Span(2, 3, "A")), HERE, None, (SpanRelation(0, 1, "lives in"),))
    with pytest.raises(DataError, match=r"brat cannot write the label 'lives in'"):
        list(ann_lines(spaced))
