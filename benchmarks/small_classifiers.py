"""What `larvatus finetune classify --auto` keeps of few examples, next to its candidates: 100, 400 and 1,000 examples.

    python benchmarks/small_classifiers.py --model DIR --data DIR --cache DIR [--sizes 100 400] [--only sst2 cola]

Three draws of each set train, 600 other examples test (400 of banking10: the ten commonest intents of Banking77, since
77 do not fit 100 examples). Vectors are computed once by `transformers` (means of the tokens of the four highest
layers) and cached; folds, candidates and rule are those of the package. Fine-tuned weights are not among them. "kept"
is what the search keeps, "one SE" the simplest candidate within a standard error of the best, a rule not taken.
Accuracy on the test examples, in percent, mean of the draws.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.metrics.intervals import bootstrap
from larvatus.models.heads import ClassificationConfig
from larvatus.tasks.candidates.linear import TermCounts, fit_scaled
from larvatus.tasks.candidates.report import BASELINE
from larvatus.tasks.candidates.search import FOLDS, LAYERS, LINEAR, CandidateSearch, Trial, assign_folds
from larvatus.tasks.classify.task import text_metric
from larvatus.tasks.evaluation.resampling import resampled_classes
from larvatus.tasks.trainer.config import FineTuneArguments

Rows = list[tuple[str, str]]
"""Texts with their labels."""
SETS = ("sst2", "custrev", "rt", "banking10", "agnews", "cola")
TESTED, DRAWS, MOST = 600, 3, 1_000


def lines(data: Path, name: str) -> list[str]:
    with lzma.open(data / name, "rt", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def columns(data: Path, name: str, text: int, label: int) -> Rows:
    cells = (line.split("\t") for line in lines(data, name))
    return [(row[text], row[label]) for row in cells if row[label] != "label"]


def read(data: Path, name: str) -> tuple[Rows, Rows]:
    """Training and test examples."""
    if name == "sst2":
        return columns(data, "glue/SST-2/train.tsv.xz", 1, 0), columns(data, "glue/SST-2/dev.tsv.xz", 1, 0)
    if name == "cola":
        return columns(data, "glue/CoLA/train.tsv.xz", 3, 1), columns(data, "glue/CoLA/dev.tsv.xz", 3, 1)
    if name == "banking10":
        train, test = (columns(data, f"classify/banking77.{part}.tsv.xz", 1, 0) for part in ("train", "test"))
        common = {label for label, _ in Counter(label for _, label in train).most_common(10)}
        return [row for row in train if row[1] in common], [row for row in test if row[1] in common]
    if name == "agnews":
        rows = list(csv.reader(io.StringIO("\n".join(lines(data, "agnews/agnews.csv.xz")))))
        news = [(f"{title} {text}", label) for label, title, text in rows if label != "label"]
        return news[:4_000], news[-2_000:]
    stem = {"custrev": "custrev", "rt": "rt-polarity"}[name]
    files = ((kind, lines(data, f"classify/{stem}.{kind}.txt.xz")) for kind in ("neg", "pos"))
    both = list(dict.fromkeys((line.strip(), kind) for kind, file in files for line in file if line.strip()))
    both = [both[place] for place in np.random.default_rng(7).permutation(len(both))]
    return both[TESTED:], both[:TESTED]


@torch.inference_mode()
def embed(model: str, texts: list[str]) -> np.ndarray[Any, Any]:
    """[U, 4 D] means of the tokens of the four highest layers."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, encoder = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    parts = []
    for first in range(0, len(texts), 64):
        batch = tokenizer(texts[first : first + 64], padding=True, truncation=True, max_length=256, return_tensors="pt")
        layers = torch.stack(encoder(**batch, output_hidden_states=True).hidden_states[-4:], 1)
        mask = batch["attention_mask"][:, None, :, None]
        parts.append(((layers * mask).sum(2) / mask.sum(2)).flatten(1).half().numpy())
    return np.concatenate(parts)


def load(given: argparse.Namespace, name: str) -> tuple[list[str], list[Rows], Rows, np.ndarray[Any, Any]]:
    """Distinct texts, draws, test examples and vectors of a set."""
    train, test = read(given.data, name)
    orders = [np.random.default_rng(100 + draw).permutation(len(train))[:MOST] for draw in range(DRAWS)]
    draws, test = [[train[place] for place in order] for order in orders], test[:TESTED]
    texts = sorted({text for rows in (*draws, test) for text, _ in rows}, key=len)
    path = given.cache / f"{name}.npy"
    if not path.is_file():
        np.save(path, embed(given.model, texts))
    return texts, draws, test, np.load(path).astype(np.float32)


def measure(rows: Rows, test: Rows, vectors: np.ndarray[Any, Any], at: dict[str, int]) -> dict[str, float]:
    """Accuracy of each candidate on the test examples, and of what both rules choose."""
    labels = tuple(sorted({label for _, label in rows}))
    examples = (TextExample(text, None, label, Place("draw", n)) for n, (text, label) in enumerate(rows, start=1))
    data, head = Dataset(tuple(examples), "draw", kind="multi-class"), ClassificationConfig(labels=labels)
    y = np.array([labels.index(label) for _, label in rows])
    gold = np.array([labels.index(label) if label in labels else -1 for _, label in test])
    x, z = (vectors[[at[text] for text, _ in part]] for part in (rows, test))
    width = {LINEAR: x.shape[1] // 4, LAYERS: x.shape[1]}
    metric, nothing = text_metric(head, np.bincount(y).tolist()), None
    search = CandidateSearch(nothing, data, head, y, assign_folds(data, FOLDS), metric, FineTuneArguments(), 1e9)  # type: ignore[arg-type]
    for name in width:
        search.try_linear(name, x[:, -width[name] :])
    search.try_bag_of_words()
    scores: dict[str, float] = {}
    for trial in search.trials:
        if trial.name == BASELINE:
            bag = TermCounts.of([text for text, _ in (*rows, *test)])
            trained, every = np.arange(len(rows) + len(test)) < len(rows), np.concatenate([y, 0 * gold])
            logits = bag.predict(every, trained, classes=len(labels), penalties=[trial.penalty])[0][len(rows) :]
        else:
            own = slice(-width[trial.name], None)
            (fit,) = fit_scaled(x[:, own], y, classes=len(labels), penalties=[trial.penalty])
            logits = fit.logits(z[:, own])
        scores[trial.name] = 100 * float((logits.argmax(1) == gold).mean())
    linear, layers, _ = search.trials
    return scores | {"kept": scores[search.choose().name], "one SE": scores[one_error(search, linear, layers).name]}


def one_error(search: CandidateSearch, simple: Trial, other: Trial) -> Trial:
    """The simpler one, unless the other is better by a standard error of their difference on the same examples."""
    labels = len(search.head.labels)
    first, second = (
        resampled_classes(search.y, trial.logits.argmax(1), kind="multi-class", classes=labels)[search.metric]
        for trial in (other, simple)
    )
    rows = np.stack([first.rows, second.rows], axis=1)
    gain = bootstrap(rows, lambda sums: first.score(sums[..., 0, :, :]) - second.score(sums[..., 1, :, :]))
    return other if gain.value > max(0.0, gain.deviation) else simple


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 400, 1_000])
    parser.add_argument("--only", nargs="+", choices=SETS, default=SETS)
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    print("| set | examples | kept | one SE | linear head | four layers | TF-IDF |\n" + "| --- " * 7 + "|")
    for name in given.only:
        texts, draws, test, vectors = load(given, name)
        at = {text: number for number, text in enumerate(texts)}
        for size in given.sizes:
            found = defaultdict(list)
            for rows in draws:
                for what, score in measure(rows[:size], test, vectors, at).items():
                    found[what].append(score)
            print(json.dumps({"set": name, "examples": size, **found}), flush=True)
            cells = [f"{np.mean(found[what]):.1f}" for what in ("kept", "one SE", LINEAR, LAYERS, BASELINE)]
            print(f"| {name} | {size:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
