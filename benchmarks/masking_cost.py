"""What corruption costs beside training: masking of each kind, and noise, against a CPU step of BERT-mini.

    python benchmarks/masking_cost.py

Sequences of 512 tokens, words of one to four pieces, 16,384 tokens a step; medians over turns, on one core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.rng import stream
from larvatus.data.corruption import (
    Corruption,
    CorruptionConfig,
    MaskingConfig,
    MaskVocabulary,
    NGramsConfig,
    NoiseConfig,
    SpanCorruptionConfig,
    WholeWordConfig,
)
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.objectives import MaskedLMConfig, SpanBoundaryConfig

VOCABULARY, LENGTH, SEQUENCES, TURNS = 16_384, 512, 32, 3
KNOWN = MaskVocabulary(mask_id=4, size=VOCABULARY, special_ids={0, 1, 2, 3, 4}, counts=np.arange(VOCABULARY)[::-1])
MINI = TransformerConfig(layers=4, hidden=256, heads=4, segments=0)


def text() -> TrainingBatch[Ints]:
    draw = stream(1, "benchmark masking")
    ids, words = [], []
    for _ in range(SEQUENCES):
        sizes = draw.choice([1, 1, 1, 1, 1, 2, 3, 4], size=LENGTH)
        own = np.repeat(np.arange(LENGTH), sizes)[: LENGTH - 2]
        ids.append([1, *draw.integers(5, VOCABULARY, size=LENGTH - 2).tolist(), 2])
        words.append([-1, *own.tolist(), -1])
    return TrainingBatch(tokens=TokenBatch.of(ids, words=words), targets={})


def seconds(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(TURNS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    batch = text()
    noise = NoiseConfig(mask=0.1, substitute=0.05, delete=0.05, insert=0.05, reorder=0.1)
    ways: list[CorruptionConfig] = [MaskingConfig(), WholeWordConfig(), SpanCorruptionConfig(), NGramsConfig(), noise]
    model = Network.build(MINI, [MaskedLMConfig(), SpanBoundaryConfig()], VOCABULARY, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    hidden = on_device(Corruption(SpanCorruptionConfig(), KNOWN, 1)(batch, 0, 0), "cpu")

    def step() -> None:
        sum(loss.mean for loss in model(hidden).values()).backward()  # type: ignore[union-attr]
        optimizer.step()
        optimizer.zero_grad()

    whole = seconds(step)
    print(f"training step of {batch.tokens.size:,} tokens: {whole:.2f} s")
    for config in ways:
        cost = seconds(lambda mask=Corruption(config, KNOWN, 1): mask(batch, 0, 0))  # type: ignore[misc]
        print(f"{config.__struct_config__.tag!s:12} {1e3 * cost:6.1f} ms    {cost / whole:.2%} of the step")


if __name__ == "__main__":
    main()
