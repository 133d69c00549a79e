"""Fine-tuning on as few examples as people have: 400 sentences of GUM, 600 of WNUT-17, 800 of SST-2, default settings.

    python benchmarks/small_data.py --model DIR --data DIR [--device cuda] [--jobs 3] [--seeds 0 1 2] [--only sst2-head]

`--data` has `ner/gum`, `ner/wnut17` and `glue/SST-2` with their train and dev files (.xz or plain). From each training
set sentences are drawn once, at random; no held-out examples are given, so that training holds out its own part of
them; the official dev set, which nothing was chosen on, scores what came out. Only the commands `finetune` and
`evaluate` are used, in processes of their own: PYTHONPATH decides which version of Larvatus is measured.

Shortcuts are scored beside: the commonest class, TF-IDF with logistic regression, and for spans and tags the phrases of
the training set looked up in the text. JSON comes last.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.data.labelled.tagged import read_spanned, read_tagged
from larvatus.data.text.tag_schemes import read_entities
from larvatus.evaluation.compare.labelled_sets import lookup_f1

Phrases = list[tuple[tuple[str, ...], set[tuple[int, int, str]]]]
"""Sentences: their words, and spans [start, end) with a type."""


@dataclass(frozen=True)
class Set:
    """A data set, the part of it that is learnt from, and how it is trained and scored."""

    task: str
    train: str
    dev: str
    examples: int
    metric: str
    options: tuple[str, ...] = ()


SETS = {
    "gum": Set("spans", "ner/gum/train.conllu", "ner/gum/dev.conllu", 400, "span-f1"),
    "wnut": Set("tag", "ner/wnut17/train.conll", "ner/wnut17/dev.conll", 600, "entity-f1"),
    "sst2": Set("classify", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", 800, "accuracy"),
    "sst2-head": Set("classify", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv", 800, "accuracy", ("--trained", "head")),
}


def text_of(data: Path, name: str) -> str:
    packed = data / f"{name}.xz"
    if packed.is_file():
        with lzma.open(packed, "rt", encoding="utf-8") as file:
            return file.read()
    return (data / name).read_text(encoding="utf-8")


def drawn(text: str, name: str, count: int) -> str:
    """Some of the examples, drawn at random, in the order of the file: rows of a table, or blocks of lines."""
    table = name.endswith(".tsv")
    parts = text.rstrip("\n").split("\n") if table else re.split(r"\n[ \t]*\n", text.strip("\n"))
    head, rows = (parts[:1], parts[1:]) if table else ([], parts)
    chosen = sorted(np.random.default_rng(0).permutation(len(rows))[:count].tolist())
    globals_ = [line for line in text.splitlines()[:50] if line.startswith("# global.")]
    kept = [rows[number] for number in chosen]
    if table:
        return "\n".join([*head, *kept]) + "\n"
    plain = ["\n".join(line for line in block.split("\n") if not line.startswith("# global.")) for block in kept]
    return "\n".join(globals_) + "\n" * bool(globals_) + "\n\n".join(plain) + "\n\n"


def larvatus(*words: object) -> str:
    command = [sys.executable, "-m", "larvatus", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Bench:
    folder: Path
    model: Path
    device: str
    extra: tuple[str, ...]

    def train(self, name: str) -> Path:
        return self.folder / f"{name}.train{Path(SETS[name].train).suffix}"

    def dev(self, name: str) -> Path:
        return self.folder / f"{name}.dev{Path(SETS[name].dev).suffix}"

    def run(self, name: str, seed: int) -> dict[str, Any]:
        """Fine-tune once and score on the official dev set."""
        own, out = SETS[name], self.folder / f"{name}-{seed}"
        began = time.monotonic()
        said = larvatus(
            *("finetune", own.task, "--model", self.model, "--train", self.train(name), "--out", out),
            *("--seed", seed, "--device", self.device, *own.options, *self.extra),
        )
        seconds = time.monotonic() - began
        scores = larvatus("evaluate", out, "--data", self.dev(name), "--device", self.device, "--samples", 2, "--json")
        found = json.loads(scores)["metrics"][own.metric]
        (history,) = json.loads((out / "finetuning.json").read_text())["runs"]
        plan = [line for line in said.splitlines() if line.startswith(("head:", "training:"))]
        return {
            "set": name,
            "seed": seed,
            "score": found["value"] if isinstance(found, dict) else found,
            "seconds": round(seconds, 1),
            "steps": history["steps"],
            "epoch": history["best"]["epoch"],
            "held_out": history["best"]["scores"]["values"][own.metric],
            "said": plan,
        }


def baselines(bench: Bench, name: str) -> dict[str, float]:
    task = SETS[name].task
    if task == "classify":
        return text_baselines(bench.train(name), bench.dev(name))
    read: Callable[[Path], Phrases] = spanned if task == "spans" else tagged
    return {"phrases of training, looked up": lookup_f1(read(bench.train(name)), read(bench.dev(name)))}


def text_baselines(train: Path, dev: Path) -> dict[str, float]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    (labels, texts), (gold, asked) = (
        zip(*(line.split("\t") for line in path.read_text().splitlines()[1:]), strict=True) for path in (train, dev)
    )
    common = Counter(labels).most_common(1)[0][0]
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10.0, max_iter=1000))
    model.fit(texts, labels)
    return {
        "commonest class": statistics.fmean(label == common for label in gold),
        "TF-IDF, logistic regression": float(model.score(asked, gold)),
    }


def tagged(path: Path) -> Phrases:
    return [
        (tuple(one.words), {(start, end, label) for start, end, label in read_entities(one.tags or (), "BIO")})
        for one in read_tagged(str(path))
    ]


def spanned(path: Path) -> Phrases:
    return [(tuple(one.words), {(s, e, label) for s, e, label in one.spans or ()}) for one in read_spanned(str(path))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--examples", type=int, help="of each set, in place of its own number")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--out", type=Path, help="where models and files stay; default: a temporary folder")
    parser.add_argument("--extra", default="", help="more flags of finetune, such as '--epochs 3'")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        folder = given.out or Path(aside)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, given.model, given.device, tuple(given.extra.split()))
        for name in given.only:
            own = SETS[name]
            bench.train(name).write_text(
                drawn(text_of(given.data, own.train), own.train, given.examples or own.examples)
            )
            bench.dev(name).write_text(text_of(given.data, own.dev))
        asked = [(name, seed) for name in given.only for seed in given.seeds]
        with ThreadPoolExecutor(given.jobs) as pool:
            runs = list(pool.map(lambda one: bench.run(*one), asked))
        beside = {name: baselines(bench, name) for name in given.only}
    show(runs, beside)
    version = subprocess.run(
        [sys.executable, "-m", "larvatus", "--version"], capture_output=True, text=True, check=False
    ).stdout.strip()
    print(json.dumps({"version": version, "runs": runs, "baselines": beside}))


def show(runs: list[dict[str, Any]], beside: dict[str, dict[str, float]]) -> None:
    print("| set | metric, official dev | mean | seeds | epochs kept | steps | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, shortcuts in beside.items():
        mine = [run for run in runs if run["set"] == name]
        scores = [run["score"] for run in mine]
        seeds, epochs, steps, seconds = (
            ", ".join(f"{run[key]:{form}}" for run in mine)
            for key, form in (("score", ".3f"), ("epoch", ".3g"), ("steps", ","), ("seconds", ".0f"))
        )
        metric = SETS[name].metric
        print(f"| {name} | {metric} | {statistics.fmean(scores):.3f} | {seeds} | {epochs} | {steps} | {seconds} |")
        for what, score in shortcuts.items():
            print(f"| {name}: {what} | {metric} | {score:.3f} | | | | |")
    for run in runs:
        if run["seed"] == runs[0]["seed"]:
            print(f"{run['set']}: {' / '.join(run['said'])}")


if __name__ == "__main__":
    main()
