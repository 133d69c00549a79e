"""A masked language model that sparse vectors can begin from: most logits of a text are below 0.

    bundle, lower = with_sparse_start(bundle, train.examples, scoring)

SPLADE's weights are log(1 + relu(logit)). A masked LM is trained by a softmax, which a constant added to all logits
does not change, so nothing keeps them near 0: of one model hardly any is positive, of another nearly all are, and then
FLOPS is in the thousands and nothing else is learned. Lowering the bias of all tokens by one number makes the start
sparse, and fills stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.objectives.masked_lm import MaskedLM
from larvatus.tasks.embed.compared import reading_of, sparse_texts
from larvatus.tasks.embed.encode import embedder_of, encode_sentences
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

SAMPLE = 64
"""Examples that the logits are measured on."""
SHARE = 0.01
"""Share of the vocabulary that is above 0 in a typical text at the start."""
LEAST = 32
"""Tokens of a small vocabulary that are."""


def with_sparse_start(
    bundle: Bundle, examples: Sequence[SentenceExample], scoring: ScoringOptions
) -> tuple[Bundle, float]:
    """The model with a lower bias of its masked-LM head, and by how much; one that is sparse already is unchanged."""
    ready, _ = attach_head(bundle, SparseConfig(), seed=0)
    network = ready.network.to(scoring.device)
    reading = reading_of(embedder_of(network), WindowOptions.of(bundle))
    texts = sparse_texts(network, encode_sentences(ready, examples[:SAMPLE], reading), scoring)
    place = max(round(SHARE * texts.vocabulary), min(LEAST, texts.vocabulary // 2))
    limits = []
    for number in range(len(texts.lengths_U)):
        weights = np.sort(texts.text(number)[1])[::-1]
        limits.append(float(np.expm1(weights[place])) if len(weights) > place else 0.0)  # relu's inverse: a logit
    lower = float(np.median(limits))
    if not lower:
        return bundle, 0.0
    with torch.no_grad():
        cast(MaskedLM, network.objectives["masked-lm"]).bias.sub_(lower)
    network.to(bundle.network.encoder.device)
    return ready, lower
