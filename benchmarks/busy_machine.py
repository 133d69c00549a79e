"""Training on a machine where other programs run: how much is kept of the speed of an idle one, before and after.

    python benchmarks/busy_machine.py [--burners 1] [--seconds 6] [--rounds 4] [--threads 2]

A process takes training steps of a small BERT on ragged random rows, with as many threads as cores; beside it run
programs that only burn time (one a --burners). "before": threads of OpenMP wait for each other by spinning, as they do
by themselves; "after": as Larvatus sets them up before torch is imported (`larvatus/core/threads.py`). All four are
taken in turn, several times; medians are shown. A fair share of an otherwise idle machine is cores / (threads +
burners), at most 1. The loss after the last of a fixed number of steps is the same to the bit in all of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections import defaultdict

STEPS_TO_COMPARE = 2
PATIENCE_S = 120
"""After which a process that took no step counts as one that takes none."""
CHILD = """
import sys, time
if sys.argv[1] == "before":  # too late for larvatus to say how threads wait
    import torch
import larvatus
import numpy as np, torch
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig
seconds, threads = float(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
draw = np.random.default_rng(0)
lengths = draw.integers(8, 128, 60)
batch = TokenBatch.of([draw.integers(5, 8000, n).tolist() for n in lengths])
places = np.sort(draw.choice(batch.size, batch.size // 7, replace=False))
targets = {MaskedTokens: MaskedTokens(places=places, ids=batch.ids[places])}
step = TrainingBatch(tokens=batch, targets=targets).map(torch.from_numpy)
network = Network.build(TransformerConfig(layers=2, hidden=128, heads=2), [MaskedLMConfig()], 8000, seed=0)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
torch.manual_seed(0)
def train():
    optimizer.zero_grad()
    loss, _ = network.loss(step, {"masked-lm": len(places)})
    loss.backward()
    optimizer.step()
    return loss
for _ in range(STEPS): last = train()
print(last.item().hex(), end=" ")
begin, steps = time.perf_counter(), 0
while time.perf_counter() - begin < seconds:
    train()
    steps += 1
print(steps * batch.size / (time.perf_counter() - begin))
"""
BURNER = "while True: pass"


def rate(way: str, asked: argparse.Namespace, burners: int) -> tuple[str, float]:
    """The loss and the tokens a second of one process, with so many programs beside it."""
    others = [subprocess.Popen([sys.executable, "-c", BURNER]) for _ in range(burners)]
    try:
        code = CHILD.replace("STEPS", str(STEPS_TO_COMPARE))
        command = [sys.executable, "-c", code, way, str(asked.seconds), str(asked.threads)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
        loss, speed = done.stdout.split()
    except subprocess.TimeoutExpired:
        return "", 0.0
    finally:
        for other in others:
            other.kill()
            other.wait()
    return loss, float(speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--burners", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=cores)
    asked = parser.parse_args()
    speeds: dict[tuple[str, int], list[float]] = defaultdict(list)
    losses = set()
    for turn in range(asked.rounds):
        for way in ("before", "after")[:: 1 if turn % 2 else -1]:
            for burners in (0, asked.burners):
                loss, speed = rate(way, asked, burners)
                losses.update({loss} - {""})
                speeds[way, burners].append(speed)
                print(f"{way:<8}{burners} burning {speed:9,.0f} tokens/s", flush=True)
    print(f"{asked.threads} threads, {cores} cores, {asked.burners} burning programs, medians of {asked.rounds} rounds")
    for way in ("before", "after"):
        idle, busy = (statistics.median(speeds[way, burners]) for burners in (0, asked.burners))
        print(f"{way:<8}idle {idle:9,.0f} tokens/s   busy {busy:9,.0f}   busy / idle {busy / max(idle, 1e-9):.2f}")
    for burners in (0, asked.burners):
        each = zip(speeds["after", burners], speeds["before", burners], strict=True)
        print(f"after / before with {burners} burning: {statistics.median(a / max(b, 1.0) for a, b in each):.2f}")
    print(f"fair share of an idle machine: {min(1.0, cores / (asked.threads + asked.burners)):.2f}")
    if len(losses) != 1:
        raise SystemExit(f"the losses differ: {sorted(losses)}")


if __name__ == "__main__":
    main()
