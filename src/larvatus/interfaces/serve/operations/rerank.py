"""Reranking in the form of Cohere's and Jina's API, so that their clients work unchanged.

{"query": "Where does a river end?", "documents": ["In the sea.", {"text": "The bank is steep."}], "top_n": 1}
→ {"model": "rerank", "results": [{"index": 0, "relevance_score": 0.98}], "usage": {"total_tokens": 21}}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from larvatus.core.settings import Settings
from larvatus.inference.model import Model
from larvatus.interfaces.serve.errors import BadRequest
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, RequestCost, ServedModel
from larvatus.interfaces.serve.operations.predict import pair_cost
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.predict import InputPlace, TaskPredictor
from larvatus.tasks.registry import is_finetuned, task_of
from larvatus.tasks.rerank.task import RerankTask


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
