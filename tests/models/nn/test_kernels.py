"""Our Triton kernels, in Triton's interpreter on the CPU, against float64: forward, backward, and what is dropped.

Which attention weights are dropped is worked out here a second time, by a hash in NumPy's unsigned numbers. Forward and
both backward kernels must drop exactly these: any other gradient would be far from that of float64.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.models.nn.kernel_cases import ATTENTION, FEEDFORWARD, Feed, Heads, hash_inputs
from tests.patience import WATCHDOG_S

ROOT = Path(__file__).parents[3]
TRITON_RUNS = sys.platform == "linux" and os.uname().machine == "x86_64"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the kernels gave, by case and part."""
    if not TRITON_RUNS and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton has no wheels for this machine")
    path = tmp_path_factory.mktemp("kernels") / "results.safetensors"
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.models.nn.interpreted_kernels", str(path)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    assert done.returncode == 0, done.stderr
    return load_file(path)


def lowbias32(x: np.ndarray) -> np.ndarray:
    """Wellons's hash, in unsigned numbers of 32 bits."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def kept(case: Heads, sequence: int, head: int) -> Tensor:
    """[length, length]: which weights of a head in a sequence are kept."""
    torch.manual_seed(case.seed)
    drawn = int(torch.randint(-(1 << 31), (1 << 31) - 1, (1,))) & 0xFFFFFFFF
    golden = np.uint32(0x9E3779B9)
    number = np.array([sequence * case.heads + head], dtype=np.uint32)
    seed_q = lowbias32(number * golden ^ np.uint32(drawn))
    seed_k = lowbias32(seed_q ^ np.uint32(0x85EBCA6B))
    places = np.arange(case.lengths[sequence], dtype=np.uint32) * golden
    rows, columns = (lowbias32(places ^ seed) | np.uint32(1) for seed in (seed_q, seed_k))
    return torch.from_numpy(rows[:, None] * columns[None, :] >= np.uint32(round(case.dropout * 2**32)))


def attended(case: Heads, qkv: Tensor) -> Tensor:
    """Attention in float64, one head of one sequence after the other."""
    edges = case.edges().tolist()
    out = torch.empty(len(qkv), case.heads, case.size, dtype=torch.float64)
    for sequence, (start, end) in enumerate(pairwise(edges)):
        places = torch.arange(end - start)
        away = places[None, :] - places[:, None]
        seen = torch.ones_like(away, dtype=torch.bool)
        if case.window is not None:
            seen = away.abs() <= case.window
        if case.causal:
            seen = seen & (away <= 0)
        for head in range(case.heads):
            q, k, v = qkv[start:end, :, head].unbind(1)
            scores = (q @ k.T / math.sqrt(case.size)).masked_fill(~seen, float("-inf"))
            weights = scores.softmax(-1)
            if case.dropout:
                weights = weights * kept(case, sequence, head) / (1 - case.dropout)
            out[start:end, head] = weights @ v
    return out


def assert_close(ours: Tensor, truth: Tensor) -> None:
    assert ours.shape == truth.shape
    off = (ours.double() - truth).norm() / truth.norm()
    assert off < 2e-6, off


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_and_its_gradients_are_those_of_float64(given: dict[str, Tensor], name: str) -> None:
    case = ATTENTION[name]
    qkv, _, gradient = case.tensors()
    exact = qkv.double().requires_grad_()
    out = attended(case, exact)
    (truth,) = torch.autograd.grad(out, exact, gradient.double())
    assert_close(given[f"{name}: out"], out.detach())
    assert_close(given[f"{name}: qkv"], truth)
    assert_close(given[f"{name}: bias"], truth.sum(0).flatten())


def test_the_share_that_is_kept_is_the_one_that_is_set() -> None:
    case = Heads(dropout=0.3, lengths=(512, 512))
    masks = torch.stack([kept(case, sequence, head) for sequence in (0, 1) for head in (0, 1)]).double()
    assert abs(masks.mean() - 0.7) < 0.01
    centred = masks.flatten(1) - 0.7
    agreement = centred @ centred.T / (centred.shape[1] * 0.21)
    assert (agreement - torch.eye(4)).abs().max() < 0.02  # heads and sequences drop other weights


def test_each_seed_drops_other_weights(given: dict[str, Tensor]) -> None:
    one, two = ATTENTION["dropout"], ATTENTION["other seed"]
    assert not torch.equal(kept(one, 1, 0), kept(two, 1, 0))
    start, end = one.edges()[1:3]
    assert not torch.equal(given["dropout: out"][start:end], given["other seed: out"][start:end])


def test_no_two_numbers_have_the_same_hash(given: dict[str, Tensor]) -> None:
    """A number and its complement do, where the sign is shifted in."""
    numbers = hash_inputs()
    expected = lowbias32(numbers.numpy().astype(np.uint32)).astype(np.int64)
    assert given["hashes"].tolist() == expected.tolist()
    assert len(given["hashes"].unique()) == len(numbers.unique()) == 1024


@pytest.mark.parametrize("name", FEEDFORWARD)
def test_the_feedforward_layer_and_its_gradients_are_those_of_float64(given: dict[str, Tensor], name: str) -> None:
    case: Feed = FEEDFORWARD[name]
    *leaves, gradient = (tensor.double() for tensor in case.tensors())
    x, up, bias, down = (leaf.requires_grad_() for leaf in leaves)
    if case.gated:
        inner, gate = (x @ up.T).chunk(2, dim=-1)
        y, wanted = (F.gelu(inner) * gate) @ down.T, {"x": x, "up": up, "down": down}
    else:
        y, wanted = F.gelu(x @ up.T + bias) @ down.T, {"x": x, "up": up, "bias": bias, "down": down}
    gradients = torch.autograd.grad(y, list(wanted.values()), gradient)
    assert_close(given[f"{name}: out"], y.detach())
    for part, truth in zip(wanted, gradients, strict=True):
        assert_close(given[f"{name}: {part}"], truth)
