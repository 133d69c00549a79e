"""Standardisers that a model was saved with: the server names them, which the studio offers, and uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient

import larvatus as lv
from larvatus.interfaces.serve.app import build_app
from larvatus.interfaces.serve.settings import ServeSettings
from tests.interfaces.serve.models import save_models

TEXTS = ["the *river* was wide", "a deep *river*", "the *bank* of the river"]


def test_a_standardiser_of_the_model_is_named_and_changes_cosines(
    tmp_path: Path, tiny_model: Any, save_tiny: Any
) -> None:
    directory = save_models(tmp_path, tiny_model, save_tiny, "plain")["plain"]
    text = tmp_path / "text.txt"
    text.write_text("the river was deep and wide .\nplease turn your homework in !\nthe bank of the river\n" * 4)
    lv.fit_standardiser(directory, str(text), name="z")
    model = lv.load(directory, device="cpu")
    plain = model.similarities(TEXTS).matrix
    standardised = model.similarities(TEXTS, standardise="z").matrix
    with TestClient(build_app([model], ServeSettings()), base_url="http://127.0.0.1") as client:
        (described,) = client.get("/v1/models").json()["models"]
        assert described["standardisers"] == ["z"]
        before = client.post("/v1/similar", json={"texts": TEXTS}).json()["cosines"]
        after = client.post("/v1/similar", json={"texts": TEXTS, "standardise": "z"}).json()["cosines"]
    np.testing.assert_allclose(before, plain, atol=2e-5)
    np.testing.assert_allclose(after, standardised, atol=2e-5)
    assert np.abs(plain - standardised).max() > 0.01
