"""`larvatus predict`: texts, pairs, files and pipes in; a line for people or JSON for programs out."""

from __future__ import annotations

import errno
import functools
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from larvatus.interfaces.cli.streams import ReaderGone
from larvatus.models.heads import ClassificationConfig, TaggingConfig

CLASSES = ClassificationConfig(labels=("bad", "good"))
TAGS = TaggingConfig(labels=("O", "B-LOC", "I-LOC"), scheme="BIO")
POS = TaggingConfig(labels=("NOUN", "VERB"), scheme="none")
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(larvatus: Call) -> Call:
    return functools.partial(larvatus, "predict", stdin="")


@pytest.fixture(scope="module")
def saved(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tuned")
    heads = {"classify": CLASSES, "tag": TAGS, "pos": POS}
    return {
        name: save_tiny(folder / name, tiny_model(seed=5, objectives=(head,)), (head,)) for name, head in heads.items()
    }


@pytest.fixture(scope="module")
def plain(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = save_tiny(tmp_path_factory.mktemp("plain") / "m", tiny_model())
    return path


def records(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_texts_give_a_line_each_and_a_summary(call: Call, saved: dict[str, Path]) -> None:
    code, out, err = call(saved["classify"], "the river", "a deep bank", "--top", 2)
    assert code == 0
    lines = out.splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["the river", "a deep bank"]
    assert all("bad 0." in line and "good 0." in line for line in lines)
    assert err.startswith("2 texts · ")
    assert err.endswith("5 tokens, 100% read")
    one = call(saved["classify"], "the river")[1]
    assert one.split()[0] in CLASSES.labels
    assert len(one.splitlines()) == 1
    assert call(saved["classify"], "the river", "--probabilities")[1].count(" 0.") == 2


def test_json_has_everything(call: Call, saved: dict[str, Path]) -> None:
    (found,) = records(call(saved["classify"], "the river", "--pair", "a deep bank", "--json")[1])
    assert list(found) == [
        *("text", "pair", "label", "probability", "probabilities", "tokens", "tokens_read", "windows"),
    ]
    assert set(found["probabilities"]) == {"bad", "good"}
    (found,) = records(call(saved["classify"], "the river", "--json", "--top", 1)[1])
    assert list(found["probabilities"]) == [found["label"]]
    (found,) = records(call(saved["tag"], "the river bank", "--json")[1])
    assert [(word["text"], word["start"], word["end"]) for word in found["words"]] == [
        ("the", 0, 3),
        ("river", 4, 9),
        ("bank", 10, 14),
    ]
    assert {"entities", "tokens", "tokens_read", "windows"} < set(found)


def test_people_see_entities_in_brackets_and_parts_of_speech(call: Call, saved: dict[str, Path]) -> None:
    text = "the river bank was wide and deep please turn your homework in"
    (found,) = records(call(saved["tag"], text, "--json")[1])
    assert found["entities"]
    expected, at = "", 0
    for entity in found["entities"]:
        expected += text[at : entity["start"]] + f"[{entity['text']} {entity['label']}]"
        at = entity["end"]
    assert call(saved["tag"], text)[1] == expected + text[at:] + "\n"
    assert "\x1b" not in call(saved["tag"], text + " \x1b[2J")[1]
    (found,) = records(call(saved["pos"], text, "--json")[1])
    assert call(saved["pos"], text)[1].split() == [f"{word['text']}/{word['tag']}" for word in found["words"]]


def test_files_of_every_kind_give_the_same(call: Call, saved: dict[str, Path], tmp_path: Path) -> None:
    texts = ["the river, deep", "a bank", "please turn in your homework"]
    rows = [{"id": f"n{n}", "text": text, "label": "good"} for n, text in enumerate(texts)]
    (tmp_path / "a.txt").write_text("\n".join([texts[0], "", *texts[1:]]) + "\n\n")
    (tmp_path / "a.csv").write_text("id,text,label\n" + "".join(f'n{n},"{t}",good\n' for n, t in enumerate(texts)))
    (tmp_path / "a.tsv").write_text("id\ttext\tlabel\n" + "".join(f"n{n}\t{t}\tgood\n" for n, t in enumerate(texts)))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    said = {}
    for name in ("a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet"):
        code, out, said[name] = call(saved["classify"], "--file", tmp_path / name, "--json")
        assert code == 0
        found = records(out)
        assert [one["text"] for one in found] == texts
        if name != "a.txt":
            assert [one["id"] for one in found] == ["n0", "n1", "n2"]
    assert "2 blank lines skipped" in said["a.txt"]
    assert "read as: text = text" in said["a.csv"]
    assert [one["line"] for one in records(call(saved["tag"], "--file", tmp_path / "a.csv", "--json")[1])] == [2, 3, 4]


def test_pairs_of_a_file(call: Call, saved: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("premise,hypothesis,note\nthe river,a bank,x\nthe bank,a river,y\n")
    guessed = call(saved["classify"], "--file", path, "--json")
    asked = call(saved["classify"], "--file", path, "--json", "--text", "premise", "--pair-column", "2")
    assert records(guessed[1]) == records(asked[1])
    assert records(asked[1])[1]["pair"] == "a river"
    alone = records(call(saved["classify"], "--file", path, "--json", "--text", "hypothesis")[1])
    assert [(one["text"], "pair" in one) for one in alone] == [("a bank", False), ("a river", False)]


def test_words_already_cut(call: Call, saved: dict[str, Path], tmp_path: Path) -> None:
    conll = "the O\nriver B-LOC\n\na O\nbank. O\n"
    (tmp_path / "a.conll").write_text(conll)
    (tmp_path / "a.tsv").write_text(conll.replace(" ", "\t"))
    (tmp_path / "a.jsonl").write_text('{"tokens": ["the", "river"]}\n{"tokens": ["a", "bank."]}\n')
    outs = {}
    for name in ("a.conll", "a.tsv", "a.jsonl"):
        found = records(call(saved["tag"], "--file", tmp_path / name, "--json")[1])
        outs[name] = [[word["text"] for word in one["words"]] for one in found]
    assert list(outs.values()) == [[["the", "river"], ["a", "bank."]]] * 3
    code, _, err = call(saved["classify"], "--file", tmp_path / "a.conll")
    assert code == 4
    assert "holds words already cut, which a tagger reads" in err


def test_pipes(call: Call, saved: dict[str, Path]) -> None:
    lines = call(saved["classify"], "-", "--json", stdin="the river\na bank, deep\n")[1]
    assert [(one["text"], one["line"]) for one in records(lines)] == [("the river", 1), ("a bank, deep", 2)]
    rows = '{"text": "the river", "id": 7}\n{"text": "a bank", "id": 8}\n'
    assert [one["id"] for one in records(call(saved["tag"], "-", "--json", stdin=rows)[1])] == ["7", "8"]
    table = "n,said\n1,the river\n2,a bank\n"
    found = records(call(saved["tag"], "--file", "-", "--text", "said", "--json", stdin=table)[1])
    assert [one["text"] for one in found] == ["the river", "a bank"]
    assert records(call(saved["tag"], "-", "--format", "csv", "--json", stdin=table)[1])[0]["text"] == "the river"


def test_a_file_appears_whole_or_not_at_all(call: Call, saved: dict[str, Path], tmp_path: Path) -> None:
    path, out = tmp_path / "a.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"text": "the river"}\n{"text": ""}\n')
    code, _, err = call(saved["classify"], "--file", path, "--out", out)
    assert code == 4
    assert f"{path}:2: text is empty" in err
    assert not out.exists()
    code, printed, err = call(saved["classify"], "the river", "--out", out)
    assert (code, printed) == (0, "")
    assert str(out) in err
    assert records(out.read_text())[0]["text"] == "the river"


def test_truncate_says_what_was_not_read(call: Call, saved: dict[str, Path]) -> None:
    """Show 5 of fine-tuning, on a model of 32 positions."""
    document = "the river bank was wide " * 1_000
    for name in ("classify", "tag"):
        code, out, err = call(saved[name], document, "--json")
        assert (code, records(out)[0]["tokens"], records(out)[0]["tokens_read"]) == (0, 5_000, 5_000)
        assert "5,000 tokens, 100% read" in err
        assert "warning" not in err
        code, out, err = call(saved[name], document, "the river", "--truncate", "--json")
        assert (records(out)[0]["tokens_read"], records(out)[0]["windows"]) == (30, 1)
        assert "warning: 1 of 2 texts were cut; 99.4% of tokens not read; leave out --truncate" in err


class Gone(io.StringIO):
    """Standard output whose reader has had enough after a line."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.real = path.open("w")

    def fileno(self) -> int:
        return self.real.fileno()

    def flush(self) -> None:
        if "\n" in self.getvalue():
            raise ReaderGone(errno.EPIPE, "Broken pipe")


@pytest.mark.parametrize("mode", [["--json"], []])
def test_a_broken_pipe_is_quiet(
    mode: list[str], call: Call, saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdout = Gone(tmp_path / "out")
    monkeypatch.setattr(sys, "stdout", stdout)
    code, _, err = call(saved["classify"], *["the river"] * 100, *mode)
    monkeypatch.undo()
    stdout.real.close()
    assert (code, err) == (0, "")
    assert stdout.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    ("name", "arguments", "code", "said"),
    [
        ("classify", [], 2, "nothing to predict; give texts"),
        ("classify", [""], 4, "text 1 is empty"),
        ("classify", ["the", "\u0301"], 4, "text 2 has no tokens"),
        ("classify", ["--file", "absent.csv"], 4, "absent.csv cannot be opened"),
        ("classify", ["a", "b", "--pair", "c"], 2, "--pair goes with one TEXT"),
        ("classify", ["-", "--file", "-"], 2, "standard input is read once"),
        ("classify", ["a", "--text", "b"], 2, "--text, --pair-column and --format are for files"),
        ("classify", ["--file", "x.csv", "--pair-column", "b"], 2, "--pair-column goes with --text"),
        ("classify", ["-"], 4, "standard input has no text"),
        ("classify", ["a", "--length", "99"], 2, "99 tokens is more than the model's 32 positions"),
        ("classify", ["a", "--merge", "sum"], 2, "--merge"),
        ("classify", ["a", "--device", "tpu0"], 2, "is not a device; use auto, cpu or cuda"),
        ("tag", ["a", "--pair", "b"], 2, "tags words; --pair is for classifiers and models that answer"),
        ("tag", ["a", "--top", "2"], 2, "--top is for classifiers"),
    ],
)
def test_bad_input_is_one_line_with_its_code(
    call: Call, saved: dict[str, Path], name: str, arguments: list[str], code: int, said: str
) -> None:
    found, _, err = call(saved[name], *arguments)
    assert (found, "\n" in err) == (code, False)
    assert said in err


def test_bad_columns_and_cells_are_named(call: Call, saved: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nthe river,x\n,y\n")
    code, _, err = call(saved["classify"], "--file", path, "--text", "txt")
    assert (code, err) == (4, f"larvatus: {path} has no column 'txt' for the text; did you mean text?")
    code, _, err = call(saved["classify"], "--file", path, "--json")
    assert code == 4
    assert f"{path}:3: text is empty; drop the row, or give it a text" in err
    code, _, err = call(saved["classify"], "--file", path, "--format", "text", "--text", "text")
    assert code == 2
    assert "is plain text and has no columns" in err
    (tmp_path / "broken.jsonl").write_text('{"text": "the"}\n{"text"\n')
    code, _, err = call(saved["classify"], "--file", tmp_path / "broken.jsonl")
    assert code == 4
    assert "broken.jsonl:2: broken JSON" in err


def test_a_model_without_a_head_is_refused_by_its_path(call: Call, plain: Path) -> None:
    code, _, err = call(plain, "the river")
    assert (code, err) == (5, f"larvatus: {plain} has no head to predict with; give it one with larvatus finetune")
