"""With the same weights and batches our encoder, losses, gradients and optimisation are those of `transformers`' BERT.

The mapping of names is written out here once more, on purpose: it is independent of the one in `bundle/`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import BertConfig, BertForPreTraining

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels
from larvatus.core.rng import stream
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from tests.models.objectives.their_names import named_tensors, their_sizes

VOCABULARY = 200
MODEL = TransformerConfig(layers=3, hidden=32, heads=4, max_positions=40, dropout=0.0, attention_dropout=0.0, init=0.1)
BATCHES = [[7, 30, 12, 7, 3], [40, 40, 40], [2], [5, 6, 7, 8, 9, 10]]


def ours() -> Network:
    model = Network.build(MODEL, [MaskedLMConfig(), NextSentenceConfig()], VOCABULARY, seed=9)
    draw = stream(9, "test biases")
    with torch.no_grad():  # so that biases and norms are tested too
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.from_numpy(draw.normal(scale=0.1, size=parameter.shape)))
    return model


def reading(model: Network, get: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Our weights (or gradients), under the names that `BertForPreTraining` has."""
    encoder, masked, pairs = model.encoder, model.objectives["masked-lm"], model.objectives["next-sentence"]
    layers = {
        "bert.embeddings.word_embeddings": encoder.embeddings.words,
        "bert.embeddings.position_embeddings": encoder.embeddings.positions,
        "bert.embeddings.token_type_embeddings": encoder.embeddings.segments,
        "bert.embeddings.LayerNorm": encoder.embeddings.norm,
        "bert.pooler.dense": pairs.pooler.dense,
        "cls.seq_relationship": pairs.classifier,
        "cls.predictions.transform.dense": masked.dense,
        "cls.predictions.transform.LayerNorm": masked.norm,
    }
    return {"cls.predictions.bias": get(masked.bias)} | named_tensors(layers, encoder.blocks, "bert", get)


def theirs(model: Network) -> BertForPreTraining:
    bert = BertForPreTraining(BertConfig(vocab_size=VOCABULARY, **their_sizes(MODEL)))
    missing, unexpected = bert.load_state_dict(reading(model, lambda p: p.detach().clone()), strict=False)
    assert unexpected == []
    assert set(missing) <= {
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "bert.embeddings.position_ids",
    }
    bert.tie_weights()
    return bert


def ragged(lengths: list[int], item: int) -> TrainingBatch[np.ndarray]:
    draw = stream(2, "test batches", 0, item)
    rows = [draw.integers(5, VOCABULARY, size=length).tolist() for length in lengths]
    segments = [[int(i > length // 2) for i in range(length)] for length in lengths]
    total = sum(lengths)
    places = np.sort(draw.choice(total, size=max(1, total // 6), replace=False))
    return TrainingBatch(
        tokens=TokenBatch.of(rows, segments=segments),
        targets={
            MaskedTokens: MaskedTokens(places=places, ids=draw.integers(5, VOCABULARY, size=len(places))),
            PairLabels: PairLabels(labels=draw.integers(0, 2, size=len(lengths))),
        },
    )


def padded(batch: TrainingBatch[np.ndarray]) -> dict[str, Tensor]:
    """The same batch as `transformers` wants it."""
    tokens, masked = batch.tokens, batch.targets[MaskedTokens]
    labels = np.full(tokens.size, -100)
    labels[masked.places] = masked.ids
    lengths = tokens.lengths.tolist()

    def pad(flat: np.ndarray, value: int) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence(
            torch.from_numpy(flat).split(lengths), batch_first=True, padding_value=value
        )

    return {
        "input_ids": pad(tokens.ids, 0),
        "token_type_ids": pad(tokens.segments, 0),
        "attention_mask": pad(np.ones_like(tokens.ids), 0),
        "labels": pad(labels, -100),
        "next_sentence_label": torch.from_numpy(batch.targets[PairLabels].labels),
    }


def our_loss(model: Network, batch: TrainingBatch[np.ndarray]) -> Tensor:
    counts = {"masked-lm": batch.targets[MaskedTokens].count, "next-sentence": batch.targets[PairLabels].count}
    return model.loss(on_device(batch, "cpu"), counts)[0]


@pytest.mark.parametrize("lengths", BATCHES)
def test_hidden_states_of_every_layer_agree(lengths: list[int]) -> None:
    model = ours().eval()
    bert, batch = theirs(model).eval(), ragged(lengths, 0)
    inputs = padded(batch)
    with torch.no_grad():
        expected = bert.bert(**{k: v for k, v in inputs.items() if "label" not in k}, output_hidden_states=True)
        states = model.encoder(on_device(batch.tokens, "cpu"), layers=range(MODEL.layers + 1))
    assert len(states) == len(expected.hidden_states) == MODEL.layers + 1
    for flat, rows in zip(states, expected.hidden_states, strict=True):
        assert_close(flat, rows[inputs["attention_mask"].bool()], rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("lengths", BATCHES)
def test_losses_and_gradients_agree(lengths: list[int]) -> None:
    model, batch = ours(), ragged(lengths, 1)
    bert = theirs(model)
    loss, expected = our_loss(model, batch), bert(**padded(batch)).loss
    assert_close(loss, expected, rtol=0.0, atol=1e-4)
    loss.backward()
    expected.backward()
    gradients = reading(model, lambda p: p.grad)
    for name, parameter in bert.named_parameters():
        assert_close(gradients[name], parameter.grad, rtol=0.0, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


def test_twenty_optimizer_steps_stay_together() -> None:
    model = ours()
    bert = theirs(model)
    start = our_loss(model, ragged(BATCHES[0], 0)).item()
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.01) for m in (model, bert)]
    for step in range(20):
        batch = ragged(BATCHES[step % len(BATCHES)], step % 4)
        losses = our_loss(model, batch), bert(**padded(batch)).loss
        assert_close(*losses, rtol=0.0, atol=1e-3)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    weights = reading(model, lambda p: p.detach())
    for name, parameter in bert.named_parameters():
        if not name.endswith("key.bias"):  # its gradient is 0 but for rounding, which Adam blows up to whole steps
            assert_close(
                weights[name], parameter.detach(), rtol=0.0, atol=1e-3, msg=lambda m, name=name: f"{name}: {m}"
            )
    assert our_loss(model, ragged(BATCHES[0], 0)).item() < start - 0.2  # they went somewhere
