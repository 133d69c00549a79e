"""A static model from a sentence encoder: one vector for each token, so that embedding a text is a mean of rows.

    made = distil(teacher, DistilOptions(size=256), counts_V=None)
    made.rows_VD                                     # [V, size], weights multiplied in

As Model2Vec does (Tulkens & van Dongen 2024): the teacher embeds every token of its vocabulary as a text,
`[CLS] token [SEP]`; the vectors are centred and rotated to their principal components, of which the first `size` are
kept; and each row is multiplied by its SIF weight (Arora, Liang & Ma 2017, eq. 3)

    w_v = a / (a + p_v)        p_v: probability of token v in text, a = 10⁻⁴

so that words which occur everywhere count little. Without text, p follows Zipf's law, 1 / rank, in the order of the
vocabulary, which is that of frequency in nearly all vocabularies; a vocabulary of ours has counts. With text, p is half
of that and half the share of the token in the text. V vocabulary, D dimensions.

Rows from the teacher's outputs in context, averaged over a text, and rows fitted to its vectors of sentences by ridge
regression were tried too, on 22,000 sentences: neither was better on the development part of STS-B.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Bools, Doubles, Floats, Ints
from larvatus.core.errors import DataError, NumericsError, UsageError
from larvatus.core.ranges import PositiveWeight, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.model.encoder import EncoderModel
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.plan import EncodedUnits, make_plan
from larvatus.inference.vectors.pooling import embed_options
from larvatus.inference.vectors.vectors import run_plan
from larvatus.models.nn.static import TokenTable

AT_ONCE = 4_096
"""Tokens that the teacher embeds between two reports of progress."""
UNUSED = re.compile(r"\[unused\d+\]")
"""Places that BERT's vocabularies keep free; no text has them."""
SIF, SIF_OF_TEXT = 1e-4, 3e-4
"""Constant of the weights without and with a text."""


class DistilOptions(Settings):
    """What a static model is made of."""

    size: SizeOrNone = 256
    """Dimensions of a vector, by PCA; 0 for those of the teacher."""
    sif: PositiveWeight | None = None
    """Constant a of the weights a / (a + p): smaller, frequent words count less; default 1e-4, with a corpus 3e-4."""


@dataclass(frozen=True, eq=False)
class StaticRows:
    """The rows of a static model, and what they were made of."""

    rows_VD: Floats
    tokens: int
    """Tokens that have a row; those of the others are 0."""
    counted: int
    """Tokens of text by which rows are weighted; 0 without text."""
    variance: float
    """Share of the variance of the teacher's token vectors that the components keep."""


def distil(
    teacher: EncoderModel,
    options: DistilOptions,
    counts_V: Ints | None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> StaticRows:
    """Rows for the teacher's vocabulary; `counts_V` is how often each token occurs in a text."""
    if isinstance(teacher.encoder, TokenTable):
        raise UsageError(f"{teacher.bundle.path} is a static model already; distil from an encoder")
    tokenizer = teacher.tokenizer
    used_V = used_tokens(tokenizer)
    vectors_VD = token_vectors(teacher, np.flatnonzero(used_V), progress)
    size = min(options.size or vectors_VD.shape[1], *vectors_VD.shape)
    mean_D, components_DK, variance = principal_components(vectors_VD, size)
    rows_VK = np.zeros((tokenizer.size, size), np.float32)
    rows_VK[used_V] = (vectors_VD - mean_D) @ components_DK
    constant = options.sif or (SIF if counts_V is None else SIF_OF_TEXT)
    rows_VK *= sif_weights(token_probabilities(tokenizer, used_V, counts_V), constant)[:, None]
    counted = 0 if counts_V is None else int(counts_V.sum())
    return StaticRows(rows_VK.astype(np.float32), int(used_V.sum()), counted, variance)


def used_tokens(tokenizer: Tokenizer) -> Bools:
    """[V] tokens that text can have: no special and no unused ones."""
    used_V = np.ones(tokenizer.size, np.bool_)
    used_V[[index for index, token in enumerate(tokenizer.tokens) if UNUSED.fullmatch(token)]] = False
    used_V[sorted(tokenizer.special_ids)] = False
    if not used_V.any():
        raise DataError("the vocabulary has no tokens but special ones")
    return used_V


def token_vectors(teacher: EncoderModel, ids: Ints, progress: Callable[[int], None]) -> Doubles:
    """The teacher's vectors of single tokens, each in its template, not normalised: [len(ids), D]."""
    template, options = teacher.tokenizer.template.single, embed_options(teacher, unit="sentence", normalise=False)
    mix = LayerWeights.read("last", layers=teacher.encoder.depth)
    head = teacher.sentence_head if options.projected else None
    places, spans = np.array([[0, 1 + template.special_count]]), np.zeros((1, 2), np.int64)
    blocks = []
    for low in range(0, len(ids), AT_ONCE):
        texts = [EncodedUnits("", ids[[place]], places, spans) for place in range(low, min(low + AT_ONCE, len(ids)))]
        plan = make_plan(texts, pool=options.pool, size=teacher.encoder.reach, overlap=None, template=template)
        blocks.append(run_plan(teacher.encoder, plan, mix, options, head))
        progress(low + len(texts))
    vectors: Doubles = np.concatenate(blocks).astype(np.float64)
    if not np.isfinite(vectors).all():
        raise NumericsError("the teacher gives a token no finite vector; its weights may be damaged")
    return vectors


def principal_components(x_ND: Doubles, size: int) -> tuple[Doubles, Doubles, float]:
    """Mean [D], the first components [D, size], and the share of variance that they have; signs are fixed."""
    mean_D = x_ND.mean(0)
    centred_ND = x_ND - mean_D
    variances, components_DD = np.linalg.eigh(centred_ND.T @ centred_ND)
    components_DK = components_DD[:, ::-1][:, :size]
    largest = np.abs(components_DK).argmax(0)
    components_DK = components_DK * np.sign(components_DK[largest, np.arange(size)])
    return mean_D, components_DK, float(variances[::-1][:size].sum() / max(variances.sum(), 1e-300))


def token_probabilities(tokenizer: Tokenizer, used_V: Bools, counts_V: Ints | None = None) -> Doubles:
    """How likely each token is in text, 0 for unused ones: by the vocabulary, and half of it by a text's counts."""
    if tokenizer.counts is not None and tokenizer.counts[used_V].sum():
        shares = np.where(used_V, tokenizer.counts + 1.0, 0.0)
    else:
        shares = np.where(used_V, 1.0 / (np.cumsum(used_V) + 1.0), 0.0)
    probabilities: Doubles = shares / shares.sum()
    if counts_V is not None:
        seen_V = np.where(used_V, counts_V, 0)
        if not seen_V.any():
            raise DataError("the corpus has no token that the vocabulary knows; give other text, or none")
        probabilities = (probabilities + seen_V / seen_V.sum()) / 2
    return probabilities


def sif_weights(probabilities_V: Doubles, constant: float) -> Doubles:
    """a / (a + p)."""
    weights: Doubles = constant / (constant + probabilities_V)
    return weights
