"""Corpora built once from made-up text, only to be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from larvatus.data.corpus.build import build_corpus
from larvatus.data.corpus.store import Corpus
from larvatus.data.text.tokenizer import Tokenizer
from tests.data.corpus.made_up import SMALL, made_up_text, small_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "river.txt"
    path.write_text(made_up_text(400), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus(text_file: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """400 documents in many chunks and several shards. Only to be read."""
    out = tmp_path_factory.mktemp("built") / "corpus"
    build_corpus([text_file], tokenizer, out, SMALL)
    return Corpus.open(out)
