"""A compiled step sees one shape whatever the lengths: it is compiled once, and computes what the plain one does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import larvatus.models.nn.attention.attention
from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels, ReplacedTokens
from larvatus.core.rng import stream
from larvatus.models.network import Network
from larvatus.models.nn import Transformer, TransformerConfig, fill_batch, on_device
from larvatus.models.nn.attention.layout import AttentionMask, FlatLayout
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig, ReplacedTokensConfig, weighted_sum

MODEL = TransformerConfig(layers=2, hidden=16, heads=2, max_positions=16, dropout=0.0, attention_dropout=0.0, init=0.3)
COUNTS = {"masked-lm": 5.0, "next-sentence": 4.0, "replaced-tokens": 20.0}
OBJECTIVES = {
    "bert": (MaskedLMConfig(), NextSentenceConfig()),
    "electra": (MaskedLMConfig(), NextSentenceConfig(), ReplacedTokensConfig(generator=0.5)),
}


def make(lengths: list[int], item: int) -> TrainingBatch[Ints]:
    draw = stream(5, "test compiled", 0, item)
    masked = MaskedTokens(
        places=np.sort(draw.choice(sum(lengths), size=5, replace=False)), ids=draw.integers(0, 60, size=5)
    )
    return TrainingBatch(
        tokens=TokenBatch.of([draw.integers(0, 60, size=n).tolist() for n in lengths]),
        targets={
            MaskedTokens: masked,
            PairLabels: PairLabels(labels=draw.integers(0, 2, size=len(lengths))),
            ReplacedTokens: ReplacedTokens(
                labels=np.zeros(sum(lengths), np.int64), draws=draw.integers(0, 1 << 32, size=sum(lengths))
            ),
        },
    )


BATCHES = [make(lengths, item) for item, lengths in enumerate(([6, 4, 9, 2], [5, 5, 2, 3], [9, 1, 1, 14]))]


def varlen_stand_in(qkv_N3HK: Tensor, layout: FlatLayout, mask: AttentionMask, *, dropout: float = 0.0) -> Tensor:
    """What the CUDA kernel computes from the same arguments, on a machine without one: all pairs of tokens, masked."""
    owner_N = torch.bucketize(torch.arange(qkv_N3HK.shape[0]), layout.edges, right=True)
    q, k, v = qkv_N3HK.permute(1, 2, 0, 3)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=owner_N[:, None] == owner_N[None, :]).transpose(0, 1)


def check(model: Network, compiled: torch.nn.Module, batch: TrainingBatch[Ints]) -> None:
    filled = fill_batch(batch, tokens=48, sequences=9, targets=8, limit=16, pad_id=0)
    gradients = []
    for runner, step in ((model, batch), (compiled, filled)):
        model.zero_grad()
        total = weighted_sum(runner(on_device(step, "cpu"), limit=16), COUNTS)
        total.backward()
        gradients.append([total.detach(), *(parameter.grad for parameter in model.parameters())])
    assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler, of itself
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize(
    "heads", [pytest.param(name, marks=pytest.mark.proof) if name == "electra" else name for name in OBJECTIVES]
)
@pytest.mark.parametrize("packed", [False, True], ids=["grouped", "packed"])
def test_a_compiled_step_equals_the_plain_one_and_is_compiled_once(
    packed: bool, heads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Network.build(MODEL, OBJECTIVES[heads], 60, seed=4)
    counter = CompileCounterWithBackend("aot_eager")
    if packed:  # as on CUDA: the whole step is one graph
        monkeypatch.setattr(larvatus.models.nn.attention.attention, "attend_flat", varlen_stand_in)
        monkeypatch.setattr(Transformer, "layout", lambda self, lengths, *, limit: FlatLayout.of(lengths, limit=limit))
    compiled = torch.compile(model, backend=counter, dynamic=False, fullgraph=packed)
    check(model, compiled, BATCHES[0])
    graphs = counter.frame_count
    assert graphs == 1 if packed else graphs > 1
    for batch in BATCHES[1:]:
        check(model, compiled, batch)
    assert counter.frame_count == graphs
