"""Memory that runs out in a step halves the microbatch: the step is taken again, and nothing else is learnt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console

from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import LarvatusError
from larvatus.models.network import Network
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import Update
from larvatus.training.pretraining.checkpoint import newest_checkpoint
from larvatus.training.pretraining.step import Stepper
from tests.training.engine.test_step import NO_DROPOUT, batch_of, stepper, weights

LENGTHS = [30, 7, 12, 25, 9, 31, 4, 20]


@contextmanager
def room_for(
    tokens: int, *, begin: int = 0, error: type[Exception] = torch.OutOfMemoryError, kill: int | None = None
) -> Iterator[None]:
    """From step `begin` on, a pass over more tokens finds no memory, and some gradients were added by then.

    At step `kill` all ends.
    """
    now, call, forward = [0], Update.__call__, Network.forward

    def limited(network: Network, batch: TrainingBatch[Any], **more: Any) -> Any:
        losses = forward(network, batch, **more)
        if network.training and now[0] >= begin and len(batch.tokens.ids) > tokens:
            losses["masked-lm"].total.backward()
            raise error("out of memory")
        return losses

    def counted(update: Update, *given: Any, step: int, **more: Any) -> Any:
        now[0] = step
        if step == kill:
            raise InterruptedError
        return call(update, *given, step=step, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Network, "forward", limited)
        patch.setattr(Update, "__call__", counted)
        yield


def steps(trained: Stepper, first: int, last: int) -> list[dict[str, float]]:
    return [trained(batch_of(LENGTHS, seed=step), step=step, rate=1e-3, limit=48).losses for step in range(first, last)]


def same(one: Stepper, other: Stepper) -> bool:
    return all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(one).items())


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_a_run_out_of_memory_at_once_equals_one_with_the_smaller_microbatch(
    small_recipe: Any, error: type[Exception]
) -> None:
    recipe, said = small_recipe("model.dropout=0.3"), []
    short, given = stepper(recipe, microbatch=72), stepper(recipe, microbatch=36)
    short.update.warn = said.append
    with room_for(50, error=error):
        losses = steps(short, 0, 3)
    assert losses == steps(given, 0, 3)
    assert same(short, given)
    assert short.update.lowered == 36
    (line,) = said
    assert line.startswith("step 1: memory ran out with 72 tokens at once; the step is taken again")
    assert line.endswith("with 36 (--microbatch 36 begins so)")


def test_a_run_out_of_memory_later_equals_one_that_was_told_so_there(small_recipe: Any) -> None:
    recipe = small_recipe("model.dropout=0.3")
    short, told = stepper(recipe, microbatch=72), stepper(recipe, microbatch=72)
    with room_for(50, begin=2):
        losses = steps(short, 0, 4)
    assert losses[:2] == steps(told, 0, 2)
    told.update.lower(36)
    assert losses[2:] == steps(told, 2, 4)
    assert same(short, told)


def test_without_dropout_it_agrees_with_the_larger_microbatch_to_rounding(small_recipe: Any) -> None:
    recipe = small_recipe(*NO_DROPOUT)
    short, large = stepper(recipe, microbatch=72), stepper(recipe, microbatch=72)
    with room_for(40):
        losses = steps(short, 0, 3)
    for mine, theirs in zip(losses, steps(large, 0, 3), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)
    assert short.update.microbatch == 36


def test_a_microbatch_larger_than_the_step_is_halved_until_it_cuts_it(small_recipe: Any) -> None:
    short = stepper(small_recipe(), microbatch=16_384)
    with room_for(80):
        steps(short, 0, 1)
    assert short.update.microbatch == 128


def test_where_one_sequence_is_too_much_the_fault_comes_through(small_recipe: Any) -> None:
    recipe = small_recipe()
    short = stepper(recipe, microbatch=72)
    before = weights(short)
    with room_for(2), pytest.raises(torch.OutOfMemoryError):
        steps(short, 0, 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(short).items())


def test_a_fault_of_another_kind_is_not_taken_for_it(small_recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    short = stepper(small_recipe(), microbatch=72)
    monkeypatch.setattr(short, "_share", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        steps(short, 0, 1)
    assert short.update.lowered is msgspec.UNSET


def test_a_checkpoint_remembers_and_a_resumed_run_ends_bit_equal(run_small: Any, tmp_path: Any) -> None:
    said, asked = StringIO(), {"steps": 4, "runtime": Runtime(microbatch=400), "save_every": 2}
    with room_for(200, begin=1):
        run_small("whole", console=Console(file=said, width=200), **asked)
    with room_for(200, begin=1, kill=3), pytest.raises(InterruptedError):
        run_small("killed", **asked)
    assert "memory ran out with 400 tokens at once" in said.getvalue()
    checkpoint = newest_checkpoint(tmp_path / "killed", print)
    assert checkpoint is not None
    assert (checkpoint.state.progress.step, checkpoint.state.progress.microbatch) == (2, 200)
    assert checkpoint.made.microbatch == 400  # what was asked for: a resume that asks for the same is warned of nothing
    run_small("killed", resume=True, **asked)  # with memory enough, all the same in smaller parts
    name = "model.safetensors"
    assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_memory_that_runs_out_for_good_is_one_line(run_small: Any) -> None:
    with room_for(2), pytest.raises(LarvatusError, match="memory ran out; lower --microbatch"):
        run_small("small", runtime=Runtime(microbatch=400))
