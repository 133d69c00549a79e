"""What `fill` offers by default: whole words, never a part of one; probabilities stay the model's."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.data.text.counting import count_words
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, train_vocabulary
from larvatus.inference.cloze.fill import abbreviations, allowed_tokens, needs_period, without_periods
from larvatus.interfaces.cli.main import run
from larvatus.training.pretraining.adapt import ParentVocabulary

TEXT = ["Er sagte, daß sie in St. Paul und nicht in Paris wohnt. Mr. Smith isn't here, 中国 ist weit."] * 20


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    return train_vocabulary(TEXT, ByteBPEConfig(size=420), allow_smaller=True)


def named(tokenizer: Tokenizer, ids: Any) -> set[str]:
    return {tokenizer.token(int(id)) for id in ids}


def test_words_are_tokens_that_begin_and_are_one(byte_level: Tokenizer) -> None:
    words = named(byte_level, np.flatnonzero(allowed_tokens(byte_level, "words")))
    starts = named(byte_level, np.flatnonzero(allowed_tokens(byte_level, "word-starts")))
    every = named(byte_level, np.flatnonzero(allowed_tokens(byte_level, "tokens")))
    assert {"Ġnicht", "ĠParis", "ĠSt"} <= words < every
    assert {word for word in words if word.startswith("Ġ")} < starts
    assert not {"icht", ".", ",", byte_level.special.mask} & words
    assert "Ġ" in starts - words  # a space is no word


def test_characters_of_scripts_without_spaces_are_words() -> None:
    tokenizer = train_vocabulary(TEXT, UnigramConfig(size=90), allow_smaller=True)
    words = named(tokenizer, np.flatnonzero(allowed_tokens(tokenizer, "words")))
    assert {"中国", "中", "国"} & words
    assert not {piece for piece in words if not piece.startswith("▁") and piece.isascii()}


def test_abbreviations_are_known_to_the_splitter_and_must_fall_without_their_period(byte_level: Tokenizer) -> None:
    known = abbreviations(byte_level)
    assert "ĠSt" in named(byte_level, known)
    assert not {"Ġnicht", "ĠParis"} & named(byte_level, known)
    log_V = torch.log(torch.full((byte_level.size,), 0.2))
    st = byte_level.id("ĠSt")
    assert st is not None
    for left, is_left_out in ((0.01, True), (0.19, False)):
        other_V = log_V.clone()
        other_V[st] = torch.log(torch.tensor(left))
        assert (st in needs_period(log_V, other_V, known)) is is_left_out


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("It is ", "."), "It is [MASK]!"),
        (("It is ", " . So ", "."), "It is [MASK] ! So [MASK]!"),
        (("It is ", "..."), None),
        (("The ", " ran."), None),
    ],
)
def test_only_a_period_right_after_a_blank_is_exchanged(pieces: tuple[str, ...], text: str | None) -> None:
    assert without_periods(pieces, "[MASK]") == text


def test_tokens_are_readable(byte_level: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = byte_level.encode("sagte, daß").ids.tolist()
    raw = "".join(map(byte_level.token, ids))
    assert "Ã" in raw
    shown = "".join(byte_level.readable(byte_level.token(id)) for id in ids)
    assert "Ã" not in shown.replace("\\xc3", "")
    assert byte_level.readable("ĠdaÃŁ") == "Ġdaß"
    assert byte_level.readable("Ã") == "\\xc3"
    assert byte_level.readable("<mask>") == "<mask>"
    byte_level.save(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run(["tokenizer", "show", str(tmp_path), "daß"])
    assert not ended.value.code
    assert "Ã" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(["tokenizer", "show", str(tmp_path), "daß", "--json"])
    pieces = [row["piece"] for row in json.loads(capsys.readouterr().out)["tokens"]]
    assert "".join(pieces) == "".join(byte_level.token(id) for id in byte_level.encode("daß").ids.tolist())


def test_added_words_are_said_as_they_are_written(byte_level: Tokenizer) -> None:
    said: list[str] = []
    reporter: Any = SimpleNamespace(say=said.append)
    nobody: Any = None
    words = count_words(["genießen daß genießen Straße genießen Straße"], byte_level.library)
    extension = ParentVocabulary(nobody, ["5"])._extended(byte_level, words, reporter)
    assert extension is not None
    assert "genießen" in said[-1]
    assert "Straße" in said[-1]
    assert "Ã" not in said[-1]
