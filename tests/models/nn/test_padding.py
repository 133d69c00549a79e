"""Blocks of sequences nearly of one length, as CUDA has them: numbers and gradients are those of exact blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.models.nn.attention import cross_attention as crossing
from larvatus.models.nn.attention import relative_attention as streams
from larvatus.models.nn.attention.layout import Padding, length_class
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.encoder_decoder import EncoderDecoderConfig, EncoderOutput
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.xlnet import XLNet, XLNetConfig

LENGTHS = (9, 5, 19, 1, 7, 30, 0, 17, 9)
WRITTEN = (3, 0, 18, 4, 1, 6, 2, 17, 20)
Result = Callable[[], Tensor]


def tokens(lengths: tuple[int, ...], seed: int) -> TokenBatch[Tensor]:
    draw = np.random.default_rng(seed)
    rows = [draw.integers(0, 40, size=n).tolist() for n in lengths]
    segments = [[int(2 * place >= n) for place in range(n)] for n in lengths]
    return TokenBatch.of(rows, segments=segments).map(torch.from_numpy)


def xlnet() -> XLNet:
    encoder = XLNetConfig(layers=2, hidden=16, heads=4, max_positions=32).build(40)
    initialise(encoder, seed=3)
    return encoder.eval()


def read_and_written() -> tuple[Encoder, Result]:
    model = EncoderDecoderConfig(layers=2, hidden=16, heads=2, relative_buckets=8, relative_distance=12).build(40)
    initialise(model, seed=3)
    model.eval()
    batch, written = tokens(LENGTHS, 1), tokens(WRITTEN, 2)
    return model, lambda: model.decode(written.ids, written.lengths, EncoderOutput(model(batch), batch.lengths))


def content_stream() -> tuple[Encoder, Result]:
    encoder, batch = xlnet(), tokens(LENGTHS, 1)
    return encoder, lambda: encoder(batch)


def query_stream() -> tuple[Encoder, Result]:
    encoder, batch = xlnet(), tokens(LENGTHS, 1)
    draw = np.random.default_rng(4)
    order = torch.from_numpy(draw.permutation(len(batch.ids)))
    places = torch.from_numpy(np.flatnonzero(draw.random(len(batch.ids)) < 0.4))
    return encoder, lambda: encoder.two_streams(batch, order, places)


@pytest.mark.parametrize("case", [read_and_written, content_stream, query_stream])
def test_filled_up_blocks_give_what_exact_ones_give(
    case: Callable[[], tuple[Encoder, Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, result = case()
    exact = result()
    exact.square().sum().backward()
    gradients = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}
    encoder.zero_grad(set_to_none=True)
    laid: list[int] = []
    block = Padding.block
    monkeypatch.setattr(Padding, "block", lambda self, x: laid.append(1) or block(self, x))
    for module in (crossing, streams):
        monkeypatch.setattr(module, "length_class", lambda lengths, *, padded: length_class(lengths, padded=True))
    filled = result()
    assert laid  # else nothing was compared
    assert_close(filled, exact, rtol=1e-5, atol=1e-6)
    filled.square().sum().backward()
    for name, parameter in encoder.named_parameters():
        if name in gradients:
            assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-5)
