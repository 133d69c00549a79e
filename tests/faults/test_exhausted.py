"""Row 78: memory or files exhausted all the same: one line with what to lower, and what was saved stays."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from larvatus.core.errors import ArtefactError, LarvatusError, RecipeError, UsageError
from larvatus.core.files import write_text
from larvatus.models.nn.device import check_fits, explain_out_of_memory, format_bytes, memory_of
from larvatus.models.recipes import read_recipe, recipe_names
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.plan import check_memory


@contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def test_78_memory_that_runs_out_is_one_line_with_what_to_lower() -> None:
    with (
        pytest.raises(LarvatusError, match="memory ran out; lower --microbatch") as caught,
        explain_out_of_memory("lower --microbatch"),
    ):
        torch.empty(1 << 50)
    assert caught.value.exit_code == 1  # as docs/commands.md says, whichever command it is
    with pytest.raises(LarvatusError, match="memory ran out"), explain_out_of_memory("lower it"):
        bytearray(1 << 60)
    with (
        pytest.raises(RuntimeError, match="shape"),
        explain_out_of_memory("lower it"),
    ):  # no other fault is taken for it
        torch.ones(2).view(3)


def test_78_an_address_space_that_is_limited_is_all_there_is() -> None:
    with limited(resource.RLIMIT_AS, 1 << 46):
        assert memory_of("cpu") <= 1 << 46
    with pytest.raises(UsageError, match="a beam needs at least"):
        check_fits(memory_of("cpu") + 1, "cpu", what="a beam", lower="lower --beam")
    check_fits(memory_of("cpu"), "cpu", what="a beam", lower="lower --beam")
    assert format_bytes(3 * 10**15) == "3 PB"


def test_77_only_what_certainly_cannot_fit_is_refused() -> None:
    """The lower bound of weights lies below what torch allocates, for every published system."""
    from larvatus.models.network import Network

    for name in recipe_names():
        recipe = read_recipe(name, size="small")
        with torch.device("meta"):
            model = Network(recipe.model, recipe.objectives, 30_000)
        real = sum(parameter.numel() for parameter in model.parameters())
        assert 0.8 * real < recipe.model.least_weights(30_000) <= real
        check_memory(read_recipe(name, size="tiny"), Runtime(), 30_000)
    huge = read_recipe("bert", settings=["model.layers=10000", "model.hidden=98304"])
    with pytest.raises(RecipeError, match=r"more than the .* of memory here; lower model.layers"):
        check_memory(huge, Runtime())


def test_78_a_file_that_may_not_grow_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_text(path, "old")
    with limited(resource.RLIMIT_FSIZE, 1_000), pytest.raises(ArtefactError, match=r"state.json .*ulimit -f"):
        write_text(path, "new" * 10_000)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]
