"""Sentences a second of a static model, next to `model2vec` or `sentence-transformers` on the same table and texts.

    python benchmarks/static_speed.py --model runs/static --data sts-dev.tsv

The texts are those of two columns of a table, repeated. Peers load the same directory, if they are installed; rates are
the best of several runs, ratios are to the first peer in the same run. Wall time depends on what else the machine does,
so the rate that the used processor time allows on two cores is shown too.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from larvatus.core.tables import Table
from larvatus.inference.model import load
from larvatus.tasks.embed.reader import read_sentences

RUNS = 5


def rates(embed: Callable[[Sequence[str]], Any], texts: Sequence[str]) -> tuple[float, float]:
    """Texts a second by the clock, and on two cores by processor time; best of several runs."""
    embed(texts[:64])
    walls, processor = [], []
    for _ in range(RUNS):
        begun, used = time.perf_counter(), time.process_time()
        embed(texts)
        walls.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
    return len(texts) / min(walls), 2 * len(texts) / min(processor)


def peers(directory: str) -> dict[str, Callable[[Sequence[str]], Any]]:
    """The other libraries that are installed, with the same directory."""
    made: dict[str, Callable[[Sequence[str]], Any]] = {}
    if importlib.util.find_spec("model2vec"):
        from model2vec import StaticModel

        static = StaticModel.from_pretrained(directory)
        made["model2vec"] = lambda texts: static.encode(list(texts), use_multiprocessing=False)
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(directory, device="cpu")
        made["sentence-transformers"] = lambda texts: encoder.encode(list(texts), batch_size=1024)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--texts", type=int, default=30_000)
    chosen = parser.parse_args()
    texts = [text for example in read_sentences(chosen.data) for text in example.texts]
    texts = (texts * (chosen.texts // len(texts) + 1))[: chosen.texts]
    model = load(chosen.model, device="cpu")
    measured = {name: rates(embed, texts) for name, embed in [*peers(chosen.model).items(), ("Larvatus", model.embed)]}
    wall, processor = next(iter(measured.values()))
    rows = [
        (name, f"{rate:,.0f}", f"{rate / wall:.2f}", f"{by_processor:,.0f}", f"{by_processor / processor:.2f}")
        for name, (rate, by_processor) in measured.items()
    ]
    heads = ("", "texts/s", "ratio", "texts/s, processor time, two cores", "ratio")
    title = f"{len(texts):,} texts of {sum(map(len, texts)) / len(texts):.0f} characters"
    print(Table(heads, rows, title=title, notes=[f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"]))


if __name__ == "__main__":
    main()
