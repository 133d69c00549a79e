"""Factorised embeddings and shared layers: what they compute, and the weights they save."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.models.network import Network
from larvatus.models.nn import Transformer, TransformerConfig, initialise, on_device
from larvatus.models.objectives import MaskedLMConfig

TINY = TransformerConfig(layers=3, hidden=16, heads=2, max_positions=32, dropout=0.0, attention_dropout=0.0)
ROWS = [[4, 7, 9, 3], [5, 2], [8, 1, 6]]


def replaced(**settings: object) -> TransformerConfig:
    return msgspec.structs.replace(TINY, **settings)


def test_factorised_embeddings_are_narrow_ones_with_a_projection() -> None:
    model = Transformer(replaced(embedding=6), 50)
    initialise(model, seed=1, std=0.2)
    batch = on_device(TokenBatch.of(ROWS), "cpu")
    parts = model.embeddings
    assert parts.positions is not None
    assert parts.segments is not None
    narrow = parts.words.weight[batch.ids] + parts.positions.weight[batch.positions] + parts.segments.weight[0]
    normed = torch.nn.functional.layer_norm(narrow, (6,), eps=TINY.norm_epsilon)  # norms begin with weights 1, 0
    assert_close(model(batch, layers=[0])[0], normed @ parts.project.weight.T)
    assert model(batch).shape == (9, 16)


def test_a_width_equal_to_the_hidden_size_needs_no_projection() -> None:
    names = [[name for name, _ in Transformer(replaced(embedding=e), 50).named_parameters()] for e in (0, 16)]
    assert names[0] == names[1]
    assert not any("project" in name for name in names[0])


def test_the_masked_lm_head_of_factorised_embeddings_ends_in_their_width() -> None:
    model = Network.build(replaced(embedding=6), [MaskedLMConfig()], 50, seed=1)
    targets = MaskedTokens(places=torch.tensor([1, 5]), ids=torch.tensor([7, 2]))
    batch = TrainingBatch(tokens=on_device(TokenBatch.of(ROWS), "cpu"), targets={MaskedTokens: targets})
    loss = model(batch)["masked-lm"]
    head = model.heads["masked-lm"]
    z_MD = model.encoder(batch.tokens)[targets.places]
    logits = head.logits(z_MD, model.encoder.embeddings.words.weight)  # type: ignore[union-attr]
    assert_close(loss.total, torch.nn.functional.cross_entropy(logits, targets.ids, reduction="sum"))


def test_shared_layers_are_one_layer_used_many_times() -> None:
    shared = Transformer(replaced(shared=True), 50)
    initialise(shared, seed=1, std=0.2)
    copied = Transformer(TINY, 50)
    weights = dict(shared.state_dict())
    for name, tensor in shared.blocks[0].state_dict().items():
        weights.update({f"blocks.{layer}.{name}": tensor for layer in range(TINY.layers)})
    copied.load_state_dict(weights)
    batch = on_device(TokenBatch.of(ROWS), "cpu")
    states, expected = (made(batch, layers=range(made.depth + 1)) for made in (shared, copied))
    assert len(states) == TINY.layers + 1
    for ours, theirs in zip(states, expected, strict=True):
        assert_close(ours, theirs)


def test_an_albert_of_base_size_has_the_published_number_of_weights() -> None:
    base = TransformerConfig(embedding=128, shared=True)
    with torch.device("meta"):
        count = sum(p.numel() for p in Transformer(base, 30_000).parameters())
    assert round(count / 1e6) == 11  # 12M with pooler and heads (Lan et al. 2020, table 1)


def test_layers_that_differ_cannot_be_shared() -> None:
    with pytest.raises(RecipeError, match="first_norm = true"):
        replaced(shared=True, norm="pre", first_norm=False)
