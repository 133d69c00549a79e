"""A head's importance is the loss of the model without it less the loss with it; pruning makes the mask permanent."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens, NextTokens
from larvatus.core.rng import stream
from larvatus.inference.interpret.importance import head_importance, masked_losses, prune_heads, read_heads, zero_heads
from larvatus.inference.interpret.interventions import without_heads
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Network
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig, MaskedLMConfig, NextSentenceConfig
from tests.models.bundle.theirs import transformers


def made_batches(vocabulary: int, count: int = 3) -> list[TrainingBatch]:
    draw = np.random.default_rng(0)
    batches = []
    for _ in range(count):
        tokens = TokenBatch.of([draw.integers(5, vocabulary, size=n).tolist() for n in (9, 4, 12)])
        places = np.sort(draw.choice(tokens.size, size=6, replace=False))
        batches.append(TrainingBatch(tokens, {MaskedTokens: MaskedTokens(places=places, ids=tokens.ids[places])}))
    return batches


@torch.no_grad()
def naive_loss(network, batches) -> list[tuple[float, int]]:
    """Sequence by sequence, softmax over the whole vocabulary, in float64."""
    model = copy.deepcopy(network).double()
    words = model.encoder.embeddings.words.weight
    found = []
    for batch in batches:
        z = model.encoder(batch.tokens.map(torch.from_numpy))
        log = torch.log_softmax(model.heads["masked-lm"].logits(z, words), -1)
        targets = batch.targets[MaskedTokens]
        found.append(
            (float(sum(-log[p, i] for p, i in zip(targets.places, targets.ids, strict=True))), len(targets.ids))
        )
    return found


def test_importance_equals_the_loss_of_each_pruned_model(tiny_model, tiny_tokenizer) -> None:
    network = tiny_model(objectives=(MaskedLMConfig(),))
    batches = made_batches(tiny_tokenizer.size)
    found = head_importance(network, batches)
    whole = naive_loss(network, batches)
    hidden = sum(count for _, count in whole)
    assert (found.hidden, found.tokens) == (hidden, sum(batch.tokens.size for batch in batches))
    assert_allclose(found.loss, sum(loss for loss, _ in whole) / hidden, rtol=1e-5)
    assert [(row.layer, row.head) for row in found.rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for row in found.rows:
        pruned = copy.deepcopy(network)
        zero_heads(pruned.encoder, [(row.layer, row.head)])
        losses = naive_loss(pruned, batches)
        assert_allclose(row.loss, sum(loss for loss, _ in losses) / hidden, rtol=1e-5)
        changes = [new - old for (new, _), (old, _) in zip(losses, whole, strict=True)]
        assert_allclose(row.change, sum(changes) / hidden, atol=1e-5)
        assert abs(row.change) > 1e-4
        # batches of one size: the error of the mean of their means
        assert_allclose(row.error, np.std([c / 6 for c in changes], ddof=1) / math.sqrt(3), rtol=1e-3, atol=1e-5)


def test_one_batch_alone_has_no_standard_error(tiny_model, tiny_tokenizer) -> None:
    rows = head_importance(tiny_model(), made_batches(tiny_tokenizer.size, 1)).rows
    assert all(math.isnan(row.error) for row in rows)


def test_a_pruned_directory_computes_what_the_masked_model_did(tmp_path, tiny_model, save_tiny, tiny_tokenizer) -> None:
    directory = save_tiny(tmp_path / "whole", tiny_model())
    bundle = load_bundle(directory)
    heads = [(1, 2), (2, 1)]
    prune_heads(bundle, heads, tmp_path / "pruned", source="whole")
    pruned = load_bundle(tmp_path / "pruned")
    assert pruned.lineage["pruned"] == {"from": "whole", "heads": ["1:2", "2:1"]}
    assert "heads 1:2, 2:1" in (tmp_path / "pruned" / "README.md").read_text()
    batches = made_batches(tiny_tokenizer.size)
    masked, _ = masked_losses(bundle.network, batches, heads)
    permanent, _ = masked_losses(pruned.network, batches)
    whole, _ = masked_losses(bundle.network, batches)
    assert_allclose(permanent, masked, rtol=1e-6)
    assert np.abs(whole - masked).max() > 1e-2  # and the model that was read is as it was
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "pruned").eval()
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    with torch.no_grad():
        masked = without_heads(bundle.network.encoder, heads)
        z = masked(TokenBatch.of(ids.tolist()).map(torch.from_numpy))
        logits = bundle.network.heads["masked-lm"].logits(z, bundle.network.encoder.embeddings.words.weight)
        torch.testing.assert_close(theirs(input_ids=ids).prediction_logits[0], logits, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_measured_or_pruned_is_one_line(tmp_path, tiny_model, save_tiny, tiny_tokenizer) -> None:
    batches = made_batches(tiny_tokenizer.size)
    with pytest.raises(ArtefactError, match=r"has no masked-lm or causal-lm head.*; use a model pretrained with"):
        head_importance(tiny_model(objectives=(NextSentenceConfig(),)), batches)
    with pytest.raises(DataError, match="no masked token"):
        head_importance(tiny_model(), [])
    for wrong in ("1", "1:", "a:b", "1:2,,3:4", "-1:2", ""):
        with pytest.raises(UsageError, match="names no head; use layer:head"):
            read_heads(wrong)
    with pytest.raises(UsageError, match="there is no layer 0, head 1"):
        masked_losses(tiny_model(), batches, [(0, 1)])
    shared = tiny_model(shared=True).encoder
    with pytest.raises(UsageError, match="share their weights, so head 2 can only be masked in all of them"):
        zero_heads(shared, [(1, 2)])
    zero_heads(shared, [(1, 2), (2, 2)])
    bundle = load_bundle(save_tiny(tmp_path / "whole", tiny_model()))
    with pytest.raises(UsageError, match="is what is read"):
        prune_heads(bundle, [(1, 1)], tmp_path / "whole", source="whole")


def test_heads_of_a_left_to_right_model_are_worth_what_the_next_tokens_lose_without_them() -> None:
    config = CausalTransformerConfig(layers=2, hidden=16, heads=2, max_positions=32, init=0.3)
    network = Network.build(config, (CausalLMConfig(),), 30, seed=2).eval()
    rows = [stream(1, "ids", item=n).integers(0, 30, size=size).tolist() for n, size in enumerate((7, 12, 9))]
    tokens = TokenBatch.of(rows)
    batch = TrainingBatch(tokens=tokens, targets={NextTokens: NextTokens.of_text(tokens)})
    measured = head_importance(network, [batch])
    assert (measured.objective, measured.hidden) == ("causal-lm", sum(map(len, rows)) - len(rows))

    def naive(*masked: tuple[int, int]) -> float:
        losses = []
        for row in rows:
            alone = TokenBatch.of([row]).map(torch.from_numpy)
            z = (without_heads(network.encoder, masked) if masked else network.encoder)(alone)
            log_p = (z @ network.encoder.word_vectors.T).log_softmax(-1)
            losses += [-float(log_p[n, row[n + 1]]) for n in range(len(row) - 1)]
        return sum(losses) / len(losses)

    with torch.no_grad():
        assert measured.loss == pytest.approx(naive(), rel=1e-5)
        for head in measured.rows:
            assert head.loss == pytest.approx(naive((head.layer, head.head)), rel=1e-5)
            assert abs(head.change) > 1e-5
