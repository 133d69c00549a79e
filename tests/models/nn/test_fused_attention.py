"""What can be held without a GPU of our attention kernels: who they serve, what a compiler is told, what is dropped.

`test_kernels.py` runs the kernels themselves in Triton's interpreter. `benchmarks/attention_speed.py` compares them
with float64, and checks that they repeat bit for bit, on a GPU.
"""

from __future__ import annotations

import pytest
import torch

from larvatus.models.nn.attention import fused
from larvatus.models.nn.attention.layout import AttentionMask, FlatLayout
from larvatus.models.nn.block_stack import post_norm
from larvatus.models.nn.dropout import hash_integers, hashed_keep


class Properties:
    def __init__(self, major: int) -> None:
        self.major = major


@pytest.mark.parametrize(
    ("major", "size", "triton", "expected"),
    [(9, 64, True, True), (9, 48, True, False), (8, 64, True, False), (9, 64, False, False), (10, 64, True, False)],
)
def test_kernels_serve_where_they_were_measured(monkeypatch, major, size, triton, expected) -> None:
    monkeypatch.setattr(fused, "TRITON", triton)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties(major))
    assert fused.supports_fused_attention(torch.device("cuda"), size) is expected
    assert not fused.supports_fused_attention(torch.device("cpu"), size)


@pytest.mark.parametrize("mask", [AttentionMask(), AttentionMask(window=2), AttentionMask(causal=True)])
def test_a_compiler_is_told_the_right_shapes(mask) -> None:
    qkv = torch.empty(7, 3, 2, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
    layout = FlatLayout(edges=torch.empty(3, dtype=torch.int32, device="meta"), limit=4)
    out = fused.attend_fused(qkv, layout, mask, dropout=0.1)
    (gradient,) = torch.autograd.grad(out, qkv, torch.empty_like(out))
    assert (out.shape, out.dtype) == ((7, 2, 64), torch.bfloat16)
    assert (gradient.shape, gradient.dtype) == (qkv.shape, qkv.dtype)
    bias = torch.empty(3 * 2 * 64, device="meta", requires_grad=True)
    out = fused.attend_fused(qkv.detach(), layout, mask, dropout=0.1, bias=bias)
    (gradient,) = torch.autograd.grad(out, bias, torch.empty_like(out))
    assert (gradient.shape, gradient.dtype) == (bias.shape, torch.float32)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_hashed_dropout_keeps_its_share_and_nothing_shows_in_it(p) -> None:
    """As independent draws would: the share, neighbours in rows and columns, and the largest singular value."""
    torch.manual_seed(0)
    rows, columns = 1024, 768
    kept = hashed_keep(torch.Size([rows, columns]), p, torch.device("cpu")).double()
    spread = (p * (1 - p)) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 5 * spread / (rows * columns) ** 0.5
    centred = (kept - (1 - p)) / spread
    for shifted in (centred[1:] * centred[:-1], centred[:, 1:] * centred[:, :-1], centred[:, 256:] * centred[:, :-256]):
        assert abs(shifted.mean()) < 5 / shifted.numel() ** 0.5
    largest = torch.linalg.matrix_norm(centred, 2) / rows**0.5
    assert largest == pytest.approx(1 + (columns / rows) ** 0.5, rel=0.02)  # Marchenko & Pastur 1967


def naive_hash(x: int, first: int, second: int) -> int:
    """In unsigned numbers of 32 bits, as its authors write it."""
    mask = (1 << 32) - 1
    x = ((x ^ first) * 0x9E3779B9) & mask
    x = (((x ^ (x >> 16)) * 0x7FEB352D) & mask) ^ second
    return ((x ^ (x >> 15)) * 0x846CA68B) & mask


def test_the_hash_is_that_of_unsigned_numbers_and_takes_no_two_alike() -> None:
    """With the sign shifted in, a number and its complement had the same hash, and half of all hashes never came."""
    numbers = torch.randint(-(1 << 31), (1 << 31) - 1, (50_000,), generator=torch.manual_seed(0)).unique()
    both = torch.cat([numbers, ~numbers]).unique().to(torch.int32)
    first, second = torch.tensor([123_456_789, -987_654_321], dtype=torch.int32)
    hashes = hash_integers(both, first, second)
    assert len(hashes.unique()) == len(both)
    signed = [int(number) for number in hashes[:200]]
    seed = (int(first), int(second) & 0xFFFFFFFF)
    assert [number & 0xFFFFFFFF for number in signed] == [naive_hash(int(x) & 0xFFFFFFFF, *seed) for x in both[:200]]


def test_hashed_dropout_follows_the_seed() -> None:
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return hashed_keep(torch.Size([64, 64]), 0.5, torch.device("cpu"))

    assert torch.equal(drawn(1), drawn(1))
    agreeing = (drawn(1) == drawn(2)).double().mean()
    assert 0.45 < agreeing < 0.55


def test_the_residual_stream_keeps_the_precision_of_its_layers() -> None:
    """In mixed precision a norm gives 32 bits, which would be twice as much to move between layers."""
    norm, layer = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)
    x = torch.randn(3, 8)
    assert post_norm(x, layer, norm, lambda y: y).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert post_norm(x, layer, norm, lambda y: y).dtype == torch.bfloat16
