"""A memory budget asks for activation checkpointing, which changes nothing of what is learnt."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from larvatus.core.errors import UsageError
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.plan import expected_bytes, memory_budget, must_recompute


def test_a_run_that_computes_layers_again_saves_the_same_bytes(run_small: Any, tmp_path: Any) -> None:
    said = StringIO()
    for word in ("never", "always"):
        runtime = Runtime(activation_checkpointing=word, microbatch=300)
        run_small(word, settings=["model.layers=2"], runtime=runtime, console=Console(file=said, width=300))
    name = "model.safetensors"
    assert (tmp_path / "always" / name).read_bytes() == (tmp_path / "never" / name).read_bytes()
    assert said.getvalue().count("layers computed again in the backward pass") == 1


def test_layers_are_computed_again_where_the_budget_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("larvatus.training.pretraining.plan.memory_of", lambda device: 1 << 40)
    recipe = read_recipe("bert", size="base")
    expected = expected_bytes(recipe, Runtime(), 30_522)
    assert 4e9 < expected < 40e9  # 110M parameters at 16 bytes, and 16,384 tokens of 12 layers
    plenty, short = (Runtime(memory=factor * expected / 1e9) for factor in (2, 0.5))
    assert [must_recompute(recipe, runtime, 30_522) for runtime in (plenty, short)] == [False, True]
    assert memory_budget(short) == round(0.5 * expected)
    assert memory_budget(Runtime(memory=1e6)) == memory_budget(Runtime())  # no more than there is
    assert not must_recompute(recipe, Runtime(memory=1e-3, activation_checkpointing="never"), 30_522)
    fewer = Runtime(memory=0.5 * expected / 1e9, microbatch=1_024)
    assert not must_recompute(recipe, fewer, 30_522)


@pytest.mark.parametrize("given", [{"activation_checkpointing": "sometimes"}, {"memory": 0.0}])
def test_what_is_no_setting_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Runtime(**given)
