"""Score texts: `{"texts": ["The river ran."]}` → pseudo-log-likelihood by word and token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from larvatus.inference.cloze.likelihood import find_reader
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.pseudo_likelihood import score_texts
from larvatus.inference.cloze.scores import Score
from larvatus.inference.model import Model
from larvatus.interfaces.serve.cost import RequestCost
from larvatus.interfaces.serve.operations.operation import Item, Operation, TextsBody
from larvatus.interfaces.serve.served_model import ServedModel
from larvatus.models.masked_prediction import find_predictor


class ScoreBody(TextsBody):
    """Texts to score."""

    method: Method = "original"
    """original masks one token at a time; word-l2r also masks the rest of its word."""


class ScoreOperation(Operation[ScoreBody]):
    name, title, Body = "score", "Pseudo-log-likelihood of each text, by word and token.", ScoreBody
    examples: ClassVar = {"two texts": {"texts": ["The river ran.", "River the ran."]}}
    answer_example: ClassVar = {
        "model": "english",
        "results": [
            {
                "text": "The river ran.",
                "method": "original",
                "total": -9.1,
                "perplexity": 9.7,
                "words": [],
                "tokens": [],
            }
        ],
    }

    def lacks(self, model: Model) -> str | None:
        if find_reader(model.network) is not None or find_predictor(model.network) is not None:
            return None
        return "it has no masked-lm or causal-lm head; use a pretrained model"

    def estimate(self, model: Model, item: Item, options: ScoreBody, lengths: Sequence[int]) -> RequestCost:
        """A copy of the window for each token of a text; a left-to-right model reads it once."""
        if find_reader(model.network) is not None:
            return super().estimate(model, item, options, lengths)
        return RequestCost(sum(tokens * min(tokens + 2, model.encoder.reach) for tokens in lengths))

    def run(self, subject: ServedModel, items: Sequence[Item], options: ScoreBody) -> list[dict[str, Any]]:
        model = subject.model
        texts = list(items)
        labels = ["the text"] * len(texts)
        scores = score_texts(
            model.network, model.tokenizer, texts, method=options.method, labels=labels, name=subject.name
        )
        return [_described(score) for score in scores]


def _described(score: Score) -> dict[str, Any]:
    tokens = len(score.pieces)
    windows = 1 if score.context >= tokens else tokens  # each token of a long text has its own window
    return {**score.to_dict(), "coverage": {"tokens": tokens, "read": tokens, "windows": windows}}
