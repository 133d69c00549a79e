"""A seeded sample of the attacks of `attack_server.py`: nothing hangs, leaks a path or ends in a 5xx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from tests.interfaces.serve.attack_server import WRONG, attack_all, attacks, classified
from tests.interfaces.serve.models import save_models


def test_a_sample_of_hostile_requests(
    tmp_path: Path, tiny_model: Any, save_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("larvatus.interfaces.serve.uvicorn_server.StrictHttpProtocol.header_seconds", 1.0)
    folders = save_models(tmp_path / "models", tiny_model, save_tiny, "plain", "classify", "tag", "answer")
    models = [lv.load(folder, device="cpu") for folder in folders.values()]
    counts, wrong = attack_all(models, tmp_path / "runs", seed=1, count=120)
    assert not wrong
    assert not set(counts) & set(WRONG)
    assert counts["2xx"] > 5
    assert counts["4xx"] > 40


def test_the_attacks_are_those_of_the_seed_and_what_is_wrong_is_seen() -> None:
    assert list(attacks(3, 20, "token")) == list(attacks(3, 20, "token")) != list(attacks(4, 20, "token"))
    for status, body, kind in (
        (200, "{}", "2xx"),
        (422, "{}", "4xx"),
        (500, "{}", "5xx"),
        (503, "{}", "503"),
        (422, "Traceback", "leak"),
        (404, f"{Path.cwd()}/x", "leak"),
    ):
        assert classified(status, body)[0] == kind
