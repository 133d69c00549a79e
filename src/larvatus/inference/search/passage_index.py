"""Search passages of documents by meaning: `lv.Index`.

    index = lv.Index.open("index")                      # with the model that it was built with
    for hit in index.search("who may appeal against a decision?", top=5):
        hit.score, hit.document, hit.start, hit.text

The question goes through the model that the index was built with; the score of a passage is the cosine of the two
vectors (Reimers & Gurevych 2019), or that of another kind of vectors (`text_vectors.py`). `build.py` makes an index,
`nearest.py` finds the nearest vectors and fuses rankings, `late_index.py` and `sparse_index.py` search the other kinds,
and `lexical.py` ranks by words.

A reranker may order the best again: a model that reads query and passage together (Nogueira & Cho 2019). Anything with
a method `score(query, passages)` is one. `open_reranker` opens the directory of a model of the task `rerank`: of
`larvatus finetune rerank`, or a cross-encoder of `sentence-transformers`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, cast, overload

import numpy as np

from larvatus.core.arrays import Bools, Ints
from larvatus.core.errors import DataError, NumericsError, UsageError, did_you_mean
from larvatus.core.files import as_text
from larvatus.core.ranges import Count
from larvatus.core.settings import Settings
from larvatus.core.tables import ResultList
from larvatus.core.text_inputs import checked_texts
from larvatus.inference.model.loading import load
from larvatus.inference.model.model import Model
from larvatus.inference.model.ranking import check_reranker, score_passages
from larvatus.inference.search.filters import Where, allowed_rows
from larvatus.inference.search.generation import METADATA, Generation, IndexManifest
from larvatus.inference.search.late_index import LateIndex
from larvatus.inference.search.lexical import WORDS, LexicalIndex
from larvatus.inference.search.nearest import NAME as GRAPH
from larvatus.inference.search.nearest import (
    Matches,
    VectorGraph,
    fuse,
    has_usearch,
    nearest_vectors,
    ranked,
    require_usearch,
)
from larvatus.inference.search.results import SearchHit, SearchResults
from larvatus.inference.search.sources import changed_sources
from larvatus.inference.search.sparse_index import SparseIndex
from larvatus.inference.search.text_vectors import check_model, sparse_weights, token_vectors, unit_vectors
from larvatus.tasks.inputs import PredictOptions


class Reranker(Protocol):
    def score(self, query: str, passages: Sequence[str]) -> Sequence[float]:
        """How relevant each passage is to the query; larger is more."""


class PairReranker:
    """A fine-tuned model that scores pairs of query and passage."""

    def __init__(self, model: Model) -> None:
        check_reranker(model.bundle)
        self._model = model

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        model = self._model
        scored = score_passages(model.bundle, query, passages, PredictOptions(), device=str(model.device))
        return [passage.score for passage in scored]


def open_reranker(given: str | Path | Model | Reranker, *, device: str = "auto") -> Reranker:
    """A reranker from a directory or a loaded model; a model of another task is refused."""
    if not isinstance(given, str | Path | Model):
        return given
    return cast(Reranker, PairReranker(given if isinstance(given, Model) else load(given, device=device)))


def rerank_matches(reranker: Reranker, query: str, matches: Matches, passages: Sequence[str], *, top: int) -> Matches:
    """The candidates in the order of the reranker's scores."""
    scores = np.asarray(list(reranker.score(query, passages)), dtype=np.float64)
    if scores.shape != matches.rows.shape:
        raise UsageError(
            f"the reranker gave {scores.size} scores for {len(matches)} passages; it must give one for each"
        )
    if not np.isfinite(scores).all():
        raise NumericsError("a score of the reranker is not finite; check its weights")
    return ranked(matches.rows, scores, top)


# The index.

LEAST_CANDIDATES = 100


class RankingOptions(Settings):
    """How passages are ranked."""

    top: Count = 10
    hybrid: bool = False
    """Fuse the ranking by vectors with that by words."""
    bm25: bool = False
    """Rank by words only."""
    exact: bool = False
    """Compare all vectors, even if the index has a graph."""
    candidates: Count | None = None
    """Passages of each first ranking that are rescored, fused or reranked; None for ten times `top`, at least 100."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bm25 and (self.hybrid or self.exact):
            raise UsageError("--bm25 ranks by words only; leave out --hybrid and --exact, or --bm25")

    @property
    def considered(self) -> int:
        return max(self.top, self.candidates or max(LEAST_CANDIDATES, 10 * self.top))


class Index:
    """An index of passages, mapped from the disk, with its model. Open one with `Index.open`.

    Args:
        generation: Its files.
        model: The model that they were built with.
    """

    def __init__(self, generation: Generation, model: Model) -> None:
        self._generation, self.model = generation, model
        self.path: Path = generation.path
        self.manifest: IndexManifest = generation.manifest
        """What the index holds, and how it was made."""
        there, folder = generation.manifest.files, generation.folder  # opened now: a build may remove them later
        self._words = LexicalIndex.open(folder, len(self)) if WORDS in there else None
        self._graph = VectorGraph.open(folder, generation.vectors) if GRAPH in there and has_usearch() else None
        manifest, records = generation.manifest, generation.records
        self._late = self._sparse = None
        if manifest.kind == "late" and records is not None:
            self._late = LateIndex(records, generation.vectors, self._graph)
        elif manifest.kind == "sparse":
            self._sparse = SparseIndex.open(folder, manifest.size, manifest.passages)

    @classmethod
    def open(
        cls, path: str | Path, *, model: str | Path | Model | None = None, device: str = "auto", verify: bool = True
    ) -> Self:
        """Open an index that `larvatus search build` or `lv.index_documents` made.

        Args:
            path: The index, a directory.
            model: The model that it was built with, or its directory, if that has moved; another one is refused.
            device: Where the model is loaded: `auto`, `cpu` or `cuda`.
            verify: Compare all files with their checksums; False saves the time to read them once.

        Returns:
            The index.

        Example:
            >>> index = lv.index_documents("my_texts/", out=folder / "opened", model=model)
            >>> lv.Index.open(folder / "opened", model=model).search("the river", top=2)[0].rank
            1
        """
        generation = Generation.open(Path(path), verify=verify)
        loaded = model if isinstance(model, Model) else load(model or generation.manifest.model, device=device)
        check_model(generation.manifest, loaded, Path(path), way="name that model with --model, or build it again")
        return cls(generation, loaded)

    @property
    def files(self) -> list[str]:
        """Paths of the indexed files, as they were named."""
        return [as_text(os.fspath(source.path)) for source in self._generation.sources]

    @property
    def has_words(self) -> bool:
        """Whether it can also be searched by words."""
        return self._words is not None

    def rarity(self, word: str) -> float:
        """How rare a word is, from 0 (in every passage) to 1 (in half of them or fewer); 1 if words are not indexed.

        Args:
            word: A word, as it is written.
        """
        return 1.0 if self._words is None else min(1.0, self._words.idf(word) / math.log(2))

    def __len__(self) -> int:
        """Number of passages."""
        return self.manifest.passages

    def __repr__(self) -> str:
        held = self.manifest
        stored = held.vectors.dtype if held.kind == "dense" else f"{held.kind} vectors"
        return f"<Index {self.path}: {held.passages:,} passages of {held.documents:,} documents, {stored}>"

    @overload
    def search(self, queries: str, **settings: Any) -> SearchResults: ...

    @overload
    def search(self, queries: Sequence[str], **settings: Any) -> ResultList[SearchResults]: ...

    def search(
        self,
        queries: str | Sequence[str],
        *,
        where: Where | None = None,
        paths: str | Sequence[str] = (),
        rerank: str | Path | Model | Reranker | None = None,
        **settings: Any,
    ) -> SearchResults | ResultList[SearchResults]:
        """The passages that are nearest to a query in meaning.

        Args:
            queries: One question or text, or several.
            where: Only passages with these values of metadata columns: `{"year": 1999, "court": ["Leeds", "York"]}`.
            paths: Only passages of files whose path matches a pattern such as `*.md`, or one of several.
            rerank: A model of `larvatus finetune rerank` that orders the candidates, or an object with a method
                `score(query, passages)`.
            **settings: `top` (how many, 10), `hybrid` (fuse with BM25), `bm25` (words only), `exact` (do not use the
                graph), `candidates` (passages that are rescored, fused or reranked).

        Returns:
            The results for one query, a list for several; `.to_pandas()` gives a table.

        Example:
            >>> index = lv.index_documents("my_texts/", out=folder / "searched", model=model)
            >>> len(index.search("the river bank", top=3)), len(index.search(["a river", "homework"]))
            (3, 2)
        """
        for name in settings:
            if name not in RankingOptions.__struct_fields__:
                raise UsageError(
                    f"search has no setting {name!r}{did_you_mean(name, RankingOptions.__struct_fields__)}"
                )
        options = RankingOptions(**settings)
        listed, single = checked_texts(queries, "queries")
        for text in listed:
            if not text.strip():
                raise UsageError("the query is empty; write a question or some words")
        allowed = allowed_rows(self._generation, where=where or {}, paths=[paths] if isinstance(paths, str) else paths)
        searched = len(self) if allowed is None else int(allowed.sum())
        if not searched:
            raise DataError(f"no passage of {self.path} has these values or paths; check --where and --path")
        count = options.top if rerank is None else options.considered
        matches = self._matches(listed, options, allowed, count)
        if rerank is not None:
            reranker = open_reranker(rerank, device=str(self.model.device))
            matches = [
                rerank_matches(reranker, query, each, self._texts(each.rows), top=options.top)
                for query, each in zip(listed, matches, strict=True)
            ]
        results = [self._results(query, each, searched) for query, each in zip(listed, matches, strict=True)]
        return results[0] if single else ResultList(results)

    def _matches(
        self, queries: Sequence[str], options: RankingOptions, allowed: Bools | None, count: int
    ) -> list[Matches]:
        """The first rankings of each query: by vectors, by words, or both fused."""
        considered = options.considered
        by_words = [
            self._lexical().search(query, top=considered if options.hybrid else count, allowed=allowed)
            for query in (queries if options.hybrid or options.bm25 else ())
        ]
        if options.bm25:
            return by_words
        by_vectors = self._by_vectors(queries, options, allowed, considered if options.hybrid else count)
        if not options.hybrid:
            return by_vectors
        return [fuse(both, top=count) for both in zip(by_vectors, by_words, strict=True)]

    def _by_vectors(
        self, queries: Sequence[str], options: RankingOptions, allowed: Bools | None, top: int
    ) -> list[Matches]:
        """The nearest passages of each query, by the kind of vectors that the index holds."""
        if not queries:
            return []
        if self._sparse is not None:
            return self._sparse.search(sparse_weights(self.model, queries), top=top, allowed=allowed)
        if GRAPH in self.manifest.files and allowed is None and not options.exact:
            require_usearch()
        if self._late is not None:
            return self._late.search(
                token_vectors(self.model, queries),
                top=top,
                candidates=options.considered,
                allowed=allowed,
                exact=options.exact,
            )
        vectors_QD = unit_vectors(self.model, queries)
        if self._graph is not None and allowed is None and not options.exact:
            return self._graph.search(vectors_QD, top=top, candidates=options.considered)
        return nearest_vectors(
            self._generation.vectors, vectors_QD, top=top, candidates=options.considered, allowed=allowed
        )

    def _lexical(self) -> LexicalIndex:
        if self._words is None:
            raise UsageError(f"{self.path} has no words for --hybrid and --bm25; build it again without --no-bm25")
        return self._words

    def some_texts(self, count: int) -> list[str]:
        """The texts of at most `count` passages, at equal distances in the index.

        Args:
            count: How many.
        """
        return self._texts(list(range(0, len(self), max(1, -(-len(self) // count)))))

    def _texts(self, rows: Sequence[int] | Ints) -> list[str]:
        return list(self._generation.passages["text"].take(rows).to_pylist())

    def _results(self, query: str, matches: Matches, searched: int) -> SearchResults:
        generation = self._generation
        sources = [generation.source_of(row) for row in matches.rows.tolist()]
        rows = generation.passages.take(matches.rows).to_pylist()
        hits = tuple(
            SearchHit(
                rank=rank,
                score=float(score),
                document=as_text(os.fspath(source.path)),
                line=row["line"],
                start=row["start"],
                end=row["end"],
                text=row["text"],
                metadata={column: row[METADATA + column] for column in generation.manifest.columns},
            )
            for rank, (score, source, row) in enumerate(zip(matches.scores, sources, rows, strict=True), start=1)
        )
        changed = tuple(changed_sources(list(dict.fromkeys(sources)), generation.manifest.base))
        return SearchResults(query, hits, searched, changed)
