"""Search in the indexes of the server: `{"query": "who may appeal?", "top": 3}` → passages with their exact places.

    larvatus serve --index index                       # one of `larvatus search build`; repeatable

An index is searched with the model that it was built with, through the same forward passes as every other request. A
request can name a served model that reranks: `{"query": "who may appeal?", "rerank": "reranker"}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from larvatus.core.errors import did_you_mean
from larvatus.inference.model import Model
from larvatus.inference.search.passage_index import RankingOptions
from larvatus.interfaces.serve.errors import CannotDo, NoSuchIndex
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, RequestCost, ServedModel, windowed
from larvatus.interfaces.serve.operations.predict import pair_cost
from larvatus.interfaces.serve.served_index import ServedIndex

LETTERS = 8
"""Characters of a passage that cost as much as a number in the response."""
PLACE = 8
"""Numbers of a hit, not counting its text."""
Top = Annotated[int, Meta(ge=1)]
Candidates = Annotated[int, Meta(ge=1, le=10_000)]
Value = str | bool | int | float | None
Pattern = Annotated[str, Meta(max_length=1_000)]


class SearchBody(Body):
    """Questions to an index, and the passages that may answer."""

    query: str | tuple[str, ...]
    """One question or text, or a list of them."""
    index: str | None = None
    """Name of an index, from /v1/models; by default the first of the model."""
    top: Top = 10
    """Number of passages."""
    hybrid: bool = False
    """Fuse the ranking by meaning with that by words (BM25)."""
    bm25: bool = False
    """Rank by words only."""
    where: dict[str, Value | tuple[Value, ...]] = {}
    """Only passages with these values of metadata columns; values in a list are alternatives."""
    paths: Annotated[tuple[Pattern, ...], Meta(max_length=64)] = ()
    """Only files whose path matches one of these patterns, such as *.md."""
    rerank: str | None = None
    """Name of a model that reranks, from /v1/models: it orders the candidates."""
    candidates: Candidates | None = None
    """Passages of each first ranking that are rescored, fused or reranked; by default ten times top, at least 100."""

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self))  # a dict has none


class SearchOperation(Operation[SearchBody]):
    name, title, Body = "search", "Passages of an index that answer a question: by meaning, words, or both.", SearchBody
    texts_field = "query"
    examples: ClassVar = {
        "a question": {"query": "Who may appeal?", "top": 3},
        "with filters": {"query": ["appeal"], "hybrid": True, "where": {"year": [1999, 2000]}, "paths": ["*.md"]},
        "reranked": {"query": "Who may appeal?", "rerank": "rerank", "candidates": 50},
    }
    answer_example: ClassVar = {
        "model": "english",
        "results": [
            {
                "index": "rulings",
                "query": "Who may appeal?",
                "searched": 412,
                "changed": [],
                "hits": [
                    {
                        "rank": 1,
                        "score": 0.71,
                        "document": "rulings/1999.md",
                        "line": 12,
                        "start": 804,
                        "end": 1391,
                        "text": "Any party may appeal …",
                    }
                ],
            }
        ],
    }

    def lacks(self, model: Model) -> str | None:
        """Whether a model has an index is known to the server only (`ServedModel.with_indexes`)."""
        return "the server has no index of its vectors; start it with --index DIR"

    def model_name(self, body: SearchBody, models: Mapping[str, ServedModel]) -> str | None:
        """The model of the named index."""
        if body.index is None:
            return body.model
        holders = {index: name for name, model in models.items() for index in model.indexes}
        if body.index not in holders:
            raise NoSuchIndex(f"there is no index {body.index!r}{did_you_mean(body.index, holders)}")
        holder = holders[body.index]
        if body.model not in (None, holder):
            raise CannotDo(f"{body.index} is an index of {holder}, not of {body.model!r}; leave out model")
        return holder

    def prepared(
        self, subject: ServedModel, body: SearchBody, choose: Callable[[str, str | None], ServedModel]
    ) -> ServedModel:
        return subject if body.rerank is None else replace(subject, reranker=choose("rerank", body.rerank))

    def cost(self, subject: ServedModel, item: Item, options: SearchBody, lengths: Sequence[int]) -> RequestCost:
        """The query is read, with a reranker also with each candidate, and passages are sent."""
        index, query = _index(subject, options), sum(lengths)
        tokens = windowed(query, reach=subject.model.encoder.reach)
        if subject.reranker is not None:
            reader = subject.reranker.model
            pair = (query, index.passage_tokens(reader))
            tokens += min(_ranking(options).considered, len(index.index)) * pair_cost(
                pair, reader.encoder.reach, None, half=True
            )
        return RequestCost(tokens, options.top * (index.longest // LETTERS + PLACE))

    def run(self, subject: ServedModel, items: Sequence[Item], options: SearchBody) -> list[dict[str, Any]]:
        return _index(subject, options).search(
            list(items),
            where=options.where,
            paths=options.paths,
            rerank=None if subject.reranker is None else subject.reranker.model,
            **msgspec.structs.asdict(_ranking(options)),
        )


def _ranking(options: SearchBody) -> RankingOptions:
    return RankingOptions(top=options.top, hybrid=options.hybrid, bm25=options.bm25, candidates=options.candidates)


def _index(subject: ServedModel, options: SearchBody) -> ServedIndex:
    return subject.indexes[options.index or next(iter(subject.indexes))]
