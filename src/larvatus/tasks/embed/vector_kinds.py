"""The head that `--vectors` chooses: one vector for a text, one for each token, or weights of the vocabulary.

    text_head(bundle, "pairs", SentenceOptions(vectors="late"), teacher=0)      # LateInteractionConfig(size=128, …)

A model that has such a head already keeps its kind of vectors, unless another is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from larvatus.core.errors import UsageError
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.models.heads.head import VectorKind
from larvatus.models.heads.late_interaction import LateInteractionConfig
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.objectives.masked_lm import MaskedLM
from larvatus.models.objectives.sentence.losses import Matryoshka
from larvatus.models.objectives.sentence.splade import Splade
from larvatus.tasks.embed.compared import reading_of, sparse_texts
from larvatus.tasks.embed.encode import embedder_of, encode_sentences
from larvatus.tasks.embed.examples import Rows, SentenceExample
from larvatus.tasks.embed.options import SentenceOptions, chosen_loss, embedding_head
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

SAMPLE = 64
"""Examples that the logits are measured on."""
SHARE = 0.01
"""Share of the vocabulary that is above 0 in a typical text at the start."""
LEAST = 32
"""Tokens of a small vocabulary that are."""
TextHeadConfig = EmbeddingConfig | LateInteractionConfig | SparseConfig


def text_head(bundle: Bundle, rows: Rows, options: SentenceOptions, *, teacher: int) -> TextHeadConfig:
    """The head that rows and options need; `teacher` is the size of a teacher's vectors, 0 without one."""
    present = next((config for config in bundle.objectives if getattr(config, "vector_kind", None)), None)
    kind: VectorKind = options.vectors or getattr(present, "vector_kind", None) or "dense"
    _refuse_options(kind, options)
    if kind == "dense":
        return embedding_head(bundle, rows, options, teacher=teacher)
    inner = chosen_loss(bundle, rows, options, width=0, teacher=teacher, scale=1.0)
    if kind == "late":
        size: int = getattr(present, "size", LateInteractionConfig().size)
        return LateInteractionConfig(size=options.dense or size, loss=inner)
    if "masked-lm" not in bundle.network.objectives:
        raise UsageError(
            f"sparse vectors are computed by a masked-LM head, and {bundle.path} has none; give a masked language model"
        )
    defaults = Splade()
    return SparseConfig(
        loss=Splade(
            inner=inner,
            query_weight=defaults.query_weight if options.flops_query is None else options.flops_query,
            document_weight=defaults.document_weight if options.flops_document is None else options.flops_document,
        )
    )


def _refuse_options(kind: VectorKind, options: SentenceOptions) -> None:
    """Refuse options of another kind of vectors."""
    given = {
        "--pool": (options.pool is not None, ("dense",)),
        "--normalise": (options.normalise is not None, ("dense",)),
        "--matryoshka": (bool(options.matryoshka), ("dense",)),
        "--dense": (options.dense is not None, ("dense", "late")),
        "--flops-query": (options.flops_query is not None, ("sparse",)),
        "--flops-document": (options.flops_document is not None, ("sparse",)),
    }
    for flag, (is_given, kinds) in given.items():
        if is_given and kind not in kinds:
            raise UsageError(f"{flag} is for {' and '.join(kinds)} vectors, and these are {kind}; leave it out")


def describe_loss(head: TextHeadConfig) -> str:
    """``multiple-negatives (scale 20)``"""
    loss, more = head.loss, ""
    if isinstance(loss, Matryoshka):
        more, loss = f" over the first {', '.join(map(str, loss.dimensions))} dimensions", loss.inner
    elif isinstance(loss, Splade):
        weights = f"weight {loss.query_weight:g} of queries, {loss.document_weight:g} of documents"
        more, loss = f" and FLOPS ({weights})", loss.inner
    elif head.vector_kind == "late":
        more = " of MaxSim"
    settings = ", ".join(f"{name.replace('_', ' ')} {getattr(loss, name)}" for name in loss.__struct_fields__)
    return f"{loss.__struct_config__.tag} ({settings}){more}"


def with_sparse_start(
    bundle: Bundle, examples: Sequence[SentenceExample], scoring: ScoringOptions
) -> tuple[Bundle, float]:
    """A model from which sparse vectors can begin, most logits below 0, and by how much its bias was lowered for that.

    SPLADE's weights are log(1 + relu(logit)). A masked LM is trained by a softmax, which a constant added to all logits
    does not change, so nothing keeps them near 0: of one model hardly any is positive, of another nearly all are, and
    then FLOPS is in the thousands and nothing else is learned. Lowering the bias of all tokens by one number makes the
    start sparse, and fills stay what they are. A model that is sparse already is unchanged.
    """
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
