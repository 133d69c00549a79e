"""Tables in and out of the commands: texts are read by columns, results are written as the file's ending says."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.documents import Skipped
from larvatus.data.text.readers import list_files
from larvatus.interfaces.cli.output import report_skipped
from larvatus.models.heads import ClassificationConfig, TaggingConfig

TEXTS = ["the river was wide", "the bank of the river", "please turn in your homework , a run"]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(larvatus: Call) -> Call:
    return larvatus


@pytest.fixture(scope="module")
def model(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = save_tiny(tmp_path_factory.mktemp("plain") / "m", tiny_model())
    return path


@pytest.fixture(scope="module")
def tuned(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tuned")
    heads = {
        "classify": ClassificationConfig(labels=("bad", "good")),
        "tag": TaggingConfig(labels=("O", "B-LOC", "I-LOC"), scheme="BIO"),
    }
    return {
        name: save_tiny(folder / name, tiny_model(seed=5, objectives=(head,)), (head,)) for name, head in heads.items()
    }


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Semicolons, a BOM, an empty cell, line breaks in cells."""
    path = tmp_path / "news.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerow(["id", "title", "text", "label"])
        for number, text in enumerate([*TEXTS, ""]):
            writer.writerow([number, f"the bank {number}", text, "x"])
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ","))


def test_embed_gives_a_vector_a_row_of_a_table(call: Call, model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.parquet"
    code, said, err = call("embed", table, "--unit", "document", "--model", model, "--out", out, "--json")
    assert code == 0
    assert pq.read_table(out)["text"].to_pylist() == TEXTS
    assert json.loads(said)["skipped"] == {"blank": 1}
    assert f"{table}: 4 rows, text from column 'text' (id, title, label ignored); choose with --text COLUMN\n" in err
    assert f"{table}: 1 row without text skipped" in err
    chosen = ("--text", "title", "--overwrite", "--quiet")
    code, _, err = call("embed", table, "--unit", "document", "--model", model, "--out", out, *chosen)
    assert (code, err) == (0, "")
    assert pq.read_table(out)["text"].to_pylist() == [f"the bank {number}" for number in range(4)]


def test_in_python_the_column_is_an_argument(model: Path, table: Path, tmp_path: Path) -> None:
    lv.embed_files(model, table, out=tmp_path / "v.parquet", unit="document", text="title")
    assert pq.read_table(tmp_path / "v.parquet")["text"].to_pylist()[0] == "the bank 0"
    tokenizer = lv.train_tokenizer(table, kind="bpe", size=21, text="title")
    corpus = lv.build_corpus(table, tokenizer=tokenizer, out=tmp_path / "corpus", workers=1, text="title")
    assert corpus.counts.documents == 4
    loaded = lv.load(model)
    assert loaded.map("bank", str(table), text="title", method="pca", clusters=1).total == 4
    assert len(loaded.nearest("the *bank* was wide", str(table), text="title").hits) == 4
    with pytest.raises(UsageError, match=r"no column 'body' \(it has id, title, text, label\)"):
        lv.embed_files(model, table, out=tmp_path / "w.parquet", text="body")


@pytest.mark.filterwarnings("default::larvatus.core.errors.OlderNameWarning")
def test_an_older_name_of_the_option_works_with_a_warning(call: Call, model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "v.parquet"
    asked = ("--unit", "document", "--model", model, "--out", out, "--text-field", "title")
    code, _, err = call("embed", table, *asked)
    assert code == 0
    assert "larvatus: warning: --text-field is now --text" in err
    assert pq.read_table(out)["text"].to_pylist()[0] == "the bank 0"


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_score_reads_columns_and_writes_by_the_ending(
    call: Call, model: Path, table: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / f"scores.{ending}"
    code, _, err = call("score", "--file", table, "--model", model, "--out", out)
    assert code == 0
    assert "text from column 'text'" in err
    expected = [score.to_dict() for score in lv.load(model).score(TEXTS)]
    if ending == "parquet":
        found = pq.read_table(out).to_pylist()
    elif ending == "jsonl":
        found = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        found = [{**row, "total": float(row["total"])} for row in rows_of(out)]  # type: ignore[dict-item]
        assert "words" not in found[0]
    assert [(row["text"], row["total"]) for row in found] == [
        (row["text"], pytest.approx(row["total"], rel=1e-5)) for row in expected
    ]


def test_a_killed_run_to_csv_resumes_to_the_same_file(
    call: Call, model: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from larvatus.interfaces.cli.commands import score as command

    whole, out = tmp_path / "whole.csv", tmp_path / "scores.csv"
    monkeypatch.setattr(command, "LINES_AT_ONCE", 1)
    assert call("score", "--file", table, "--model", model, "--out", whole)[0] == 0
    real, calls = command.json_lines, []

    def stopping(*given: Any) -> list[str]:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(command, "json_lines", stopping)
    assert call("score", "--file", table, "--model", model, "--out", out)[0] == 130
    assert not out.exists()
    monkeypatch.setattr(command, "json_lines", real)
    code, _, err = call("score", "--file", table, "--model", model, "--out", out, "--resume", "--text", "title")
    assert code == 5, err  # another column is another text
    assert call("score", "--file", table, "--model", model, "--out", out, "--resume")[0] == 0
    assert out.read_bytes() == whole.read_bytes()


def test_pairs_are_written_by_the_ending_too(call: Call, model: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the river was wide\tthe was river wide\tagreement\nthe bank\tbank the\tislands\n")
    for ending in ("csv", "jsonl"):
        assert call("score", "--pairs", pairs, "--model", model, "--out", tmp_path / f"s.{ending}")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    rows = rows_of(tmp_path / "s.csv")
    assert [float(row["good"]) for row in rows] == [line["good"] for line in lines]
    assert [row["sentence_bad"] for row in rows] == ["the was river wide", "bank the"]


@pytest.mark.parametrize(
    "command",
    [
        ("score", "--file", "TABLE"),
        ("fill", "the [MASK]"),
        ("similar", "the *bank*", "a *bank*"),
        ("attention", "the river"),
        ("predict", "TUNED", "--file", "TABLE"),
        ("evaluate", "TUNED", "--data", "TABLE"),
    ],
)
def test_other_endings_are_refused_before_any_work(
    call: Call, model: Path, tuned: dict[str, Path], table: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    words = [str({"TABLE": table, "TUNED": tuned["classify"]}.get(word, word)) for word in command]
    given = [] if "TUNED" in command else ["--model", "no/such/model"]  # it is not even looked for
    code, _, err = call(*words, *given, "--out", tmp_path / "x.xlsx")
    assert (code, "x.xlsx names no known format; end it in .jsonl, .csv, .tsv, .parquet" in err) == (2, True), err


def test_fill_reads_a_table_and_writes_a_row_for_each_candidate(call: Call, model: Path, tmp_path: Path) -> None:
    blanks = tmp_path / "blanks.jsonl"
    blanks.write_text('{"id": 1, "gap": "the [MASK] was wide"}\n{"id": 2, "gap": "a [MASK] [MASK] of the river"}\n')
    out = tmp_path / "fills.csv"
    code, _, err = call("fill", "--file", blanks, "--model", model, "--top", 3, "--out", out)
    assert code == 0, err
    assert "text from column 'gap' (id ignored)" in err
    rows = rows_of(out)
    assert [(row["text"], row["rank"]) for row in rows[:3]] == [("the [MASK] was wide", str(n)) for n in (1, 2, 3)]
    assert rows[0]["filled"] == f"the {rows[0]['token']} was wide"
    assert rows[3]["token"] == ""
    assert all(rows[3][f"token_{blank}"] for blank in (1, 2))
    assert call("fill", "--model", model)[0] == 2


def test_similar_and_attention_write_tables(call: Call, model: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "cosines.csv"
    assert call("similar", "the *bank*", "a *river*", "--model", model, "--out", out)[0] == 0
    (row,) = rows_of(out)
    assert (row["first_word"], row["second_word"]) == ("bank", "river")
    near = tmp_path / "near.tsv"
    found = call("similar", "the *bank*", "--in", table, "--text", "title", "--model", model, "--out", near)
    assert found[0] == 0, found[2]
    assert [row["word"] for row in rows_of(near)] == ["bank"] * 4
    heads = tmp_path / "heads.csv"
    assert call("attention", "the river", "--model", model, "--out", heads)[0] == 0
    assert [(row["layer"], row["head"]) for row in rows_of(heads)] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert call("attention", "--corpus", table, "--model", model, "--out", heads, "--overwrite")[0] == 0
    assert len(rows_of(heads)) == 4


@pytest.mark.parametrize("resume", [False, True])
def test_predict_writes_flat_rows_to_csv_and_all_of_it_to_parquet(
    call: Call, tuned: dict[str, Path], table: Path, tmp_path: Path, resume: bool
) -> None:
    texts = tmp_path / "texts.csv"
    pd.DataFrame({"id": [7, 8, 9], "text": TEXTS}).to_csv(texts, index=False)
    more = ("--resume",) if resume else ()
    for ending in ("csv", "parquet", "jsonl"):
        out = tmp_path / f"a.{ending}"
        assert call("predict", tuned["classify"], "--file", texts, "--out", out, *more)[0] == 0
    records = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    rows = rows_of(tmp_path / "a.csv")
    assert [(row["id"], row["label"], float(row["probability"])) for row in rows] == [
        (record["id"], record["label"], record["probability"]) for record in records
    ]
    assert float(rows[0]["probabilities.good"]) == records[0]["probabilities"]["good"]
    full = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert [dict(row["probabilities"]) for row in full] == [record["probabilities"] for record in records]
    assert call("predict", tuned["tag"], "--file", texts, "--out", tmp_path / "t.tsv", *more)[0] == 0
    entities = rows_of(tmp_path / "t.tsv")
    assert list(dict.fromkeys(row["text"] for row in entities)) == TEXTS  # a text without entities has a row too
    assert set(entities[0]) >= {"text", "entity", "label", "start", "end", "score"}
    code, _, err = call("predict", tuned["classify"], "--file", texts, "--out", tmp_path / "a.json")
    assert (code, ".json holds answers to questions by id" in err) == (2, True)


def test_evaluate_writes_a_row_for_each_metric(call: Call, tuned: dict[str, Path], tmp_path: Path) -> None:
    data, out = tmp_path / "test.csv", tmp_path / "scores.csv"
    pd.DataFrame({"text": TEXTS * 2, "label": ["good", "bad", "good"] * 2}).to_csv(data, index=False)
    assert call("evaluate", tuned["classify"], "--data", data, "--out", out)[0] == 0
    rows = {row["metric"]: row for row in rows_of(out)}
    assert 0 <= float(rows["accuracy"]["low"]) <= float(rows["accuracy"]["value"]) <= float(rows["accuracy"]["high"])


def test_runs_that_prepare_their_own_text_are_told_the_column() -> None:
    from larvatus.interfaces.settings import TextSettings

    assert TextSettings(text="title").options.reading.text_field == "title"
    assert TextSettings(text="title").passages.reading.text_field == "title"
    assert TextSettings(text="text").reading().names_column
    assert not TextSettings().reading().names_column
    with pytest.raises(UsageError, match="--text is empty"):
        TextSettings(text="")


def test_evaluate_reads_held_out_text_by_the_same_option(
    call: Call, model: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--text names a column of labelled examples there, and one of held-out text."""
    from larvatus.interfaces.cli.commands import evaluate

    asked: list[str | None] = []

    def score(bundle: Any, given: Any, reading: Any, **more: Any) -> Any:
        asked.append(reading.text)
        raise DataError("asked")

    monkeypatch.setattr(evaluate, "score_text", score)
    assert call("evaluate", model, "--corpus", table, "--text", "title")[0] == 4
    assert call("evaluate", model, "--corpus", table)[0] == 4
    assert asked == ["title", None]
    assert call("evaluate", model, "--corpus", table, "--label", "x")[0] == 2


def test_a_resumed_run_over_a_table_is_another_run_than_before(tmp_path: Path, table: Path) -> None:
    """Earlier versions read a named .csv as plain text: what they began must not go on with other texts."""
    import hashlib

    from larvatus.data.corpus.sources import content_hash

    content = hashlib.sha256(table.read_bytes()).hexdigest()
    before = hashlib.sha256(str(table).encode())
    before.update(f"\x00{table}\x00{content}".encode())
    assert content_hash(table) != before.hexdigest()
    plain = tmp_path / "a.txt"
    plain.write_text("as ever")
    as_ever = hashlib.sha256(str(plain).encode())
    as_ever.update(f"\x00{plain}\x00{hashlib.sha256(plain.read_bytes()).hexdigest()}".encode())
    assert content_hash(plain) == as_ever.hexdigest()


def test_tables_in_a_folder_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.md", "b.csv", "c.csv", "d.png"):
        (tmp_path / name).write_text("text\nA line.\n", encoding="utf-8")
    skipped = Skipped()
    assert [Path(file).name for file in list_files([tmp_path], skipped=skipped)] == ["a.md"]
    report_skipped(skipped)
    assert "(FOLDER/*.csv): 2 × .csv" in capsys.readouterr().err
