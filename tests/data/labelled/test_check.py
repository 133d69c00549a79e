"""`larvatus data check`: every kind of trouble is found and placed, sound data is left in peace."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larvatus.data.labelled.check import check, count_words
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place, TaggedExample, TextExample
from larvatus.data.labelled.tagged import guess_task, read_tagged
from larvatus.data.labelled.texts import read_texts
from larvatus.data.text.words import segment_words
from tests.data.text.hostile import hostile_unicode


def texts(*rows, kind="multi-class", name="train.tsv"):
    made = [TextExample(text, None, label, Place(name, line)) for line, (text, label) in enumerate(rows, 2)]
    return Dataset(tuple(made), name, "", kind)


def tagged(*rows, name="train.conll"):
    made = [TaggedExample(tuple(w.split()), tuple(t.split()), Place(name, n)) for n, (w, t) in enumerate(rows, 1)]
    return Dataset(tuple(made), name)


def found(report):
    return {one.name: one for one in report.findings}


def test_sound_data_has_no_findings():
    report = check(texts(("a", "x"), ("b", "y"), ("c", "x"), ("d", "y")), texts(("e", "x"), name="dev.tsv"))
    assert report.findings == ()
    assert report.balance == {"train": {"x": 2, "y": 2}, "dev": {"x": 1}}
    assert report.errors == ()


def test_repeated_texts_leaks_and_conflicts_are_told_apart():
    train = texts(("One text", "x"), ("One text", "x"), ("two", "y"), ("two", "x"), ("ONE  text", "x"), ("z", "y"))
    dev = texts(("two", "y"), ("TWO", "y"), ("new", "x"), name="dev.tsv")
    notes = found(check(train, dev))
    assert notes["duplicates"].examples == (
        "train.tsv:3: 'One text' (first at train.tsv:2)",
        "train.tsv:5: 'two' (first at train.tsv:4)",
    )
    assert notes["near duplicates"].examples == ("train.tsv:6: 'ONE text' (like train.tsv:2)",)
    assert notes["conflicting labels"].examples == ("train.tsv:5: 'two' (first at train.tsv:4): y, then x",)
    assert notes["train texts in dev"].examples == ("dev.tsv:2: 'two' (first at train.tsv:4)",)
    assert notes["train texts in dev, nearly"].examples == ("dev.tsv:3: 'TWO' (like train.tsv:4)",)


def test_a_pair_is_repeated_only_as_a_pair():
    place = Place("t", 1)
    pairs = [TextExample("a", "b", "x", place), TextExample("b", "a", "y", place), TextExample("a", "c", "x", place)]
    assert "duplicates" not in found(check(Dataset(tuple(pairs), "t", "", "multi-class")))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abcAB "), st.sampled_from("xy")), min_size=2, max_size=20))
def test_repeats_are_counted_as_a_quadratic_loop_counts_them(rows):
    report = found(check(texts(*rows)))
    again = [i for i, row in enumerate(rows) if any(row[0] == other[0] for other in rows[:i])]
    near = [
        i for i, row in enumerate(rows)
        if i not in again and any(row[0].lower().strip() == other[0].lower().strip() for other in rows[:i])
    ]  # fmt: skip
    firsts = dict(reversed(rows))
    other = [i for i in again if firsts[rows[i][0]] != rows[i][1]]
    counted = [
        report[name].count if name in report else 0 for name in ("duplicates", "near duplicates", "conflicting labels")
    ]
    assert counted == [len(again), len(near), len(other)]


def test_labels_once_unseen_unbalanced_and_alone():
    train = texts(*((str(n), "x") for n in range(50)), ("a", "y"), ("b", "z"), ("c", "z"))
    notes = found(check(train, texts(("q", "new"), name="dev.tsv")))
    assert notes["labels seen once"].examples == ("train.tsv:52: 'y'",)
    assert (notes["dev labels unseen in train"].level, notes["dev labels unseen in train"].examples) == (
        "warning",
        ("dev.tsv:2: 'new'",),
    )
    assert notes["unbalanced"].count == 2
    (error,) = check(texts(("a", "x"), ("b", "x"))).errors
    assert error.message == "'x' is the only label of train.tsv: there is nothing to tell apart"
    (error,) = check(texts(("a", None), ("b", None), kind=None)).errors
    assert error.name == "no labels"
    (error,) = check(texts(("a", 1.0), ("b", 1.0), kind="regression")).errors
    assert "the same number" in error.message


def test_one_label_of_a_set_or_one_type_of_entity_is_enough():
    assert check(texts(("a", ("x",)), ("b", ()), ("c", ("x",)), kind="multi-label")).errors == ()
    assert check(tagged(("a b", "B-PER O"), ("c d", "O B-PER"))).errors == ()
    assert [one.name for one in check(tagged(("a b", "O O"))).errors] == ["one class only"]
    assert [one.name for one in check(tagged(("a b", "NOUN NOUN"))).errors] == ["one class only"]


def test_illegal_tags_have_their_sentence_and_word():
    train = tagged(("Jane lives", "B-PER O"), ("in Rome now", "O I-LOC O"), ("Bo Ek", "B-PER I-PER"), ("x", "B-LOC"))
    report = check(train)
    assert report.kind == "BIO"
    (illegal,) = report.errors
    assert illegal.examples == (
        "train.conll:2: word 2, 'Rome': I-LOC after O; the first tag of an entity is B-LOC",
    )  # fmt: skip
    assert report.balance["train"] == {"LOC": 2, "PER": 2}
    assert check(tagged(("a b", "NOUN VERB"))).kind == "none"


def test_a_tag_that_only_dev_spells_otherwise_is_named():
    report = check(tagged(("a b", "B-PER O")), tagged(("c d", "PER O"), name="dev.conll"))
    assert report.errors[0].examples == ("dev.conll:1: word 1, 'c': 'PER' is no tag of the scheme BIO",)


def test_long_texts_are_measured_in_words_or_tokens():
    train = texts(("a " * 600, "x"), ("b", "y"), ("c", "x"), ("d " * 700, "y"))
    report = check(train)
    assert found(report)["long texts"].examples == ("train.tsv:5: 700 words", "train.tsv:2: 600 words")
    assert report.lengths == {"median": 300.5, "p95": pytest.approx(685), "longest": 700}
    report = check(train, measure=lambda some: [len(text) for text in some], longest=1_300)
    assert found(report)["long texts"].examples == ("train.tsv:5: 1,400 tokens",)


@given(st.one_of(hostile_unicode(), st.text(st.characters(max_codepoint=127))))
def test_words_are_counted_as_they_are_cut(text):
    assert count_words(text) == len(segment_words(text))


def test_a_text_of_a_million_characters_is_checked():
    report = check(texts(("word " * 200_000, "x"), ("b", "y")))
    assert report.lengths["longest"] == 200_000


def test_odd_characters_are_named():
    notes = found(check(texts(("a\x08b", "x"), ("caf\ufffd", "y"), ("cafe\u0301", "x"), ("café", "y"))))
    assert notes["odd characters"].examples == (
        "train.tsv:2: U+0008 at character 1",
        "train.tsv:3: U+FFFD at character 3",
    )
    assert notes["not NFC"].examples == ("train.tsv:4: 'cafe\u0301'",)


def test_what_reading_set_aside_is_an_error():
    problems = Problems()
    problems.add("empty text", Place("train.tsv", 7), "text is empty")
    (error,) = check(texts(("a", "x"), ("b", "y")), problems=problems).errors
    assert (error.name, error.examples) == ("empty text", ("train.tsv:7: text is empty",))


def test_the_command_reports_warnings_and_ends_well(tmp_path, larvatus):
    (tmp_path / "train.tsv").write_text("text\tlabel\nA [bold] text\tx\nA [bold] text\tx\nb\ty\nc\ty\n")
    (tmp_path / "dev.tsv").write_text("text\tlabel\nb\ty\n")
    code, out, _ = larvatus("data", "check", tmp_path / "train.tsv", "--dev", tmp_path / "dev.tsv")
    assert code == 0
    assert "read as: text = text, label = label (2 classes: x, y)" in out
    assert f"{tmp_path}/train.tsv:3: 'A [bold] text' (first at {tmp_path}/train.tsv:2)" in out
    assert "1 text of dev is in train too" in out
    code, out, _ = larvatus("data", "check", tmp_path / "train.tsv", "--json")
    report = json.loads(out)
    assert (code, report["sizes"], [one["name"] for one in report["warnings"]]) == (0, {"train": 4}, ["duplicates"])


@pytest.mark.parametrize(
    ("name", "content", "arguments", "message"),
    [
        ("t.tsv", "text\tlabel\na\tx\nb\tx\n", [], "one class only"),
        ("t.jsonl", '{"tokens": ["a", "b"], "tags": ["O", "B-X"]}\n{"tokens": ["a", "b"], "tags": ["O"]}\n', [],
         "t.jsonl:2: 2 words but 1 tags"),
        ("t.tsv", "text\tlabel\na\tx\n \ty\nb\ty\n", [], "t.tsv:3: text is empty"),
        ("t.conll", "a\tO\nb\n\nc\tB-X\nd\tI-X\n", [], "t.conll:2: 1 columns, but rows of this file have 2"),
        ("t.conll", "a\tO\nb\tI-X\n\nc\tB-X\nd\tI-X\n", [], "word 2, 'b': I-X after O"),
        ("t.csv", "text,label\na,x\nb,y\n", ["--text", "tekst"], "no column 'tekst' for the text; did you mean text?"),
        ("t.csv", "text\na\nb\n", [], "no column looks like a label"),
    ],
)  # fmt: skip
def test_what_would_stop_training_ends_with_4(tmp_path, larvatus, name, content, arguments, message):
    (tmp_path / name).write_text(content)
    code, out, error = larvatus("data", "check", tmp_path / name, *arguments)
    assert code == 4
    assert message in out + error
    assert error.startswith("larvatus: ")
    assert "\n" not in error


def test_what_a_file_holds_is_told_by_its_lines(tmp_path, larvatus):
    for name, content, task in [
        ("a.tsv", "text\tlabel\none two\tx\n", "classify"),
        ("b.tsv", "one\tNOUN\ntwo\tVERB\n\nthree\tNOUN\n", "tag"),
        ("c.conll", "one\tNOUN\n", "tag"),
        ("d.jsonl", '{"text": "one", "label": "x"}\n', "classify"),
        ("e.jsonl", '{"text": "one", "spans": [[0, 1, "X"]]}\n', "tag"),
        ("f.jsonl", '{"tokens": ["one"], "tags": ["X"]}\n', "tag"),
        ("g.csv", "text,label\none,x\n", "classify"),
    ]:
        (tmp_path / name).write_text(content)
        assert guess_task(str(tmp_path / name)) == task, name
    code, _, error = larvatus("data", "check", "-")
    assert (code, "--for classify, tag or spans" in error) == (2, True)


def test_reading_and_checking_go_together(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "t.conll").write_text("a\tB-X\nb\tO\n")
    assert check(read_texts(tmp_path / "t.csv")).errors == ()
    assert check(read_tagged(tmp_path / "t.conll")).errors == ()
