"""Words with tags: CoNLL columns, CoNLL-U, lists; their faults have file and line."""

import io
import json
import sys

import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.tagged import read_tagged


def test_conll_with_tabs_comments_and_document_marks(write):
    path = write(
        "t.conll", "# id = 1\n-DOCSTART-\tO\n\nMt.\tB-LOC\nSanitas\tI-LOC\n\t\n#\tO\nfoo bar\tO\n\n\n# a\tB-X\n"
    )
    found = read_tagged(path)
    assert [e.words for e in found] == [("Mt.", "Sanitas"), ("#", "foo bar"), ("# a",)]
    assert [e.place.line for e in found] == [4, 7, 11]
    assert found.examples[0].tags == ("B-LOC", "I-LOC")
    assert found.columns == "read as: word = column 1, tag = column 2"
    assert found.labels() == {"O": 2, "B-LOC": 1, "I-LOC": 1, "B-X": 1}


def test_conll_with_spaces_and_columns_by_number(write):
    path = write("eng.train", "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects  VBZ B-VP O\n")
    assert read_tagged(path).examples[0].tags == ("B-ORG", "O")
    assert read_tagged(path, tag=2).examples[0].tags == ("NNP", "VBZ")
    assert read_tagged(path, tag="3").examples[0].tags == ("B-NP", "B-VP")


def test_the_prefix_of_every_word_is_stripped_and_said(write):
    words = ["en:R.H.", "en:Saunders", "en:(", "en::", "en:en:x"] * 3
    found = read_tagged(write("t.conll", "".join(f"{word}\tO\n" for word in words)))
    assert found.examples[0].words[:5] == ("R.H.", "Saunders", "(", ":", "en:x")
    assert found.notes == ("prefix en: stripped from every word",)
    kept = read_tagged(write("u.conll", "".join(f"{word}\tO\n" for word in [*words, "plain"])))
    assert kept.examples[0].words[0] == "en:R.H."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tO\nb\tO\nc\n\nd\tO\n", r"t\.conll:3: 1 columns, but rows of this file have 2"),
        ("a\tO\nb\tO\tO\n\nd\tO\n", r"t\.conll:2: 3 columns, but rows of this file have 2"),
        ("a\tO\n\tO\n\nd\tO\n", r"t\.conll:2: the word or its tag is empty"),
        ("a\tO\nb\t\n\nd\tO\n", r"t\.conll:2: the word or its tag is empty"),
        ("\n\n", r"t\.conll is empty"),
        ("one\ntwo\n", r"column 1 is the word and cannot be its tag"),
    ],
)
def test_faults_of_conll_have_their_line(write, content, message):
    with pytest.raises(DataError, match=message):
        read_tagged(write("t.conll", content))


def test_a_sentence_with_a_fault_is_set_aside_whole_and_noted(write):
    problems = Problems()
    found = read_tagged(write("t.conll", "a\tO\nb\n\nc\tO\nd\tO\n"), problems=problems)
    assert [e.words for e in found] == [("c", "d")]
    assert str(problems) == "1 × wrong number of columns"
    with pytest.raises(DataError, match="no column 5 for the tag"):
        read_tagged(write("t.conll", "a\tO\n"), tag=5)
    with pytest.raises(DataError, match="give the tag as a number"):
        read_tagged(write("t.conll", "a\tO\n"), tag="upos")


def row(number, form, upos="X", feats="_", misc="_"):
    return "\t".join([number, form, form, upos, "XP", feats, "0", "root", "_", misc])


CONLLU = "\n".join([
    "# sent_id = s-1",
    "# text = They didn't go.",
    row("1", "They", "PRON", "Number=Plur"),
    row("2-3", "didn't", "_"),
    row("2", "did", "AUX"),
    row("3", "n't", "PART"),
    row("3.1", "really", "ADV"),
    row("4", "go", "VERB", misc="Entity=B-ACT|SpaceAfter=No"),
    row("5", ".", "PUNCT"),
    "",
    "# sent_id = s-2",
    row("1-2", "du", "_"),
    row("1", "de", "ADP"),
    row("2", "le", "DET"),
    row("3", "pain", "NOUN"),
    "",
    row("1", "No", misc="SpaceAfter=No"),
    row("2", "text"),
    "",
])  # fmt: skip


def test_conllu_words_tags_and_characters(write):
    found = read_tagged(write("t.conllu", CONLLU))
    first, second, third = found.examples
    assert first.words == ("They", "did", "n't", "go", ".")
    assert first.tags == ("PRON", "AUX", "PART", "VERB", "PUNCT")
    assert (first.id, first.place.line, first.text) == ("s-1", 1, "They didn't go.")
    assert first.spans == ((0, 4), (5, 8), (8, 11), (12, 14), (14, 15))
    assert (second.words, second.text) == (("de", "le", "pain"), None)
    assert third.located() == ("Notext", ((0, 2), (2, 6)))
    assert found.notes == ("1 sentences whose words do not spell their text are read as words with spaces",)


def test_conllu_takes_any_column_or_key(write):
    path = write("t.conllu", CONLLU)
    assert read_tagged(path, tag="xpos").examples[0].tags == ("XP",) * 5
    assert read_tagged(path, tag=8).examples[0].tags == ("root",) * 5
    assert read_tagged(path, tag="Number").examples[0].tags == ("Plur", "_", "_", "_", "_")
    assert read_tagged(path, tag="Entity").examples[0].tags == ("_", "_", "_", "B-ACT", "_")
    with pytest.raises(DataError, match="no word has Numbr in FEATS or MISC; did you mean Number"):
        read_tagged(path, tag="Numbr")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row("1", "a") + "\n" + "2\tb\tc\n", r"t\.conllu:2: 3 columns, but CoNLL-U has 10"),
        (row("1", "a") + "\n" + row("3", "b") + "\n", r"t\.conllu:2: id '3', but the next word is 2"),
        (row("1", "a") + "\n" + row("x-3", "b") + "\n", r"t\.conllu:2: id 'x-3' is no range"),
        (row("1", " ") + "\n", r"t\.conllu:1: the word is empty"),
    ],
)
def test_faults_of_conllu_have_their_line(write, content, message):
    with pytest.raises(DataError, match=message):
        read_tagged(write("t.conllu", content))


def test_formats_are_told_by_content_on_standard_input(monkeypatch):
    for content, words in [
        (CONLLU, ("They", "did", "n't", "go", ".")),
        ('{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}\n', ("a", "b")),
        ("a\tO\nb\tO\n", ("a", "b")),
    ]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        assert read_tagged("-").examples[0].words == words


def test_lists_of_words_and_tags(write):
    rows = [{"id": 7, "tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}, {"tokens": ["c"], "ner_tags": ["O"]}]
    found = read_tagged(write("t.jsonl", "\n".join(map(json.dumps, rows))))
    assert [(e.words, e.tags, e.id) for e in found] == [(("a", "b"), ("O", "B-X"), "7"), (("c",), ("O",), None)]
    assert read_tagged(write("t.jsonl", "\n".join(map(json.dumps, rows))), labelled=False).examples[0].tags is None
    for bad, message in [
        ({"tokens": ["a", "b", "c"], "ner_tags": ["O", "O"]}, r"t\.jsonl:3: 3 words but 2 tags"),
        ({"tokens": "a b", "ner_tags": ["O"]}, r"t\.jsonl:3: tokens is no list of strings"),
        ({"tokens": ["a", " "], "ner_tags": ["O", "O"]}, r"t\.jsonl:3: a word is empty"),
    ]:
        with pytest.raises(DataError, match=message):
            read_tagged(write("t.jsonl", "\n".join(map(json.dumps, [*rows, bad]))))


def test_a_row_without_words_or_tags_names_what_there_is(write):
    with pytest.raises(DataError, match=r"neither tokens nor text with spans \(it has foo\)"):
        read_tagged(write("t.jsonl", '{"foo": 1}'))
    with pytest.raises(DataError, match=r"has no tags \(it has tokens\)"):
        read_tagged(write("t.jsonl", '{"tokens": ["a"]}'))


def test_what_is_written_as_conll_is_read_back(write):
    found = read_tagged(write("t.conllu", CONLLU))
    sentences = ("\n".join(map("\t".join, zip(e.words, e.tags, strict=True))) for e in found)
    again = read_tagged(write("u.conll", "\n\n".join(sentences)))
    assert [(e.words, e.tags) for e in again] == [(e.words, e.tags) for e in found]
