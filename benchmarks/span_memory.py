"""Peak memory and time of a training step of the span scorer against the direct one, which builds T × L × 3d.

    python benchmarks/span_memory.py [--words 512] [--longest 16] [--size 768] [--hidden 768] [--device cpu]

Both have the same weights and must give the same loss and gradients (in float64). A step is the scores of all spans,
their cross-entropy, and the gradient of all weights and of the words' vectors. Memory is what a step takes at its peak
beyond what lies there before it, as torch's allocators count it (not what the system's keeps for later, which differs
from run to run). The contenders take turns in each round; ratios are medians of the rounds' own. JSON
comes last.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time

import torch
import torch.nn.functional as F
from arguments import arguments
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from larvatus.core.rng import stream
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.span_scorer import SpanIndex, SpanScorer

OUTPUTS = 13


def direct(scorer: SpanScorer, z_WD: Tensor, index: SpanIndex) -> Tensor:
    """The equations as they stand: the vector of every span, then the feed-forward net."""
    first, last = index.first_M, index.last_M
    start = z_WD if scorer.start_ffn is None else scorer.start_ffn(z_WD)
    end = z_WD if scorer.end_ffn is None else scorer.end_ffn(z_WD)
    if scorer.attention is None:
        sums = F.pad(z_WD.double().cumsum(0), (0, 0, 1, 0))
        content = ((sums[last + 1] - sums[first]) / (last - first + 1)[:, None]).to(z_WD.dtype)
    else:  # as a product [M, T] × [T, D]: the words of all spans, [M, L, D], would take far more
        places = (first[:, None] + torch.arange(index.longest, device=z_WD.device)).clamp(max=len(z_WD) - 1)
        outside = torch.arange(index.longest, device=z_WD.device) > (last - first)[:, None]
        weights = torch.softmax(scorer.attention(z_WD)[places, 0].masked_fill(outside, -torch.inf), 1)
        content = weights.new_zeros(len(first), len(z_WD)).scatter_add(1, places, weights) @ z_WD
    rep = torch.cat([start[first], end[last], content], 1)  # [M, 3d]
    weight = torch.cat([scorer.start.weight, scorer.end.weight, scorer.content.weight], 1)
    return scorer.output(torch.relu(F.linear(rep, weight, scorer.content.bias)))


def ours(scorer: SpanScorer, z_WD: Tensor, index: SpanIndex) -> Tensor:
    found: Tensor = scorer(z_WD, index)
    return found


CONTENDERS = {"ours": ours, "direct": direct}


def setting(options: argparse.Namespace) -> tuple[SpanScorer, Tensor, SpanIndex, Tensor]:
    scorer = SpanScorer(
        options.size,
        hidden=options.hidden,
        outputs=OUTPUTS,
        longest=options.longest,
        representation=options.representation,
        widths=False,
    ).to(options.device)
    initialise(scorer, seed=1)
    z = torch.from_numpy(stream(1, "span memory").normal(0, 1, (options.words, options.size))).float()
    counts = torch.tensor([options.words], device=options.device)
    index = SpanIndex.of(counts, longest=options.longest)
    gold = torch.from_numpy(stream(2, "span memory").integers(0, OUTPUTS, index.count)).to(options.device)
    return scorer, z.to(options.device).requires_grad_(), index, gold


def step(name: str, made: tuple[SpanScorer, Tensor, SpanIndex, Tensor]) -> Tensor:
    scorer, z, index, gold = made
    scorer.zero_grad()
    z.grad = None
    loss = F.cross_entropy(CONTENDERS[name](scorer, z, index), gold)
    loss.backward()
    return loss.detach()


def peak(name: str, options: argparse.Namespace) -> int:
    """Bytes that a step takes at its peak, as torch's allocators count them."""
    made = setting(options)
    if options.device == "cuda":
        step(name, made)  # what the libraries take once
        made[0].zero_grad()
        made[1].grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(name, made)
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        step(name, made)
    events = [one for one in watched.profiler.kineto_results.events() if one.name() == "[memory]"]
    held = itertools.accumulate(one.nbytes() for one in sorted(events, key=lambda one: one.start_ns()))
    return max(held)


def seconds(name: str, made: tuple[SpanScorer, Tensor, SpanIndex, Tensor]) -> float:
    began = time.perf_counter()
    step(name, made)
    if made[1].device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    options = arguments(
        __doc__,
        words=512,
        longest=16,
        size=768,
        hidden=768,
        representation=("mean", "boundaries", "attention"),
        rounds=5,
        threads=1,
        device="cpu",
    )
    torch.set_num_threads(options.threads)
    memory = {name: peak(name, options) for name in CONTENDERS}
    made = setting(options)
    exact = (made[0].double(), made[1].detach().double().requires_grad_(), *made[2:])
    results = {}
    for name in CONTENDERS:
        loss = step(name, exact)
        results[name] = [loss, exact[1].grad, *(one.grad for one in exact[0].parameters())]
    for mine, theirs in zip(results["ours"], results["direct"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-10)
    made = setting(options)
    times = [{name: seconds(name, made) for name in CONTENDERS} for _ in range(options.rounds)]
    figures = {
        "peak_mb": {name: round(size / 1e6, 1) for name, size in memory.items()},
        "memory_ratio": round(memory["direct"] / memory["ours"], 2),
        "ms": {name: round(1e3 * statistics.median(one[name] for one in times), 1) for name in CONTENDERS},
        "time_ratio": round(statistics.median(one["direct"] / one["ours"] for one in times), 2),
    }
    print(
        f"peak of a step: ours {figures['peak_mb']['ours']} MB, direct {figures['peak_mb']['direct']} MB "
        f"({figures['memory_ratio']} times as much)\n"
        f"time of a step: ours {figures['ms']['ours']} ms, direct {figures['ms']['direct']} ms "
        f"({figures['time_ratio']} times as long)"
    )
    print(json.dumps({**vars(options), **figures}))


if __name__ == "__main__":
    main()
