"""The LSTM over the flat batch: torch's own, one sequence at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.lstm import BiLSTM

SIZE, HIDDEN = 5, 3


def made(layers: int = 1) -> BiLSTM:
    lstm = BiLSTM(size=SIZE, hidden=HIDDEN, layers=layers).double()
    initialise(lstm, seed=2)
    return lstm


def words(counts: list[int], *, gradient: bool = False) -> Tensor:
    draw = torch.Generator().manual_seed(sum(counts))
    return torch.randn(sum(counts), SIZE, generator=draw, dtype=torch.float64).requires_grad_(gradient)


def alone(lstm: BiLSTM, x_WD: Tensor, counts: list[int]) -> Tensor:
    """Each sequence by itself, each direction by a cell that steps through it."""
    found = []
    for own in torch.split(x_WD, counts):
        below = own
        for layer in range(lstm.lstm.num_layers):
            sides = [_one_way(lstm.lstm, below, layer=layer, back=back) for back in (False, True)]
            below = torch.cat(sides, dim=-1)
        found.append(below)
    return torch.cat(found) if found else x_WD.new_zeros(0, lstm.width)


def _one_way(lstm: nn.LSTM, x_LD: Tensor, *, layer: int, back: bool) -> Tensor:
    name = f"l{layer}" + ("_reverse" if back else "")
    w_in, w_own, b_in, b_own = (
        getattr(lstm, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h = c = x_LD.new_zeros(lstm.hidden_size)
    out = []
    for x in x_LD.flip(0) if back else x_LD:
        i, f, g, o = (w_in @ x + b_in + w_own @ h + b_own).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    rows = torch.stack(out) if out else x_LD.new_zeros(0, lstm.hidden_size)
    return rows.flip(0) if back else rows


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(0, 7), min_size=1, max_size=6), layers=st.sampled_from([1, 2]))
def test_ragged_sequences_are_read_as_each_alone(counts: list[int], layers: int) -> None:
    lstm = made(layers)
    x_WD = words(counts)
    assert_close(lstm(x_WD, torch.tensor(counts)), alone(lstm, x_WD, counts))


@pytest.mark.parametrize("counts", [[4, 1, 6, 6], [3], [2, 0, 5]])
def test_equals_torch_s_lstm_with_its_gradients(counts: list[int]) -> None:
    lstm = made()
    x_WD = words(counts, gradient=True)
    inputs = [x_WD, *lstm.parameters()]
    flat = lstm(x_WD, torch.tensor(counts))
    own = [lstm.lstm(part)[0] for part in torch.split(x_WD, counts) if len(part)]
    assert_close(flat, torch.cat(own))
    pull = torch.randn(flat.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = torch.autograd.grad((flat * pull).sum(), inputs)
    expected = torch.autograd.grad((torch.cat(own) * pull).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_no_word_of_one_sequence_moves_another() -> None:
    lstm = made()
    x_WD = words([3, 4], gradient=True)
    lstm(x_WD, torch.tensor([3, 4]))[:3].sum().backward()
    assert x_WD.grad is not None
    assert float(x_WD.grad[:3].abs().min()) > 0
    assert float(x_WD.grad[3:].abs().max()) == 0


def test_a_batch_without_words() -> None:
    assert made()(words([]), torch.tensor([0, 0])).shape == (0, 2 * HIDDEN)


def test_starts_uniform_within_one_over_the_root_of_its_size() -> None:
    lstm = BiLSTM(size=64, hidden=100)
    initialise(lstm, seed=2)
    numbers = torch.cat([p.detach().flatten() for p in lstm.parameters()])
    assert 0.0999 < float(numbers.abs().max()) <= 0.1
    assert float(numbers.mean()) == pytest.approx(0, abs=1e-3)
    again = BiLSTM(size=64, hidden=100)
    initialise(again, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(lstm.parameters(), again.parameters(), strict=True))
