"""Losses of classification against loops in float64; pooling against each sequence by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import UsageError
from larvatus.core.targets import ClassTargets
from larvatus.models.heads import Classification, ClassificationConfig
from larvatus.models.nn import TransformerConfig

SHAPE = TransformerConfig(layers=1, hidden=8, heads=2, max_positions=16)
LENGTHS = [3, 1, 7, 2, 5]
KNOWN = ("a", "b", "c")
SHARES = np.array([1.0, 1.0, 0.5, 0.5, 1.0])  # the third and fourth are windows of one text


def head(**settings: Any) -> Classification:
    torch.manual_seed(2)
    config = ClassificationConfig(**{"labels": KNOWN, "dropout": 0.0, **settings})
    built = Classification(config, SHAPE).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(std=0.7)
    return built


def batch(labels: np.ndarray) -> TrainingBatch[Any]:
    tokens = TokenBatch.of([[0] * length for length in LENGTHS])
    targets = ClassTargets(labels=labels, weights=SHARES.astype(np.float32))
    return TrainingBatch(tokens=tokens, targets={ClassTargets: targets}).map(torch.from_numpy)


def states() -> torch.Tensor:
    return torch.randn(sum(LENGTHS), 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def softmax(row: list[float]) -> list[float]:
    top = max(row)
    return [math.exp(x - top) / sum(math.exp(y - top) for y in row) for x in row]


@pytest.mark.parametrize("weights", [(), (1.0, 4.0, 0.25)])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("focal", [0.0, 0.5, 2.0])
def test_classes(focal: float, smoothing: float, weights: tuple[float, ...]) -> None:
    """(1 − p_y)^γ × −Σ_k q_k log p_k, q smoothed, each text weighted by its class; and the sum of those weights."""
    own = head(focal=focal, smoothing=smoothing, class_weights=weights)
    labels = np.array([2, 0, 1, 1, 2])
    given = batch(labels)
    total = size = 0.0
    for scores, label, share in zip(own.scores(states(), given).tolist(), labels.tolist(), SHARES, strict=True):
        p = softmax(scores)
        wanted = [(1 - smoothing) * (k == label) + smoothing / 3 for k in range(3)]
        loss = -sum(q * math.log(x) for q, x in zip(wanted, p, strict=True))
        counts = share * (weights[label] if weights else 1.0)
        total += counts * (1 - p[label]) ** focal * loss
        size += counts
    found = own.loss(states(), given, None, accuracy=True)  # type: ignore[arg-type]
    assert found.total.item() == pytest.approx(total, rel=1e-9)
    assert found.count.item() == pytest.approx(size)
    assert own.size(given) == pytest.approx(size)


@pytest.mark.parametrize("weights", [(), (1.0, 4.0, 0.25)])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("focal", [0.0, 2.0])
def test_several_labels(focal: float, smoothing: float, weights: tuple[float, ...]) -> None:
    """A yes or no for each label, smoothed towards a half; a yes weighted."""
    own = head(kind="multi-label", focal=focal, smoothing=smoothing, class_weights=weights)
    labels = np.array([[0, 1, 1], [0, 0, 0], [1, 1, 1], [1, 0, 0], [0, 0, 1]], dtype=np.float32)
    given = batch(labels)
    total = 0.0
    for scores, row, share in zip(own.scores(states(), given).tolist(), labels.tolist(), SHARES, strict=True):
        for k, (score, yes) in enumerate(zip(scores, row, strict=True)):
            p = 1 / (1 + math.exp(-score))
            soft = yes * (1 - smoothing) + smoothing / 2
            loss = -(soft * (weights[k] if weights else 1.0) * math.log(p) + (1 - soft) * math.log(1 - p))
            total += share * (1 - (p if yes else 1 - p)) ** focal * loss / 3
    found = own.loss(states(), given, None)  # type: ignore[arg-type]
    assert found.total.item() == pytest.approx(total, rel=1e-6)
    assert own.size(given) == pytest.approx(4.0)


def test_a_number() -> None:
    own = head(kind="regression", labels=("value",))
    labels = np.array([0.5, -1.0, 3.0, 3.0, 2.0], dtype=np.float32)
    given = batch(labels)
    scores = own.scores(states(), given)[:, 0].tolist()
    total = sum(share * (score - wanted) ** 2 for score, wanted, share in zip(scores, labels, SHARES, strict=True))
    assert own.loss(states(), given, None).total.item() == pytest.approx(total)  # type: ignore[arg-type]
    assert_close(own.probabilities(torch.tensor([[3.5]])), torch.tensor([[3.5]]))


@pytest.mark.parametrize("pool", ["cls", "mean", "max"])
def test_pooling(pool: str) -> None:
    z_ND = states()
    found = head(pool=pool).features(z_ND, batch(np.zeros(5, np.int64)))
    for x_D, z_LD in zip(found, torch.split(z_ND, LENGTHS), strict=True):
        assert_close(x_D, {"cls": z_LD[0], "mean": z_LD.mean(0), "max": z_LD.amax(0)}[pool])


def test_the_chapters_classifier_is_one_product() -> None:
    """Eq. 11.13: y = softmax(W_C z_CLS)."""
    own = head(dense="none")
    z_ND = states()
    found = own.probabilities(own.scores(z_ND, batch(np.zeros(5, np.int64)))).tolist()
    matrix, bias = own.classifier.weight.tolist(), own.classifier.bias.tolist()
    for row, z_LD in zip(found, torch.split(z_ND, LENGTHS), strict=True):
        z = z_LD[0].tolist()
        naive = softmax(
            [sum(w * x for w, x in zip(line, z, strict=True)) + b for line, b in zip(matrix, bias, strict=True)]
        )
        assert row == pytest.approx(naive)


@pytest.mark.parametrize("kind", ["multi-class", "multi-label"])
def test_the_gradient_of_the_focal_loss_is_finite_where_the_model_is_sure(kind: str) -> None:
    own = head(kind=kind, focal=0.5).float()
    labels = np.zeros(5, np.int64) if kind == "multi-class" else np.tile([1.0, 0.0, 0.0], (5, 1)).astype(np.float32)
    with torch.no_grad():
        own.classifier.weight.zero_()
        own.classifier.bias.copy_(torch.tensor([90.0, -90.0, -90.0]))  # p is 1 to the last bit
    own.loss(states().float(), batch(labels), None).total.backward()  # type: ignore[arg-type]
    assert all(torch.isfinite(p.grad).all() for p in own.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    "settings",
    [
        {"labels": ("one",)},
        {"labels": ("a", "a")},
        {"class_weights": (1.0,)},
        {"class_weights": (1.0, -1.0, 1.0)},
        {"focal": -1.0},
        {"smoothing": 1.0},
        {"kind": "regression"},
        {"kind": "regression", "labels": ("value",), "smoothing": 0.1},
        {"temperature": 0.0},
        {"mix": True, "pool": "max"},
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ClassificationConfig(**{"labels": KNOWN, **settings})
