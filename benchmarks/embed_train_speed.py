"""Training of a sentence encoder: `finetune embed` against `SentenceTransformerTrainer`, same weights, pairs and loss.

    python benchmarks/embed_train_speed.py pairs.tsv --model DIR [--pairs 4000] [--batch 128] [--device cuda]

The file has two columns and no header: texts that belong together, as ragged as they come. Both train all weights with
in-batch negatives at scale 20, the same batch, bf16 on a GPU and float32 on a CPU, and cut texts at --length tokens.
Each runs for one epoch and for three; an epoch takes half of the difference, so that loading and set-up do not count.
Prints pairs a second and the ratio. `SentenceTransformerTrainer` needs `datasets` and `accelerate`.
"""

from __future__ import annotations

import argparse
import lzma
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import larvatus as lv

Pairs = list[tuple[str, str]]
RATE = 2e-5


def read_pairs(path: Path, count: int) -> Pairs:
    """The first pairs of a file whose texts are all distinct."""
    pairs: Pairs = []
    seen: set[str] = set()
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        for line in file:
            first, second, *_ = [*line.rstrip("\n").split("\t"), ""]
            if first and second and not seen & {first, second}:
                pairs.append((first, second))
                seen |= {first, second}
            if len(pairs) == count:
                break
    return pairs


def ours(pairs: Pairs, given: argparse.Namespace) -> Callable[[int], None]:
    def train(epochs: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            lv.finetune(
                "embed",
                given.model,
                train=[{"text": a, "pair": b} for a, b in pairs],
                out=Path(folder) / "out",
                hold_out=False,
                epochs=epochs,
                batch=given.batch,
                rate=RATE,
                length=given.length,
                truncate=True,
                device=given.device,
                quiet=True,
            )

    return train


def theirs(pairs: Pairs, given: argparse.Namespace) -> Callable[[int], None]:
    import datasets
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    data = datasets.Dataset.from_list([{"anchor": a, "positive": b} for a, b in pairs])

    def train(epochs: int) -> None:
        model = SentenceTransformer(given.model, device=given.device)
        model.max_seq_length = given.length
        with tempfile.TemporaryDirectory() as folder:
            settings: dict[str, Any] = {"bf16": True} if given.device == "cuda" else {"use_cpu": True}
            arguments = SentenceTransformerTrainingArguments(
                output_dir=folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=given.batch,
                learning_rate=RATE,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                **settings,
            )
            loss = MultipleNegativesRankingLoss(model, scale=20.0)
            SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()

    return train


def epoch_seconds(train: Callable[[int], None], rounds: int) -> list[float]:
    seconds = []
    train(1)  # warms up
    for _ in range(rounds):
        times = []
        for epochs in (1, 3):
            begin = time.perf_counter()
            train(epochs)
            times.append(time.perf_counter() - begin)
        seconds.append((times[1] - times[0]) / 2)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", required=True, help="directory that both load")
    parser.add_argument("--pairs", type=int, default=4_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    pairs = read_pairs(given.file, given.pairs)
    words = np.percentile([len(text.split()) for pair in pairs for text in pair], [5, 50, 95]).astype(int).tolist()
    print(f"{len(pairs):,} pairs in batches of {given.batch}; words of a text (5%, 50%, 95%): {words}", flush=True)
    medians = {}
    for name, way in (("larvatus", ours), ("SentenceTransformerTrainer", theirs)):
        seconds = epoch_seconds(way(pairs, given), given.rounds)
        medians[name] = float(np.median(seconds))
        spread = f"epochs of {min(seconds):.2f} to {max(seconds):.2f} s"
        print(f"{name:<28}{len(pairs) / medians[name]:9.1f} pairs/s   {spread}", flush=True)
    print(f"larvatus is {medians['SentenceTransformerTrainer'] / medians['larvatus']:.2f} times as fast")


if __name__ == "__main__":
    main()
