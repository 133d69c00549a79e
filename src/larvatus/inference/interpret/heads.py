"""Statistics of attention heads (Clark et al. 2019, *What does BERT look at?*, §3).

For every layer and head, means over the query tokens i of all passages, including special tokens:

    entropy      −Σ_j α_ij log α_ij, in nats; `uniform` is log T, that of uniform attention
    distance     Σ_j α_ij |i − j|, in tokens
    self         α_ii          previous  α_i,i−1 if it exists                next  α_i,i+1 if it exists
    [CLS], [SEP], punctuation        Σ of α_ij over such tokens j

A head has the type of its largest share, if that is at least half (`SHARE`); otherwise it is `broad` if its entropy is
at least 0.8 of uniform attention's (`BROAD`), else `mixed`. The shares overlap: before a closing [SEP], the next token
*is* [SEP].

    stats = head_statistics(encoder, passages)
    stats[0].type                                    # of layer 1, head 1: 'previous'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from larvatus.core.errors import DataError
from larvatus.core.settings import Settings
from larvatus.data.text.documents import Document
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import windows
from larvatus.inference.interpret.attention import TextAttention, TokenPassage, batches, framed_passage, passage_weights
from larvatus.models.nn.encoder import Encoder

HeadType = Literal["self", "previous", "next", "cls", "separator", "punctuation", "broad", "mixed"]
SHARE = 0.5
"""Least mean share on one kind of token that gives a head this type."""
BROAD = 0.8
"""Least entropy of a broad head, as a share of uniform attention's."""

_SUMS = ("entropy", "uniform", "distance", "self", "previous", "next", "cls", "separator", "punctuation")


class HeadStatistics(Settings):
    layer: int
    """Counted from 1."""
    head: int
    entropy: float
    """Nats."""
    uniform: float
    """Entropy of uniform attention over the same passages."""
    distance: float
    """Tokens."""
    to_self: float
    """Share of attention on the token itself,"""
    previous: float
    """on the one before it,"""
    next: float
    """on the one after it,"""
    cls: float
    """on [CLS],"""
    separator: float
    """on [SEP],"""
    punctuation: float
    """on punctuation."""

    @property
    def type(self) -> HeadType:
        shares: dict[HeadType, float] = {
            "self": self.to_self,
            "previous": self.previous,
            "next": self.next,
            "cls": self.cls,
            "separator": self.separator,
            "punctuation": self.punctuation,
        }
        best = max(shares, key=lambda name: shares[name])
        if shares[best] >= SHARE:
            return best
        return "broad" if self.entropy >= BROAD * self.uniform else "mixed"

    def to_dict(self) -> dict[str, float | int | str]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        fields["self"] = fields.pop("to_self")
        return {**fields, "type": self.type}


def read_passages(
    documents: Iterable[Document], tokenizer: Tokenizer, *, length: int, limit: int
) -> Iterator[TokenPassage]:
    """Up to `most` passages of at most `length` tokens with special tokens; long documents are split evenly."""
    left = limit
    for document in documents:
        alignment = tokenizer.encode(document.text)
        if not len(alignment):
            continue
        cut = windows(len(alignment), size=tokenizer.template.single.text_length(length), overlap=0)
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True):
            if not left:
                return
            left -= 1
            yield framed_passage(tokenizer, alignment, start, end)


def head_statistics(
    encoder: Encoder, passages: Sequence[TokenPassage], progress: Callable[[int], None] = lambda _: None
) -> list[HeadStatistics]:
    """One row for each head, layer by layer."""
    if not passages:
        raise DataError("there is no passage to analyse; name text with words in it")
    sums = np.zeros((len(_SUMS), encoder.depth, encoder.heads))
    queries = neighbours = 0
    for some in batches(encoder, passages):
        for layer, weights in enumerate(passage_weights(encoder, some)):
            for passage, weights_HTT in zip(some, weights, strict=True):
                sums[:, layer] += passage_sums(weights_HTT, passage.punctuation)
        queries += sum(len(passage.ids) for passage in some)
        neighbours += sum(len(passage.ids) - 1 for passage in some)
        progress(len(some))
    counts = np.array([neighbours if name in ("previous", "next") else queries for name in _SUMS])
    return _rows(sums / counts[:, None, None])


def text_statistics(attention: TextAttention) -> list[HeadStatistics]:
    """The same for the weights of one text."""
    tokens = len(attention.tokens)
    sums = np.stack(
        [passage_sums(torch.from_numpy(layer), attention.punctuation) for layer in attention.weights], axis=1
    )
    counts = np.array([tokens - 1 if name in ("previous", "next") else tokens for name in _SUMS])
    return _rows(sums / counts[:, None, None])


def passage_sums(weights_HTT: Tensor, punctuation: np.ndarray) -> np.ndarray:
    """Sums over the queries of one passage, for every head: [statistics, H]."""
    heads, tokens, _ = weights_HTT.shape
    a = weights_HTT
    places = torch.arange(tokens, device=a.device)
    apart_TT = (places[:, None] - places[None, :]).abs().to(a.dtype)
    marks = torch.from_numpy(np.flatnonzero(punctuation)).to(a.device)
    columns_HT = a.sum(1)  # attention that each token receives from all queries
    sums = torch.stack(
        [
            torch.special.entr(a).sum((1, 2)),
            torch.full((heads,), tokens * float(np.log(tokens)), device=a.device),
            (a * apart_TT).sum((1, 2)),
            a.diagonal(dim1=1, dim2=2).sum(-1),
            a.diagonal(offset=-1, dim1=1, dim2=2).sum(-1),
            a.diagonal(offset=1, dim1=1, dim2=2).sum(-1),
            columns_HT[:, 0],
            columns_HT[:, -1],
            columns_HT[:, marks].sum(-1),
        ]
    )
    return sums.double().cpu().numpy()


def _rows(means: np.ndarray) -> list[HeadStatistics]:
    names = ["to_self" if name == "self" else name for name in _SUMS]
    return [
        HeadStatistics(
            layer=layer + 1,
            head=head + 1,
            **{name: float(value) for name, value in zip(names, means[:, layer, head], strict=True)},
        )
        for layer in range(means.shape[1])
        for head in range(means.shape[2])
    ]
