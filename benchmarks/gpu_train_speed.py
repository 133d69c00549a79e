"""Training speed on a GPU, BERT-base shape: ours against `transformers`' `BertForMaskedLM`, in the same run.

    python benchmarks/gpu_train_speed.py [--tokens 65536] [--length 512] [--repeats 20]

Ragged rows (lengths spread evenly up to the limit), 15% of the tokens predicted, bf16, both compiled, both with fused
AdamW and dropout 0.1. Theirs pads every row to the limit, as its collator does for static shapes; ours pads nothing.
Theirs finds its rows in pinned memory; ours prepares each step on a thread of its own while the one before it runs, as
`larvatus pretrain` does. Prints tokens of text a second (padding does not count), the ratio, and our model FLOP
utilisation.
"""

from __future__ import annotations

import argparse
import time
from itertools import cycle

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from larvatus.arrays import Ints
from larvatus.batch import MaskedTokens, TokenBatch, TrainingBatch, runs
from larvatus.benchmark.training import padded
from larvatus.engine.distribution import Ranks
from larvatus.engine.optimizer import adamw
from larvatus.engine.settings import Runtime
from larvatus.engine.speed import flops_per_token, peak_flops
from larvatus.network import Network
from larvatus.pretraining.loop import ahead
from larvatus.pretraining.step import Stepper
from larvatus.recipes import read_recipe

VOCABULARY, RATE = 30_522, 0.15


def ragged(tokens: int, length: int, seed: int, *, full: bool) -> TrainingBatch[Ints]:
    random = np.random.default_rng(seed)
    lengths = np.full(tokens // length, length) if full else random.integers(16, length + 1, size=4 * tokens // length)
    lengths = lengths[: next(runs(lengths, tokens))[1]]
    batch = TokenBatch.of([random.integers(1000, VOCABULARY, n).tolist() for n in lengths])
    places = np.flatnonzero(random.random(batch.size) < RATE)
    targets = MaskedTokens(places=places, ids=batch.ids[places])
    return TrainingBatch(tokens=batch, targets={MaskedTokens: targets})


def timed(step: object, repeats: int) -> float:
    """Median seconds of a call that ends with a synchronisation."""
    took = []
    for number in range(repeats + 5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step(number)  # type: ignore[operator]
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return float(np.median(took[5:]))


def ours(batches: list[TrainingBatch[Ints]], length: int, tokens: int, repeats: int) -> tuple[float, float]:
    settings = ["packing.type=single-segment", 'objectives=[{type="masked-lm"}]']
    recipe = read_recipe("bert", settings=settings)
    model = Network.build(recipe.model, recipe.objectives, VOCABULARY, seed=0).cuda()
    runtime = Runtime(device="cuda", precision="bf16", compile=True, microbatch=tokens)
    stepper = Stepper(model, adamw(model, recipe.optimizer), recipe, runtime=runtime, ranks=Ranks(), seed=0, pad_id=0)

    steps = ahead(stepper.prepare(batch, limit=length) for batch in cycle(batches))

    def step(number: int) -> None:
        stepper.launch(next(steps), step=number, rate=1e-4)

    seconds = timed(step, repeats)
    steps.close()
    size = float(np.mean([b.tokens.size for b in batches]))
    mean_length = float(np.mean(np.concatenate([b.tokens.lengths for b in batches])))
    peak = peak_flops("cuda") or float("nan")
    return size / seconds, size / seconds * flops_per_token(model, recipe, round(mean_length)) / peak


def theirs(batches: list[TrainingBatch[Ints]], length: int, repeats: int) -> float:
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

    return float(np.mean([b.tokens.size for b in batches])) / timed(step, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=20)
    chosen = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for name, full in (("ragged rows", False), ("full rows", True)):
        batches = [ragged(chosen.tokens, chosen.length, seed, full=full) for seed in range(4)]
        speed, mfu = ours(batches, chosen.length, chosen.tokens, chosen.repeats)
        peer = theirs(batches, chosen.length, chosen.repeats)
        print(f"{name}: larvatus {speed:,.0f} tokens/s (MFU {mfu:.3f}), transformers {peer:,.0f}: {speed / peer:.2f} ×")


if __name__ == "__main__":
    main()
