"""Questions from SQuAD's JSON and from rows: both versions, compressed, back again, every fault with file and id."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Place, QuestionExample
from larvatus.data.labelled.squad import (
    read_questions,
    squad_document,
    with_unique_ids,
    write_predictions,
    write_squad,
)

PASSAGE = "Mt. Sanitas is in Sunshine Canyon. The Canyon is deep."
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(content: Any, name: str = "dev.json") -> str:
        path = tmp_path / name
        raw = (content if isinstance(content, str) else json.dumps(content)).encode()
        path.write_bytes({"gz": gzip.compress, "xz": lzma.compress}.get(name.rpartition(".")[2], bytes)(raw))
        return str(path)

    return put


def squad(*asked: dict[str, Any], passage: Any = PASSAGE) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "Hills", "paragraphs": [{"context": passage, "qas": list(asked)}]}]}


def asked(text: str = "Sunshine Canyon", start: Any = 18, **more: Any) -> dict[str, Any]:
    answers = [{"text": text, "answer_start": start}]
    return {"id": "q1", "question": "Where is Mt. Sanitas?", "answers": answers, **more}


@pytest.mark.parametrize("name", ["dev.json", "dev.json.xz", "dev.json.gz"])
def test_both_versions_are_read_compressed_too(write: Write, name: str) -> None:
    none = {"id": "q2", "question": "How high?", "answers": [], "is_impossible": True, "plausible_answers": [{}]}
    found = read_questions(write(squad(asked(), none), name))
    first, second = found.examples
    assert (first.id, first.answers, first.impossible, first.title) == (
        "q1",
        (("Sunshine Canyon", 18),),
        False,
        "Hills",
    )
    assert (second.golds, second.impossible, second.known) == ((), True, True)
    assert "2 examples" in found.describe()
    assert "1 of them without an answer" in found.describe()
    assert {one.id: one.golds for one in found} == {"q1": ("Sunshine Canyon",), "q2": ()}


@pytest.mark.parametrize(
    "answers",
    [
        [{"text": "Sunshine Canyon", "answer_start": 18}],
        {"text": ["Sunshine Canyon"], "answer_start": [18]},
        [{"text": "Sunshine Canyon", "start": 18}],
        ["Sunshine Canyon"],
        "Sunshine Canyon",
    ],
)
@pytest.mark.parametrize("name", ["dev.jsonl", "dev.json"])
def test_rows_have_answers_in_any_shape(write: Write, answers: Any, name: str) -> None:
    row = {"question": "Where?", "context": PASSAGE, "answers": answers}
    lines = "\n".join(json.dumps({**row, "question": question}) for question in ("Where?", "And where?"))
    found = read_questions(write(lines, name))
    assert [one.answers for one in found] == [(("Sunshine Canyon", 18),)] * 2
    assert [one.id for one in found] == ["1", "2"]


def test_parquet_of_datasets(tmp_path: Path) -> None:
    answers = {"text": ["Sunshine Canyon"], "answer_start": [18]}
    table = pa.table({"id": ["x"], "question": ["Where?"], "context": [PASSAGE], "answers": [answers]})
    pq.write_table(table, tmp_path / "dev.parquet")
    assert read_questions(tmp_path / "dev.parquet").examples[0].answers == (("Sunshine Canyon", 18),)


BAD = [
    (asked(start=17), "dev.json: question q1: its answer 'Sunshine Canyon' is not at character 17 .*it is at 18"),
    (asked("Canyon", 40), r"not at character 40 .*it is at 39"),  # the nearer of two
    (asked("Boulder"), "nowhere in the passage"),
    (asked(start=-1), "not at character -1"),
    (asked(start=None), "q1"),
    (asked(start="18"), "not a text and a character"),
    (asked(start=True), "not a text and a character"),
    (asked(text=7), "not a text and a character"),  # type: ignore[arg-type]
    (asked(question=" "), "q1: question is empty"),
    (asked(question=None), "q1: question is empty"),
    (asked(id=""), "question number 1: it has no id"),
    (asked(is_impossible=True), "q1: it is_impossible, and yet has an answer"),
    (asked(answers=[{"text": "", "answer_start": 0}]), "not one of 1 questions comes with its answer"),
    (asked(answers={"text": ["a", "b"], "answer_start": [0]}), "2 answers but 1 places"),
]


@pytest.mark.parametrize(("question", "said"), BAD)
def test_bad_questions_are_named_with_file_and_id(write: Write, question: dict[str, Any], said: str) -> None:
    if question["answers"] == [{"text": "Sunshine Canyon", "answer_start": None}]:
        assert read_questions(write(squad(question))).examples[0].answers[0][1] == 18  # it stands there once
        return
    with pytest.raises(DataError, match=said) as caught:
        read_questions(write(squad(question)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[]", "there is no list 'data'"),
        ({"data": 3}, "there is no list 'data'"),
        ({"data": [3]}, "there is no list 'paragraphs'"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, "there is no list 'qas'"),
        ({"data": []}, "no question can be used"),
        (squad(asked(), passage=""), "context is empty"),
        (squad(asked(), passage="a\0b"), "NUL byte"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_squad_file_is_refused(write: Write, content: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_questions(write(content))


def test_rows_without_their_columns_are_refused(write: Write) -> None:
    with pytest.raises(DataError, match="write question, context and answers"):
        read_questions(write('{"question": "Where?", "place": "here"}', "dev.jsonl"))
    ambiguous = json.dumps({"question": "What?", "context": PASSAGE, "answers": ["Canyon"]})
    with pytest.raises(DataError, match=r"dev.jsonl:1: its answer 'Canyon' occurs 2 times"):
        read_questions(write(ambiguous, "dev.jsonl"))


def test_answers_that_are_withheld_can_be_predicted_but_not_scored(write: Write) -> None:
    hidden = asked(answers=[{"text": "", "answer_start": 0}], id="q2")
    path = write(squad(asked(), hidden))
    assert [one.known for one in read_questions(path, labelled=False)] == [True, False]
    with pytest.raises(DataError, match="question q2: its answer is not given"):
        read_questions(path)
    problems = Problems()
    assert len(read_questions(path, problems=problems)) == 1
    assert problems.counts == {"no answer": 1}


def test_faults_are_collected_where_asked(write: Write) -> None:
    problems = Problems()
    found = read_questions(write(squad(asked(start=3), asked(id="q2"))), problems=problems)
    assert [one.id for one in found] == ["q2"]
    assert str(problems) == "1 × answer out of place"


def test_ids_given_twice_are_told_apart(write: Write) -> None:
    found = read_questions(write(squad(asked(), asked(), asked(id="q1#2"))))
    assert [one.id for one in found] == ["q1", "q1#3", "q1#2"]
    assert "1 id is given to more than one question: the later ones are numbered, such as q1#3" in found.describe()
    assert with_unique_ids(found) is found


@st.composite
def questions(draw: st.DrawFn) -> list[QuestionExample]:
    texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
    visible = texts.filter(lambda text: bool(text.strip()))
    made = []
    for number in range(draw(st.integers(1, 5))):
        passage = draw(visible)
        start = draw(st.integers(0, len(passage) - 1))
        answer = passage[start : draw(st.integers(start + 1, len(passage)))]
        answers = ((answer, start),) if answer.strip() else ()
        title = draw(st.sampled_from([None, "A", "B"]))
        made.append(QuestionExample(str(number), draw(visible), passage, answers, not answers, title, Place("x", 1)))
    return made


@given(questions(), st.sampled_from(["json", "json.xz", "json.gz", "json.bz2", "json.zst"]))
def test_what_is_written_is_read_again(tmp_path_factory: Any, made: list[QuestionExample], suffix: str) -> None:
    path = tmp_path_factory.mktemp("squad") / f"dev.{suffix}"
    write_squad(path, made)
    found = read_questions(path)
    fields = ("id", "question", "passage", "answers", "impossible", "title")
    assert [[getattr(one, name) for name in fields] for one in found] == [
        [getattr(one, name) for name in fields] for one in made
    ]
    assert squad_document(found) == squad_document(made)


def test_predictions_are_one_object(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.json", {"q1": "Čáp", "q2": ""})
    assert json.loads((tmp_path / "p.json").read_text(encoding="utf-8")) == {"q1": "Čáp", "q2": ""}


def test_a_data_set_of_questions_has_no_labels(write: Write) -> None:
    found: Dataset[QuestionExample] = read_questions(write(squad(asked())))
    assert not found.labels()
