"""Attention weights: `{"text": "The cat sat."}` → tokens, weights [layers][heads][T][T], types of heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from larvatus.core.errors import UsageError
from larvatus.inference.interpret.attention import attend, check_head
from larvatus.inference.interpret.heads import text_statistics
from larvatus.inference.model import Model
from larvatus.interfaces.serve.operations.operation import Body, Item, Operation, RequestCost, ServedModel
from larvatus.interfaces.serve.responses import OverLimit

MOST_NUMBERS = 1 << 21
"""Most weights in a response."""
Number = Annotated[int, Meta(ge=1)]


class AttentionBody(Body):
    """A text and the requested heads."""

    text: str
    """One text that fits into the model's window."""
    layer: Number | None = None
    """Layer, counted from 1; all by default."""
    head: Number | None = None
    """Head, counted from 1; all by default."""


class AttentionOperation(Operation[AttentionBody]):
    name, title, Body = "attention", "Attention weights of every head on a text.", AttentionBody
    texts_field = "text"
    together = False
    whole = True
    examples: ClassVar = {
        "a text": {"text": "The cat sat on the mat."},
        "a layer": {"text": "The cat sat on the mat.", "layer": 2},
    }
    answer_example: ClassVar = {
        "model": "english",
        "text": "cat",
        "tokens": ["[CLS]", "cat", "[SEP]"],
        "layers": [1],
        "heads": [1],
        "weights": [[[[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]]],
        "types": [{"layer": 1, "head": 1, "type": "self", "entropy": 0.8}],
    }

    def lacks(self, model: Model) -> str | None:
        try:
            return None if model.encoder.heads else "it has no attention heads"
        except UsageError as fault:
            return str(fault)

    def options(self, body: AttentionBody) -> AttentionBody:
        return AttentionBody(text="", layer=body.layer, head=body.head)

    def estimate(self, model: Model, item: Item, options: AttentionBody, lengths: Sequence[int]) -> RequestCost:
        """Weights between all pairs of tokens. A text longer than the model's window is refused later."""
        tokens = min(sum(lengths) + model.tokenizer.template.single.special_count, model.encoder.reach)
        layers = 1 if options.layer else model.encoder.depth
        heads = 1 if options.head else model.encoder.heads
        return RequestCost(tokens, layers * heads * tokens**2)

    def run(self, subject: ServedModel, items: Sequence[Item], options: AttentionBody) -> list[dict[str, Any]]:
        return [self._attended(subject.model, text, options) for text in items]

    def _attended(self, model: Model, text: str, options: AttentionBody) -> dict[str, Any]:
        encoder = model.encoder
        check_head(options.layer or 1, options.head or 1, layers=encoder.depth, heads=encoder.heads)
        layers = [options.layer] if options.layer else list(range(1, encoder.depth + 1))
        heads = [options.head] if options.head else list(range(1, encoder.heads + 1))
        tokens = len(model.tokenizer.encode_fast([text])[0]) + model.tokenizer.template.single.special_count
        numbers = encoder.depth * encoder.heads * tokens**2
        if numbers > 8 * MOST_NUMBERS or len(layers) * len(heads) * tokens**2 > MOST_NUMBERS:
            raise OverLimit(
                f"{tokens:,} tokens make {numbers:,} weights, and this server gives {MOST_NUMBERS:,} at most; "
                "shorten the text, or request one layer or head"
            )
        attention = attend(encoder, model.tokenizer, text)
        chosen = attention.weights[layers[0] - 1 : layers[-1], heads[0] - 1 : heads[-1]]
        types = [row.to_dict() for row in text_statistics(attention) if row.layer in layers and row.head in heads]
        return {
            "text": text,
            "tokens": list(attention.tokens),
            "layers": layers,
            "heads": heads,
            "weights": chosen.tolist(),
            "types": types,
            "coverage": {"tokens": len(attention.tokens), "read": len(attention.tokens), "windows": 1},
        }

    def answer(self, name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"model": name, **results[0]}
