"""The loader against a DataLoader with transformers' masking collator: tokens a second on the same text and cores.

    python benchmarks/loader_speed.py --text en_wiki.txt.xz [--megabytes 20] [--recipes bert modern] [--lengths 128 512]
        [--workers 0 1 2 4] [--before ../older]

Steps of 131,072 tokens, packed and masked as the recipe says, from shards that are built first with a vocabulary of the
recipe's kind. The peer is `torch.utils.data.DataLoader` with `DataCollatorForLanguageModeling` over the same tokens,
cut into full rows beforehand, as many workers. `--before` names a checkout of another version, measured in turn.

Each contender runs in a process of its own. `busy` is the share of its time that a training thread waits for data if it
works 20 ms a step in Python, which holds the interpreter as launching kernels does. CPU time is that of all
processes, after a warm-up: on a busy machine it says more than the clock. JSON comes last.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus_build import cut, family

STEP_TOKENS, BLOCK_TOKENS = 131_072, 1 << 21
WORK_S = 0.02
LEAST_TOKENS = 16_000_000
KINDS = {"bert": "bert", "electra": "bert", "spanbert": "bert", "roberta": "modern", "modern": "modern", "gpt": "gpt"}
"""Which vocabulary a recipe shares with others."""


def ours(corpus: Path, recipe: str, length: int, workers: int) -> Iterator[int]:
    """Tokens of step after step."""
    from larvatus.data.corpus import Corpus
    from larvatus.data.corpus.loader import Loader, LoaderOptions
    from larvatus.data.corruption import packed_length
    from larvatus.models.recipes import read_recipe
    from larvatus.training.pretraining.evaluation import build_corruption
    from larvatus.training.pretraining.loop import prefetch

    given, shards = read_recipe(recipe), Corpus.open(corpus)
    untold = {"words": False} if "words" in LoaderOptions.__dataclass_fields__ else {}
    loader = Loader(
        shards,
        packing=given.packing,
        length=packed_length(given.corruption, length),
        corruption=build_corruption(given.corruption, shards.tokenizer, 1, limit=length),
        tokens=STEP_TOKENS,
        seed=1,
        workers=workers,
        reading=LoaderOptions(from_text=given.from_text, **untold),
    )
    steps = prefetch(loader.steps(), close=loader.close)
    try:
        for batch, _ in steps:
            yield batch.tokens.size
    finally:
        steps.close()


def peer(corpus: Path, recipe: str, length: int, workers: int) -> Iterator[int]:
    """Full rows, each with [CLS] and [SEP]; nothing is packed or read while it is measured."""
    import numpy as np
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    from larvatus.data.corpus import Corpus

    shards = Corpus.open(corpus)
    special, room = shards.tokenizer.special, length - 2
    names = {"cls_token": special.cls, "sep_token": special.sep, "mask_token": special.mask, "pad_token": special.pad}
    fast = PreTrainedTokenizerFast(tokenizer_file=str(corpus / "tokenizer" / "tokenizer.json"), **names)
    ids = shards.block(range(len(shards.chunks))).ids.astype(np.int64)
    rows = ids[: len(ids) // room * room].reshape(-1, room)
    rows = np.pad(rows, ((0, 0), (1, 1)))
    rows[:, 0], rows[:, -1] = fast.cls_token_id or 0, fast.sep_token_id or 0
    marks = np.zeros(length, np.int64)
    marks[[0, -1]] = 1
    examples = [{"input_ids": row, "special_tokens_mask": marks} for row in rows]
    collator = DataCollatorForLanguageModeling(fast, mlm=special.mask is not None, mlm_probability=0.15)
    loader = DataLoader(
        examples,  # type: ignore[arg-type]
        batch_size=STEP_TOKENS // length,
        shuffle=True,
        drop_last=True,
        collate_fn=collator,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    while True:
        for batch in loader:
            yield batch["input_ids"].numel()


CONTENDERS = {"ours": ours, "before": ours, "peer": peer}


def measure(steps: Iterator[int], *, warm: int, tokens: int, work_s: float = 0.0) -> dict[str, float]:
    passed = 0
    while passed < warm:
        passed += next(steps)
    began, used, passed, waited = time.perf_counter(), cpu_seconds(), 0, 0.0
    while passed < tokens:
        asked = time.perf_counter()
        passed += next(steps)
        waited += time.perf_counter() - asked
        end = time.perf_counter() + work_s
        while time.perf_counter() < end:
            pass
    took = time.perf_counter() - began
    return {"per_s": passed / took, "per_cpu_s": passed / (cpu_seconds() - used), "wait": waited / took}


def cpu_seconds() -> float:
    """Of this process and all that it started."""
    ticks = 0
    for pid in family(os.getpid()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def one(given: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(1)
    (length,), (workers,), (recipe,) = given.lengths, given.workers, given.recipes
    steps = CONTENDERS[given.one](given.corpus, recipe, length, workers)
    warm = (workers + 2) * BLOCK_TOKENS if given.one != "peer" else 4 * STEP_TOKENS
    tokens = max(LEAST_TOKENS, 2 * warm) if given.one != "peer" else 32 * STEP_TOKENS
    free = measure(steps, warm=warm, tokens=tokens)
    busy = measure(steps, warm=STEP_TOKENS, tokens=tokens, work_s=WORK_S)
    print(json.dumps({**free, "busy": busy["wait"]}), flush=True)
    steps.close()  # type: ignore[attr-defined]


def measured(name: str, corpus: Path, case: tuple[str, int, int], before: Path | None) -> dict[str, Any]:
    recipe, length, workers = case
    command = [sys.executable, __file__, "--one", name, "--corpus", str(corpus), "--recipes", recipe]
    path = [str(before / "src")] if name == "before" and before else [p for p in sys.path if p]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    command += ["--lengths", str(length), "--workers", str(workers)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def build(text: Path, kind: str, folder: Path) -> Path:
    from larvatus.data.corpus.build import build_corpus
    from larvatus.data.text.vocabularies import train_vocabulary
    from larvatus.models.recipes import read_recipe

    lines = text.read_text(encoding="utf-8").split("\n")
    tokenizer = train_vocabulary(lines, read_recipe(kind).tokenizer)
    build_corpus([text], tokenizer, folder / kind)
    return folder / kind


def report(given: argparse.Namespace, folder: Path) -> None:
    text = cut(given.text, given.megabytes, folder / "text.txt")
    corpora = {kind: build(text, kind, folder) for kind in sorted({KINDS[name] for name in given.recipes})}
    names = ["ours", *(["before"] if given.before else []), "peer"]
    rows: list[dict[str, Any]] = []
    for recipe in given.recipes:
        for length in given.lengths:
            for workers in given.workers:
                case = recipe, length, workers
                row = {name: measured(name, corpora[KINDS[recipe]], case, given.before) for name in names}
                rows.append({"recipe": recipe, "length": length, "workers": workers, **row})
                print(f"{recipe:8} {length:4} {workers:3} workers  load {os.getloadavg()[0]:.1f}")
                for name in names:
                    speed = row[name]
                    ratio = "" if name == "ours" else f"  ours is {row['ours']['per_s'] / speed['per_s']:.1f} × this"
                    ratio += "" if name == "ours" else f", {row['ours']['per_cpu_s'] / speed['per_cpu_s']:.1f} × a core"
                    rates = f"{speed['per_s'] / 1e6:7.2f}M tokens/s  {speed['per_cpu_s'] / 1e6:6.2f}M per CPU second"
                    print(f"  {name:7} {rates}  busy {speed['busy']:.2f}{ratio}", flush=True)
    print(json.dumps({"cores": len(os.sched_getaffinity(0)), "step": STEP_TOKENS, "rows": rows}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--text", type=Path, help="plain, .gz or .xz")
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--recipes", nargs="+", choices=KINDS, default=["bert", "roberta", "modern", "electra", "gpt"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given)
        return
    if given.text is None:
        parser.error("--text is wanted")
    with tempfile.TemporaryDirectory() as folder:
        report(given, Path(folder))


if __name__ == "__main__":
    main()
