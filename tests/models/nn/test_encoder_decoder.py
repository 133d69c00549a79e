"""The encoder–decoder: equal to T5 of `transformers`, blind to what comes later and to other sequences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.models.nn.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, EncoderOutput, shift_right
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.positions import bucket

V = 50
READ = [[7, 8, 9, 11, 13, 2, 5, 1], [9, 4, 1], [3, 8, 7, 6, 5, 4, 3, 1], [12, 30, 31, 1]]
WRITTEN = [[40, 7, 41, 9, 1], [33, 1], [21, 22, 23, 24, 25, 26, 1], [40, 4, 41, 9, 1]]
SHAPES = [
    EncoderDecoderConfig(layers=2, hidden=16, heads=2, relative_buckets=8, relative_distance=12),
    EncoderDecoderConfig(
        layers=2, decoder_layers=3, hidden=16, heads=3, head_size=6, feedforward=20, gated=True, activation="gelu-tanh",
        tied=False,
    ),
]  # fmt: skip


def flat(sequences: list[list[int]]) -> TokenBatch[Tensor]:
    return TokenBatch.of(sequences).map(torch.from_numpy)


def built(config: EncoderDecoderConfig, *, dtype: torch.dtype = torch.float64) -> EncoderDecoder:
    model = config.build(V)
    initialise(model, seed=3)
    return model.to(dtype).eval()


def naive_attention(layer, x, read, bias, seen):  # type: ignore[no-untyped-def]
    """Softmax by loops over heads, without any scaling."""
    q, (k, v) = layer.q.weight @ x.T, (layer.kv.weight @ read.T).chunk(2)
    out = []
    for head in range(layer.heads):
        rows = slice(head * layer.size, (head + 1) * layer.size)
        scores = q[rows].T @ k[rows] + (0 if bias is None else bias[head])
        out.append(scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v[rows].T)
    return torch.cat(out, -1) @ layer.out.weight.T


def naive(model: EncoderDecoder, read: list[int], ids: list[int]) -> Tensor:
    """One sequence by the equations of §2.1, in float64: the decoder's last states."""
    config = model.config

    def norm(x: Tensor, module: torch.nn.Module) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + config.norm_epsilon).sqrt() * module.weight

    def table(length: int, module: torch.nn.Module, *, both: bool) -> Tensor:
        offsets = torch.arange(length)[None] - torch.arange(length)[:, None]
        buckets = bucket(
            offsets, buckets=config.relative_buckets, distance=config.relative_distance, bidirectional=both
        )
        return module.weight[buckets].permute(2, 0, 1)

    def feedforward(x: Tensor, module: torch.nn.Module) -> Tensor:
        up = x @ module.up.weight.T
        if config.gated:
            inner, gate = up.chunk(2, -1)
            return F.gelu(inner, approximate="tanh") * gate @ module.down.weight.T
        return up.clamp(min=0) @ module.down.weight.T

    x, all_seen = model.words.weight[read], torch.ones(len(read), len(read), dtype=torch.bool)
    for block in model.blocks:
        h = norm(x, block.attention_norm)
        x = x + naive_attention(block.attention, h, h, table(len(read), model.relative, both=True), all_seen)
        x = x + feedforward(norm(x, block.feedforward_norm), block.feedforward)
    memory = norm(x, model.final_norm)
    x, before = model.words.weight[ids], torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    across = torch.ones(len(ids), len(read), dtype=torch.bool)
    for block in model.decoder.blocks:
        h = norm(x, block.attention_norm)
        x = x + naive_attention(block.attention, h, h, table(len(ids), model.decoder.relative, both=False), before)
        x = x + naive_attention(block.cross, norm(x, block.cross_norm), memory, None, across)
        x = x + feedforward(norm(x, block.feedforward_norm), block.feedforward)
    return norm(x, model.decoder.final_norm) * (config.hidden**-0.5 if config.tied else 1.0)


@pytest.mark.parametrize("config", SHAPES, ids=["tied", "gated"])
@torch.no_grad()
def test_states_of_a_ragged_batch_equal_the_equations_one_sequence_at_a_time(config: EncoderDecoderConfig) -> None:
    model = built(config)
    states = model.continuation_states(flat(READ), flat(WRITTEN)).split([len(ids) for ids in WRITTEN])
    for read, ids, got in zip(READ, WRITTEN, states, strict=True):
        torch.testing.assert_close(got, naive(model, read, [0, *ids[:-1]]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", SHAPES, ids=["tied", "gated"])
@torch.no_grad()
def test_what_is_written_token_by_token_from_the_cache_equals_one_pass(config: EncoderDecoderConfig) -> None:
    model = built(config)
    whole = model.continuation_states(flat(READ), flat(WRITTEN)).split([len(ids) for ids in WRITTEN])
    under_way = model.generation_state(flat(READ), max_new=6, head=lambda z: z)
    rows = [0, 1, 2, 3]
    for place, order in enumerate([[0, 1, 2, 3], [2, 0, 3, 0], [0, 2, 3], [1, 1, 0]]):
        under_way.take(torch.tensor(order))
        rows = [rows[row] for row in order]
        rows = [row if len(WRITTEN[row]) > place else 0 for row in rows]
        for row, state in zip(rows, under_way.logits(), strict=True):
            if len(WRITTEN[row]) > place:
                torch.testing.assert_close(state.double(), whole[row][place], rtol=1e-5, atol=1e-5)
        under_way.extend(torch.tensor([WRITTEN[row][place] for row in rows]))


def test_the_decoder_sees_no_later_token_and_no_other_sequence() -> None:
    """Bit for bit, and by the gradient: a state of sequence 0 hangs on its own past and its own text alone."""
    model = built(SHAPES[0], dtype=torch.float32)
    read, ids, lengths = flat(READ), shift_right(flat(WRITTEN).ids, flat(WRITTEN).lengths, 0), flat(WRITTEN).lengths
    clean = model.decode(ids, lengths, EncoderOutput(model(read), read.lengths))

    changed = ids.clone()
    changed[3:] = (changed[3:] + 1) % V  # of sequence 0, tokens 3 and 4; and all others
    other = read.ids.clone()
    other[len(READ[0]) :] = (other[len(READ[0]) :] + 5) % V
    memory = EncoderOutput(
        model(TokenBatch(other, read.lengths, read.positions, read.segments, read.words)), read.lengths
    )
    again = model.decode(changed, lengths, memory)
    assert torch.equal(again[:3], clean[:3])
    assert not torch.equal(again[3], clean[3])

    states = model(read).detach().requires_grad_()
    x = model.words(ids).detach().requires_grad_()
    z = model.decoder(x, lengths, EncoderOutput(states, read.lengths))
    z[2].square().sum().backward()
    assert x.grad is not None
    assert states.grad is not None
    assert (x.grad[:3].abs().sum(-1) > 0).all()
    assert not x.grad[3:].any()
    assert (states.grad[: len(READ[0])].abs().sum(-1) > 0).all()
    assert not states.grad[len(READ[0]) :].any()


@torch.no_grad()
def test_sequences_without_a_token_are_passed_over() -> None:
    """As filler sequences of a compiled step are: some with nothing to read, some with nothing to write."""
    model = built(SHAPES[0])
    alone = model.continuation_states(flat(READ[:1]), flat(WRITTEN[:1]))
    together = model.continuation_states(flat([READ[0], [], [5, 1]]), flat([WRITTEN[0], [4, 1], []]))
    torch.testing.assert_close(together[: len(alone)], alone)
    assert torch.isfinite(together).all()


@torch.no_grad()
def test_encoders_states_and_attention_weights_are_those_of_transformers() -> None:
    theirs = transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=V, d_model=16, d_kv=8, d_ff=64, num_layers=2, num_heads=2),
    ).eval()
    theirs.set_attn_implementation("eager")
    model = EncoderDecoderConfig(layers=2, hidden=16, heads=2).build(V).eval()
    for (_, ours), (_, its) in zip(
        [(n, p) for n, p in model.blocks.named_parameters() if "attention.q" in n],
        [(n, p) for n, p in theirs.named_parameters() if "SelfAttention.q" in n],
        strict=True,
    ):
        ours.copy_(its)
    state = theirs.state_dict()
    model.words.weight.copy_(state["shared.weight"])
    model.relative.weight.copy_(state["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"])
    for number, block in enumerate(model.blocks):
        place = f"encoder.block.{number}.layer"
        attention = f"{place}.0.SelfAttention"
        block.attention.kv.weight.copy_(torch.cat([state[f"{attention}.{name}.weight"] for name in "kv"]))
        block.attention.out.weight.copy_(state[f"{attention}.o.weight"])
        block.feedforward.up.weight.copy_(state[f"{place}.1.DenseReluDense.wi.weight"])
        block.feedforward.down.weight.copy_(state[f"{place}.1.DenseReluDense.wo.weight"])
    layers = model(flat(READ), layers=[0, 1, 2])
    weights = list(model.attention(flat(READ)))
    first = 0
    for number, ids in enumerate(READ):
        given = theirs(torch.tensor([ids]), output_hidden_states=True, output_attentions=True)
        for ours, its in zip(layers, given.hidden_states, strict=True):
            torch.testing.assert_close(ours[first : first + len(ids)], its[0], rtol=1e-4, atol=1e-4)
        for ours, its in zip(weights, given.attentions, strict=True):
            torch.testing.assert_close(ours[number], its[0], rtol=1e-4, atol=1e-4)
        first += len(ids)


def test_initial_weights_have_the_published_deviations() -> None:
    model = EncoderDecoderConfig(layers=1, hidden=256, heads=4, gated=True, tied=False).build(300)
    initialise(model, seed=1)
    block = model.blocks[0]
    wanted = {
        model.words: 1.0, model.output: 256**-0.5, block.attention.q: (256 * 64) ** -0.5,
        block.attention.kv: 256**-0.5, block.attention.out: 256**-0.5, block.feedforward.up: 256**-0.5,
        block.feedforward.down: block.feedforward.down.in_features**-0.5,
    }  # fmt: skip
    for module, deviation in wanted.items():
        assert float(module.weight.detach().std()) == pytest.approx(deviation, rel=0.03)
    assert torch.equal(model.final_norm.weight, torch.ones(256))


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(RecipeError, match=r"model.heads = 4, or model.head_size"):
        EncoderDecoderConfig(hidden=16, heads=5)
    with pytest.raises(RecipeError, match=r"model.start = 50 is not an id"):
        EncoderDecoderConfig(hidden=16, heads=2, start=50).build(V)
    with pytest.raises(UsageError, match=r"9 tokens is longer than the model's 8 positions"):
        EncoderDecoderConfig(layers=1, hidden=16, heads=2, max_positions=8).build(V)(flat([list(range(9))]))
