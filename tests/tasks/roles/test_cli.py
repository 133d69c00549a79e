"""Semantic roles by the command line and the server: from JSON lines to a model, its scores, frames and columns."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import larvatus as lv
from larvatus.data.labelled.records import Place, TextExample
from larvatus.interfaces.cli.main import run
from larvatus.interfaces.serve.operations.predict import PREDICTIONS
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
from larvatus.tasks.registry import TASKS
from larvatus.tasks.roles.baseline import surface_argument_f1
from larvatus.tasks.roles.reader import frame_record, read_frames
from tests.made_up import Call
from tests.tasks.roles.made_frames import WORDS, made_frames
from tests.tiny import make_tokenizer, save_model

LEARN = ("--epochs", 8, "--batch", 8, "--rate", 0.003, "--device", "cpu", "--hidden", 32, "--dropout", 0)


def write(path: Path, examples) -> Path:
    path.write_text("".join(json.dumps(frame_record(each)) + "\n" for each in examples))
    return path


@pytest.fixture(scope="module")
def labeller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned the made language by the command."""
    folder = tmp_path_factory.mktemp("roles")
    tokenizer = make_tokenizer([*WORDS.split(), "*", "##s"])
    model = TransformerConfig(layers=2, hidden=32, heads=2, max_positions=32, init=0.1, dropout=0.0)
    network = Network.build(model, (MaskedLMConfig(),), tokenizer.size, 0).eval()
    base = save_model(folder / "base", network, tokenizer)
    train = write(folder / "train.jsonl", made_frames())
    words = ["finetune", "roles", "--model", base, "--train", train, "--dev", train, "--out", folder / "out", *LEARN]
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in words])
    assert not ended.value.code
    return folder / "out"


def test_roles_are_learned_shown_and_scored(larvatus: Call, labeller: Path, tmp_path: Path) -> None:
    code, out, err = larvatus("predict", labeller, "ann pushed red dog .", "dog")
    assert code == 0
    assert out.splitlines() == ["push.01(ARG0: ann, ARG1: red dog)", "no predicate  dog"]
    assert "2 texts" in err
    frame = json.loads(larvatus("predict", labeller, "ann pushed red dog .", "--json")[1])["frames"][0]
    assert (frame["predicate"]["text"], frame["arguments"][1]["start"]) == ("pushed", 11)
    rows = tmp_path / "rows.csv"
    assert larvatus("predict", labeller, "ann pushed red dog .", "--out", rows)[0] == 0
    assert rows.read_text().splitlines()[2].split(",")[1:6] == ["pushed", "push.01", "4", "red dog", "ARG1"]
    columns = tmp_path / "answers.props"
    assert larvatus("predict", labeller, "ann pushed red dog .", "bob saw ann", "--out", columns)[0] == 0
    assert [len(each.frames or ()) for each in read_frames(columns)] == [1, 1]
    data = write(tmp_path / "dev.jsonl", made_frames().examples[:9])
    code, out, err = larvatus("evaluate", labeller, "--data", data, "--samples", 20)
    assert (code, err) == (0, "")
    for part in ("argument-f1", "found-argument-f1", "sense-accuracy", "ARG2", "intervals are over sentences"):
        assert part in out
    again = json.loads(
        larvatus("evaluate", labeller, "--data", data, "--samples", 20, "--against", labeller, "--json")[1]
    )
    assert again["metrics"]["argument-f1"]["value"] > 0.9
    assert again["comparison"]["metrics"]["argument-f1"]["difference"] == 0
    card = (labeller / "README.md").read_text()
    assert "labels semantic roles" in card
    assert "argument-f1" in card


def test_a_check_reports_frames_without_naming_the_task(larvatus: Call, tmp_path: Path) -> None:
    data = write(tmp_path / "train.jsonl", made_frames())
    code, out, _ = larvatus("data", "check", data)
    assert code == 0
    assert "ARG0" in out
    with data.open("a") as file:
        file.write('{"words": ["ann", "ran"], "frames": [{"pred": 7, "roleset": "run.02", "args": []}]}\n')
    code, out, err = larvatus("data", "check", data)
    assert code == 4
    assert "predicate out of range" in out + err
    assert "train.jsonl:49" in out + err


def test_predictions_in_columns_are_read_back(labeller: Path, tmp_path: Path) -> None:
    model, task = lv.load(labeller), TASKS["roles"]
    text = "ann saw bob and bob pushed ann"
    answer = model.predict(text)
    example = TextExample(text, None, None, Place("text", 1))
    path = tmp_path / "answers.props"
    assert ".props" in task.line_formats
    path.write_text("\n".join(task.lines(".props", example, answer)) + "\n")
    (sentence,) = read_frames(path)
    assert [frame.roleset for frame in sentence.frames] == [frame.roleset for frame in answer.frames]
    assert sentence.words == answer.sentences[0].words


def test_the_server_labels_texts_and_words(labeller: Path) -> None:
    (operation,) = (each for each in PREDICTIONS if each.name == "roles")
    model = lv.load(labeller)
    assert operation.lacks(model) is None
    options = operation.Body(texts=("ann saw bob",))
    answers = operation.run(SimpleNamespace(model=model), ["ann saw bob", ("bob", "pushed", "ann")], options)
    assert [each["frames"][0]["roleset"] for each in answers] == ["see.01", "push.01"]
    json.dumps(answers)


def test_the_surface_gives_some_roles_away_but_not_all() -> None:
    examples = made_frames().examples
    assert 0.3 < surface_argument_f1(examples[::2], examples[1::2]) < 0.99
    assert surface_argument_f1(examples[:3], ()) == 0
