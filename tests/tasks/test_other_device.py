"""Training, validation and prediction of trees, clusters and roles, with the head on another device than the host.

A machine without a GPU cannot run CUDA; `tests/models/other_device.py` fails where CUDA would.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.data.labelled.trees import read_trees
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.head import Head
from larvatus.models.nn.device import on_device
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.registry import get_task, parse_options
from larvatus.tasks.scoring import ScoringOptions, head_of, loss_of
from larvatus.tasks.trainer.config import FineTuneArguments
from tests.models.other_device import DEVICE, AwayTensor, OtherDevice, moved_away, no_autocast
from tests.tasks.coref_documents import documents
from tests.tasks.parse.treebank import treebank
from tests.tasks.roles.made_frames import made_frames

TEXT = TextExample("the river was wide . your homework pushed bob .", None, None, Place("made", 1))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherDevice]:
    """The other device, for heads; an encoder stays on the host, and gives its vectors there."""
    states = Head.states

    def encoded(head: Head, encoder: Any, tokens: Any, *, limit: int | None = None) -> torch.Tensor:
        if next(head.parameters()).device != DEVICE:
            return states(head, encoder, tokens, limit=limit)
        here = tokens.map(lambda array: array.numbers if isinstance(array, AwayTensor) else array)
        z = AwayTensor(states(head, encoder, here, limit=limit).detach())
        return z.requires_grad_(torch.is_grad_enabled())

    monkeypatch.setattr(Head, "states", encoded)
    monkeypatch.setattr(torch, "autocast", no_autocast(torch.autocast))
    with OtherDevice() as other:
        yield other


def examples_of(task: str, folder: Path) -> Any:
    if task == "parse":
        return read_trees(str(treebank(folder / "trees.conllu", 8)))
    return made_frames() if task == "roles" else Dataset(tuple(documents(4, singletons=True)), "made.jsonl")


HOST_CRF = {"models/heads/roles.py", "models/nn/crf.py", "outside"}  # sums over tags are computed on the host
SPANS = {"models/heads/roles.py", "models/nn/span_scorer.py"}


@pytest.mark.parametrize(
    ("name", "options", "waits"),
    [
        ("parse", {}, set()),
        ("coref", {"mentions": 0.8}, set()),
        ("roles", {"decoder": "crf"}, HOST_CRF),
        ("roles", {"decoder": "viterbi", "lstm": 8}, {"models/nn/lstm.py"}),
        ("roles", {"decoder": "spans"}, SPANS),
        ("roles", {"one_by_one": True}, HOST_CRF),
    ],
)
def test_a_task_gives_the_same_on_another_device(name, options, waits, device, tiny_directory, tmp_path):
    bundle, task, train = load_bundle(tiny_directory), get_task(name), examples_of(name, tmp_path)
    args = FineTuneArguments(options=parse_options(name, {"dropout": 0.0, **options}, strict=True))
    data = task.prepare(bundle, train, train, args)
    tuned, _ = attach_head(bundle, data.head, seed=0)
    network, head = tuned.network, head_of(tuned.network)
    with torch.no_grad():  # new layers that are 0 would hide mistakes
        for parameter in head.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    batch = data.encoded.batch(np.arange(4))

    def step(where: torch.device | str) -> tuple[float, dict[str, float]]:
        loss = loss_of(network, on_device(batch, where), head, limit=32).total
        head.zero_grad()
        loss.backward()
        used = {name: p for name, p in head.named_parameters() if p.grad is not None}
        waited.update(line.partition(":")[0] for line in device.waits)
        return loss.item(), {name: p.grad.norm().item() for name, p in used.items()}

    def answers(scoring: ScoringOptions) -> tuple[Any, Any]:
        scores = data.validation.scores(network, scoring)
        return {**scores.values, "loss": scores.validation_loss}, task.predict(tuned, [TEXT], PredictOptions(), scoring)

    waited: set[str] = set()
    (loss, gradients), (scores, predictions) = step("cpu"), answers(ScoringOptions())
    moved_away(head)
    device.waits.clear()
    away_loss, away_gradients = step(DEVICE)
    assert away_loss == pytest.approx(loss, rel=1e-5)
    assert away_gradients == pytest.approx(gradients, rel=1e-3, abs=1e-4)
    assert waited - {"models/nn/device.py"} == waits  # which copies without a wait on CUDA
    away_scores, away_predictions = answers(ScoringOptions(device=DEVICE.type))
    assert away_scores == pytest.approx(scores, rel=1e-4)
    assert [str(each) for each in away_predictions] == [str(each) for each in predictions]


def test_the_device_refuses_what_a_gpu_refuses(device):
    x = torch.ones(3).to(DEVICE)
    assert (x + 1).sum().item() == 6
    assert x[torch.tensor([0, 2])].cpu().tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="operands on two devices"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="indexed by one on the device"):
        torch.ones(3)[x.long()]
    with pytest.raises((RuntimeError, TypeError)):
        x.numpy()
    assert sum(device.waits.values()) == 4  # the copy there, the number, the index, the copy back
