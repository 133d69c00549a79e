"""Sentence vectors of several models in one table, next to BM25 and TF-IDF.

    python benchmarks/sentence_vectors.py DATA                               # the packaged English model and baselines
    python benchmarks/sentence_vectors.py DATA runs/mine all-MiniLM-L6-v2/   # and directories of models
    python benchmarks/sentence_vectors.py DATA --only stsb,cisi --device cuda

| column | what | files under DATA |
| --- | --- | --- |
| stsb | STS-B dev, Spearman of cosines | glue/STS-B/dev.tsv.xz |
| sts | STS 2012 to 2015, Spearman of all pairs of a year, mean over the four years | sts/201*.tsv.xz |
| agnews | title → its text among all texts, MRR (of the first 1,000) | agnews/agnews.csv.xz |
| cisi | nDCG@10 of one vector per document | retrieval/cisi_CISI.{ALL,QRY,REL}.xz |
| banking | Banking77, logistic regression of 10 a class, accuracy over 3 draws (seeds 0 to 2) | classify/banking77.* |
| scws | words in context, Spearman of cosines of the last layer | senses/scws.tsv.xz |

Each distinct text goes through a model once. Intervals are of 95%: over pairs, queries, or draws and test examples.
Many sentences of STS 2012 to 2015 are in STS-B train as well; the share is printed, because it flatters models that
were trained on it. BM25 ranks only, and words in context have no TF-IDF.
"""

from __future__ import annotations

import argparse
import csv
import glob
import lzma
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import larvatus as lv
from larvatus.core.tables import Table
from larvatus.data.labelled.retrieval_sets import RetrievalCollection, read_collection
from larvatus.evaluation.compare.word_similarity import SimilarityOptions, evaluate_scws
from larvatus.evaluation.retrieval import score_rankings
from larvatus.evaluation.vectors.measures import (
    LabelledSample,
    VectorTable,
    classification_metrics,
    embed_distinct,
    rank_by_vectors,
    rank_by_words,
    sample_shots,
    similarity_metrics,
    tf_idf,
)
from larvatus.metrics.intervals import Interval, bootstrap, mean_of_sums, mean_rows
from larvatus.metrics.ranking import reciprocal_rank, spearman_interval

SHOTS, DRAWS = 10, 3
YEARS = ("2012", "2013", "2014", "2015")
Pairs = tuple[list[str], list[str], list[float]]


@dataclass(frozen=True)
class Column:
    title: str
    texts: Sequence[str]
    score: Callable[[VectorTable], Interval]
    words: Callable[[], Interval] | None = None
    """BM25, which ranks only."""
    notes: Sequence[str] = ()


def lines(path: Path) -> Iterator[list[str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n").split("\t")


def stsb_rows(path: Path) -> Pairs:
    rows = list(lines(path))[1:]
    return [row[7] for row in rows], [row[8] for row in rows], [float(row[9]) for row in rows]


def stsb(data: Path) -> Column:
    first, second, scores = stsb_rows(data / "glue/STS-B/dev.tsv.xz")
    return Column(
        "STS-B dev", [*first, *second], lambda v: similarity_metrics(v.cosines(first, second), scores)["spearman"]
    )


def sts(data: Path) -> Column:
    years: list[Pairs] = []
    for year in YEARS:
        rows = [row for path in sorted(glob.glob(f"{data}/sts/{year}_*.tsv.xz")) for row in lines(Path(path))]
        scored = [row for row in rows if len(row) >= 3 and row[0].strip()]
        years.append(([r[1].strip() for r in scored], [r[2].strip() for r in scored], [float(r[0]) for r in scored]))
    seen = {text.strip().casefold() for side in stsb_rows(data / "glue/STS-B/train.tsv.xz")[:2] for text in side}
    pairs = [pair for first, second, _ in years for pair in zip(first, second, strict=True)]
    shared = np.mean([a.casefold() in seen or b.casefold() in seen for a, b in pairs])

    def score(vectors: VectorTable) -> Interval:
        parts = [similarity_metrics(vectors.cosines(a, b), scores, samples=200)["spearman"] for a, b, scores in years]
        value = float(np.mean([part.value for part in parts]))
        half = 1.96 * math.sqrt(sum(part.deviation**2 for part in parts)) / len(parts)
        return Interval(value, value - half, value + half, half / 1.96, 200)

    note = f"STS 2012 to 2015: {len(pairs):,} scored pairs, {shared:.0%} with a sentence of STS-B train"
    return Column("STS 2012–15", [text for pair in pairs for text in pair], score, notes=(note,))


def agnews(data: Path) -> Column:
    with lzma.open(data / "agnews/agnews.csv.xz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ids = {text: str(number) for number, text in enumerate(dict.fromkeys(row["text"] for row in rows))}
    answers: dict[str, dict[str, float]] = {}
    for row in rows:
        answers.setdefault(row["title"], {})[ids[row["text"]]] = 1.0
    collection = RetrievalCollection(
        {id: text for text, id in ids.items()}, {title: title for title in answers}, answers
    )

    def mrr(rankings: dict[str, list[str]]) -> Interval:
        ranks = [reciprocal_rank([answers[title].get(id, 0.0) for id in ranked]) for title, ranked in rankings.items()]
        return bootstrap(mean_rows(ranks), mean_of_sums)

    return Column(
        "AG News MRR",
        [*answers, *ids],
        lambda vectors: mrr(rank_by_vectors(vectors, collection)),
        lambda: mrr(rank_by_words(collection)),
        (f"AG News: {len(answers):,} titles among {len(ids):,} texts",),
    )


def cisi(data: Path) -> Column:
    files = {name: data / f"retrieval/cisi_CISI.{name}.xz" for name in ("ALL", "QRY", "REL")}
    collection = read_collection(files["ALL"], queries=files["QRY"], judgements=files["REL"])

    def ndcg(rankings: dict[str, list[str]]) -> Interval:
        return score_rankings(rankings, collection)[0]["nDCG@10"]

    return Column(
        "CISI nDCG@10",
        [*collection.queries.values(), *collection.documents.values()],
        lambda vectors: ndcg(rank_by_vectors(vectors, collection)),
        lambda: ndcg(rank_by_words(collection)),
    )


def banking(data: Path) -> Column:
    train, test = (
        LabelledSample([row[1] for row in rows], [row[0] for row in rows])
        for rows in (list(lines(data / f"classify/banking77.{part}.tsv.xz")) for part in ("train", "test"))
    )
    draws = [train.at(sample_shots(train.labels, shots=SHOTS, seed=seed)) for seed in range(DRAWS)]
    texts = [*(text for draw in draws for text in draw.texts), *test.texts]
    return Column("Banking77", texts, lambda vectors: classification_metrics(vectors, draws, test)["accuracy"])


COLUMNS = {"stsb": stsb, "sts": sts, "agnews": agnews, "cisi": cisi, "banking": banking}


def scws(model: lv.Model, data: Path) -> Interval:
    judged = evaluate_scws(
        model.encoder, model.tokenizer, data / "senses/scws.tsv.xz", SimilarityOptions(layers=("last",))
    )
    value = judged.scores[0].value
    low, high = spearman_interval(value, judged.pairs)
    return Interval(value, low, high, (high - low) / 3.92, 0)


def shown(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="*", help="directories of models; the packaged English model is always a row")
    parser.add_argument("--only", help=f"columns, with commas: {','.join([*COLUMNS, 'scws'])}")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--without-packaged", action="store_true", help="leave out the packaged English model")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else [*COLUMNS, "scws"]
    columns = [COLUMNS[name](given.data) for name in chosen if name != "scws"]
    texts = [text for column in columns for text in column.texts]
    rows: dict[str, list[Interval | None]] = {
        "BM25": [column.words() if column.words else None for column in columns],
        "TF-IDF": [column.score(tf_idf(column.texts)) for column in columns],
    }
    for name in ([] if given.without_packaged else [None]) + given.models:
        model = lv.load(name, device=given.device)
        vectors = embed_distinct(model, texts, progress=lambda done: print(f"{done:,}", end="\r", flush=True))
        scores: list[Interval | None] = []
        rows[name or "english"] = scores
        for column in columns:
            scores.append(column.score(vectors))
            print(name or "english", column.title, shown(scores[-1]), flush=True)
        if "scws" in chosen:
            scores.append(scws(model, given.data))
    titles = [column.title for column in columns] + (["SCWS"] if "scws" in chosen else [])
    cells = [[name, *map(shown, scores), *["–"] * (len(titles) - len(scores))] for name, scores in rows.items()]
    print(Table(["", *titles], cells, notes=[note for column in columns for note in column.notes]))


if __name__ == "__main__":
    main()
