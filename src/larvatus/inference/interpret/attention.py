"""The attention weights of a text: α of every layer and head, as the model computes them (chapter eq. 11.3, 11.6).

    attention = attend(encoder, tokenizer, "The cat sat on the mat.")
    attention.weights[2, 0]          # layer 3, head 1: [T, T], row i is what token i attends to
    attention.tokens                 # ('[CLS]', 'the', 'cat', …, '[SEP]')

Layers and heads are counted from 1 for users, as in Clark et al. (2019), and from 0 in arrays.
L layers, H heads, T tokens, including the special tokens [CLS] … [SEP].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex
import torch
from torch import Tensor

from larvatus.core.arrays import Bools, Floats, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, runs
from larvatus.core.errors import UsageError
from larvatus.core.tables import Tabular
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import PUNCTUATION
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder import Encoder

BUDGETS = {"cpu": 2_048, "cuda": 16_384}
"""Tokens of a batch; weights grow with the square of a sequence's length."""
_PUNCTUATION = regex.compile(rf"(?V1)[\s{PUNCTUATION}]*[{PUNCTUATION}][\s{PUNCTUATION}]*")


@dataclass(frozen=True, eq=False)
class TokenPassage:
    """A sequence with its special tokens."""

    ids: Ints
    """[T] including special tokens."""
    tokens: tuple[str, ...]
    """Text of each token, or the name of a special token."""
    punctuation: Bools
    """[T] tokens that are only punctuation."""


@dataclass(frozen=True, eq=False, repr=False)
class TextAttention(Tabular):
    """The weights of one text."""

    text: str
    tokens: tuple[str, ...]
    punctuation: Bools
    weights: Floats
    """[L, H, T, T]; every row sums to 1."""

    def head(self, layer: int, head: int) -> Floats:
        """One head's weights, [T, T]; layers and heads are counted from 1."""
        check_head(layer, head, layers=self.weights.shape[0], heads=self.weights.shape[1])
        weights: Floats = self.weights[layer - 1, head - 1]
        return weights

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "tokens": list(self.tokens), "weights": self.weights.tolist()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each weight: layer and head from 1, number and text of the token that attends, and of the other."""
        layers, heads, tokens, _ = self.weights.shape
        return [
            {
                "layer": layer + 1,
                "head": head + 1,
                "from": query,
                "from_token": self.tokens[query],
                "to": key,
                "to_token": self.tokens[key],
                "weight": float(self.weights[layer, head, query, key]),
            }
            for layer, head, query, key in np.ndindex(layers, heads, tokens, tokens)
        ]

    def __repr__(self) -> str:
        layers, heads, tokens, _ = self.weights.shape
        return f"<TextAttention of {tokens} tokens, {layers} layers × {heads} heads>"


def check_head(layer: int, head: int, *, layers: int, heads: int) -> None:
    if not (1 <= layer <= layers and 1 <= head <= heads):
        raise UsageError(
            f"there is no layer {layer}, head {head}: the model has layers 1 to {layers} with heads 1 to {heads}"
        )


def attend(encoder: Encoder, tokenizer: Tokenizer, text: str) -> TextAttention:
    """All weights of a text; one that does not fit into the model's window is refused."""
    alignment = tokenizer.encode(text)
    longest = tokenizer.template.single.text_length(encoder.reach)
    if not len(alignment):
        raise UsageError("the text has no token; give a text with words")
    if len(alignment) > longest:
        raise UsageError(
            f"the text has {len(alignment):,} tokens and the model's window has {longest:,}; shorten it, or analyse "
            "heads over many passages with --corpus"
        )
    passage = framed_passage(tokenizer, alignment, 0, len(alignment))
    layers = [weights[0].cpu().numpy() for weights in passage_weights(encoder, [passage])]
    return TextAttention(text, passage.tokens, passage.punctuation, np.stack(layers))


def framed_passage(tokenizer: Tokenizer, alignment: Alignment, start: int, end: int) -> TokenPassage:
    """Tokens start … end − 1 of a text, with special tokens."""
    surfaces = [alignment.text[a:b] for a, b in alignment.spans[start:end].tolist()]
    names = [
        surface.strip() or tokenizer.readable(tokenizer.token(id))
        for surface, id in zip(surfaces, alignment.ids[start:end], strict=True)
    ]
    marks = [_PUNCTUATION.fullmatch(surface) is not None for surface in surfaces]
    template = tokenizer.template.single
    before, after = ([tokenizer.token(id) for id in gap] for gap in template.gaps)
    return TokenPassage(
        ids=template.ids(alignment.ids[start:end]),
        tokens=(*before, *names, *after),
        punctuation=template.fill(0, np.array(marks, np.int64)).astype(np.bool_),
    )


@torch.inference_mode()
def passage_weights(encoder: Encoder, passages: Sequence[TokenPassage]) -> Iterator[list[Tensor]]:
    """For each layer: α [H, T, T] of each passage, computed in one batch."""
    batch = TokenBatch.of(
        [passage.ids.tolist() for passage in passages], words=[[NO_WORD] * len(passage.ids) for passage in passages]
    )
    device = encoder.device
    yield from encoder.attention(on_device(batch, device))


def batches(encoder: Encoder, passages: Sequence[TokenPassage]) -> Iterator[list[TokenPassage]]:
    """Passages in order, in batches."""
    budget = BUDGETS.get(encoder.device.type, BUDGETS["cuda"])
    lengths = np.array([len(passage.ids) for passage in passages], dtype=np.int64)
    for first, last in runs(lengths, budget):
        yield list(passages[first:last])
