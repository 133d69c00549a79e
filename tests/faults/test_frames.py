"""Hostile post-processors: what a `tokenizer.json` puts around texts must fit the model beside it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLS, SEP = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]"))
A, B = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
SINGLE, PAIR = [CLS, A, SEP], [CLS, A, SEP, B, SEP]


def template(single: list[Any], pair: list[Any], *, sep: list[int] | None = None) -> dict[str, Any]:
    ids = {"[CLS]": [2], "[SEP]": sep or [3]}
    special = {name: {"id": name, "ids": own, "tokens": [name] * len(own)} for name, own in ids.items()}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


HOSTILE = {
    "a token that is named nowhere": (template([{"SpecialToken": {"id": "[NO]", "type_id": 0}}, A], PAIR), "'[NO]'"),
    "30 special tokens": (template([CLS] * 30 + [A, SEP], PAIR), "31"),
    "600 special tokens": (template([CLS] * 600 + [A, SEP], PAIR), "602"),
    "a million ids for one": (template(SINGLE, PAIR, sep=[3] * 10**6), "1,000,000"),
    "segments of no model": (template([CLS, {"Sequence": {"id": "A", "type_id": 7}}, SEP], PAIR), "up to 7"),
    "segments past all numbers": (template([CLS, {"Sequence": {"id": "A", "type_id": 2**31}}, SEP], PAIR), "segments"),
    "the text twice": (template([CLS, A, A, SEP], PAIR), "repeats"),
    "ids past the vocabulary": (template(SINGLE, PAIR, sep=[2**31]), "adds token"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_post_processor_that_does_not_fit_the_model_is_refused(
    name: str, tiny_model: Callable[..., Any], save_tiny: Callable[..., Any], tmp_path: Path, larvatus: Any
) -> None:
    processor, word = HOSTILE[name]
    directory = Path(shutil.copytree(save_tiny(tmp_path / "good", tiny_model()), tmp_path / "m"))
    (directory / "larvatus.json").unlink()
    path = directory / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": processor}))
    code, said = larvatus("fill", "The [MASK].", "--model", directory)
    assert code == 5
    assert word in said
    assert len(said) < 400
