from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import DataError, RecipeError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens, OrderLabels, PairLabels
from larvatus.core.rng import stream
from larvatus.models.network import Network, ObjectiveConfig
from larvatus.models.nn import TransformerConfig, fill_batch, on_device
from larvatus.models.nn.compiling import filler_lengths
from larvatus.models.objectives import Loss, MaskedLMConfig, NextSentenceConfig, SentenceOrderConfig, weighted_sum
from larvatus.models.objectives.linear_cross_entropy import linear_cross_entropy

VOCABULARY = 60
MODEL = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=16, dropout=0.0, attention_dropout=0.0, init=0.3)
BOTH: list[ObjectiveConfig] = [MaskedLMConfig(), NextSentenceConfig()]


def build(objectives: list[ObjectiveConfig] = BOTH) -> Network:
    return Network.build(MODEL, objectives, VOCABULARY, seed=4)


def make(lengths: list[int], masked: int, item: int = 0) -> TrainingBatch[Ints]:
    draw = stream(3, "test objectives", 0, item)
    places = np.sort(draw.choice(sum(lengths), size=masked, replace=False))
    return TrainingBatch(
        tokens=TokenBatch.of([draw.integers(0, VOCABULARY, size=n).tolist() for n in lengths]),
        targets={
            MaskedTokens: MaskedTokens(places=places, ids=draw.integers(0, VOCABULARY, size=masked)),
            PairLabels: PairLabels(labels=draw.integers(0, 2, size=len(lengths))),
        },
    )


def counts_of(batch: TrainingBatch[Ints]) -> dict[str, float]:
    return {"masked-lm": batch.targets[MaskedTokens].count, "next-sentence": batch.targets[PairLabels].count}


def gradients(model: Network, parts: list[TrainingBatch[Ints]], counts: dict[str, float]) -> dict[str, Tensor]:
    model.zero_grad()
    for part in parts:
        model.loss(on_device(part, "cpu"), counts)[0].backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_masked_lm_is_the_mean_negative_log_probability_of_hidden_words() -> None:
    """The chapter's L_MLM, from its definition, word by word."""
    model, batch = build(), make([6, 4, 9], 5)
    head, words = model.objectives["masked-lm"], model.encoder.embeddings.words.weight
    with torch.no_grad():
        z_ND = model.encoder(on_device(batch.tokens, "cpu")).double()
        losses = []
        for place, word in zip(batch.targets[MaskedTokens].places, batch.targets[MaskedTokens].ids, strict=True):
            h = head.double().norm(F.gelu(head.dense(z_ND[place])))
            scores = [float(h @ words[v].double() + head.bias[v]) for v in range(VOCABULARY)]
            losses.append(-math.log(math.exp(scores[word]) / math.fsum(map(math.exp, scores))))
        loss = build()(on_device(batch, "cpu"))["masked-lm"]
    assert int(loss.count) == 5
    assert float(loss.mean) == pytest.approx(sum(losses) / 5, abs=1e-5)


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize(("config", "kind"), [(NextSentenceConfig, PairLabels), (SentenceOrderConfig, OrderLabels)])
def test_a_pair_is_classified_by_the_first_token_of_each_sequence(config: Any, kind: Any, pooler: bool) -> None:
    model, batch = build([config(pooler=pooler)]), make([6, 4, 9], 1)
    labels = batch.targets.pop(PairLabels).labels
    batch.targets[kind] = kind(labels=labels)
    (name, head), *_ = model.objectives.items()
    assert ("pooler.dense.weight" in dict(head.named_parameters())) == pooler
    with torch.no_grad():
        z_ND = model.encoder(on_device(batch.tokens, "cpu"))
        h_BD = z_ND[[0, 6, 10]]
        if pooler:
            h_BD = torch.tanh(h_BD @ head.pooler.dense.weight.T + head.pooler.dense.bias)
        probabilities = torch.softmax(h_BD @ head.classifier.weight.T + head.classifier.bias, dim=-1)
        right = probabilities[range(3), labels]
        loss = model(on_device(batch, "cpu"), accuracy=True)[name]
    assert_close(loss.mean, -right.log().mean())
    assert int(loss.correct) == int((right > 0.5).sum())


def test_sentence_order_takes_no_sentence_pairs_and_fillers_change_no_loss() -> None:
    model, pairs = build([SentenceOrderConfig()]), make([6, 4, 9], 1)
    with pytest.raises(DataError, match="sentence-order needs segments in and out of order"):
        model(on_device(pairs, "cpu"))
    order = TrainingBatch(tokens=pairs.tokens, targets={OrderLabels: OrderLabels(labels=np.array([1, 0, 1]))})
    filled = fill_batch(order, tokens=32, sequences=8, targets=0, limit=16, pad_id=0)
    assert filled.targets[OrderLabels].labels.tolist() == [1, 0, 1, *[-100] * 5]
    with torch.no_grad():
        bare, full = (model(on_device(batch, "cpu"))["sentence-order"] for batch in (order, filled))
    assert_close(full.total, bare.total)
    assert int(full.count) == 3
    joined = TrainingBatch.join([order, order.cut(1, 3)])
    assert joined.targets[OrderLabels].labels.tolist() == [1, 0, 1, 0, 1]


@pytest.mark.usefixtures("chunks_of_64_rows")
@pytest.mark.parametrize("rows", [1, 200, 9])
def test_linear_cross_entropy_equals_the_plain_one_whatever_the_chunks(rows: int) -> None:
    draw = stream(1, "test cross entropy")
    h, w, b = (torch.from_numpy(draw.normal(size=shape)).requires_grad_() for shape in ((rows, 8), (37, 8), (37,)))
    ids = torch.from_numpy(draw.integers(0, 37, size=rows))
    ids[::5] = -100
    total, correct = linear_cross_entropy(h, w, b, ids, accuracy=True)
    plain = F.cross_entropy(F.linear(h, w, b), ids, reduction="sum")
    assert_close(total, plain)
    assert int(correct) == int((F.linear(h, w, b).argmax(-1) == ids).sum())
    for ours, theirs in zip(
        torch.autograd.grad(3 * total, (h, w, b)), torch.autograd.grad(3 * plain, (h, w, b)), strict=True
    ):
        assert_close(ours, theirs)
    with torch.no_grad():
        assert_close(linear_cross_entropy(h, w, b, ids)[0], plain)


def test_linear_cross_entropy_survives_huge_logits_and_bf16() -> None:
    h, w, b = torch.full((2, 4), 1e3), torch.eye(4) * 1e3, torch.zeros(4)
    total, _ = linear_cross_entropy(h.requires_grad_(), w, b, torch.tensor([0, 1]))
    assert total.item() == pytest.approx(2 * math.log(4))
    draw = stream(2, "test cross entropy")
    h, w, b = (torch.from_numpy(draw.normal(size=s)).float().requires_grad_() for s in ((50, 8), (37, 8), (37,)))
    ids = torch.from_numpy(draw.integers(0, 37, size=50))
    exact = torch.autograd.grad(linear_cross_entropy(h, w, b, ids)[0], (h, w, b))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, _ = linear_cross_entropy(h, w, b, ids)
    assert total.dtype == torch.float32
    for half, full in zip(torch.autograd.grad(total, (h, w, b)), exact, strict=True):
        assert half.dtype == torch.float32
        assert_close(half, full, rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler, of itself
def test_linear_cross_entropy_is_one_graph_when_compiled() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(linear_cross_entropy, backend=counter, fullgraph=True, dynamic=False)
    h, w, b = (torch.ones(shape).requires_grad_() for shape in ((70, 8), (37, 8), (37,)))
    ids = torch.arange(70) % 37
    total, _ = compiled(h, w, b, ids)
    gradient = torch.autograd.grad(total, (h, w, b))
    plain, _ = linear_cross_entropy(h, w, b, ids)
    for ours, theirs in zip(gradient, torch.autograd.grad(plain, (h, w, b)), strict=True):
        assert_close(ours, theirs)
    assert counter.frame_count == 1


def test_accuracy_counts_and_costs_nothing_when_not_asked() -> None:
    model, batch = build(), make([6, 4, 9], 5)
    with torch.no_grad():
        z_ND = model.encoder(on_device(batch.tokens, "cpu"))
        masked, head = batch.targets[MaskedTokens], model.objectives["masked-lm"]
        guesses = head.logits(z_ND[masked.places], model.encoder.embeddings.words.weight).argmax(-1)
        right = TrainingBatch(  # three of five as the model guesses
            tokens=batch.tokens,
            targets={
                **batch.targets,
                MaskedTokens: MaskedTokens(
                    places=masked.places,
                    ids=np.where(np.arange(5) < 3, guesses.numpy(), (guesses.numpy() + 1) % VOCABULARY),
                ),
            },
        )
        losses = model(on_device(right, "cpu"), accuracy=True)
        assert int(losses["masked-lm"].correct) == 3
        assert float(losses["masked-lm"].accuracy) == pytest.approx(0.6)
        assert model(on_device(right, "cpu"))["masked-lm"].correct is None


def test_microbatches_weighted_by_predictions_add_up_to_the_gradient_of_the_whole_step() -> None:
    model, batch = build(), make([6, 4, 9, 3, 8], 9)
    whole = gradients(model, [batch], counts_of(batch))
    cuts = [batch.cut(0, 1), batch.cut(1, 4), batch.cut(4, 5)]
    assert len({part.targets[MaskedTokens].count for part in cuts}) > 1  # unequal, or means of means would pass
    for name, gradient in gradients(model, cuts, counts_of(batch)).items():
        assert_close(gradient, whole[name], rtol=1e-4, atol=1e-6)


def test_a_microbatch_without_targets_has_zero_loss_and_gradient() -> None:
    model, batch = build([MaskedLMConfig()]), make([6, 4], 0)
    total, losses = model.loss(on_device(batch, "cpu"), {"masked-lm": 0})
    assert total.item() == 0.0
    assert losses["masked-lm"].mean.item() == 0.0
    total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or not parameter.grad.any(), name


@pytest.mark.parametrize(("tokens", "sequences", "targets"), [(64, 12, 20), (24, 5, 6), (23, 4, 6)])
def test_a_batch_filled_to_fixed_totals_has_the_same_losses_and_gradients(
    tokens: int, sequences: int, targets: int
) -> None:
    model, batch = build(), make([6, 4, 9, 4], 6)
    filled = fill_batch(batch, tokens=tokens, sequences=sequences, targets=targets, limit=16, pad_id=0)
    assert (filled.tokens.size, filled.tokens.count) == (tokens, sequences)
    assert int(filled.tokens.lengths.sum()) == tokens
    assert int(filled.tokens.lengths.max()) <= 16
    assert len(filled.targets[MaskedTokens].places) == len(filled.targets[MaskedTokens].ids) == targets
    assert len(filled.targets[PairLabels].labels) == sequences
    plain, full = (model(on_device(b, "cpu"), accuracy=True) for b in (batch, filled))
    for name, loss in plain.items():
        assert int(loss.count) == int(full[name].count)
        assert int(loss.correct) == int(full[name].correct)
        assert_close(loss.total, full[name].total, rtol=1e-5, atol=1e-5)
    whole = gradients(model, [batch], counts_of(batch))
    for name, gradient in gradients(model, [filled], counts_of(batch)).items():
        assert_close(gradient, whole[name], rtol=1e-4, atol=1e-6)


def test_a_batch_that_does_not_fit_its_totals_is_refused() -> None:
    batch = make([6, 4, 9], 6)
    for totals in ((18, 9, 6, 16), (64, 3, 6, 16), (64, 9, 6, 8)):
        tokens, sequences, targets, limit = totals
        with pytest.raises(UsageError, match="does not fit"):
            fill_batch(batch, tokens=tokens, sequences=sequences, targets=targets, limit=limit, pad_id=0)
    with pytest.raises(UsageError, match="6 predicted tokens does not fit 5"):
        fill_batch(batch, tokens=64, sequences=12, targets=5, limit=16, pad_id=0)
    assert filler_lengths(np.array([3]), tokens=10, sequences=6, limit=3).tolist() == [3, 3, 3, 1, 0, 0]


def test_weights_of_objectives_and_counts_of_the_step_enter_the_total() -> None:
    losses = {
        "a": Loss(total=torch.tensor(6.0), count=torch.tensor(3)),
        "b": Loss(total=torch.tensor(4.0), count=torch.tensor(2), weight=0.5),
    }
    assert float(weighted_sum(losses, {"a": 12, "b": 2})) == pytest.approx(0.5 + 1.0)


def test_building_is_a_function_of_the_seed_and_leaves_torch_alone() -> None:
    state = torch.random.get_rng_state()
    one, two = build(), build()
    assert torch.equal(torch.random.get_rng_state(), state)
    for (name, a), (_, b) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.device.type == "cpu"
    alone = build([MaskedLMConfig()])
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter, dict(one.named_parameters())[name]), name


def test_configs_are_a_tagged_union() -> None:
    read = msgspec.convert([{"type": "masked-lm"}, {"type": "next-sentence", "pooler": False}], list[ObjectiveConfig])
    assert read == [MaskedLMConfig(), NextSentenceConfig(pooler=False)]
    with pytest.raises(msgspec.ValidationError, match="poller"):
        msgspec.convert({"type": "next-sentence", "poller": False}, ObjectiveConfig)
    with pytest.raises(RecipeError, match="weight = -1"):
        msgspec.convert({"type": "masked-lm", "weight": -1}, ObjectiveConfig)


def test_what_cannot_work_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="named twice: masked-lm, masked-lm"):
        build([MaskedLMConfig(), MaskedLMConfig()])
    batch = make([4], 1)
    without = TrainingBatch(tokens=batch.tokens, targets={MaskedTokens: batch.targets[MaskedTokens]})
    with pytest.raises(DataError, match="next-sentence needs sentence pairs, but the batch has none"):
        build()(on_device(without, "cpu"))
