"""Sentences a second that are scored for spans at inference: ours against a dense head, and against GLiNER's span head.

    python benchmarks/span_speed.py [--sentences 64] [--longest 12] [--size 768] [--hidden 256] [--device cpu]

All score the same vectors of words, of ragged sentences, for 10 types. *dense* has our weights and builds [start; end;
mean] of every span of the padded batch; it must give our scores. *gliner* has the shape of GLiNER's `markerV0` layer
(Zaratiana et al. 2024: start and end each through D → 4D → D, their concatenation through 2D → 4D → D for every span of
the padded batch, then products with the types); its weights are random, so that only its time compares. Contenders take
turns in each round; ratios are medians of the rounds' own. JSON comes last.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from arguments import arguments
from torch import Tensor, nn

from larvatus.core.rng import stream
from larvatus.models.nn.initialise import initialise
from larvatus.models.nn.span_scorer import SpanIndex, SpanScorer

TYPES = 10


def feed_forward(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(before, 4 * after), nn.ReLU(), nn.Linear(4 * after, after))


class GLiNERHead(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.start, self.end, self.out = (
            feed_forward(size, size),
            feed_forward(size, size),
            feed_forward(2 * size, size),
        )
        self.types = nn.Parameter(torch.empty(TYPES, size))

    def forward(self, z_BTD: Tensor, first_TL: Tensor, last_TL: Tensor) -> Tensor:
        start, end = self.start(z_BTD)[:, first_TL], self.end(z_BTD)[:, last_TL]  # [B, T, L, D]
        rep = self.out(torch.cat([start, end], -1).relu())
        return torch.einsum("btld,kd->btlk", rep, self.types)


def dense(scorer: SpanScorer, z_BTD: Tensor, first_TL: Tensor, last_TL: Tensor) -> Tensor:
    sums = F.pad(z_BTD.double().cumsum(1), (0, 0, 1, 0))
    lengths = (last_TL - first_TL + 1)[..., None]
    content = ((sums[:, last_TL + 1] - sums[:, first_TL]) / lengths).to(z_BTD.dtype)
    assert scorer.start_ffn is not None
    assert scorer.end_ffn is not None
    start, end = scorer.start_ffn(z_BTD)[:, first_TL], scorer.end_ffn(z_BTD)[:, last_TL]
    weight = torch.cat([scorer.start.weight, scorer.end.weight, scorer.content.weight], 1)
    hidden = F.linear(torch.cat([start, end, content], -1), weight, scorer.content.bias)
    found: Tensor = scorer.output(hidden.relu())
    return found


def main() -> None:
    options = arguments(
        __doc__, sentences=64, batch=16, longest=12, size=768, hidden=256, rounds=3, threads=1, device="cpu"
    )
    torch.set_num_threads(options.threads)
    draw = stream(1, "span speed")
    lengths = np.sort(np.clip(draw.lognormal(3.0, 0.5, options.sentences).astype(int), 3, 120))  # 23 words on average
    scorer = SpanScorer(
        options.size,
        hidden=options.hidden,
        outputs=TYPES + 1,
        longest=options.longest,
        representation="boundaries",
        widths=False,
    )
    gliner = GLiNERHead(options.size)
    for part in (scorer, gliner):
        initialise(part, seed=1)
        part.to(options.device).eval()
    ready = []
    for own in np.split(lengths, range(options.batch, options.sentences, options.batch)):
        counts = torch.from_numpy(own).to(options.device)
        flat = torch.from_numpy(draw.normal(0, 1, (int(own.sum()), options.size))).float().to(options.device)
        mask = torch.arange(int(own.max()), device=options.device) < counts[:, None]
        padded = flat.new_zeros(*mask.shape, options.size)
        padded[mask] = flat
        first = torch.arange(mask.shape[1], device=options.device)[:, None].expand(-1, options.longest)
        last = (first + torch.arange(options.longest, device=options.device)).clamp(max=mask.shape[1] - 1)
        ready.append((flat, counts, padded, first, last))

    @torch.inference_mode()
    def ours() -> list[Tensor]:
        return [scorer(flat, SpanIndex.of(counts, longest=options.longest)) for flat, counts, *_ in ready]

    @torch.inference_mode()
    def padded_dense() -> list[Tensor]:
        return [dense(scorer, padded, first, last) for _, _, padded, first, last in ready]

    @torch.inference_mode()
    def padded_gliner() -> list[Tensor]:
        return [gliner(padded, first, last) for _, _, padded, first, last in ready]

    for (_, counts, padded, _, _), mine, theirs in zip(ready, ours(), padded_dense(), strict=True):
        place = torch.arange(padded.shape[1], device=options.device)[:, None] + torch.arange(
            options.longest, device=options.device
        )
        torch.testing.assert_close(mine, theirs[place < counts[:, None, None]], rtol=1e-3, atol=1e-3)
    contenders: dict[str, Callable[[], list[Tensor]]] = {
        "ours": ours,
        "dense": padded_dense,
        "gliner": padded_gliner,
    }
    times = [{name: seconds(work, options.device) for name, work in contenders.items()} for _ in range(options.rounds)]
    figures = {
        name: {
            "sentences_per_second": round(options.sentences / statistics.median(one[name] for one in times), 1),
            "ours_is_faster_by": round(statistics.median(one[name] / one["ours"] for one in times), 2),
        }
        for name in contenders
    }
    for name, found in figures.items():
        print(
            f"{name:>7}: {found['sentences_per_second']:>8} sentences/s; ours is {found['ours_is_faster_by']} × as fast"
        )
    print(json.dumps({**vars(options), "words": int(lengths.sum()), "results": figures}))


def seconds(work: Callable[[], object], device: str) -> float:
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
