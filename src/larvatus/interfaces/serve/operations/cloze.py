"""Fill blanks and score texts, by the probabilities of masked tokens.

{"texts": ["The [MASK] of the river."], "top": 3}       → /v1/fill, the most likely words of each blank
{"texts": ["The river ran."]}                           → /v1/score, pseudo-log-likelihood by word and token
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from larvatus.inference.cloze.fill import fill_blanks
from larvatus.inference.cloze.likelihood import find_reader, score_texts
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.results import Score
from larvatus.inference.model import Model
from larvatus.interfaces.serve.operations.operation import Item, Operation, RequestCost, ServedModel, TextsBody
from larvatus.interfaces.serve.responses import OverLimit
from larvatus.interfaces.serve.settings import ServeSettings
from larvatus.models.masked_prediction import find_predictor

LETTERS = 8
"""Characters of a text that cost as much as a number in the response."""
Top = Annotated[int, Meta(ge=1)]


class FillBody(TextsBody):
    """Texts with [MASK] at each blank."""

    top: Top = 5
    """Number of candidates."""
    joint: bool = True
    """Fill several blanks jointly; false fills each by itself."""
    beam: Top = 10
    """Beam size when several blanks are filled jointly."""
    words_only: bool = True
    """Whole words only; false also allows subwords, punctuation and abbreviations before their period. Probabilities
    are not renormalised."""


class FillOperation(Operation[FillBody]):
    name, title, Body = "fill", "Fill the blanks of texts: the most likely words, with their probabilities.", FillBody
    together = False  # `fill_blanks` takes one text; several share forward passes
    examples: ClassVar = {
        "one blank": {"texts": "The [MASK] of the river was wide.", "top": 3},
        "two blanks": {"texts": ["The [MASK] [MASK] was wide."], "joint": True},
    }
    answer_example: ClassVar = {
        "model": "english",
        "results": [
            {
                "text": "The [MASK] of the river was wide.",
                "fills": [
                    {"token": "mouth", "probability": 0.31, "id": 2677, "text": "The mouth of the river was wide."}
                ],
                "marginals": [],
                "read": 8,
                "total": 8,
                "coverage": {"tokens": 8, "read": 8, "windows": 1},
            }
        ],
    }

    def lacks(self, model: Model) -> str | None:
        if find_predictor(model.network) is not None:
            return None
        return "it has no masked-lm head; use a model pretrained with masked-lm"

    def check(self, body: FillBody, settings: ServeSettings) -> None:
        super().check(body, settings)
        if body.beam > settings.max_top:
            raise OverLimit(f"beam is {body.beam:,}, and this server keeps {settings.max_top:,} at most (--max-top)")

    def estimate(self, model: Model, item: Item, options: FillBody, lengths: Sequence[int]) -> RequestCost:
        """With several blanks, each hypothesis of the beam is a copy of the window, for each blank after the first."""
        blanks = max(1, str(item).count(model.tokenizer.special.mask or "[MASK]"))
        window = min(sum(lengths), model.encoder.reach)
        kept = max(options.beam, options.top)
        copies = 1 + (blanks - 1) * kept if options.joint else blanks if sum(lengths) > window else 1
        words = (options.top * (blanks + 1)) * (len(item) // LETTERS + 1)  # each candidate comes with its text
        return RequestCost(copies * window, words)

    def run(self, subject: ServedModel, items: Sequence[Item], options: FillBody) -> list[dict[str, Any]]:
        return [self._fill(subject.model, text, options) for text in items]

    def _fill(self, model: Model, text: str, options: FillBody) -> dict[str, Any]:
        fills = fill_blanks(
            model.network,
            model.tokenizer,
            text,
            top=options.top,
            beam=options.beam,
            joint=options.joint,
            candidates="words" if options.words_only else "tokens",
        )
        return {**fills.to_dict(), "coverage": {"tokens": fills.total, "read": fills.read, "windows": 1}}


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
