"""The packaged English model: taken where none is named, missed in one line, never where it would be wrong."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.interfaces.cli.main import run
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.bundle.model_names import FOLDER, PACKAGE, packaged_model


@pytest.fixture
def installed(tmp_path, monkeypatch, tiny_model, save_tiny) -> Path:
    """A tiny model in a package of that name, found as the real one is."""
    package = tmp_path / "site" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    save_tiny(package / FOLDER, tiny_model())
    monkeypatch.syspath_prepend(tmp_path / "site")
    return package / FOLDER


def command(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(list(words))
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_load_and_commands_take_it_where_no_model_is_named(installed, capsys, tmp_path):
    assert lv.load(device="cpu").bundle.path == installed
    code, out, _ = command(capsys, "fill", "the [MASK] was wide", "--json", "--device", "cpu")
    assert code == 0
    assert json.loads(out)["text"] == "the [MASK] was wide"
    (tmp_path / "text.txt").write_text("the river was wide\n")
    vectors = str(tmp_path / "vectors.npy")
    assert command(capsys, "embed", str(tmp_path / "text.txt"), "--out", vectors, "--device", "cpu")[0] == 0
    code, _, said = command(capsys, "finetune", "classify", "--out", str(tmp_path / "out"))
    assert code == 2
    assert said.startswith("larvatus: name labelled examples with --train FILE")


def test_a_server_calls_it_english_and_others_by_their_folder(installed, tmp_path, tiny_model, save_tiny):
    save_tiny(tmp_path / "law", tiny_model())
    server = Server.of([lv.load(device="cpu"), lv.load(tmp_path / "law", device="cpu")], ServeSettings())
    assert list(server.served.models) == ["english", "law"]
    assert [model.describe()["packaged"] for model in server.served.models.values()] == [True, False]


def test_a_stripped_installation_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    assert packaged_model() is None
    with pytest.raises(UsageError, match=r"give yours .* pip install"):
        lv.load()
    code, _, said = command(capsys, "fill", "the [MASK] was wide")
    assert code == 2
    assert said.startswith("larvatus: no model is named, and this installation has no English one")
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [["generate", "the"], ["isotropy", "fit", "--corpus", "text"]])
def test_what_writes_or_wants_a_model_of_its_own_keeps_asking(installed, capsys, words):
    code, _, said = command(capsys, *words)
    assert code == 2
    assert "Missing" in said


def test_the_wheel_has_both_packages():
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    packages = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["src/larvatus", f"src/{PACKAGE}"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_it_has_a_name_wherever_a_model_directory_is_taken(installed, here, capsys):
    assert lv.load("english", device="cpu").bundle.path == installed
    (here / "text.txt").write_text("the river was wide\n" * 3)
    for words in (
        ["fill", "the [MASK] was wide", "--model", "english"],
        ["score", "the river was wide", "--model", "english"],
        ["audit", "toxicity", "--model", "english", "--words", "text.txt"],
        ["tokenizer", "show", "english", "the river"],
        ["corpus", "build", "text.txt", "--tokenizer", "english", "--out", "built"],
        ["convert", "english", "converted"],
        ["card", "converted"],
    ):
        code, _, said = command(capsys, *words)
        assert code == 0, (words, said)
    assert command(capsys, "card", "english", "--verify")[2] == command(capsys, "card", str(installed), "--verify")[2]
    assert (
        command(capsys, "predict", "english", "text.txt")[1:]
        == command(capsys, "predict", str(installed), "text.txt")[1:]
    )


def test_a_model_directory_of_that_name_here_is_not_hidden(installed, here, capsys, tiny_model, save_tiny):
    """Neither hides the other: the name is refused, the directory is ./english or a Path."""
    save_tiny(here / "english", tiny_model())
    with pytest.raises(UsageError, match=r"write \./english for the directory"):
        lv.load("english")
    code, _, said = command(capsys, "fill", "the [MASK] was wide", "--model", "english")
    assert code == 2
    assert "./english" in said
    for name in ("./english", Path("english")):
        assert lv.load(name, device="cpu").bundle.path.resolve() == (here / "english").resolve()
    assert command(capsys, "fill", "the [MASK] was wide", "--model", "./english")[0] == 0


def test_a_folder_of_texts_of_that_name_is_no_model(installed, here):
    (here / "english").mkdir()
    (here / "english" / "novel.txt").write_text("the river was wide")
    assert lv.load("english", device="cpu").bundle.path == installed


def test_the_name_of_a_model_that_is_not_installed(here, monkeypatch, tiny_model, save_tiny):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(UsageError, match="this installation has no model 'english'"):
        lv.load("english")
    save_tiny(here / "english", tiny_model())
    assert lv.load("english", device="cpu").bundle.path == Path("english")
