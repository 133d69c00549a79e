"""A step never asks its device for a number: on a GPU the host would wait for all that was launched before.

Here on a CPU: every operation that makes a GPU's host wait is refused while a step is launched. What lies in groups of
one length on a CPU is planned on the host (`models/nn/attention/layout.py`); on CUDA in half precision it is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import OrderLabels, PairLabels, add_text_targets
from larvatus.data.corruption import MaskVocabulary, corrupt
from larvatus.models.nn.attention.layout import GroupedLayout
from larvatus.models.recipes import read_recipe
from tests.shared import SMALL
from tests.training.engine.test_step import stepper

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")


class Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        assert not name.startswith(WAITING), f"{func} waits for the device"
        if name in ("index", "index_put", "index_put_"):
            assert not any(t is not None and t.dtype == torch.bool for t in args[1]), f"{func} by a mask waits"
        if name == "repeat_interleave":
            assert kwargs.get("output_size") is not None, f"{func} without its size waits"
        return func(*args, **kwargs)


def batch_for(recipe: Any) -> TrainingBatch[Any]:
    random = np.random.default_rng(0)
    lengths = [30, 7, 12, 25, 9]
    tokens = TokenBatch.of(
        [[1, *random.integers(5, 50, n).tolist(), 2] for n in lengths],
        words=[[-1, *range(n), -1] for n in lengths],
    )
    labels = random.integers(0, 2, len(lengths))
    batch = TrainingBatch(tokens, {PairLabels: PairLabels(labels=labels), OrderLabels: OrderLabels(labels=labels)})
    batch = add_text_targets(batch, recipe.from_text)
    if recipe.corruption is None:
        return batch
    known = MaskVocabulary(mask_id=3, size=50, special_ids={0, 1, 2, 3}, counts=np.arange(50))
    items = np.arange(len(lengths))
    return corrupt(batch, recipe.corruption, vocabulary=known, seed=1, epoch=0, items=items)


@pytest.mark.parametrize("name", ["bert", "modern", "electra", "spanbert", "albert", "gpt"])
def test_a_step_is_launched_without_waiting_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    phases = len(read_recipe(name).phases)
    settings = [s for s in SMALL if not s.startswith("phases") or int(s[7]) < phases]
    recipe = read_recipe(name, settings=[*settings, "model.dropout=0.1", "model.attention_dropout=0.1"])
    steps = stepper(recipe, microbatch=40)
    ready = [steps.prepare(batch_for(recipe), limit=32) for _ in range(2)]
    steps.launch(ready[0], step=0, rate=1e-3).check()  # the optimizer makes its moments

    planned = GroupedLayout.of

    def of(lengths: Any) -> GroupedLayout:
        with torch.utils._python_dispatch._disable_current_modes():
            layout: GroupedLayout = planned(lengths)
        return layout

    monkeypatch.setattr(GroupedLayout, "of", staticmethod(of))

    def waits(*args: object, **kwargs: object) -> Any:
        raise AssertionError("the host reads a tensor")

    with Refusing(), monkeypatch.context() as patched:
        for method in ("item", "tolist", "__bool__", "__int__", "__float__"):
            patched.setattr(torch.Tensor, method, waits)
        report = steps.launch(ready[1], step=1, rate=1e-3)
    report.check()


def test_what_waits_is_seen() -> None:
    x = torch.arange(3)
    for work in (lambda: x[x > 1], lambda: int(x.max()), lambda: x.nonzero(), lambda: x.repeat_interleave(x)):
        with pytest.raises(AssertionError, match="waits"), Refusing():
            work()
