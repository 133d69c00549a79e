"""Search in the indexes of the server, and reranking.

    larvatus serve --index index                       # one of `larvatus search build`; repeatable

`{"query": "who may appeal?", "top": 3}` gives passages with their exact places. An index is searched with the model
that it was built with, through the same forward passes as every other request. A request can name a served model that
reranks: `{"query": "who may appeal?", "rerank": "reranker"}`.

/v1/rerank has the form of Cohere's and Jina's API, so that their clients work unchanged:

    {"query": "Where does a river end?", "documents": ["In the sea.", {"text": "The bank is steep."}], "top_n": 1}
    → {"model": "rerank", "results": [{"index": 0, "relevance_score": 0.98}], "usage": {"total_tokens": 21}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from larvatus.core.errors import did_you_mean
from larvatus.core.settings import Settings
from larvatus.inference.model import Model
from larvatus.inference.search.passage_index import RankingOptions
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, RequestCost, ServedModel, windowed
from larvatus.interfaces.serve.operations.predict import pair_cost
from larvatus.interfaces.serve.responses import BadRequest, CannotDo, NoSuchIndex
from larvatus.interfaces.serve.served_index import ServedIndex
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.predict import InputPlace, TaskPredictor
from larvatus.tasks.registry import is_finetuned, task_of
from larvatus.tasks.rerank.task import RerankTask

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


# Reranking.


class RerankDocument(Settings, forbid_unknown_fields=False):
    """A document with other fields, which are not read."""

    text: str


class RerankBody(Body):
    """A query and the documents to order."""

    query: str
    """A question, or any text."""
    documents: tuple[str | RerankDocument, ...]
    """Texts, or objects with a text; long ones are read in windows, of which the best counts."""
    top_n: Annotated[int, Meta(ge=1)] | None = None
    """Results to return, the most relevant first; by default all."""
    return_documents: bool = False
    """Return the text of each result, too."""


class RerankOperation(Operation[RerankBody]):
    name, title, Body = "rerank", "Order documents by their relevance to a query.", RerankBody
    texts_field = "documents"
    whole = True
    examples: ClassVar = {
        "two documents": {
            "query": "Where does a river end?",
            "documents": ["A river ends in the sea.", "The bank is steep."],
            "top_n": 1,
        }
    }
    answer_example: ClassVar = {
        "model": "rerank",
        "results": [{"index": 0, "relevance_score": 0.98}],
        "usage": {"total_tokens": 21},
    }

    def lacks(self, model: Model) -> str | None:
        if is_finetuned(model.bundle) and task_of(model.bundle).name == RerankTask.name:
            return None
        return "it is not fine-tuned for this task; fine-tune a model with larvatus finetune rerank"

    def items(self, body: RerankBody) -> list[Item]:
        """The query with each document."""
        if not body.query.strip():
            raise BadRequest("the query is empty; give a question or some words")
        texts = [given if isinstance(given, str) else given.text for given in body.documents]
        if not texts:
            raise BadRequest("there is nothing in documents; give a list of texts")
        for number, text in enumerate(texts):
            if not text.strip():
                raise BadRequest(f"documents[{number}] is empty; leave it out")
        return [(body.query, text) for text in texts]

    def options(self, body: RerankBody) -> RerankBody:
        return msgspec.structs.replace(body, model=None, query="", documents=())

    def estimate(self, model: Model, item: Item, options: RerankBody, lengths: Sequence[int]) -> RequestCost:
        """The query is read with each window of a document."""
        query, document = lengths
        return RequestCost(pair_cost((query, document), model.encoder.reach, None, half=True), 1)

    def run(self, subject: ServedModel, items: Sequence[Item], options: RerankBody) -> list[dict[str, Any]]:
        predictor = TaskPredictor(subject.model.bundle, PredictOptions(), subject.model.device)
        places = (InputPlace("document", number) for number in range(1, len(items) + 1))
        examples = [predictor.task.example(item, place) for item, place in zip(items, places, strict=True)]
        scored = [passage.to_dict() for passage in predictor.answer(examples)]
        return [
            {
                "relevance_score": passage["score"],
                **({"document": {"text": passage["passage"]}} if options.return_documents else {}),
                "tokens": passage["tokens"],
                "top_n": options.top_n,
            }
            for passage in scored
        ]

    def answer(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        numbered = [
            {"index": index, **{key: value for key, value in result.items() if key not in ("tokens", "top_n")}}
            for index, result in enumerate(results)
        ]
        ranked = sorted(numbered, key=lambda result: -float(result["relevance_score"]))
        tokens = sum(result["tokens"] for result in results)
        return {"model": name, "results": ranked[: results[0]["top_n"]], "usage": {"total_tokens": tokens}}
