"""What it saves to train a part: a step of all, last2, lora and head, and of the head over features computed once.

    python benchmarks/trained_speed.py [--layers 6] [--hidden 384] [--texts 256] [--rounds 5] [--device cpu]

Classification of texts of 8 to 64 random tokens, 32 in a step, with our defaults (dropout 0.1, fused AdamW). The
contenders take turns in each round, over the same batches; times are medians of steps, ratios against training all.
`cached` is a step from the cache; building it once takes `cache_s`. JSON comes last.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import numpy as np
import torch
from arguments import arguments

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.rng import stream
from larvatus.core.targets import ClassTargets
from larvatus.models.heads import ClassificationConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.nn.lora import parameter_counts
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.trainer.trainable import TrainableConfig, train_mode, trainable
from larvatus.training.engine.optimizer import set_rate

BATCH, VOCABULARY = 32, 30_522


class Texts:
    def __init__(self, size: int) -> None:
        random = stream(1, "trained speed")
        self.rows = [random.integers(0, VOCABULARY, n).tolist() for n in random.integers(8, 65, size)]

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        targets = ClassTargets(labels=examples % 2, weights=np.ones(len(examples), np.float32))
        tokens = TokenBatch.of([self.rows[number] for number in examples])
        return TrainingBatch(tokens=tokens, targets={ClassTargets: targets})


class Contender:
    def __init__(self, word: str, shape: TransformerConfig, scoring: ScoringOptions) -> None:
        self.model = Network.build(shape, [ClassificationConfig(labels=("no", "yes"))], VOCABULARY, seed=1)
        self.model.to(scoring.device)
        groups = trainable(self.model, TrainableConfig.read(word), decay=0.01, seed=1)
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
        self.scoring = scoring
        self.features: Features | None = None

    def step(self, data: Texts, chosen: Ints) -> float:
        """Seconds of one."""
        self._wait()
        began = time.perf_counter()
        train_mode(self.model)
        batch = on_device(data.batch(chosen), self.scoring.device)
        with self.scoring.autocast():
            if self.features is not None:
                loss = self.features.loss(head_of(self.model), chosen, batch).mean
            else:
                loss = self.model(batch, limit=64)["classification"].mean
        loss.backward()
        set_rate(self.optimizer, 1e-4)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.scoring.device.startswith("cuda"):
            torch.cuda.synchronize()


def main() -> None:
    options = arguments(__doc__, layers=6, hidden=384, texts=256, rounds=5, device="cpu")
    shape = TransformerConfig(layers=options.layers, hidden=options.hidden, heads=options.hidden // 32)
    scoring = ScoringOptions(device=options.device, precision="fp32" if options.device == "cpu" else "bf16")
    data = Texts(options.texts)
    names = {"all": "all", "last2": "last2", "lora": "lora", "head": "head", "cached": "head"}
    contenders = {name: Contender(word, shape, scoring) for name, word in names.items()}
    began = time.perf_counter()
    contenders["cached"].features = Features.build(contenders["cached"].model, data, scoring)
    cache = time.perf_counter() - began
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.rounds + 1):
        chosen = stream(1, "order", number).permutation(len(data))[:BATCH]
        for name, one in contenders.items():
            seconds = one.step(data, chosen)
            if number:  # the first warms up
                times[name].append(seconds)
    results: dict[str, Any] = {}
    for name, own in times.items():
        ratio = statistics.median(b / a for a, b in zip(times["all"], own, strict=True))
        trained = parameter_counts(contenders[name].model).trained
        results[name] = {"ms": round(1e3 * statistics.median(own), 1), "ratio": round(ratio, 3), "trained": trained}
        print(f"{name:>6}: {results[name]['ms']} ms a step, {ratio:.3f} of training all; {trained:,} numbers learn")
    print(json.dumps({**vars(options), "cache_s": round(cache, 2), "results": results}))


if __name__ == "__main__":
    main()
