"""Spans of words from every notation, and back: levels of BIO, brackets, brat, JSONL; faults with their place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.data.labelled.conll import level_lines, levels_of
from larvatus.data.labelled.conllu import bracket_lines
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place
from larvatus.data.labelled.span_records import (
    Span,
    SpanExample,
    SpannedWords,
    ann_lines,
    binary,
    to_characters,
    to_words,
)
from larvatus.data.labelled.standoff import span_lines
from larvatus.data.labelled.tagged import read_spanned
from larvatus.data.text.tag_schemes import EntitySpan

HERE = Place("here", 1)
AIRLINE = SpannedWords(
    ("Jane", "Villanueva", "of", "United", "Airlines", "Holding", "discussed", "it", "."),
    (EntitySpan(0, 2, "PER"), EntitySpan(3, 5, "ORG"), EntitySpan(3, 6, "ORG")),
    HERE,
)
spans = st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from(["PER", "ORG"]))


@st.composite
def spanned(draw) -> SpannedWords:
    words = draw(st.lists(st.sampled_from(["Jane", "of", "the", "ü", "'s", "Rome"]), min_size=1, max_size=8))
    found = {
        EntitySpan(start, min(start + size, len(words)), label)
        for start, size, label in draw(st.lists(spans, max_size=5))
        if start < len(words)
    }
    return SpannedWords(tuple(words), tuple(sorted(found)), HERE)


def same(found: Dataset[SpannedWords], wanted: list[SpannedWords]) -> None:
    assert [(one.words, one.spans) for one in found] == [(one.words, one.spans) for one in wanted]


@settings(max_examples=40, deadline=None)
@given(examples=st.lists(spanned(), min_size=1, max_size=3))
def test_spans_written_in_any_notation_are_read_again(tmp_path_factory, examples) -> None:
    folder = tmp_path_factory.mktemp("notations")
    if any(one.spans for one in examples):
        (folder / "all.conllu").write_text("\n".join(bracket_lines(examples)) + "\n")
        same(read_spanned(folder / "all.conllu"), examples)
    (folder / "all.bio").write_text("\n".join(level_lines(examples)) + "\n")
    found = read_spanned(folder / "all.bio")
    same(found, examples)
    (folder / "all.jsonl").write_text("\n".join(span_lines(to_characters(one) for one in examples)) + "\n")
    problems = Problems()
    texts = read_spanned(folder / "all.jsonl", problems=problems)
    wanted = [to_characters(one) for one in examples]
    assert [to_characters(one).text for one in texts] == [one.text for one in wanted]
    if not len(problems):  # our words may be cut otherwise than these: a span that cuts one is reported
        assert [to_characters(one).spans for one in texts] == [one.spans for one in wanted]


def test_nested_spans_go_through_brat_and_characters(tmp_path) -> None:
    given = to_characters(AIRLINE)
    assert Span(19, 34, "ORG") in given.spans
    (tmp_path / "one.txt").write_text(given.text)
    (tmp_path / "one.ann").write_text("\n".join(ann_lines(given)) + "\n")
    same(read_spanned(tmp_path), [AIRLINE])


def test_levels_hold_no_overlap_and_outer_spans_come_first() -> None:
    assert [len(level) for level in levels_of(AIRLINE)] == [2, 1]
    assert levels_of(AIRLINE)[0] == [EntitySpan(3, 6, "ORG"), EntitySpan(0, 2, "PER")]


def test_germeval_columns_are_seen_with_and_without_numbers(tmp_path) -> None:
    rows = "# http://x 2014\n1\tTokio\tB-ORG\tB-LOC\n2\tUni\tI-ORG\tO\n\n1\tIn\tO\tO\n2\tRom\tB-LOC\tO\n"
    (tmp_path / "a.tsv").write_text(rows)
    found = read_spanned(tmp_path / "a.tsv")
    assert found.columns == "read as: word = column 2, tags = columns 3, 4"
    assert found.examples[0].words == ("Tokio", "Uni")
    assert found.examples[0].spans == (EntitySpan(0, 1, "LOC"), EntitySpan(0, 2, "ORG"))
    outer = read_spanned(tmp_path / "a.tsv", word=2, tags=[3])
    assert [one.spans for one in outer] == [(EntitySpan(0, 2, "ORG"),), (EntitySpan(1, 2, "LOC"),)]


GUM = """# global.Entity = GRP-infstat-etype
# text = The bank's roof fell
1\tThe\t_\t_\t_\t_\t_\t_\t_\tEntity=(1-new-object(2-new-organization
2\tbank\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
3\t's\t_\t_\t_\t_\t_\t_\t_\tEntity=2)
4\troof\t_\t_\t_\t_\t_\t_\t_\tEntity=1)(3[1/2]-new-abstract
5\tfell\t_\t_\t_\t_\t_\t_\t_\tEntity=(4-new-event)3[1/2])

"""


def test_brackets_give_the_field_that_the_file_names_and_pieces_are_reported(tmp_path) -> None:
    (tmp_path / "a.conllu").write_text(GUM)
    problems = Problems()
    (one,) = read_spanned(tmp_path / "a.conllu", problems=problems)
    assert one.spans == (EntitySpan(0, 3, "organization"), EntitySpan(0, 4, "object"), EntitySpan(4, 5, "event"))
    assert one.text == "The bank's roof fell"
    assert str(problems) == "1 × discontinuous span"
    assert str(problems.examples["discontinuous span"][0].place).endswith("a.conllu:6")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("Entity=2)", "Entity=7)"), r"a.conllu:5: 7\) closes what nothing opened"),
        (("Entity=2)", "_"), r"a.conllu:3: \(2 is never closed"),
        (("Entity=2)", "Entity=2))"), r"a.conllu:5: Entity=2\)\) is no row of brackets"),
        (("(4-new-event)", "(4-new)"), r"a.conllu:7: \(4-new names no type"),
    ],
)
def test_brackets_that_do_not_close_are_faults_with_their_line(tmp_path, change, said) -> None:
    whole = GUM.replace("(3[1/2]-new-abstract", "").replace("3[1/2])", "")
    (tmp_path / "a.conllu").write_text(whole.replace(*change))
    with pytest.raises(DataError, match=said):
        read_spanned(tmp_path / "a.conllu")


def test_conllu_without_mentions_and_columns_without_tags_are_said(tmp_path) -> None:
    (tmp_path / "a.conllu").write_text("1\tThe\t_\t_\t_\t_\t_\t_\t_\t_\n\n")
    with pytest.raises(DataError, match="no word has Entity="):
        read_spanned(tmp_path / "a.conllu")
    (tmp_path / "a.conll").write_text("The DT\nbank NN\n")
    with pytest.raises(DataError, match="no column of tags"):
        read_spanned(tmp_path / "a.conll")


def test_a_span_inside_a_word_is_reported_and_widened() -> None:
    example = SpanExample("The Münchenfest in Rome", (Span(4, 11, "LOC"), Span(3, 4, "X")), Place("x.jsonl", 9))
    problems = Problems()
    found = to_words(example, problems)
    assert found.spans == (EntitySpan(1, 2, "LOC"),)
    assert problems.counts == {"span cuts a word": 1, "span without a word": 1}
    with pytest.raises(DataError, match=r"x.jsonl:9: X ' ' .3 to 4. covers no word|x.jsonl:9: LOC 'München'"):
        to_words(example)


def test_spans_outside_the_text_are_refused_with_their_place(tmp_path) -> None:
    with pytest.raises(DataError, match=r"here:1: span 2 to 4 .ORG. is empty or outside its text of 3 words"):
        SpannedWords(("a", "b", "c"), (EntitySpan(2, 4, "ORG"),), HERE)
    (tmp_path / "a.jsonl").write_text('{"text": "Rome", "spans": [[0, 9, "LOC"]]}\n')
    with pytest.raises(DataError, match=r"a.jsonl:1: span 0 to 9 .LOC. is empty or outside its text"):
        read_spanned(tmp_path / "a.jsonl")


def test_illegal_tags_are_refused_or_read_as_conlleval_does(tmp_path) -> None:
    (tmp_path / "a.bio").write_text("In\tO\nNew\tB-LOC\nYork\tI-LOC\n\nof\tO\nRome\tI-LOC\n")
    with pytest.raises(DataError, match=r"a.bio:5: word 2 of the sentence that begins here"):
        read_spanned(tmp_path / "a.bio")
    problems = Problems()
    assert read_spanned(tmp_path / "a.bio", problems=problems).examples[1].spans == (EntitySpan(1, 2, "LOC"),)
    assert len(problems) == 1


def test_binary_identification_has_one_type() -> None:
    found = binary(Dataset((AIRLINE,), "here"))
    assert found.labels() == {"SPAN": 3}
    assert found.examples[0].spans == (EntitySpan(0, 2, "SPAN"), EntitySpan(3, 5, "SPAN"), EntitySpan(3, 6, "SPAN"))
