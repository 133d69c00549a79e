"""The span-boundary objective against its equations, written out token by token."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, SpanTargets
from larvatus.core.rng import stream
from larvatus.data.corruption import MaskVocabulary, SpanCorruptionConfig, corrupt
from larvatus.models.network import Network, ObjectiveConfig
from larvatus.models.nn import TransformerConfig, fill_batch, on_device
from larvatus.models.objectives import MaskedLMConfig, SpanBoundaryConfig

VOCABULARY = 60
MODEL = TransformerConfig(
    layers=2, hidden=16, heads=2, max_positions=64, segments=0, dropout=0.0, attention_dropout=0.0, init=0.3
)


def build(**options: int) -> Network:
    config = SpanBoundaryConfig(**{"place_size": 6, **options})
    return Network.build(MODEL, [MaskedLMConfig(), config], VOCABULARY, seed=4)


def make(lengths: tuple[int, ...] = (30, 12, 41), rate: float = 0.3) -> TrainingBatch[Ints]:
    draw = stream(3, "test span boundary")
    tokens = TokenBatch.of(
        [[1, *draw.integers(5, VOCABULARY, size=n).tolist(), 2] for n in lengths],
        words=[[-1, *range(n), -1] for n in lengths],
    )
    known = MaskVocabulary(mask_id=3, size=VOCABULARY, special_ids={0, 1, 2, 3, 4})
    config = SpanCorruptionConfig(rate=rate, replacement="uniform")
    batch = TrainingBatch(tokens=tokens, targets={})
    return corrupt(batch, config, vocabulary=known, seed=1, epoch=0, items=np.arange(len(lengths)))


def normed(x: list[float], norm: torch.nn.LayerNorm) -> list[float]:
    mean = math.fsum(x) / len(x)
    variance = math.fsum((v - mean) ** 2 for v in x) / len(x)
    scale, shift = norm.weight.tolist(), norm.bias.tolist()
    return [(v - mean) / math.sqrt(variance + norm.eps) * a + b for v, a, b in zip(x, scale, shift, strict=True)]


def layer(x: list[float], linear: torch.nn.Linear, norm: torch.nn.LayerNorm) -> list[float]:
    rows, bias = linear.weight.tolist(), linear.bias.tolist()
    sums = [math.fsum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(rows, bias, strict=True)]
    return normed([s * 0.5 * (1 + math.erf(s / math.sqrt(2))) for s in sums], norm)


def test_eq_11_18_to_11_20_span_boundary_loss_equals_the_loop_over_hidden_tokens() -> None:
    model, batch = build().double(), make()
    head, spans = model.objectives["span-boundary"], batch.targets[SpanTargets]
    with torch.no_grad():
        draw = torch.Generator().manual_seed(0)
        for parameter in head.parameters():  # norms and biases too, or they could be left out unseen
            parameter.add_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64) * 0.3)
        loss = model(on_device(batch, "cpu"), accuracy=True)["span-boundary"]
        z = model.encoder(on_device(batch.tokens, "cpu")).tolist()
    embeddings, places, bias = model.encoder.embeddings.words.weight.tolist(), head.places.weight, head.bias.tolist()
    losses, right = [], 0
    hidden = batch.targets[MaskedTokens].places.tolist()
    for i, word in zip(hidden, batch.targets[MaskedTokens].ids.tolist(), strict=True):
        k = hidden.index(i)
        s, e = int(spans.left[k]) + 1, int(spans.right[k]) - 1
        assert s <= i <= e
        x = z[s - 1] + z[e + 1] + places[i - s].tolist()  # p_1 is the first row
        s_i = layer(layer(x, head.inner, head.inner_norm), head.outer, head.outer_norm)
        scores = [
            math.fsum(a * b for a, b in zip(row, s_i, strict=True)) + c for row, c in zip(embeddings, bias, strict=True)
        ]
        losses.append(-math.log(math.exp(scores[word]) / math.fsum(map(math.exp, scores))))
        right += scores[word] == max(scores)
    assert int(loss.count) == len(losses) == spans.count > 20
    assert float(loss.mean) == pytest.approx(math.fsum(losses) / len(losses), rel=1e-10)
    assert int(loss.correct) == right


def test_eq_11_17_the_loss_of_a_step_is_the_sum_of_both() -> None:
    model, batch = build(), make()
    count = batch.targets[SpanTargets].count
    total, losses = model.loss(on_device(batch, "cpu"), {"masked-lm": count, "span-boundary": count})
    assert list(losses) == ["masked-lm", "span-boundary"]
    assert_close(total, losses["masked-lm"].mean + losses["span-boundary"].mean)


def test_hidden_tokens_are_seen_through_the_edges_alone() -> None:
    model, batch = build(), make()
    spans = on_device(batch, "cpu").targets[SpanTargets]
    z_ND = torch.randn(batch.tokens.size, 16, generator=torch.Generator().manual_seed(1)).requires_grad_()
    words = model.encoder.embeddings.words.weight
    model.objectives["span-boundary"](z_ND, spans, words).total.backward()
    touched = set(torch.nonzero(z_ND.grad.abs().sum(-1)).flatten().tolist())
    assert touched == {*spans.left.tolist(), *spans.right.tolist()}


def test_places_beyond_the_last_share_its_row() -> None:
    head = build(places=3).objectives["span-boundary"]
    z_ND = torch.randn(9, 16, generator=torch.Generator().manual_seed(1))
    zeros = torch.zeros(5, dtype=torch.int64)
    targets = SpanTargets(left=zeros, right=zeros + 8, place=torch.arange(5), ids=zeros)
    s_MD = head.represent(z_ND, targets)
    assert_close(s_MD[2], s_MD[3])
    assert_close(s_MD[2], s_MD[4])
    assert not torch.allclose(s_MD[1], s_MD[2])


@pytest.mark.parametrize(("tokens", "sequences", "targets"), [(160, 9, 64), (89, 3, 30)])
def test_a_batch_filled_to_fixed_totals_has_the_same_losses_and_gradients(
    tokens: int, sequences: int, targets: int
) -> None:
    model, batch = build(), make()
    count = batch.targets[SpanTargets].count
    filled = fill_batch(batch, tokens=tokens, sequences=sequences, targets=targets, limit=64, pad_id=0)
    grown = filled.targets[SpanTargets]
    assert {len(a) for a in (grown.left, grown.right, grown.place, grown.ids)} == {targets}
    found = []
    for step in (batch, filled):
        model.zero_grad()
        total, losses = model.loss(on_device(step, "cpu"), {"masked-lm": count, "span-boundary": count})
        assert int(losses["span-boundary"].count) == count
        total.backward()
        found.append([total.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    assert_close(*found, rtol=1e-4, atol=1e-6)


def test_targets_cut_and_joined_are_the_same_and_point_at_the_same_tokens() -> None:
    batch = make((30, 12, 41, 9, 25))
    parts = list(batch.cuts(45))
    assert len(parts) > 2
    joined = TrainingBatch.join(parts).targets[SpanTargets]
    for name in ("left", "right", "place", "ids"):
        assert np.array_equal(getattr(joined, name), getattr(batch.targets[SpanTargets], name))
    for part in parts:
        spans = part.targets[SpanTargets]
        assert np.array_equal(spans.left + 1 + spans.place, part.targets[MaskedTokens].places)
        assert spans.count == 0 or 0 <= spans.left.min() <= spans.right.max() < part.tokens.size


def test_everything_is_initialised_and_misplaced_settings_are_refused() -> None:
    head = build().objectives["span-boundary"]
    assert 0.2 < head.places.weight.std().item() < 0.35  # init = 0.3, cut at 2σ
    assert head.inner_norm.weight.tolist() == [1.0] * 16
    assert not head.bias.any()
    assert msgspec.convert({"type": "span-boundary"}, ObjectiveConfig) == SpanBoundaryConfig(place_size=200)
    for wrong, says in (
        ({"weight": -1}, "weight = -1"),
        ({"place_size": 0}, "place_size = 0"),
        ({"places": 0}, "places"),
    ):
        with pytest.raises(RecipeError, match=says):
            msgspec.convert({"type": "span-boundary", **wrong}, ObjectiveConfig)
