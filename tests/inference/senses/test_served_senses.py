"""A server that was started with sense vectors names WordNet's sense of each marked word."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import UsageError
from larvatus.inference.model import load
from larvatus.interfaces.api.vectors import build_senses
from larvatus.interfaces.serve.operations import OPERATIONS
from larvatus.interfaces.serve.operations.instances import SensesBody
from larvatus.interfaces.serve.server import Server
from larvatus.interfaces.serve.settings import ServeSettings

TEXTS = ("the *bank* of the river", "your *bank* was wide", "please *turn*")


@pytest.fixture
def directory(model: Any, semcor: Path, wordnet_folder: Path, tmp_path: Path) -> Path:
    build_senses(model, semcor, out=tmp_path / "senses", wordnet=wordnet_folder)
    return tmp_path / "senses"


def test_each_marked_word_gets_the_sense_that_the_tagger_gives(
    model: Any, directory: Path, wordnet_folder: Path
) -> None:
    settings = ServeSettings(senses=str(directory), wordnet=str(wordnet_folder), threads=2)
    server = Server.of([model], settings)
    try:
        answer = server.answer_now(OPERATIONS["senses"], SensesBody(texts=TEXTS))
    finally:
        server.close()
    tagger = model.senses(directory, wordnet=wordnet_folder)
    for told, text in zip(answer["instances"], TEXTS, strict=True):
        words = [word for word in tagger.tag(text.replace("*", "")) if word.start == told["start"]]
        expected = words[0].key if words else None
        assert (told["sense"] or {}).get("key") == expected
    assert answer["instances"][0]["sense"]["key"].startswith("bank%")
    assert answer["instances"][0]["sense"]["definition"]


def test_sense_vectors_of_another_model_are_refused(
    model: Any, directory: Path, tiny_model: Any, save_tiny: Any, tmp_path: Path
) -> None:
    other = load(save_tiny(tmp_path / "other", tiny_model(seed=9)), device="cpu")
    before = threading.active_count()
    with pytest.raises(UsageError, match="none of these models"):
        Server.of([other], ServeSettings(senses=str(directory), threads=2))
    assert threading.active_count() == before  # nothing of it continues
