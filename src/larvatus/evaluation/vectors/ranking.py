"""Retrieval by one vector per document: every document is compared with every query, and ranked as trec_eval ranks.

    rankings = rank_by_vectors(vectors, collection)
    scores, by_query = score_rankings(rankings, collection)                  # evaluation/retrieval.py
    score_rankings(rank_by_words(collection), collection)                    # BM25, the baseline

This measures the vectors. `larvatus search evaluate` measures a search: passages, stored vectors, graphs, fusion,
reranking.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from larvatus.core.arrays import Doubles, Floats
from larvatus.data.labelled.retrieval_sets import RetrievalCollection
from larvatus.evaluation.retrieval import DEPTH
from larvatus.evaluation.vectors.text_vectors import VectorTable
from larvatus.inference.search.lexical import LexicalIndex, write_lexical
from larvatus.metrics.ranking import trec_order

Rankings = dict[str, list[str]]
"""Query to documents, best first."""


def rank_by_vectors(vectors: VectorTable, collection: RetrievalCollection, *, depth: int = DEPTH) -> Rankings:
    """The `depth` documents of each judged query with the highest cosines."""
    queries = [collection.queries[query] for query in collection.judged]
    return _ranked(vectors.similarities(queries, list(collection.documents.values())), collection, depth)


def rank_by_words(collection: RetrievalCollection, *, depth: int = DEPTH) -> Rankings:
    """The same by BM25; documents that share no word with a query are not ranked."""
    with TemporaryDirectory() as folder:
        write_lexical(Path(folder), collection.documents.values())
        words = LexicalIndex.open(Path(folder), len(collection.documents))
        scores = (words.scores(collection.queries[query]) for query in collection.judged)
        return _ranked(scores, collection, depth, above=0.0)


def _ranked(
    scores: Iterable[Doubles | Floats], collection: RetrievalCollection, depth: int, *, above: float | None = None
) -> Rankings:
    ids = list(collection.documents)
    rankings: Rankings = {}
    for query, row in zip(collection.judged, scores, strict=True):
        places = trec_order(row, ids, depth)
        rankings[query] = [ids[place] for place in places if above is None or row[place] > above]
    return rankings
