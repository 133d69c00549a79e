"""The padded form of an encoder gives at every token what the flat one gives."""

import numpy as np
import pytest
import torch

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.models.bundle.onnx_file import PaddedEncoder, padded_inputs, similar_lengths
from larvatus.models.heads.pooling import pooled_padded, summary_tokens
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.nn.transformer import TransformerConfig

VARIANTS = {
    "bert": {},
    "pre-norm": {"norm": "pre"},
    "factorised": {"embedding": 8, "shared": True},
    "relative": {"relative_buckets": 8},
    "modern": {"positions": "rotary", "norm": "pre", "gated": True, "biases": False, "local_attention": 4,
               "global_every": 2, "segments": 0},
}  # fmt: skip


def flat_batch():
    draw = torch.Generator().manual_seed(1)
    lengths = (5, 1, 12, 3)
    return TokenBatch.of(
        [torch.randint(0, 30, (n,), generator=draw).tolist() for n in lengths],
        segments=[[0] * (n // 2) + [1] * (n - n // 2) for n in lengths],
    )


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_padding_changes_no_token(name):
    torch.manual_seed(0)
    config = TransformerConfig(**{"layers": 3, "hidden": 16, "heads": 2, "max_positions": 16, **VARIANTS[name]})
    encoder = config.build(30).eval()
    batch = flat_batch()
    ids, mask, segments = map(torch.from_numpy, padded_inputs(batch).values())
    ids = ids.masked_fill(mask == 0, 29)  # what stands at padding is nobody's business
    padded = PaddedEncoder(encoder)(ids, mask, segments)
    torch.testing.assert_close(padded[mask > 0], encoder(batch.map(torch.from_numpy)), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("pool", ["cls", "last", "mean", "max"])
def test_pooling_of_padded_sequences_is_that_of_flat_ones(pool):
    batch = flat_batch()
    mask = torch.from_numpy(padded_inputs(batch)["attention_mask"])
    padded = torch.randn(*mask.shape, 6)
    parts = padded[mask > 0].split(batch.lengths.tolist())
    if pool in ("cls", "last"):
        wanted = summary_tokens(torch.cat(parts), torch.from_numpy(batch.lengths), pool)
    else:
        wanted = torch.stack([part.mean(0) if pool == "mean" else part.amax(0) for part in parts])
    torch.testing.assert_close(pooled_padded(padded, mask, pool), wanted)


def test_other_encoders_are_refused():
    with pytest.raises(UsageError, match="no padded form"):
        PaddedEncoder(CausalTransformerConfig(layers=1, hidden=8, heads=2).build(10))


def test_sequences_that_are_padded_together_are_all_there_and_of_nearly_one_length():
    lengths = np.random.default_rng(0).integers(1, 128, 400)
    parts = list(similar_lengths(lengths))
    assert sorted(np.concatenate(parts).tolist()) == list(range(400))
    assert all(
        lengths[part].max() * len(part) <= 1.3 * lengths[part].sum() or lengths[part].sum() < 512 for part in parts
    )
    assert len(parts) > 2
