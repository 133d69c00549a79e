"""The examples of docstrings do what they show.

Those that are written as `>>>` sessions, in every module that has one; on data of a few words. They run in a folder
that holds what people have: `runs/mine`, a tiny model; `my_texts/`; `reviews.jsonl` and `train.conll`, labelled. The
names `lv` (larvatus) and `model` (the loaded `runs/mine`) are there.
"""

from __future__ import annotations

import doctest
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from tests.made_up import classes, sentences, tags

SOURCE = Path(__file__).parents[1] / "src"
WITH_EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.fixture(scope="module")
def clone(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[..., Any], save_tiny: Callable[..., Path]
) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    save_tiny(folder / "runs" / "mine", tiny_model(seed=3))
    (folder / "my_texts").mkdir()
    lines = [" ".join(words).capitalize() + "." for words in sentences(400)]
    (folder / "my_texts" / "rivers.txt").write_text("\n".join(lines), encoding="utf-8")
    classes(folder / "reviews.jsonl")
    tags(folder / "train.conll")
    return folder


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=module_name)
def test_examples_of_docstrings_do_what_they_show(path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clone)
    names = {"lv": lv, "model": lv.load("runs/mine", device="cpu")}
    result = doctest.testmod(import_module(module_name(path)), optionflags=doctest.ELLIPSIS, extraglobs=names)
    assert result.attempted
    assert not result.failed
