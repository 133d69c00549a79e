"""Spans beside their text: brat and JSONL, their faults, and the way to tags and back."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Place
from larvatus.data.labelled.span_records import Span, SpanExample, to_tagged
from larvatus.data.labelled.standoff import span_lines
from larvatus.data.labelled.tagged import read_spans, read_tagged
from larvatus.data.text.tag_schemes import read_leniently
from larvatus.data.text.words import segment_words
from tests.data.text.hostile import hostile_unicode

HERE = Place("t.jsonl", 1)
TEXT = "Jane Villanueva of United Airlines Holding discussed it."


@pytest.fixture
def write(tmp_path):
    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        return path

    return put


def test_brat_files_of_a_directory(write, tmp_path):
    write("docs/a.txt", "Jane\r\nlives in Rome.")
    write("docs/a.ann", "T1\tPER 0 4\tJane\nT2\tLOC 15 19\tRome\nR1\tLives Arg1:T1 Arg2:T2\n#1\tNote T1\thm\n")
    write("docs/b.txt", "Nothing.")
    write("docs/b.ann", "")
    found = read_spans(tmp_path / "docs")
    assert found.examples[0].spans == (Span(0, 4, "PER"), Span(15, 19, "LOC"))
    assert (found.examples[0].text, found.examples[1].spans) == ("Jane\r\nlives in Rome.", ())
    assert [read_spans(tmp_path / "docs" / name).examples[0] for name in ("a.ann", "a.txt")] == [found.examples[0]] * 2
    tagged = read_tagged(tmp_path / "docs").examples[0]
    assert tagged.tags == ("B-PER", "O", "O", "B-LOC", "O")
    assert tagged.text == "Jane\r\nlives in Rome."


def test_a_discontinuous_span_is_reported(write):
    write("a.txt", "North and South America")
    path = write("a.ann", "T1\tLOC 0 5;16 23\tNorth America\nT2\tLOC 10 23\tSouth America\n")
    with pytest.raises(DataError, match=r"a\.ann:1: T1 is discontinuous"):
        read_spans(path)
    problems = Problems()
    assert read_spans(path, problems=problems).examples[0].spans == (Span(10, 23, "LOC"),)
    assert dict(problems.counts) == {"discontinuous span": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T1\tPER 0 99\tJane", r"a\.ann:1: span 0 to 99 \(PER\) is empty or outside its text of 5 characters"),
        ("T1\tPER 0 3\tJane", r"a\.ann:1: T1 says 'Jane', but its text has 'Jan' at 0 to 3"),
        ("T1\tPER zero 3\tJane", r"a\.ann:1: T1 is no annotation"),
    ],
)
def test_offsets_that_are_wrong_are_refused(write, line, message):
    write("a.txt", "Jane.")
    with pytest.raises(DataError, match=message):
        read_spans(write("a.ann", line))


def test_a_missing_text_file_is_named(write, tmp_path):
    with pytest.raises(DataError, match=r"a\.txt cannot be opened"):
        read_spans(write("a.ann", "T1\tPER 0 4\tJane"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.ann files"):
        read_spans(tmp_path / "empty")


@pytest.mark.parametrize(
    "spans",
    [
        {"spans": [{"start": 0, "end": 4, "label": "PER"}]},
        {"entities": [[0, 4, "PER"]]},
        {"label": [[0, 4, "PER"]]},
        {"entities": [{"start_offset": 0, "end_offset": 4, "type": "PER"}]},
    ],
)
def test_jsonl_of_spans_in_the_shapes_people_use(write, spans):
    path = write("t.jsonl", json.dumps({"text": "Jane runs.", **spans}) + "\n")
    assert read_spans(path).examples[0].spans == (Span(0, 4, "PER"),)
    assert read_tagged(path).examples[0].tags == ("B-PER", "O", "O")


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ({"start": 0, "end": 40, "label": "X"}, r"t\.jsonl:1: span 0 to 40 \(X\) is empty or outside its text"),
        ({"start": 3, "end": 3, "label": "X"}, r"t\.jsonl:1: span 3 to 3 \(X\) is empty"),
        ({"start": -1, "end": 3, "label": "X"}, r"t\.jsonl:1: span -1 to 3"),
        ({"start": 0, "end": 3}, r"t\.jsonl:1: a span is .*; write start, end and label"),
        ({"start": "0", "end": 3, "label": "X"}, r"t\.jsonl:1: a span is"),
        ([0, 1], r"t\.jsonl:1: a span is \[0, 1\]"),
    ],
)
def test_bad_spans_of_jsonl_have_their_line(write, span, message):
    with pytest.raises(DataError, match=message):
        read_spans(write("t.jsonl", json.dumps({"text": "Jane runs.", "spans": [span]})))


def test_spans_that_cut_words_or_overlap_are_reported_never_dropped_unsaid():
    airline, inner, cut = Span(19, 42, "ORG"), Span(19, 34, "ORG"), Span(0, 3, "PER")
    example = SpanExample(TEXT, (cut, airline, inner), HERE)
    with pytest.raises(DataError, match=r"t\.jsonl:1: ORG 'United Airlines' \(19 to 34\) overlaps a longer span"):
        to_tagged(SpanExample(TEXT, (airline, inner), HERE))
    with pytest.raises(DataError, match=r"t\.jsonl:1: PER 'Jan' \(0 to 3\) cuts a word; as tags it is 'Jane'"):
        to_tagged(SpanExample(TEXT, (cut,), HERE))
    with pytest.raises(DataError, match="covers no word"):
        to_tagged(SpanExample(TEXT, (Span(4, 5, "X"),), HERE))
    problems = Problems()
    tagged = to_tagged(example, problems=problems)
    assert tagged.tags == ("B-PER", "O", "O", "B-ORG", "I-ORG", "I-ORG", "O", "O", "O")
    assert dict(problems.counts) == {"span cuts a word": 1, "spans overlap": 1}


@st.composite
def flat_spans(draw):
    """A text, and labelled runs of its words that do not overlap."""
    text = draw(hostile_unicode())
    words = segment_words(text).tolist()
    cuts = sorted(draw(st.sets(st.integers(0, len(words)), max_size=8)))
    spans = [
        Span(words[low][0], words[high - 1][1], draw(st.sampled_from(["PER", "LOC", "B-odd"])))
        for low, high in zip(cuts[:-1:2], cuts[1::2], strict=False)
    ]
    return SpanExample(text, tuple(sorted(spans)), HERE, "x")


@settings(max_examples=50)
@given(flat_spans(), st.sampled_from(["BIO", "IOB1", "BIOES", "BILOU"]))
def test_spans_to_tags_and_back(example, scheme):
    tagged = to_tagged(example, scheme)
    entities = read_leniently(tagged.tags, scheme)
    back = (Span(tagged.spans[start][0], tagged.spans[end - 1][1], label) for start, end, label in entities)
    assert (tagged.text, tuple(sorted(back))) == (example.text, example.spans)


@settings(max_examples=50)
@given(
    st.lists(
        flat_spans().filter(lambda example: example.text.strip() and "\0" not in example.text), min_size=1, max_size=4
    )
)
def test_spans_written_as_lines_are_read_back(tmp_path_factory, examples):
    path = tmp_path_factory.mktemp("spans") / "t.jsonl"
    path.write_text("\n".join(span_lines(examples)), encoding="utf-8", newline="\n")
    assert [(e.text, e.spans, e.id) for e in read_spans(path)] == [(e.text, e.spans, e.id) for e in examples]
