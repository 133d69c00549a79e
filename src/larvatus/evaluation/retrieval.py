"""How well an index finds the documents that people judged relevant: nDCG@10, MRR, recall and MAP.

    collection = read_collection("CISI.ALL", queries="CISI.QRY", judgements="CISI.REL")
    index = index_collection(lv.load(), collection, Path("cisi.index"))
    print(evaluate_retrieval(index, collection, hybrid=True))

A document scores as its best passage does. Every metric is a mean over the queries that have a relevant document, with
a bootstrap interval over queries (`metrics/intervals.py`); `metrics/ranking.py` defines them as `trec_eval` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.errors import DataError
from larvatus.core.tables import Table, Tabular
from larvatus.data.labelled.retrieval_sets import RetrievalCollection
from larvatus.data.text.documents import ReadOptions
from larvatus.inference.model import Model
from larvatus.inference.search.build import BuildRun, IndexBuildOptions, IndexContents, build_passage_index
from larvatus.inference.search.passage_index import Index
from larvatus.inference.search.results import SearchResults
from larvatus.inference.search.sources import PassageSettings
from larvatus.metrics.intervals import Interval, bootstrap, mean_of_sums, mean_rows
from larvatus.metrics.ranking import average_precision, ndcg, recall_at, reciprocal_rank

ID = "id"
DOCUMENTS = "documents.jsonl"
DEPTH = 1_000
"""Passages of each query that are ranked."""
RERANKED = 100
"""Passages of each query that a reranker reads by default, and all that it ranks."""


@dataclass(frozen=True, repr=False)
class RetrievalEvaluation(Tabular):
    """Scores of one way to search, over the queries of a collection."""

    queries: int
    documents: int
    scores: Mapping[str, Interval]
    """Mean of each metric, with its interval."""
    by_query: Mapping[str, Mapping[str, float]]
    """Query to metric to value."""

    def to_dict(self) -> dict[str, Any]:
        return {"queries": self.queries, "documents": self.documents, "scores": self.to_dicts()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each metric."""
        return [
            {"metric": name, "value": score.value, "low": score.low, "high": score.high}
            for name, score in self.scores.items()
        ]

    def table(self) -> Table:
        rows = [(name, f"{s.value:.4f}", f"{s.low:.4f} to {s.high:.4f}") for name, s in self.scores.items()]
        title = f"{self.queries:,} queries, {self.documents:,} documents"
        return Table(("metric", "score", "95% interval"), rows, title=title)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        return f"<RetrievalEvaluation: nDCG@10 {self.scores['nDCG@10'].value:.4f}, {self.queries:,} queries>"


def index_collection(
    model: Model,
    collection: RetrievalCollection,
    out: Path,
    *,
    passages: PassageSettings = PassageSettings(),
    vectors: IndexContents = IndexContents(),
    run: BuildRun | None = None,
) -> Index:
    """The index of a collection's documents, with their ids; one that is there is brought up to date."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = out.with_name(f"{out.name}.{DOCUMENTS}")
    texts = "".join(json.dumps({ID: id, "text": text}) + "\n" for id, text in collection.documents.items())
    if not lines.exists() or lines.read_text(encoding="utf-8") != texts:
        lines.write_text(texts, encoding="utf-8")
    reading = ReadOptions(metadata_fields=(ID,)).with_text("text")
    options = IndexBuildOptions(reading=reading, passages=passages, vectors=vectors)
    build_passage_index(model, [str(lines)], out, options, run)
    return Index.open(out, model=model, verify=False)


def evaluate_retrieval(index: Index, collection: RetrievalCollection, **settings: Any) -> RetrievalEvaluation:
    """Search for every judged query, and compare with the judgements.

    Args:
        index: An index of `index_collection`, or any whose metadata column `id` holds the documents' ids.
        collection: Queries and judgements.
        **settings: Those of `Index.search`: `hybrid`, `bm25`, `rerank`, `exact`, `candidates`; `top` is 1,000, or as
            many as a reranker reads: `candidates`, 100 by default.
    """
    if ID not in index.manifest.columns:
        raise DataError(f"{index.path} does not hold the ids of its documents; build it with --metadata {ID}")
    judged = collection.judged
    if settings.get("rerank") is not None:
        settings["top"] = settings["candidates"] = settings.get("candidates") or RERANKED
    settings = {"top": min(DEPTH, len(index)), **settings}
    results = index.search([collection.queries[query] for query in judged], **settings)
    rankings = {query: documents_of(hits) for query, hits in zip(judged, results, strict=True)}
    scores, by_query = score_rankings(rankings, collection)
    return RetrievalEvaluation(len(judged), len(collection.documents), scores, by_query)


def documents_of(results: SearchResults) -> list[str]:
    """Ids of documents in the order of their best passages; of equal scores the last id first, as in trec_eval."""
    best: dict[str, np.float32] = {}
    for hit in results:
        best.setdefault(str(hit.metadata[ID]), np.float32(hit.score))
    return [id for _, tied in groupby(best, key=best.__getitem__) for id in sorted(tied, reverse=True)]


def score_rankings(
    rankings: Mapping[str, list[str]], collection: RetrievalCollection, *, samples: int = 1000
) -> tuple[dict[str, Interval], dict[str, dict[str, float]]]:
    """Means over queries with their intervals, and the metrics of each query."""
    by_query = {query: score_ranking(ranked, collection.judgements[query]) for query, ranked in rankings.items()}
    names = next(iter(by_query.values()))
    tables = {name: mean_rows([values[name] for values in by_query.values()]) for name in names}
    return {name: bootstrap(table, mean_of_sums, samples=samples) for name, table in tables.items()}, by_query


def score_ranking(ranked: list[str], relevant: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one query: ids best first, and the grades of relevant documents.

    >>> score_ranking(["a", "b", "c"], {"b": 1.0, "z": 1.0})["MRR@10"]
    0.5
    """
    grades = [relevant.get(document, 0.0) for document in ranked]
    total = len(relevant)
    return {
        "nDCG@10": ndcg(grades, 10, ideal=list(relevant.values())),
        "MRR@10": reciprocal_rank(grades, 10),
        "recall@10": recall_at(grades, 10, relevant=total),
        "recall@100": recall_at(grades, 100, relevant=total),
        "MAP": average_precision(grades, relevant=total),
    }
