"""Vectors of texts by a static model, without a pooling plan: the mean row of each text, many thousand texts a second.

    static_matrix(table, tokenizer, texts, options, head)            # [B, D]
    for vectors in embed_static(table, tokenizer, texts, options, head): ...

The same as the general way through an encoder (`vectors.py`), which the server takes, with less work for each text: the
library tokenises on all cores, and the matrix needs no object for a text. A
static model has no contexts, so it has vectors of whole texts only: other units, layers and poolings are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from larvatus.core.arrays import Floats, Integers, Ints
from larvatus.core.batch import edges
from larvatus.core.errors import UsageError
from larvatus.data.text.align import join_words
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.vectors.layers import PARTS
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.plan import Text
from larvatus.inference.vectors.results import Vectors
from larvatus.models.heads.embedding import Embedding
from larvatus.models.nn.static import TokenTable


def check_static(options: EmbedOptions) -> None:
    """Refuse what a table of tokens does not have."""
    if options.unit in PARTS:
        raise UsageError(
            f"a static model has vectors of texts, not of a {options.unit} in its context; use unit sentence or "
            "document, or the model that it was distilled from"
        )
    if options.layers != "last" or options.pool != "mean" or options.standardise is not None:
        raise UsageError("a static model has one layer, whose mean is a text; leave out layers, pool and standardise")


def static_matrix(
    table: TokenTable, tokenizer: Tokenizer, texts: Sequence[Text], options: EmbedOptions, head: Embedding | None
) -> Floats:
    """The vectors of the texts, a row for each: [B, size]."""
    ids, lengths = tokenizer.encode_lengths(_plain(texts))
    return mean_rows(table, ids, lengths, options, head)


def embed_static(
    table: TokenTable, tokenizer: Tokenizer, texts: Sequence[Text], options: EmbedOptions, head: Embedding | None
) -> Iterator[Vectors]:
    """The vectors of each text."""
    plain = _plain(texts)
    ids, lengths = tokenizer.encode_lengths(plain)
    vectors_BD = mean_rows(table, ids, lengths, options, head)
    ends_B = np.fromiter(map(len, plain), np.int64, len(plain))
    spans_B12 = np.stack([np.zeros_like(ends_B), ends_B], axis=1)[:, None]
    for number, (text, count) in enumerate(zip(plain, lengths.tolist(), strict=True)):
        yield Vectors(
            text=text,
            unit=options.unit,
            spans=spans_B12[number],
            vectors=vectors_BD[number : number + 1],
            tokens=count,
            windows=1,
        )


def _plain(texts: Sequence[Text]) -> list[str]:
    return [text if isinstance(text, str) else join_words(text)[0] for text in texts]


@torch.inference_mode()
def mean_rows(table: TokenTable, ids: Integers, lengths: Ints, options: EmbedOptions, head: Embedding | None) -> Floats:
    """The vector of each text from its tokens, texts end to end: [B, size]; NaN for a text without tokens."""
    starts_B = torch.from_numpy(edges(lengths)[:-1]).to(table.device)
    x_BD = table.means(torch.from_numpy(ids.astype(np.int64)).to(table.device), starts_B)
    if options.projected and head is not None:
        x_BD = head.project(x_BD)
    if options.normalise:
        x_BD = torch.nn.functional.normalize(x_BD, dim=-1)
    x_BD[torch.from_numpy(lengths == 0).to(table.device)] = torch.nan
    vectors: Floats = x_BD.cpu().numpy()
    return vectors
