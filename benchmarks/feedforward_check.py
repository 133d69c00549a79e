"""The fused feedforward layer on a GPU of the Hopper generation: held to float64, and timed beside torch's layers.

    python benchmarks/feedforward_check.py [--tokens 65536] [--hidden 768] [--gated]

Output and all gradients may be no further off than half as far again as torch's own in the same precision (bf16), and
must repeat bit for bit. Then forward and backward passes take turns.
"""

from __future__ import annotations

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.evaluation.speed.timing import time_in_turns
from larvatus.models.nn.feedforward import feed_fused, gate_fused, supports_fused_feedforward


def plain(x_ND: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    y_ND: Tensor = down(F.gelu(up(x_ND)))
    return y_ND


def gated(x_ND: Tensor, up: nn.Linear, down: nn.Linear) -> Tensor:
    inner, gate = up(x_ND).chunk(2, dim=-1)
    y_ND: Tensor = down(F.gelu(inner) * gate)
    return y_ND


def results(way: object, x_ND: Tensor, up: nn.Linear, down: nn.Linear, given: Tensor) -> list[Tensor]:
    leaf = x_ND.detach().clone().requires_grad_()
    y = way(leaf, up, down)  # type: ignore[operator]
    gradients = torch.autograd.grad(y, [leaf, *up.parameters(), *down.parameters()], given.to(y.dtype))
    return [y.detach(), *gradients]


def off(values: Tensor, truth: Tensor) -> float:
    return float((values.double() - truth).norm() / truth.norm())


def check(fused: object, layers: object, x: Tensor, up: nn.Linear, down: nn.Linear) -> None:
    given = torch.randn_like(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        if not supports_fused_feedforward(x, up, down, gated=up.bias is None):
            raise SystemExit("this wants a GPU of the Hopper generation, and Triton")
        ours, again = (results(fused, x, up, down, given) for _ in range(2))
        theirs = results(layers, x, up, down, given)
    exact = results(layers, x.double(), copy.deepcopy(up).double(), copy.deepcopy(down).double(), given.double())
    if not all(torch.equal(a, b) for a, b in zip(ours, again, strict=True)):
        raise SystemExit("the second pass gave other numbers")
    names = (
        ["output", "x", "up", "its bias", "down", "its bias"] if up.bias is not None else ["output", "x", "up", "down"]
    )
    for name, a, b, truth in zip(names, ours, theirs, exact, strict=True):
        if off(a, truth) > 1.5 * off(b, truth):
            raise SystemExit(f"{name}: off by {off(a, truth):.1e}, torch's by {off(b, truth):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--gated", action="store_true", help="the layer of `modern`: gated, without biases")
    chosen = parser.parse_args()
    inner, biases = (8 * chosen.hidden // 3, False) if chosen.gated else (4 * chosen.hidden, True)
    up = nn.Linear(chosen.hidden, inner * (2 if chosen.gated else 1), bias=biases).cuda()
    down = nn.Linear(inner, chosen.hidden, bias=biases).cuda()
    fused, layers = (gate_fused, gated) if chosen.gated else (feed_fused, plain)
    check(fused, layers, torch.randn(1_001, chosen.hidden, device="cuda", dtype=torch.bfloat16), up, down)
    x = torch.randn(chosen.tokens, chosen.hidden, device="cuda", dtype=torch.bfloat16)
    given = torch.randn_like(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        compiled = torch.compile(layers)
        ways = {name: lambda way=way: results(way, x, up, down, given) for name, way in
                (("ours", fused), ("torch's", layers), ("torch's, compiled", compiled))}  # fmt: skip
        timed = time_in_turns(ways, device="cuda", seconds=2.0, warm=3)
    for name, times in timed.items():
        print(f"{name}: {1e3 * times.median:.3f} ms; {times.median / timed['ours'].median:.2f} × ours")


if __name__ == "__main__":
    main()
