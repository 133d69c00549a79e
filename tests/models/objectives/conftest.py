from __future__ import annotations

import pytest


@pytest.fixture
def chunks_of_64_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 37 classes, so that a small test has several chunks."""
    monkeypatch.setattr("larvatus.models.objectives.linear_cross_entropy._NUMBERS", {"cpu": 64 * 37})
