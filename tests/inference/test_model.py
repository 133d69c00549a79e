"""`load` gives one object with the verbs, and the command prints what it says."""

from __future__ import annotations

import copy
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.inference.model import Model, load
from larvatus.interfaces.cli.commands.fill import fill
from larvatus.models.objectives import NextSentenceConfig
from tests import warm

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def directory(tiny_model: Make, save_tiny: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = save_tiny(tmp_path_factory.mktemp("m"), tiny_model(seed=3))
    return made


@pytest.fixture
def run() -> Callable[..., Any]:
    app = typer.Typer()
    app.command()(fill)

    def invoke(*arguments: str, **options: Any) -> Any:
        return CliRunner().invoke(app, list(arguments), **options)

    return invoke


def test_a_model_fills_shows_itself_and_learns_nothing(directory: Path) -> None:
    model = load(directory, device="cpu")
    assert not model.network.training
    fills = model.fill("The [MASK] was wide.", top=3)
    assert len(fills) == 3
    assert fills == load(str(directory)).fill("The [MASK] was wide.", top=3)
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert "2 layers, 16 hidden, 2 heads" in repr(model)
    assert "masked-lm, next-sentence, on cpu" in repr(model)
    assert model.tokenizer.size == 27
    assert model.device == torch.device("cpu")


def test_one_text_gives_one_result_and_a_list_gives_a_list(directory: Path) -> None:
    model = load(directory, device="cpu")
    texts = ["The [MASK] was wide.", "[MASK] was [MASK]"]
    found = model.fill(texts, top=2)
    assert isinstance(found, list)
    assert found == [model.fill(text, top=2) for text in texts]
    assert model.fill([], top=2) == []


def test_a_model_without_the_head_says_so_by_its_path(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    heads = (NextSentenceConfig(),)
    save_tiny(tmp_path, tiny_model(objectives=heads), heads)
    with pytest.raises(ArtefactError, match=f"{tmp_path} has no masked-lm head"):
        load(tmp_path).fill("the [MASK]")


@pytest.mark.parametrize("device", ["gpu", "cuda:x", *([] if torch.cuda.is_available() else ["cuda"])])
def test_a_device_that_is_not_there_is_refused(directory: Path, device: str) -> None:
    with pytest.raises(UsageError, match="device"):
        load(directory, device=device)


def test_nothing_is_fetched_unless_asked(directory: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(ArtefactError, match="downloads nothing by name unless requested"):
        load("bert-base-uncased")
    load(directory).fill("the [MASK]")


def test_the_command_prints_a_table(run: Make, directory: Path) -> None:
    result = run("The [MASK] was wide.", "--model", str(directory), "--top", "2")
    assert result.exit_code == 0
    best = load(directory).fill("The [MASK] was wide.", top=2)
    assert [line.split()[1] for line in result.stdout.splitlines()] == [one.to_dict()["token"] for one in best]
    assert f"{best[0].probability:.1%}" in result.stdout


def test_the_command_prints_json_lines_for_lines_of_standard_input(run: Make, directory: Path) -> None:
    lines = "the [MASK] .\n\n[MASK] was [MASK]\n"
    result = run("-", "--model", str(directory), "--json", "--top", "1", input=lines)
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == load(directory).fill("the [MASK] .", top=1).to_dict()
    assert second == load(directory).fill("[MASK] was [MASK]", top=1).to_dict()


def test_the_command_fills_several_texts_in_their_order(run: Make, directory: Path) -> None:
    given = ("the [MASK] .", "-", "[MASK] was")
    result = run(*given, "--model", str(directory), "--json", "--top", "1", input="a [MASK]\n")
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == [
        "the [MASK] .",
        "a [MASK]",
        "[MASK] was",
    ]
    assert "give - once" in str(run("-", "-", "--model", str(directory)).exception)


def test_the_command_shows_marginals_and_how_much_was_read(run: Make, directory: Path) -> None:
    text = f"[MASK] {'the river was wide . ' * 10} [MASK]"
    result = run(text, "--model", str(directory), "--marginals", "--top", "2")
    assert result.exit_code == 0
    assert "blank 2 of 2" in result.stdout
    result = run(text.removesuffix("[MASK]"), "--model", str(directory))
    assert "note: read 30 of 51 tokens" in result.stdout


def test_bad_utf8_on_standard_input_names_the_line(run: Make, directory: Path) -> None:
    result = run("-", "--model", str(directory), "--json", input=b"the [MASK]\n\xff\n")
    assert "standard input, line 2: not UTF-8" in str(result.exception)


def test_loading_imports_neither_pickle_readers_nor_transformers_nor_training(directory: Path) -> None:
    code = (
        "import sys, torch, larvatus.inference.model as m\n"
        "torch.load = None\n"
        f"m.load({str(directory)!r}).fill('the [MASK]')\n"
        "assert 'transformers' not in sys.modules and 'huggingface_hub' not in sys.modules\n"
        "rooms = ('training', 'data.corpus', 'tasks.trainer')\n"
        "assert not [name for name in sys.modules if name.startswith(tuple(f'larvatus.{room}' for room in rooms))]\n"
    )
    warm.run_bare([sys.executable, "-c", code], check=True)


def test_a_copy_shares_the_weights_and_loads_nothing(directory: Path) -> None:
    model = load(directory, device="cpu")
    copied = copy.copy(model)
    assert copied is not model
    assert copied.network is model.network
    in_memory = copy.copy(Model(model.bundle, model.device))  # which could not be loaded again
    assert in_memory.bundle is model.bundle
