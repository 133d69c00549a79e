"""Steps that another thread prepares: the same losses and weights; the generator left alone where nothing is drawn."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.core.arrays import constant_array, is_constant
from larvatus.core.batch import NO_WORD, TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.models.nn.compiling import fill_batch
from larvatus.models.nn.device import on_device
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.step import unused_generator
from larvatus.training.pretraining.step import Stage, Staged
from tests.training.engine.test_step import NO_DROPOUT, batch_of, stepper, weights


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_step_that_another_thread_prepared_is_the_same_step(small_recipe: Any, dropout: float) -> None:
    recipe = small_recipe(f"model.dropout={dropout}", "model.attention_dropout=0.0")
    here, there = stepper(recipe, microbatch=32), stepper(recipe, microbatch=32)
    batches = [batch_of([30, 7, 12, 25, 9], seed=seed) for seed in range(3)]
    ready: list[Any] = []
    thread = threading.Thread(target=lambda: ready.extend(there.prepare(batch, limit=48) for batch in batches))
    thread.start()
    thread.join()
    for step, batch in enumerate(batches):
        a = here(batch, step=step, rate=1e-3, limit=48)
        b = there.launch(ready[step], step=step, rate=1e-3)
        assert (a.losses, a.gradient, a.tokens) == (b.losses, b.gradient, b.tokens)
    for name, tensor in weights(here).items():
        assert torch.equal(weights(there)[name], tensor)


def test_a_rank_prepares_its_own_microbatches_alone(small_recipe: Any) -> None:
    second = stepper(small_recipe(*NO_DROPOUT), microbatch=32, ranks=Ranks(1, 2))
    micros = second.prepare(batch_of([30, 30, 30, 30]), limit=48).micros
    assert [isinstance(micro, Staged) for micro in micros] == [item % 2 == 1 for item in range(len(micros))]
    assert len(micros) > 2


def test_a_step_can_be_cut_anew_after_it_was_prepared(small_recipe: Any) -> None:
    recipe = small_recipe(*NO_DROPOUT)
    whole, cut = stepper(recipe), stepper(recipe, microbatch=32)
    ready = whole.prepare(batch_of([30, 7, 12, 25, 9]), limit=48)
    assert ready.split(16_384) is ready.micros
    assert len(ready.split(32)) > 1
    expected = cut(ready.batch, step=0, rate=1e-3, limit=48)
    assert cut.launch(ready, step=0, rate=0.0).tokens == expected.tokens == 83


def test_the_generator_is_kept_where_something_is_drawn_and_left_alone_elsewhere(small_recipe: Any) -> None:
    assert stepper(small_recipe("model.dropout=0.1", "model.attention_dropout=0.0")).update.draws
    assert stepper(small_recipe("model.dropout=0.0", "model.attention_dropout=0.1")).update.draws
    quiet = stepper(small_recipe(*NO_DROPOUT))
    assert not quiet.update.draws
    before = torch.get_rng_state()
    quiet(batch_of([30, 7, 12]), step=0, rate=1e-3, limit=48)
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(AssertionError, match="drew random numbers"), unused_generator("cpu"):
        torch.rand(1)


def test_columns_of_a_single_number_stay_so_and_mean_the_same() -> None:
    tokens = TokenBatch.of([[5, 6, 7], [8, 9]])
    single = TokenBatch(
        ids=tokens.ids,
        lengths=tokens.lengths,
        positions=tokens.positions,
        segments=constant_array(0, 5),
        words=constant_array(NO_WORD, 5),
    )
    masked = {MaskedTokens: MaskedTokens(places=np.array([1]), ids=np.array([4]))}
    batch = TrainingBatch(tokens=single, targets=masked)
    for changed in (batch.cut(1, 2), TrainingBatch.join([batch, batch.cut(0, 1)]), _filled(batch)):
        assert is_constant(changed.tokens.segments)
        assert is_constant(changed.tokens.words)
        assert len(changed.tokens.segments) == len(changed.tokens.words) == changed.tokens.size
        moved = on_device(changed, "cpu")
        assert moved.tokens.segments.tolist() == [0] * changed.tokens.size
        assert moved.tokens.words.tolist() == [NO_WORD] * changed.tokens.size


def _filled(batch: TrainingBatch[Any]) -> TrainingBatch[Any]:
    return fill_batch(batch, tokens=8, sequences=4, targets=3, limit=3, pad_id=0)


def test_copies_run_on_a_stream_of_their_own_and_the_reader_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: which calls are made, in which order."""
    calls: list[str] = []

    class Stream:
        device = torch.device("cpu")

        def __init__(self, device: object = None) -> None:
            self.name = "copies" if device is not None else "steps"

        def record_event(self) -> str:
            calls.append(f"{self.name} recorded")
            return "arrived"

        def wait_event(self, event: str) -> None:
            calls.append(f"{self.name} wait: {event}")

        def __enter__(self) -> None:
            calls.append(f"on {self.name}")

        def __exit__(self, *fault: object) -> None:
            calls.append("back")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: calls.append(f"kept for {stream.name}"))
    staged = Stage("cuda")(batch_of([3, 4]))
    assert calls == ["on copies", "copies recorded", "back"]
    calls.clear()
    batch = staged.take()
    assert calls == ["steps wait: arrived", *["kept for steps"] * 8]
    assert batch.tokens.ids.tolist() == batch_of([3, 4]).tokens.ids.tolist()


def test_metrics_tell_how_long_each_step_waited_for_its_data(run_small: Any, tmp_path: Any) -> None:
    run_small("waits", steps=3)
    lines = [json.loads(line) for line in (tmp_path / "waits" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    assert len(steps) == 3
    assert all(line["wait"] >= 0 and 0 <= line["wait/share"] <= 1 for line in steps)
    assert steps[0]["wait"] > 0, "the first block is packed while it waits"
