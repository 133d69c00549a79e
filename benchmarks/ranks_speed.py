"""Two processes with one thread each against one process with two threads: the same steps, tokens a second.

    python benchmarks/ranks_speed.py [--size mini] [--seconds 20] [--rounds 3]

BERT with dropout on the embedded text, steps of 16,384 tokens of length 128, gloo. Contenders take turns, each in
processes of its own, so that a machine that is busy now and then treats them alike; the best round of each counts. Two
processes read their shares alone and send their gradients while the backward pass runs. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

STEP = 128 * 128
WARM = 2


def prepare(folder: Path) -> None:
    """Shards of the embedded text."""
    from larvatus.data.corpus import build_corpus
    from larvatus.data.text.embedded import embedded_documents
    from larvatus.data.text.vocabularies import WordPieceConfig, train_vocabulary

    documents = list(embedded_documents("train"))
    tokenizer = train_vocabulary((document.text for document in documents[:400]), WordPieceConfig(size=7_000))
    build_corpus(documents, tokenizer, folder)


def measure(corpus: Path, size: str, seconds: float, out: Path) -> None:
    """Train for a while on this rank; the main one writes tokens a second."""
    import torch

    from larvatus.data.corpus import Corpus
    from larvatus.data.corpus.loader import Loader, LoaderOptions
    from larvatus.models.network import Network
    from larvatus.models.recipes import read_recipe
    from larvatus.training.engine.optimizer import build_optimizer
    from larvatus.training.engine.ranks import ranks
    from larvatus.training.engine.settings import Runtime
    from larvatus.training.pretraining.evaluation import build_corruption
    from larvatus.training.pretraining.loop import prefetch
    from larvatus.training.pretraining.step import Stepper

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    recipe, shards = read_recipe("bert", size=size, settings=["batch=128"]), Corpus.open(corpus)
    with ranks("cpu", timeout_s=300) as group:
        model = Network.build(recipe.model, recipe.objectives, shards.tokenizer.size, seed=1)
        runtime, optimizer = Runtime(microbatch=STEP // 2), build_optimizer(model, recipe.optimizer)
        stepper = Stepper(model, optimizer, recipe, runtime=runtime, ranks=group, seed=1, pad_id=0)
        loader = Loader(
            shards,
            packing=recipe.packing,
            length=128,
            corruption=build_corruption(recipe.corruption, shards.tokenizer, 1, limit=128),
            tokens=STEP,
            seed=1,
            reading=LoaderOptions(from_text=recipe.from_text, words=False),
        )
        ready = (stepper.prepare(batch, limit=128) for batch, _ in stepper.read(loader))
        with closing(prefetch(ready, close=loader.close)) as steps:
            for step in range(WARM):
                stepper.launch(next(steps), step=step, rate=1e-4).check()
            began, tokens, step = time.perf_counter(), 0, WARM
            while group.any(time.perf_counter() - began < seconds):
                report = stepper.launch(next(steps), step=step, rate=1e-4)
                tokens, step = tokens + report.tokens, step + 1
            report.check()
            speed = tokens / (time.perf_counter() - began)
        if group.main:
            out.write_text(json.dumps({"speed": speed, "loss": report.loss, "steps": step}))


def run(processes: int, threads: int, corpus: Path, asked: argparse.Namespace) -> float:
    """Tokens a second of a contender."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "speed.json"
        options = ["--size", asked.size, "--seconds", str(asked.seconds)]
        command = [sys.executable, *(launcher if processes > 1 else ()), __file__, *options, "--corpus", str(corpus)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run([*command, "--to", str(out)], env=environment, check=True, stderr=subprocess.DEVNULL)
        speed: float = json.loads(out.read_text())["speed"]
        return speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.to is not None:
        measure(asked.corpus, asked.size, asked.seconds, asked.to)
        return
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "corpus")
        speeds: dict[str, list[float]] = {"2 processes × 1 thread": [], "1 process × 2 threads": []}
        for number in range(asked.rounds):
            for (name, several), (processes, threads) in zip(speeds.items(), [(2, 1), (1, 2)], strict=True):
                several.append(run(processes, threads, Path(folder) / "corpus", asked))
                print(f"round {number + 1}: {name} {several[-1]:,.0f} tokens/s", flush=True)
    two, one = (max(several) for several in speeds.values())
    print(f"two processes : one process = {two / one:.2f}")
    print(json.dumps({"ratio": two / one, "size": asked.size, "speeds": speeds}))


if __name__ == "__main__":
    main()
