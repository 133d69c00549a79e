"""Prompts beside plain fine-tuning with few examples: SST-2 and AG News, the same draws for all.

    python benchmarks/prompting.py --model DIR --sst2 DIR --agnews FILE [--k 0 16 100] [--draws 5] [--device cuda]

`--sst2` has train.tsv and dev.tsv (or .xz) of GLUE; of `--agnews`, a table with label, title and text, the first 4,000
rows are drawn from and the last 2,000 scored on. k is of each class, as in LM-BFF (Gao et al. 2021); with `--total` it
is of all classes together, as in PET (Schick & Schütze 2021). Unlabelled texts of PET are those that are not drawn.

For each set and k: zero-shot with and without calibration, each pattern tuned, PET over all, plain fine-tuning, and a
surface baseline, TF-IDF of words and pairs of words with logistic regression on the same draws. Accuracy, mean ±
deviation over draws with Student's 95% interval; where nothing is drawn, a bootstrap interval. JSON comes last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import larvatus as lv
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import read_texts
from larvatus.tasks.few_shot.results import PromptRow, PromptTable
from larvatus.tasks.few_shot.training import sample_examples

Examples = Dataset[TextExample]


@dataclass(frozen=True)
class Set:
    patterns: tuple[str, ...]
    words: dict[str, str]


SETS = {
    "sst2": Set(
        ("{text} It was {blank}.", "{text} In summary, the film was {blank}.", "A {blank} one. {text}", "null"),
        {"0": "terrible", "1": "great"},
    ),
    "agnews": Set(
        ("{text} This is about {blank}.", "{blank} news: {text}", "( {blank} ) {text}", "null"),
        {"World": "world", "Sports": "sports", "Business": "business", "Sci/Tech": "technology"},
    ),
}


def data_of(name: str, place: Path) -> tuple[Examples, Examples]:
    """Examples to draw from, and to score on."""
    if name == "sst2":
        files = [next(path for path in place.glob(f"{part}.tsv*")) for part in ("train", "dev")]
        train, test = (read_texts(str(path), kind="multi-class") for path in files)
        return train, test
    whole = read_texts(str(place), Columns(text="text", label="label"), kind="multi-class")
    return tuple(  # type: ignore[return-value]
        dataclasses.replace(whole, examples=part) for part in (whole.examples[:4_000], whole.examples[-2_000:])
    )


def surface(train: Examples, test: Examples, asked: dict[str, Any]) -> PromptRow:
    """A bag of words on the same draws."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    values = []
    for number in range(asked["draws"]):
        few = sample_examples(train, asked["k"], seed=asked["seed"], number=number, total=asked["total"])
        words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10.0, max_iter=1_000))
        words.fit([each.text for each in few], [each.label for each in few])
        values.append(float(words.score([each.text for each in test], [each.label for each in test])))
    return PromptRow.of_draws("bag of words", "", values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sst2", type=Path)
    parser.add_argument("--agnews", type=Path)
    parser.add_argument("--k", type=int, nargs="+", default=[0, 16, 100])
    parser.add_argument("--total", action="store_true")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--distil-steps", type=int, default=1_000)
    parser.add_argument("--unlabelled-most", type=int, default=10_000)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    model = lv.load(given.model, device=given.device)
    results = []
    for name, place in (("sst2", given.sst2), ("agnews", given.agnews)):
        if place is None:
            continue
        train, test = data_of(name, place)
        for k in given.k:
            asked: dict[str, Any] = {"k": k, "total": given.total, "draws": given.draws, "seed": given.seed}
            results.append(measured(model, name, train, test, asked, given))
    print(json.dumps(results))


def measured(
    model: lv.Model,
    name: str,
    train: Dataset[TextExample],
    test: Dataset[TextExample],
    asked: dict[str, Any],
    given: Any,
) -> dict[str, Any]:
    started = time.perf_counter()
    few = bool(asked["k"])
    table: PromptTable = lv.prompt(
        model,
        words=SETS[name].words,
        patterns=SETS[name].patterns,
        data=test,
        train=train,
        methods=("tune", "pet") if few else ("zero", "calibrated"),
        baseline="finetune" if few else None,
        steps=given.steps,
        distil_steps=given.distil_steps,
        unlabelled_most=given.unlabelled_most,
        length=min(given.length, model.bundle.model.max_positions),
        say=lambda line: print(f"  {name}, k = {asked['k']}: {line}", flush=True),
        **asked,
    )
    if few:
        table = dataclasses.replace(table, rows=(*table.rows, surface(train, test, asked)))
    seconds = time.perf_counter() - started
    print(f"{name}\n{table}\n{seconds:,.0f} s\n", flush=True)
    return {"set": name, "seconds": seconds, **table.to_dict()}


if __name__ == "__main__":
    main()
