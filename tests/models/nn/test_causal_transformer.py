"""The left-to-right transformer: what follows a token cannot be told from it, and the numbers are those of a loop."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import RecipeError, UsageError
from larvatus.core.pretraining_targets import NextTokens, add_text_targets
from larvatus.models.network import Network, TrainingBatch
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.nn.causal_transformer import CausalTransformerConfig
from larvatus.models.objectives import CausalLMConfig

NORMS = ("post", "pre")
LENGTHS = (7, 3, 1, 7)


def network_of(norm, **settings):
    shape = {"layers": 3, "hidden": 16, "heads": 2, "max_positions": 16, "init": 0.3, **settings}
    return Network.build(CausalTransformerConfig(norm=norm, **shape), [CausalLMConfig()], 50, seed=3).eval()


def sequences(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 50, (length,), generator=generator).tolist() for length in LENGTHS]


@pytest.mark.parametrize("norm", NORMS)
def test_changing_a_token_leaves_every_token_before_it_bit_equal(norm):
    network, texts = network_of(norm), sequences()
    with torch.no_grad():
        before = network.encoder(on_device(TokenBatch.of(texts), "cpu"))
        for place in range(7):
            changed = [[*texts[0][:place], (texts[0][place] + 1) % 50, *texts[0][place + 1 :]], *texts[1:]]
            after = network.encoder(on_device(TokenBatch.of(changed), "cpu"))
            assert torch.equal(before[:place], after[:place])
            assert torch.equal(before[7:], after[7:])  # nor does it reach another sequence
            assert not torch.equal(before[place:7], after[place:7])


@pytest.mark.parametrize("norm", NORMS)
def test_no_gradient_reaches_a_token_that_a_prediction_must_not_see(norm):
    network, texts = network_of(norm), sequences()
    batch = on_device(TokenBatch.of(texts), "cpu")
    read = []
    network.encoder.embeddings.dropout.register_forward_hook(
        lambda module, given, x: read.append(x.requires_grad_()) or read[-1].retain_grad()
    )
    for place in range(7):
        read.clear()
        (network.encoder(batch)[place] ** 3).sum().backward()
        (x,) = read
        order = torch.argsort(batch.lengths, stable=True)  # on the CPU tokens lie sorted by length
        first = int(batch.lengths[order][: order.tolist().index(0)].sum())
        gradient = x.grad[first : first + 7].abs().sum(-1)
        assert torch.equal(gradient[place + 1 :], torch.zeros(6 - place))
        assert (gradient[: place + 1] > 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_it_is_the_loop_over_tokens_in_double_precision(norm):
    network = network_of(norm).double()
    encoder, config = network.encoder, network.encoder.config
    (text, *_) = sequences()

    def layer_norm(x, module):
        x = x - x.mean()
        return x / torch.sqrt((x * x).mean() + config.norm_epsilon) * module.weight + module.bias

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    tables = encoder.embeddings
    states = [tables.words.weight[id] + tables.positions.weight[place] for place, id in enumerate(text)]
    for block in encoder.blocks:
        qkv = block.attention.qkv
        read = [layer_norm(x, block.attention_norm) if norm == "pre" else x for x in states]
        parts = [(qkv.weight @ x + qkv.bias).view(3, config.heads, -1) for x in read]
        new = []
        for i, x in enumerate(states):
            mixed = []
            for head in range(config.heads):
                scores = torch.stack([parts[i][0, head] @ parts[j][1, head] for j in range(i + 1)]) / math.sqrt(8)
                mixed.append(sum(w * parts[j][2, head] for j, w in enumerate(scores.softmax(0))))
            y = x + block.attention.out.weight @ torch.cat(mixed) + block.attention.out.bias
            y = y if norm == "pre" else layer_norm(y, block.attention_norm)
            inner = layer_norm(y, block.feedforward_norm) if norm == "pre" else y
            up = gelu(block.feedforward.up.weight @ inner + block.feedforward.up.bias)
            z = y + block.feedforward.down.weight @ up + block.feedforward.down.bias
            new.append(z if norm == "pre" else layer_norm(z, block.feedforward_norm))
        states = new
    states = [layer_norm(x, encoder.final_norm) if norm == "pre" else x for x in states]
    with torch.no_grad():
        ours = encoder(on_device(TokenBatch.of(sequences()), "cpu"))[:7]
        assert_close(ours, torch.stack(states), rtol=1e-10, atol=1e-10)
        weights = next(encoder.attention(on_device(TokenBatch.of([text]), "cpu")))[0]
        assert torch.equal(weights, weights.tril())


def test_the_loss_is_that_of_every_token_but_the_first_of_each_sequence():
    network = network_of("pre")
    batch = TokenBatch.of(sequences())
    training = on_device(add_text_targets(TrainingBatch(tokens=batch, targets={}), (NextTokens,)), "cpu")
    loss = network(training, accuracy=True)["causal-lm"]
    z = network.encoder(training.tokens).detach()
    total, count = 0.0, 0
    for text, states in zip(sequences(), z.split(LENGTHS), strict=True):
        log_p = (states @ network.encoder.word_vectors.detach().T).log_softmax(-1)
        total -= sum(float(log_p[place, after]) for place, after in enumerate(text[1:]))
        count += len(text) - 1
    assert int(loss.count) == count
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-5)
    assert not list(network.objectives.parameters())


def test_at_gives_the_vectors_of_single_tokens():
    network = network_of("pre")
    batch = on_device(TokenBatch.of(sequences()), "cpu")
    places = torch.tensor([6, 9, 10, 17])
    with torch.no_grad():
        assert_close(network.encoder.at(batch, places), network.encoder(batch)[places])


def test_weights_that_end_in_the_residual_stream_start_smaller():
    plain, scaled = (network_of("pre", hidden=64, residual_init=given) for given in (False, True))
    ratio = plain.encoder.blocks[0].attention.out.weight.std() / scaled.encoder.blocks[0].attention.out.weight.std()
    assert float(ratio.detach()) == pytest.approx(math.sqrt(6), rel=0.05)
    assert torch.equal(plain.encoder.blocks[0].attention.qkv.weight, scaled.encoder.blocks[0].attention.qkv.weight)


def test_what_cannot_be_is_refused_in_one_line():
    with pytest.raises(RecipeError, match=r"model.hidden = 16 is not divisible by model.heads = 3"):
        CausalTransformerConfig(hidden=16, heads=3)
    with pytest.raises(RecipeError, match="causal-lm predicts the next token, which this encoder sees"):
        Network(TransformerConfig(layers=1, hidden=8, heads=2), [CausalLMConfig()], 10)
    with pytest.raises(RecipeError, match="leave out replaced-tokens"):
        CausalTransformerConfig().narrowed(0.25)
    with pytest.raises(UsageError, match="longer than the model's 16 positions"):
        network_of("post").encoder(on_device(TokenBatch.of([[1] * 17]), "cpu"))
