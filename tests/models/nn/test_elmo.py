"""The encoder of ELMo against naive loops, one word and one step at a time, in float64; and what may not be seen."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.data.text.vocabularies.characters import BEGIN, BYTES, END, INSIDE
from larvatus.models.nn.elmo import BEGIN_WORD, END_WORD, Elmo, ElmoConfig, WordLayout
from larvatus.models.nn.initialise import initialise

TINY = ElmoConfig(layers=3, hidden=8, cells=12, symbol=3, filters=(2, 1, 3, 4), highways=2, clip=0.0, dropout=0.0)


def spelt(word: str) -> list[int]:
    return [byte + (BYTES if place == 0 else INSIDE) for place, byte in enumerate(word.encode())]


def batch_of(*sentences: str) -> TokenBatch[Tensor]:
    rows = [[BEGIN, *(token for word in text.split() for token in spelt(word)), END] for text in sentences]
    return TokenBatch.of(rows).map(torch.from_numpy)


def built(config: ElmoConfig = TINY, **settings: object) -> Elmo:
    model = msgspec.structs.replace(config, **settings).build(600)
    initialise(model, seed=1)
    for parameter in model.parameters():  # biases too, and large enough that clipping clips
        with torch.no_grad():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))) * 0.3)
    return model.double().eval()


def naive_word(model: Elmo, symbols: list[int]) -> Tensor:
    """The CNN on one word, window by window."""
    cnn = model.characters
    e = [cnn.symbols.weight[symbol] for symbol in (BEGIN_WORD, *symbols, END_WORD)]
    pooled = []
    for width, filters in enumerate(cnn.filters, start=1):
        for kernel, bias in zip(filters.weight, filters.bias, strict=True):
            best = torch.tensor(-torch.inf, dtype=torch.float64)
            for i in range(len(e)):
                parts = kernel.view(width, -1)
                score = bias + sum(parts[k] @ e[i + k] for k in range(width) if i + k < len(e))
                best = torch.maximum(best, score)
            pooled.append(torch.relu(best))
    x = torch.stack(pooled)
    for highway in cnn.highways:
        g = torch.sigmoid(highway.gate.weight @ x + highway.gate.bias)
        x = g * torch.relu(highway.transform.weight @ x + highway.transform.bias) + (1 - g) * x
    return cnn.projection.weight @ x + cnn.projection.bias


def naive_lstm(layer: torch.nn.Module, words: list[Tensor], clip: float) -> list[Tensor]:
    lstm, states = layer.lstm, []
    r = torch.zeros(lstm.proj_size, dtype=torch.float64)
    c = torch.zeros(lstm.hidden_size, dtype=torch.float64)
    for x in words:
        gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ r + lstm.bias_hh_l0
        i, f, g, o = gates.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        c = c.clamp(-clip, clip) if clip else c
        r = lstm.weight_hr_l0 @ (torch.sigmoid(o) * torch.tanh(c))
        r = r.clamp(-clip, clip) if clip else r
        states.append(r)
    return states


def naive(model: Elmo, sentence: str, clip: float) -> list[Tensor]:
    """All layers of one sentence: [characters, D] each."""
    words = [[BEGIN], *([byte + BYTES for byte in word.encode()] for word in sentence.split()), [END]]
    x = [naive_word(model, symbols) for symbols in words]
    right, left = x, x[::-1]
    layers = [[torch.cat([v, v]) for v in x]]
    for number, layer in enumerate(model.layers):
        ahead, back = naive_lstm(layer.forwards, right, clip), naive_lstm(layer.backwards, left, clip)
        right = [new + old for new, old in zip(ahead, right, strict=True)] if number else ahead
        left = [new + old for new, old in zip(back, left, strict=True)] if number else back
        layers.append([torch.cat([a, b]) for a, b in zip(right, left[::-1], strict=True)])
    return [torch.stack([v for v, word in zip(layer, words, strict=True) for _ in word]) for layer in layers]


@pytest.mark.parametrize("clip", [0.0, 0.4])
def test_states_equal_a_loop_over_words_and_steps(clip: float) -> None:
    sentences = ["the riverbank , naïve 山", "no", "", "a b c d e f g", "it is over ."]  # lengths in no order
    model = built(clip=clip)
    states = model(batch_of(*sentences), layers=range(4))
    for layer, state in enumerate(states):
        wanted = torch.cat([naive(model, sentence, clip)[layer] for sentence in sentences])
        assert_close(state, wanted, rtol=1e-10, atol=1e-12)
    if clip:
        unclipped = built(clip=0.0)(batch_of(*sentences))
        assert not torch.allclose(unclipped, states[-1], atol=1e-3)  # it did clip


def test_layers_asked_for_are_those_of_all_and_nothing_above_is_computed() -> None:
    model, batch = built(), batch_of("one two three", "four")
    every = model(batch, layers=range(4))
    assert torch.equal(model(batch), every[3])
    model.layers[2] = torch.nn.Module()  # calling it would fail
    second, first = model(batch, layers=[2, 0])
    assert torch.equal(second, every[2])
    assert torch.equal(first, every[0])


@pytest.mark.parametrize("clip", [0.0, 0.4])
def test_a_state_sees_only_its_own_side_bit_for_bit(clip: float) -> None:
    """Forward states of a word do not hang on later characters, backward states not on earlier ones."""
    model = built(clip=clip)
    before, after = batch_of("we saw the old bank", "no more"), batch_of("we saw tie old bank", "no more")
    changed = np.flatnonzero((before.ids != after.ids).numpy())
    first, last = 1 + 2 + 3, 1 + 2 + 3 + 3  # the characters of "the"
    assert changed.tolist() == [first + 1]
    one, other = model(before, layers=range(1, 4)), model(after, layers=range(1, 4))
    half = model.config.word_width
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a[:first, :half], b[:first, :half])
        assert torch.equal(a[last:, half:], b[last:, half:])
        assert not torch.equal(a[first:last, :half], b[first:last, :half])
        assert not torch.equal(a[:first, half:], b[:first, half:])
        assert torch.equal(a[17:], b[17:])  # another sentence


def test_the_gradient_of_what_may_not_be_seen_is_zero() -> None:
    model, batch = built(), batch_of("ab cd ef")
    states = {}
    model.characters.register_forward_hook(lambda _, __, out: states.setdefault("x", out.requires_grad_()))
    z = model(batch)
    half = model.config.word_width
    (right,) = torch.autograd.grad(z[3, :half].sum(), states["x"], retain_graph=True)  # "cd": words 0 … 2 of 5
    (left,) = torch.autograd.grad(z[3, half:].sum(), states["x"])
    assert (right[3:] == 0).all()
    assert (right[:3] != 0).any(-1).all()
    assert (left[:2] == 0).all()
    assert (left[2:] != 0).any(-1).all()


def test_a_window_that_begins_inside_a_word_reads_its_rest_as_a_word() -> None:
    tokens = [BEGIN, *spelt("river")[2:], END]
    layout = WordLayout.of(TokenBatch.of([tokens]).map(torch.from_numpy))
    assert len(layout.letters) == 3
    whole = WordLayout.of(batch_of("ver"))
    assert torch.equal(layout.symbols, whole.symbols)
