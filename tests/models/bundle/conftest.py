"""Vocabularies of three kinds, and models that `transformers` saved with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from tests.models.bundle.families import FAMILIES, HEADS, LABELS, Make
from tests.models.bundle.theirs import PROSE, their_directory


@pytest.fixture(scope="session")
def vocabularies() -> dict[str, Tokenizer]:
    kinds = (WordPieceConfig(size=90), ByteBPEConfig(size=290), UnigramConfig(size=60))
    made = [train_vocabulary([PROSE], kind, allow_smaller=True) for kind in kinds]
    return {tokenizer.kind: tokenizer for tokenizer in made}


@pytest.fixture
def theirs(tmp_path: Path, vocabularies: dict[str, Tokenizer]) -> Make:
    """A function that has `transformers` save a model of a family: `theirs("bert", "ForTokenClassification", …)`."""

    def make(family: str, kind: str, labels: tuple[str, ...] = LABELS, **fields: Any) -> tuple[Path, Any]:
        name, vocabulary, sizes = FAMILIES[family]
        if kind in HEADS:
            fields["id2label"] = dict(enumerate(labels))
            fields["label2id"] = {label: number for number, label in enumerate(labels)}
        return their_directory(tmp_path / "theirs", vocabularies[vocabulary], f"{name}{kind}", **sizes | fields)

    return make
