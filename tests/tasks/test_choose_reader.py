"""Contexts with endings from tables: SWAG's columns, lists, letters; and what is refused, with its place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import DataError, LarvatusError
from larvatus.data.labelled.check import check
from larvatus.data.labelled.file_options import TextFiles
from larvatus.data.labelled.in_memory import as_files
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.split import hold_out
from larvatus.tasks.choose.reader import ChoiceExample, read_choices
from larvatus.tasks.choose.task import ChoiceFiles
from larvatus.tasks.registry import TASKS

ROW = {"context": "It rains.", "endings": ["It pours.", "It snows.", "It is dry."], "label": 2}
SWAG = "video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> ChoiceExample:
    (example,) = read_choices(path)
    return example


def test_swag_is_read_as_the_published_set_up_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text(SWAG + 'v1,7,"A man. He","A man, old.",He,gold,"runs, fast.",sits.,flies.,,1\n')
    data = read_choices(path)
    (example,) = data
    assert example.pairs == [("A man, old.", f"He {verb}") for verb in ("runs, fast.", "sits.", "flies.")]
    assert example.label == 1
    assert "context = sent1, endings = sent2 + ending0 … ending3, label = label (3 endings each)" in data.describe()


@pytest.mark.parametrize(
    ("row", "context", "endings", "label"),
    [
        (ROW, "It rains.", ("It pours.", "It snows.", "It is dry."), 2),
        (ROW | {"label": "It snows."}, "It rains.", ("It pours.", "It snows.", "It is dry."), 1),
        (ROW | {"label": "2"}, "It rains.", ("It pours.", "It snows.", "It is dry."), 2),
        ({"question": "Where?", "options": ["here", "there"], "answer": "B"}, "Where?", ("here", "there"), 1),
        (
            {"article": "Long.", "question": "Who?", "options": ["I", "you"], "answer": "A", "id": 7},
            "Long.",
            ("Who? I", "Who? you"),
            0,
        ),
        (
            {"question": "Q", "choices": {"label": ["E", "A"], "text": ["one", "two"]}, "answerKey": "A"},
            "Q",
            ("one", "two"),
            1,
        ),
        ({"premise": "P", "choice1": "x", "choice2": "y", "label": 1.0}, "P", ("x", "y"), 1),
        ({"goal": "G", "Option A": "x", "Option B": 2, "label": "B"}, "G", ("x", "2"), 1),
    ],
)
def test_forms_of_other_sets_are_read(tmp_path: Path, row: Any, context: str, endings: Any, label: int) -> None:
    example = read(write(tmp_path / "train.jsonl", row))
    assert (example.context, example.endings, example.label) == (context, endings, label)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"endings": []}, "no ending: there is nothing to choose"),
        ({"endings": None}, "endings is NoneType, not a list"),
        ({"endings": ["It pours."]}, "one ending only"),
        ({"endings": ["It pours.", ""]}, "ending 1 is empty"),
        ({"endings": ["It pours.", "It snows.", "It pours."]}, "endings 0 and 2 are the same: 'It pours.'"),
        ({"label": 3}, "the label is 3, but of endings there are 3, from 0 to 2"),
        ({"label": -1}, "the label is -1"),
        ({"label": "D"}, "the label 'D' is neither an ending nor the number of one"),
        ({"label": True}, "the label is bool"),
        ({"label": None}, "the label is missing"),
        ({"endings": ["2", "1"], "label": "1"}, None),
        ({"endings": ["1", "0"], "label": "1"}, "the label '1' may mean ending 0 or ending 1"),
        ({"context": "  "}, "context is empty"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_with_its_place(
    tmp_path: Path, change: dict[str, Any], message: str | None
) -> None:
    path = write(tmp_path / "train.jsonl", ROW, ROW | change)
    if message is None:
        assert [example.label for example in read_choices(path)] == [2, 1]
        return
    with pytest.raises(DataError) as refused:
        read_choices(path)
    assert f"train.jsonl:2: {message}" in str(refused.value)
    problems = Problems()
    assert len(read_choices(path, problems=problems)) == 1
    assert len(problems) == 1


def test_tables_without_endings_or_labels_say_so(tmp_path: Path) -> None:
    for row, message in (
        ({"context": "a", "label": 0}, "no column holds endings"),
        ({"endings": ["a", "b"], "label": 0}, "no column is a context"),
        ({"context": "a", "endings": ["a", "b"]}, "no column has the right ending"),
    ):
        with pytest.raises(DataError, match=message):
            read_choices(write(tmp_path / "train.jsonl", row))


def test_columns_are_named_by_the_flags_of_other_tasks(tmp_path: Path) -> None:
    row = {"before": "A.", "joint": "B", "options": ["c", "d"], "gold": 1, "label": 0}
    path = write(tmp_path / "train.jsonl", row)
    (example,) = TASKS["choose"].read(path, ChoiceFiles(text="before", pair="joint", label="gold"))
    assert (example.pairs, example.label) == ([("A.", "B c"), ("A.", "B d")], 1)
    with pytest.raises(LarvatusError, match="choices have --text"):
        TASKS["choose"].read(path, TextFiles(separator="|"))


def test_files_may_be_compressed_and_examples_in_memory(tmp_path: Path) -> None:
    packed = tmp_path / "train.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    with as_files([(ROW["context"], ROW["endings"], ROW["label"])], TASKS["choose"].as_tuples, of="choose") as names:
        (held,) = read_choices(names)
    assert held.contents() == read(packed).contents()


def test_examples_of_one_context_are_held_out_together(tmp_path: Path) -> None:
    rows = [ROW | {"context": f"It rains {number // 3}.", "label": number % 3} for number in range(60)]
    parts = hold_out(read_choices(write(tmp_path / "train.jsonl", *rows)))
    assert not {example.context for example in parts.train} & {example.context for example in parts.held_out}
    assert "stratified by the place of the right ending, whole contexts at a time" in parts.said


def test_a_check_finds_repetitions_leaks_and_places_that_are_right_too_often(tmp_path: Path) -> None:
    train = [ROW | {"context": f"It rains {number}.", "label": 0} for number in range(30)]
    train += [train[0], train[1] | {"label": 1}]
    dev = [train[2] | {"endings": ["a", "b"]}, ROW]
    report = check(
        read_choices(write(tmp_path / "train.jsonl", *train)), read_choices(write(tmp_path / "dev.jsonl", *dev))
    )
    counts = {finding.name: finding.count for finding in report.findings}
    assert (counts["duplicates"], counts["conflicting labels"], counts["train contexts in dev"]) == (2, 1, 1)
    assert counts["numbers of endings unseen in train"] == 1
    (skewed,) = (finding for finding in report.findings if finding.name == "places of right endings unbalanced")
    assert "ending 0 is right in 97% of train, by chance in 33%" in skewed.message
    assert (report.kind, report.errors) == ("choices", ())
