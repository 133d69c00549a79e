"""Training speed on a GPU, BERT-base shape: ours against `transformers`' `BertForMaskedLM`, in the same run.

    python benchmarks/gpu_train_speed.py [--tokens 65536] [--length 512] [--repeats 20] [--rows full]

Ragged rows (lengths spread evenly up to the limit), 15% of the tokens predicted, bf16, both compiled, both with fused
AdamW and dropout 0.1. Theirs pads every row to the limit, as its collator does for static shapes; ours pads nothing.
Theirs finds its rows in pinned memory; ours prepares each step on a thread of its own while the one before it runs, as
`larvatus pretrain` does. Prints tokens of text a second (padding does not count; median, slowest and fastest of three
rounds), memory, the ratios, and our model FLOP utilisation.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Callable
from itertools import cycle
from typing import NamedTuple

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, runs
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.evaluation.speed.timing import matrix_ceiling
from larvatus.evaluation.speed.training import padded
from larvatus.models.network import Network
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.optimizer import adamw
from larvatus.training.engine.ranks import Ranks
from larvatus.training.engine.reporter import flops_per_token, peak_flops
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.loop import prefetch
from larvatus.training.pretraining.step import Stepper

VOCABULARY, RATE = 30_522, 0.15
ROUNDS = 3


def ragged(tokens: int, length: int, seed: int, *, full: bool) -> TrainingBatch[Ints]:
    random = np.random.default_rng(seed)
    lengths = np.full(tokens // length, length) if full else random.integers(16, length + 1, size=4 * tokens // length)
    lengths = lengths[: next(runs(lengths, tokens))[1]]
    batch = TokenBatch.of([random.integers(1000, VOCABULARY, n).tolist() for n in lengths])
    places = np.flatnonzero(random.random(batch.size) < RATE)
    targets = MaskedTokens(places=places, ids=batch.ids[places])
    return TrainingBatch(tokens=batch, targets={MaskedTokens: targets})


class Speed(NamedTuple):
    """What a way of training reached."""

    tokens_a_second: list[float]
    """Of each round."""
    memory: float
    """GiB at the peak of a step."""

    @property
    def median(self) -> float:
        return float(np.median(self.tokens_a_second))

    def __str__(self) -> str:
        low, high = min(self.tokens_a_second), max(self.tokens_a_second)
        return f"{self.median:,.0f} tokens/s ({low:,.0f} to {high:,.0f}; {self.memory:.1f} GiB)"


def timed(step: Callable[[int], None], tokens: float, repeats: int) -> Speed:
    """Rounds of steps of so many tokens, launched one after another as in a run; the first steps compile."""
    for number in range(8):
        step(number)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    speeds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for number in range(repeats):
            step(number)
        torch.cuda.synchronize()
        speeds.append(repeats * tokens / (time.perf_counter() - began))
    return Speed(speeds, torch.cuda.max_memory_allocated() / 2**30)


def ours(batches: list[TrainingBatch[Ints]], length: int, tokens: int, repeats: int) -> tuple[Speed, float]:
    """And the operations that a token takes."""
    settings = ["packing.type=single-segment", 'objectives=[{type="masked-lm"}]', f"batch={tokens // length}"]
    recipe = read_recipe("bert", settings=settings)
    model = Network.build(recipe.model, recipe.objectives, VOCABULARY, seed=0).cuda()
    runtime = Runtime(device="cuda", precision="bf16", compile=True, microbatch=tokens)
    stepper = Stepper(model, adamw(model, recipe.optimizer), recipe, runtime=runtime, ranks=Ranks(), seed=0, pad_id=0)

    steps = prefetch(stepper.prepare(batch, limit=length) for batch in cycle(batches))

    def step(number: int) -> None:
        stepper.launch(next(steps), step=number, rate=1e-4)

    speed = timed(step, float(np.mean([b.tokens.size for b in batches])), repeats)
    steps.close()
    mean_length = float(np.mean(np.concatenate([b.tokens.lengths for b in batches])))
    return speed, flops_per_token(model, recipe, round(mean_length))


def theirs(batches: list[TrainingBatch[Ints]], length: int, repeats: int) -> Speed:
    model = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY)).cuda().train()
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rows = max(b.tokens.count for b in batches)
    rowed = [padded(batch, rows=rows, length=length) for batch in batches]
    pinned = [{name: tensor.pin_memory() for name, tensor in inputs.items()} for inputs in rowed]

    def step(number: int) -> None:
        inputs = {name: tensor.cuda(non_blocking=True) for name, tensor in pinned[number % len(pinned)].items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return timed(step, float(np.mean([b.tokens.size for b in batches])), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--rows", choices=["ragged", "full"], help="one of the two alone")
    chosen = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    ceiling = matrix_ceiling("cuda", "bf16", seconds=1.0).flops
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: matrix products at {ceiling / 1e12:.0f} TFLOP/s")
    for name, full in (("ragged rows", False), ("full rows", True)):
        if chosen.rows is not None and full != (chosen.rows == "full"):
            continue
        batches = [ragged(chosen.tokens, chosen.length, seed, full=full) for seed in range(4)]
        speed, operations = ours(batches, chosen.length, chosen.tokens, chosen.repeats)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        peer = theirs(batches, chosen.length, chosen.repeats)
        torch._dynamo.reset()
        print(f"{name}: larvatus {speed}, transformers {peer}: {speed.median / peer.median:.2f} ×", flush=True)
        used, promised = speed.median * operations, peak_flops("cuda") or math.nan
        mfu = f"MFU {used / ceiling:.3f} of matrix products here, {used / promised:.3f} of the datasheet"
        print(f"    {mfu}; memory {speed.memory / peer.memory:.2f} ×", flush=True)


if __name__ == "__main__":
    main()
