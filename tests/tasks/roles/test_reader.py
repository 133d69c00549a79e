"""Sentences with frames from JSON lines and from columns: what is read, round trips, and what is refused where."""

from __future__ import annotations

import json

import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.check import check
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place
from larvatus.tasks.examples import task_of_file
from larvatus.tasks.roles.examples import Frame, FramedSentence, RoleSpan
from larvatus.tasks.roles.props import props_lines
from larvatus.tasks.roles.reader import frame_record, read_frames
from tests.tasks.roles.made_frames import made_frames

LOOK = FramedSentence(
    ("Ann", ",", "he", "thinks", ",", "took", "a", "look", "up"),
    (
        Frame(
            3,
            "think.01",
            (RoleSpan("ARG1", 0, 0), RoleSpan("ARG0", 2, 2), RoleSpan("V", 3, 3), RoleSpan("C-ARG1", 5, 8)),
        ),
        Frame(5, "take.LV", (RoleSpan("ARG0", 0, 0), RoleSpan("V", 5, 7), RoleSpan("C-V", 8, 8))),
    ),
    Place("look.jsonl", 1),
)
NOTHING = FramedSentence(("Hello", "!"), (), Place("look.jsonl", 2))


def row(words: str, *frames: tuple[int, str, list[list[object]]]) -> str:
    listed = [{"pred": predicate, "roleset": roleset, "args": args} for predicate, roleset, args in frames]
    return json.dumps({"words": words.split(), "frames": listed})


def same(read: Dataset[FramedSentence], *wanted: FramedSentence) -> bool:
    return [each.contents() for each in read] == [each.contents() for each in wanted]


def test_json_lines_and_columns_read_what_was_written(tmp_path):
    lines, columns = tmp_path / "look.jsonl", tmp_path / "look.props"
    several = (LOOK, NOTHING, *made_frames())
    lines.write_text("".join(json.dumps(frame_record(each)) + "\n" for each in several))
    columns.write_text(
        "\n".join(line for each in several for line in props_lines(each.words, each.frames or ())) + "\n"
    )
    assert same(read_frames(lines), *several)
    assert same(read_frames(columns), *several)
    assert read_frames(columns).describe().endswith("word = column 1, lemma = column 3")
    assert task_of_file(str(lines)) == "roles"


def test_columns_of_conll_2005_may_have_more_columns_and_lack_senses(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(
        "Ann NNP B-NP - (A0*) (A0*)\ntried VBD * try (V*) *\nto TO * - (A1* *\nrun VB * run *) (V*)\n\nOh UH * -\n"
    )
    (sentence, bare) = read_frames(path).examples
    assert sentence.words == ("Ann", "tried", "to", "run")
    assert sentence.frames == (
        Frame(1, "try", (RoleSpan("A0", 0, 0), RoleSpan("V", 1, 1), RoleSpan("A1", 2, 3))),
        Frame(3, "run", (RoleSpan("A0", 0, 0), RoleSpan("V", 3, 3))),
    )
    assert bare.frames == ()
    assert bare.place.line == 6


def test_columns_of_conll_2012_keep_their_documents(tmp_path):
    path = tmp_path / "a.v4_gold_conll"
    head = "#begin document (bn/a); part 000\n"
    rows = [
        "bn/a 0 0 He PRP (TOP* - - - spk * (ARG0*) -",
        "bn/a 0 1 spoke VBD * speak 01 1 spk * (V*) -",
        "bn/a 0 2 up RP *) - - - spk * (ARGM-DIR*) (3)",
    ]
    path.write_text(head + "\n".join(rows) + "\n\n#end document\n")
    (sentence,) = read_frames(path)
    assert sentence.words == ("He", "spoke", "up")
    assert sentence.frames == (
        Frame(1, "speak.01", (RoleSpan("ARG0", 0, 0), RoleSpan("V", 1, 1), RoleSpan("ARGM-DIR", 2, 2))),
    )
    assert (sentence.place.line, sentence.place.document) == (2, 1)


REFUSED = {
    "overlap": (row("Ann ran home", (1, "run.02", [["ARG0", 0, 1], ["V", 1, 1]])), "ARG0 .* and V .* overlap"),
    "argument": (row("Ann ran", (1, "run.02", [["ARG1", 1, 2]])), "ARG1 of run.02 is words 1 to 2, but .* 0 to 1"),
    "backwards": (row("Ann ran", (1, "run.02", [["ARG1", 1, 0]])), "ARG1 of run.02 is words 1 to 0"),
    "predicate": (row("Ann ran", (2, "run.02", [])), "run.02 is word 2, but the sentence has words 0 to 1"),
    "negative": (row("Ann ran", (-1, "run.02", [])), "run.02 is word -1"),
    "twice": (row("Ann ran", (1, "run.02", []), (1, "run.01", [])), "'ran'.* is a predicate twice"),
    "empty": (row(""), "has no words"),
    "blank": ('{"words": ["Ann", " "], "frames": []}', "a word is empty"),
    "no words": ('{"words": "Ann ran", "frames": []}', "is no list of words"),
    "no frames": ('{"words": ["Ann"], "frames": {}}', "is no list of predicates"),
    "no record": ('{"words": ["Ann"], "frames": [3]}', "a frame is a record"),
    "truth": ('{"words": ["Ann"], "frames": [{"pred": true, "roleset": "a.01", "args": []}]}', "pred is the number"),
    "no role": (row("Ann ran", (1, "run.02", [["ARG0", 0]])), "an argument is a role and its first and last word"),
    "bracket": (row("Ann ran", (1, "run.02", [["ARG0)", 0, 0]])), "an argument is a role"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_cannot_be_used_is_refused_with_its_line(name, tmp_path):
    bad, message = REFUSED[name]
    path = tmp_path / "train.jsonl"
    path.write_text(f"{row('Bob sat', (1, 'sit.01', [['V', 1, 1]]))}\n{bad}\n")
    with pytest.raises(DataError, match=rf"train\.jsonl:2: .*{message}"):
        read_frames(path)
    problems = Problems()
    assert len(read_frames(path, problems)) == 1
    assert len(problems) == 1


COLUMNS = {
    "unclosed": ("ran run (V*\naway - *\n", 3, r"\(V\* is never closed"),
    "unopened": ("ran run (V*)\naway - *)\n", 4, "closes an argument that is not open"),
    "nested": ("ran run (V(A1*))\naway - *\n", 3, "begins an argument inside another"),
    "crossing": ("ran run (V*\naway - (A1*))\n", 4, "begins an argument inside another"),
    "no bracket": ("ran run V\naway - *\n", 3, "'V' is no bracket"),
    "width": ("ran run (V*)\naway -\n", 4, "another number of columns"),
    "predicates": ("ran run * *\naway - * *\n", 3, "1 predicates but 2 columns"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_cannot_be_read_are_refused_with_their_line(name, tmp_path):
    bad, line, message = COLUMNS[name]
    path = tmp_path / "train.props"
    path.write_text(f"Hello -\n\n{bad}\nBob - (A0*)\nsat sit (V*)\n")
    with pytest.raises(DataError, match=rf"train\.props:{line}: .*{message}"):
        read_frames(path)
    problems = Problems()
    assert len(read_frames(path, problems)) == 2
    assert len(problems) == 1


def test_files_without_frames_are_refused_by_name(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"words": ["Ann"], "tags": ["B-PER"]}\n')
    with pytest.raises(DataError, match=r"train\.jsonl has no words and frames \(it has words, tags\)"):
        read_frames(path)
    (tmp_path / "empty.props").write_text("\n\n")
    with pytest.raises(DataError, match=r"empty\.props is empty"):
        read_frames(tmp_path / "empty.props")
    (tmp_path / "words.props").write_text("Ann\nran\n")
    with pytest.raises(DataError, match="no column of lemmas"):
        read_frames(tmp_path / "words.props")


def test_a_check_names_rolesets_that_train_lacks_and_continuations_of_nothing():
    loose = FramedSentence(("Ann", "ran"), (Frame(1, "run.09", (RoleSpan("C-ARG1", 0, 0),)),), Place("dev.jsonl", 7))
    report = check(made_frames(), Dataset((loose,), "dev.jsonl"))
    found = {finding.name: finding for finding in report.warnings}
    assert found["rolesets unseen in train"].examples == ("dev.jsonl:7: run.09",)
    assert found["continuations of nothing"].examples == ("dev.jsonl:7: C-ARG1 of run.09",)
    assert report.balance["train"]["ARG0"] == 64
