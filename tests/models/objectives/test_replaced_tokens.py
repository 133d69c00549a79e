"""Replaced-token detection: samples follow the generator's softmax, and losses and gradients are those of ELECTRA."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.testing import assert_close
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens, ReplacedTokens
from larvatus.core.rng import stream
from larvatus.data.corruption import MaskVocabulary, SampledConfig, corrupt
from larvatus.models.network import Network, ObjectiveConfig, generator_config
from larvatus.models.nn import TransformerConfig, fill_batch, on_device
from larvatus.models.objectives import MaskedLMConfig, ReplacedTokensConfig, weighted_sum
from larvatus.models.objectives.linear_cross_entropy import (
    inverse_cdf,
    linear_cross_entropy,
    linear_cross_entropy_and_samples,
)
from larvatus.models.objectives.replaced_tokens import replace_tokens
from tests.models.objectives.their_names import named_tensors, their_sizes

VOCABULARY = 60
MODEL = TransformerConfig(
    layers=2, hidden=16, heads=2, embedding=12, max_positions=64, dropout=0.0, attention_dropout=0.0, init=0.3
)
OBJECTIVES = (MaskedLMConfig(), ReplacedTokensConfig(generator=0.5))


def build(model: TransformerConfig = MODEL, objectives: tuple[ObjectiveConfig, ...] = OBJECTIVES) -> Network:
    made = Network.build(model, objectives, VOCABULARY, seed=4)
    draw = stream(9, "test biases")
    with torch.no_grad():  # so that biases and norms are tested too
        for parameter in made.parameters():
            if parameter.ndim < 2:
                parameter.add_(torch.from_numpy(draw.normal(scale=0.1, size=parameter.shape)))
    return made


def make(lengths: tuple[int, ...] = (30, 12, 41), rate: float = 0.3) -> TrainingBatch[Ints]:
    draw = stream(3, "test replaced tokens")
    tokens = TokenBatch.of(
        [[1, *draw.integers(5, VOCABULARY, size=n).tolist(), 2] for n in lengths],
        segments=[[int(i > n // 2) for i in range(n + 2)] for n in lengths],
        words=[[-1, *range(n), -1] for n in lengths],
    )
    known = MaskVocabulary(mask_id=3, size=VOCABULARY, special_ids={0, 1, 2, 3, 4})
    batch = TrainingBatch(tokens=tokens, targets={})
    return corrupt(batch, SampledConfig(rate=rate), vocabulary=known, seed=1, epoch=0, items=np.arange(len(lengths)))


def counts_of(batch: TrainingBatch[Ints]) -> dict[str, float]:
    return {"masked-lm": batch.targets[MaskedTokens].count, "replaced-tokens": batch.targets[ReplacedTokens].count}


# — samples —


def test_samples_follow_the_softmax() -> None:
    """χ² of 200,000 samples of one distribution, with draws as a corruption makes them."""
    logits_V = torch.from_numpy(stream(1, "test softmax").normal(size=50)).float()
    bits = stream(2, "test bits").integers(0, 1 << 32, size=200_000)
    found = inverse_cdf(logits_V.softmax(-1).expand(len(bits), -1), torch.from_numpy(bits))
    expected = logits_V.double().softmax(-1).numpy() * len(bits)
    observed = np.bincount(found.numpy(), minlength=50)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 0.001


@settings(max_examples=60)
@given(
    weights=st.lists(st.integers(0, 5), min_size=1, max_size=30).filter(any),
    bits=st.integers(0, (1 << 32) - 1),
)
def test_a_sample_is_the_first_whose_sum_exceeds_the_draw_and_never_an_impossible_one(
    weights: list[int], bits: int
) -> None:
    found = int(inverse_cdf(torch.tensor([weights], dtype=torch.float32), torch.tensor([bits])))
    u = (bits >> 8) / (1 << 24) * sum(weights)
    assert found == next(v for v in range(len(weights)) if sum(weights[: v + 1]) > u)
    assert weights[found] > 0


@pytest.mark.usefixtures("chunks_of_64_rows")
@pytest.mark.parametrize("grad", [True, False])
def test_loss_and_samples_share_chunks_and_neither_changes_the_other(grad: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    h, w, b = (torch.randn(size, generator=draw) for size in ((150, 8), (37, 8), (37,)))
    ids, bits = torch.randint(0, 37, (150,), generator=draw), torch.randint(0, 1 << 32, (150,), generator=draw)
    ids[::7] = -100
    leaves = [t.requires_grad_(grad) for t in (h, w, b)]
    total, right, samples = linear_cross_entropy_and_samples(*leaves, ids, bits, accuracy=True)
    plain, plain_right = linear_cross_entropy(*leaves, ids, accuracy=True)
    assert_close((total, right), (plain, plain_right))
    assert not samples.requires_grad
    sums = F.linear(h, w, b).double().softmax(-1).cumsum(-1)
    wanted = [int((row <= (int(bit) >> 8) / (1 << 24)).sum()) for row, bit in zip(sums, bits, strict=True)]
    assert samples.tolist() == wanted
    if grad:
        assert_close(torch.autograd.grad(total, leaves), torch.autograd.grad(plain, leaves))


def test_samples_depend_on_the_sequence_alone_not_on_the_batch() -> None:
    model, batch = build().eval(), make((30, 12, 41, 9, 25))
    assert model.generator is not None
    with torch.no_grad():
        whole = model.generator.sample(on_device(batch, "cpu"))[1]
        cut = [model.generator.sample(on_device(part, "cpu"))[1] for part in batch.cuts(45)]
    assert len(cut) > 2
    assert torch.equal(torch.cat(cut), whole)
    assert len(set(whole.tolist())) > 10


# — what the encoder reads —


def test_hidden_tokens_become_samples_and_a_sample_that_hits_is_no_replacement() -> None:
    batch = on_device(make(), "cpu")
    masked = batch.targets[MaskedTokens]
    samples = (masked.ids + 1).remainder(VOCABULARY)
    samples[::3] = masked.ids[::3]
    out = replace_tokens(batch, samples)
    original = batch.tokens.ids.clone()
    original[masked.places] = masked.ids
    labels = out.targets[ReplacedTokens].labels
    assert torch.equal(out.tokens.ids[masked.places], samples)
    assert torch.equal(labels, (out.tokens.ids != original).long())
    assert 0 < int(labels.sum()) < len(samples)
    assert 3 not in out.tokens.ids  # no mask is left for the encoder to see


@pytest.mark.parametrize(("tokens", "sequences", "targets"), [(160, 9, 64), (89, 3, 40)])
def test_a_batch_filled_to_fixed_totals_has_the_same_losses_and_gradients(
    tokens: int, sequences: int, targets: int
) -> None:
    model, batch = build(), make()
    filled = fill_batch(batch, tokens=tokens, sequences=sequences, targets=targets, limit=64, pad_id=0)
    found = []
    for step in (batch, filled):
        model.zero_grad()
        losses = model(on_device(step, "cpu"), accuracy=True)
        assert {n: int(loss.count) for n, loss in losses.items()} == counts_of(batch)
        total = weighted_sum(losses, counts_of(batch))
        total.backward()
        sums = [losses["replaced-tokens"].correct, losses["replaced-tokens"].positive]
        found.append([total.detach(), *sums, *(parameter.grad.clone() for parameter in model.parameters())])
    assert_close(*found, rtol=1e-4, atol=1e-5)


# — against transformers —


def theirs(model: Network) -> tuple[ElectraForMaskedLM, ElectraForPreTraining]:
    """Both models of `transformers` with our weights and one set of embeddings. Names are written out once more."""
    made = []
    for part, kind in ((model.generator, ElectraForMaskedLM), (model, ElectraForPreTraining)):
        assert part is not None
        size = part.encoder.config
        config = ElectraConfig(
            vocab_size=VOCABULARY,
            embedding_size=size.word_width,
            pad_token_id=None,  # else the gradient of a sampled [PAD] is dropped
            **their_sizes(size),
        )
        theirs = kind(config)
        missing, unexpected = theirs.load_state_dict(reading(part, lambda p: p.detach().clone()), strict=False)
        assert unexpected == []
        assert set(missing) <= {"generator_lm_head.weight"}
        theirs.tie_weights()
        made.append(theirs)
    made[0].electra.embeddings = made[1].electra.embeddings
    made[0].generator_lm_head.weight = made[1].electra.embeddings.word_embeddings.weight
    return made[0], made[1]


def reading(part: Network, get: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Our weights (or gradients) under the names of `transformers`."""
    tables = part.encoder.embeddings
    layers: dict[str, Any] = {
        "electra.embeddings.word_embeddings": tables.words,
        "electra.embeddings.position_embeddings": tables.positions,
        "electra.embeddings.token_type_embeddings": tables.segments,
        "electra.embeddings.LayerNorm": tables.norm,
        "electra.embeddings_project": tables.project,
    }
    out = {}
    if "masked-lm" in part.objectives:
        head: Any = part.objectives["masked-lm"]
        layers |= {"generator_predictions.dense": head.dense, "generator_predictions.LayerNorm": head.norm}
        out["generator_lm_head.bias"] = get(head.bias)
    else:
        head = part.objectives["replaced-tokens"]
        layers["discriminator_predictions.dense"] = head.dense
        layers["discriminator_predictions.dense_prediction"] = head.score
    return out | named_tensors(layers, part.encoder.blocks, "electra", get)


def test_loss_and_gradients_equal_both_models_of_transformers_with_shared_embeddings() -> None:
    """Written out as in the authors' code: mask, predict, sample, replace, detect; masked-lm + 50 × detection."""
    model, batch = build(), make((60, 12, 41, 55), rate=0.9)
    assert model.generator is not None
    generator, discriminator = theirs(model)
    masked, lengths = batch.targets[MaskedTokens], batch.tokens.lengths.tolist()

    def pad(flat: Any, value: int) -> Tensor:
        rows = torch.as_tensor(flat).split(lengths)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)

    frame = {"attention_mask": pad(np.ones_like(batch.tokens.ids), 0), "token_type_ids": pad(batch.tokens.segments, 0)}
    labels = np.full(batch.tokens.size, -100)
    labels[masked.places] = masked.ids
    answer = generator(input_ids=pad(batch.tokens.ids, 0), labels=pad(labels, -100), **frame)
    real = frame["attention_mask"].bool()
    p_MV = answer.logits[real][masked.places].detach().double().softmax(-1)
    u_M = (batch.targets[ReplacedTokens].draws[masked.places] >> 8) / (1 << 24)
    samples = [int((row.cumsum(0) <= u).sum()) for row, u in zip(p_MV, u_M, strict=True)]
    original, text = batch.tokens.ids.copy(), batch.tokens.ids.copy()
    original[masked.places], text[masked.places] = masked.ids, samples
    changed = (text != original).astype(np.int64)
    assert 0 < changed.sum() < len(samples)
    detection = discriminator(input_ids=pad(text, 0), labels=pad(changed, 0), **frame)
    expected = answer.loss + 50 * detection.loss

    total, losses = model.loss(on_device(batch, "cpu"), counts_of(batch))
    assert_close(losses["masked-lm"].mean, answer.loss, rtol=1e-5, atol=1e-6)
    assert_close(losses["replaced-tokens"].mean, detection.loss, rtol=1e-5, atol=1e-6)
    assert_close(total, expected, rtol=1e-5, atol=1e-5)
    total.backward()
    expected.backward()
    for part, other in ((model.generator, generator), (model, discriminator)):
        gradients = reading(part, lambda p: p.grad)
        for name, parameter in other.named_parameters():
            assert_close(gradients[name], parameter.grad, rtol=1e-3, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")

    scores = detection.logits[real] > 0
    seen = model(on_device(batch, "cpu"), accuracy=True)["replaced-tokens"]
    assert int(seen.correct) == int((scores.numpy() == changed).sum())
    assert int(seen.positive) == changed.sum()


def test_detection_teaches_the_generator_nothing_but_through_the_embeddings() -> None:
    model, batch = build(), make()
    assert model.generator is not None
    model(on_device(batch, "cpu"))["replaced-tokens"].total.backward()
    shared = {id(p) for p in model.encoder.parameters()}
    assert all(p.grad is None for p in model.generator.parameters() if id(p) not in shared)
    assert model.encoder.embeddings.words.weight.grad is not None


# — what the generator is —


def test_embeddings_are_one_and_adding_a_generator_changes_no_other_weight() -> None:
    made = Network.build(MODEL, OBJECTIVES, VOCABULARY, seed=4)
    assert made.generator is not None
    own, other = made.encoder.embeddings, made.generator.encoder.embeddings
    for name in ("words", "positions", "segments", "norm"):
        assert getattr(own, name) is getattr(other, name)
    assert own.project is not other.project
    names = [name for name, _ in made.named_parameters()]
    assert not [name for name in names if name.startswith("generator.encoder.embeddings.") and "project" not in name]
    alone = Network.build(MODEL, [ReplacedTokensConfig(generator=0)], VOCABULARY, seed=4)
    assert_close(alone.state_dict(), made.own_state())
    assert list(made.heads) == ["masked-lm", "replaced-tokens"]


@pytest.mark.parametrize(
    ("model", "width", "sizes"),
    [
        ({"hidden": 256, "heads": 4, "embedding": 128}, 0.25, (64, 1, 256, 128)),  # ELECTRA-Small's generator
        ({"hidden": 768, "heads": 12}, 0.3333, (256, 4, 1024, 768)),  # Base's
        ({"hidden": 1024, "heads": 16}, 0.25, (256, 4, 1024, 1024)),  # Large's
        ({"hidden": 128, "heads": 2, "embedding": 128}, 0.25, (32, 1, 128, 128)),
        ({"hidden": 200, "heads": 4, "feedforward": 300}, 0.52, (104, 2, 156, 200)),
    ],
)
def test_a_generator_has_the_published_sizes(
    model: dict[str, int], width: float, sizes: tuple[int, int, int, int]
) -> None:
    made = TransformerConfig(**model).narrowed(width)
    assert (made.hidden, made.heads, made.inner, made.word_width) == sizes
    assert made.layers == TransformerConfig(**model).layers


def test_what_cannot_work_is_refused_with_the_way_out() -> None:
    with pytest.raises(RecipeError, match=r'add \[\[objectives\]\] with type = "masked-lm"'):
        generator_config(MODEL, [ReplacedTokensConfig()])
    for wrong, says in (({"weight": -1}, "weight = -1"), ({"generator": 1.5}, "generator = 1.5")):
        with pytest.raises(RecipeError, match=says):
            msgspec.convert({"type": "replaced-tokens", **wrong}, ObjectiveConfig)


def test_targets_cut_and_joined_are_the_same() -> None:
    batch = make((30, 12, 41, 9, 25))
    parts = list(batch.cuts(45))
    joined = TrainingBatch.join(parts).targets[ReplacedTokens]
    for field in dataclasses.fields(ReplacedTokens):
        assert np.array_equal(getattr(joined, field.name), getattr(batch.targets[ReplacedTokens], field.name))
    assert all(part.targets[ReplacedTokens].count == part.tokens.size for part in parts)
