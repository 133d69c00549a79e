"""Options of `larvatus finetune embed`, and the head and loss that they and the examples make.

    config = embedding_head(bundle, "pairs", SentenceOptions(matryoshka=(384, 96)), teacher=0)
    text_head(bundle, "pairs", SentenceOptions(vectors="late"), teacher=0)      # LateInteractionConfig(size=128, …)

| rows | loss, where none is given |
| --- | --- |
| pairs, triplets, groups | multiple-negatives |
| scores | cosent |
| texts | distillation with a teacher, else simcse |

`--vectors` chooses the head: one vector for a text, one for each token, or weights of the vocabulary. A model that has
such a head already keeps its kind of vectors, unless another is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, cast

import numpy as np
import torch

from larvatus.core.errors import UsageError
from larvatus.core.ranges import PositiveWeight, Size, SizeOrNone, Weight
from larvatus.core.settings import Flag, PathName
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head
from larvatus.models.bundle.sentence_modules import sentence_head
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig, LateInteractionConfig, TextPool
from larvatus.models.heads.head import VectorKind
from larvatus.models.heads.sparse import SparseConfig
from larvatus.models.nn.dropout import has_dropout
from larvatus.models.objectives.late_interaction import Splade
from larvatus.models.objectives.masked_lm import MaskedLM
from larvatus.models.objectives.sentence_losses import (
    CoSENT,
    Distillation,
    Matryoshka,
    MultipleNegatives,
    PlainLoss,
    SimCSE,
    Triplet,
)
from larvatus.tasks.embed.compared import reading_of, sparse_texts
from larvatus.tasks.embed.encode import embedder_of, encode_sentences
from larvatus.tasks.embed.examples import Rows, SentenceExample
from larvatus.tasks.embed.mining import MiningOptions
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

LossName = Literal["multiple-negatives", "cosent", "triplet", "simcse", "distillation"]
USUAL: dict[Rows, LossName] = {
    "pairs": "multiple-negatives",
    "triplets": "multiple-negatives",
    "groups": "multiple-negatives",
    "scores": "cosent",
    "texts": "simcse",
}
"""The loss of each kind of rows."""
FITTING: dict[LossName, tuple[Rows, ...]] = {
    "multiple-negatives": ("pairs", "triplets", "groups"),
    "cosent": ("scores",),
    "triplet": ("triplets",),
    "simcse": ("texts",),
    "distillation": ("pairs", "triplets", "groups", "scores", "texts"),
}
"""The rows that each loss can be computed of."""


class SentenceOptions(MiningOptions):
    """Options of a sentence encoder; None uses the model's own, or the default of the rows."""

    vectors: VectorKind | None = None
    """Dense: one vector for a text; late: one for each token (ColBERT); sparse: weights of the vocabulary (SPLADE);
    default: the model's own, else dense."""
    loss: LossName | None = None
    """Loss to minimise; default: by the rows of the training file."""
    pool: TextPool | None = None
    """Vector of a text: mean or max of its tokens, or cls; default: the model's own, else mean."""
    normalise: bool | None = None
    """Scale vectors to length 1; default: the model's own, else yes."""
    dense: SizeOrNone | None = None
    """Size of a linear layer after the pooling, and so of the vectors; 0: none; default: the model's own, else none.
    Late vectors: size of a token's vector; default: the model's own, else 128."""
    scale: PositiveWeight | None = None
    """Factor of the similarities in multiple-negatives, simcse and cosent, the inverse of a temperature; default: 20
    for cosines, 1 for late and sparse vectors."""
    symmetric: bool = False
    """Multiple-negatives: also rank the anchors for each positive."""
    margin: Weight = 0.2
    """Triplet: how much nearer a positive must be than a negative, in cosine distance or score."""
    flops_query: Weight | None = None
    """Sparse: weight of the FLOPS regulariser for first texts of examples; default: 5e-5."""
    flops_document: Weight | None = None
    """Sparse: weight of the FLOPS regulariser for all other texts; default: 3e-5."""
    matryoshka: Annotated[tuple[Size, ...], Flag(metavar="SIZE")] = ()
    """Also train the first SIZE dimensions as a vector; repeatable. The full size is always trained."""
    teacher: Annotated[str | None, Flag(metavar="MODEL")] = None
    """Learn the vectors of this model; a directory or a hub name."""
    teacher_vectors: Annotated[PathName | None, Flag(metavar="DIR")] = None
    """Folder that keeps the teacher's vectors: computed once, then read; an interrupted computation is resumed."""
    vector_weight: Weight | None = None
    """Distillation: weight of the cosine with the teacher's vector; default: 1, or 0 where sizes differ."""
    similarity_weight: Weight = 1.0
    """Distillation: weight of the squared differences between matrices of cosines."""


def choose_loss(rows: Rows, options: SentenceOptions) -> LossName:
    """The loss by name: as requested, or by the rows and whether there is a teacher."""
    usual: LossName = "distillation" if options.teacher is not None else USUAL[rows]
    name = options.loss or usual
    if rows not in FITTING[name]:
        fits = [loss for loss, kinds in FITTING.items() if rows in kinds]
        raise UsageError(f"--loss {name} cannot be computed of {rows}; give {' or '.join(fits)}")
    if (name == "distillation") != (options.teacher is not None):
        raise UsageError(
            "distillation needs a teacher; give --teacher MODEL"
            if name == "distillation"
            else f"--teacher is for distillation, not for {name}; leave one of them out"
        )
    return name


def embedding_head(bundle: Bundle, rows: Rows, options: SentenceOptions, *, teacher: int) -> EmbeddingConfig:
    """The head that rows and options need; `teacher` is the size of a teacher's vectors, 0 without one."""
    present = sentence_head(bundle.objectives) or EmbeddingConfig(normalise=True)
    projections = present.projections
    if options.dense is not None:
        projections = (DenseProjection(size=options.dense),) if options.dense else ()
    config = EmbeddingConfig(
        pool=options.pool or present.pool,
        projections=projections,
        normalise=present.normalise if options.normalise is None else options.normalise,
    )
    width = config.width(bundle.model.hidden)
    inner = chosen_loss(bundle, rows, options, width=width, teacher=teacher)
    loss: PlainLoss | Matryoshka = inner
    if options.matryoshka:
        too_large = [size for size in options.matryoshka if size > width]
        if too_large:
            raise UsageError(f"--matryoshka {too_large[0]} is more than the {width} dimensions of a vector")
        sizes = tuple(sorted({width, *options.matryoshka}, reverse=True))
        loss = Matryoshka(inner=inner, dimensions=sizes)
    return EmbeddingConfig(pool=config.pool, projections=config.projections, normalise=config.normalise, loss=loss)


def chosen_loss(
    bundle: Bundle, rows: Rows, options: SentenceOptions, *, width: int, teacher: int, scale: float = 20.0
) -> PlainLoss:
    """The loss that rows and options need, for vectors of a size; 0 for vectors that no teacher's can be compared with.

    `scale` is the default factor of similarities.
    """
    name, scale = choose_loss(rows, options), scale if options.scale is None else options.scale
    if name == "multiple-negatives":
        return MultipleNegatives(scale=scale, symmetric=options.symmetric)
    if name == "simcse":
        if not has_dropout(bundle.network):
            raise UsageError(
                "simcse learns from two dropout masks, and this model has no dropout; give pairs, or a teacher"
            )
        return SimCSE(scale=scale)
    if name == "cosent":
        return CoSENT(scale=scale)
    if name == "triplet":
        return Triplet(margin=options.margin)
    weight = options.vector_weight
    if weight is None:
        weight = 1.0 if teacher == width else 0.0
    if weight and not width:
        raise UsageError("late and sparse vectors are not compared with a teacher's vector; leave out --vector-weight")
    if weight and teacher != width:
        raise UsageError(
            f"the teacher's vectors have {teacher} dimensions and the student's {width}, so only their similarities "
            f"can be compared; give --dense {teacher}, or leave out --vector-weight"
        )
    return Distillation(vectors=weight, similarities=options.similarity_weight)


# The head that `--vectors` chooses.

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
