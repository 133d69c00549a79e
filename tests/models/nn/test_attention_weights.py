"""The weights that heads are looked at by are those of `transformers`, and masking a head is exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from larvatus.inference.interpret.importance import zero_heads
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.nn.device import on_device
from larvatus.models.nn.transformer import Transformer
from tests.models.bundle.theirs import LIMIT, PROSE, TEXTS, their_directory

SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertModel": ("wordpiece", {"max_position_embeddings": LIMIT}),
    "RobertaModel": ("byte-bpe", {"max_position_embeddings": LIMIT + 2, "type_vocab_size": 1}),
    "MPNetModel": ("unigram", {"max_position_embeddings": LIMIT + 2}),
    "AlbertModel": ("wordpiece", {"max_position_embeddings": LIMIT, "embedding_size": 8}),
    "ModernBertModel": (
        "byte-bpe",
        {
            "max_position_embeddings": LIMIT,
            "local_attention": 8,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "pad_token_id": 1,
            "cls_token_id": 0,
            "sep_token_id": 2,
            "bos_token_id": 0,
            "eos_token_id": 2,
        },
    ),
}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {
        "wordpiece": train_vocabulary([PROSE], WordPieceConfig(size=90), allow_smaller=True),
        "byte-bpe": train_vocabulary([PROSE], ByteBPEConfig(size=290)),
        "unigram": train_vocabulary([PROSE], UnigramConfig(size=60), allow_smaller=True),
    }


@pytest.mark.parametrize("name", THEIRS)
@torch.no_grad()
def test_weights_equal_those_of_transformers(name: str, tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    kind, fields = THEIRS[name]
    tokenizer = tokenizers[kind]
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, name, **SMALL, **fields)
    theirs.set_attn_implementation("eager")
    encoder = load_bundle(directory).network.encoder
    batch = encode_batch(tokenizer, TEXTS)
    ours = list(encoder.attention(on_device(batch, "cpu")))
    assert len(ours) == 3
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    for number, row in enumerate(rows):
        answer = theirs(input_ids=row[None], output_attentions=True).attentions
        for layer, expected in enumerate(answer):
            assert_close(ours[layer][number], expected[0], rtol=1e-4, atol=1e-5)
    longest = ours[1][max(range(len(rows)), key=lambda n: len(rows[n]))]
    assert longest.std() > 0.01 * longest.mean()  # not equal for being uniform
    assert_close(longest.sum(-1), torch.ones(longest.shape[:2]))


@pytest.fixture(params=["bert", "modern", "relative", "shared"])
def encoder(request: pytest.FixtureRequest, tiny_model: Any) -> Transformer:
    shapes: dict[str, dict[str, Any]] = {
        "bert": {},
        "modern": {"norm": "pre", "positions": "rotary", "local_attention": 4, "global_every": 2, "segments": 0},
        "relative": {"relative_buckets": 8, "relative_distance": 16},
        "shared": {"shared": True},
    }
    made: Transformer = tiny_model(layers=3, **shapes[request.param]).encoder
    return made


@torch.no_grad()
def test_weights_times_values_give_what_attention_computes(encoder: Transformer, tiny_tokenizer: Tokenizer) -> None:
    """The path for looking and the fast path are the same attention."""
    batch = on_device(
        encode_batch(tiny_tokenizer, ["the river bank was wide and deep", "a river", "please turn in"]), "cpu"
    )
    seen = []
    hooks = [
        block.attention.register_forward_hook(lambda module, given, out: seen.append((module, *given[:3], out)))
        for block in encoder.blocks
    ]
    encoder(batch)
    for hook in hooks:
        hook.remove()
    for (module, x_ND, layout, mask, expected), weights in zip(seen, encoder.attention(batch), strict=True):
        values = layout.restore(module.project(x_ND, mask)[:, 2])
        parts = torch.split(values, batch.lengths.tolist())
        mixed = [torch.einsum("hij,jhk->ihk", a, v).flatten(1) for a, v in zip(weights, parts, strict=True)]
        assert_close(module.out(torch.cat(mixed)), layout.restore(expected), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_masked_head_is_one_without_output_columns(encoder: Transformer, tiny_tokenizer: Tokenizer) -> None:
    batch = on_device(encode_batch(tiny_tokenizer, ["the river bank was wide and deep", "a river"]), "cpu")
    layers, heads = encoder.config.layers, encoder.config.heads
    whole = encoder(batch)
    assert torch.equal(encoder.with_heads(batch, torch.ones(layers, heads)), whole)
    masked = [(layer, 2) for layer in range(1, layers + 1)] if encoder.config.shared else [(1, 2), (3, 1)]
    kept = torch.ones(layers, heads)
    for layer, head in masked:
        kept[layer - 1, head - 1] = 0
    asked = encoder.with_heads(batch, kept)
    assert (asked - whole).abs().max() > 1e-3
    zero_heads(encoder, masked)
    assert_close(encoder(batch), asked, rtol=1e-5, atol=1e-6)
