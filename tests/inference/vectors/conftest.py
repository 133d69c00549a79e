"""A model whose vocabulary has the words of English prose, saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny import save_model


@pytest.fixture(scope="module")
def directory(wordpiece: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), wordpiece.network, wordpiece.tokenizer)
