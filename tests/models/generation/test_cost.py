"""More beams or samples than anybody waits for are refused before anything is computed, with what would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, save_tiny: Any, tiny_tokenizer: Any) -> Path:
    config = CausalTransformerConfig(layers=1, hidden=16, heads=2, max_positions=512)
    network = Network.build(config, [CausalLMConfig()], tiny_tokenizer.size, seed=1).eval()
    folder: Path = save_tiny(tmp_path_factory.mktemp("models") / "writer", network, [CausalLMConfig()])
    return folder


COSTLY = [
    ({"beams": 1_000, "max_tokens": 400}, "400,000 tokens for a prompt.* beams = 655, or max_tokens = 262"),
    ({"samples": 100_000}, "5,000,000 tokens for a prompt.* samples = 5,242, or max_tokens = 2"),
    ({"samples": 100_000, "max_tokens": 500}, "50,000,000 tokens"),
]


@pytest.mark.parametrize(("settings", "said"), COSTLY)
def test_what_takes_too_long_is_refused_in_python(
    directory: Path, settings: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = lv.load(directory, device="cpu")

    def never(*given: Any, **more: Any) -> None:
        raise AssertionError("a prompt was read")

    monkeypatch.setattr(type(model.encoder), "generation_state", never)
    with pytest.raises(UsageError, match=said):
        model.generate("the river", **settings)


def test_and_by_the_command(larvatus: Any, directory: Path) -> None:
    code, _, said = larvatus("generate", "the river", "--model", directory, "--beams", "1000", "--max-tokens", "400")
    assert code == 2
    assert "give beams = 655" in said
    code, _, said = larvatus("generate", "the river", "--model", directory, "--temperature", "1e-300")
    assert code == 2
    assert "at least 0.001" in said


def test_what_is_said_to_do_is_taken(directory: Path) -> None:
    model = lv.load(directory, device="cpu")
    assert len(model.generate("the river", samples=300, max_tokens=2)) == 300
    assert len(model.generate("the river", temperature=0.001, max_tokens=3)) == 1
