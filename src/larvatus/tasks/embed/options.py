"""Options of `larvatus finetune embed`, and the head and loss that they and the examples make.

    config = embedding_head(bundle, "pairs", SentenceOptions(matryoshka=(384, 96)), teacher=0)

| rows | loss, where none is given |
| --- | --- |
| pairs, triplets, groups | multiple-negatives |
| scores | cosent |
| texts | distillation with a teacher, else simcse |

`vector_kinds.py` makes the heads of token vectors and sparse vectors.
"""

from __future__ import annotations

from typing import Annotated, Literal

from larvatus.core.errors import UsageError
from larvatus.core.ranges import PositiveWeight, Size, SizeOrNone, Weight
from larvatus.core.settings import Flag, PathName
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.sentence_modules import sentence_head
from larvatus.models.heads.embedding import DenseProjection, EmbeddingConfig, TextPool
from larvatus.models.heads.head import VectorKind
from larvatus.models.nn.dropout import has_dropout
from larvatus.models.objectives.sentence.losses import (
    CoSENT,
    Distillation,
    Matryoshka,
    MultipleNegatives,
    PlainLoss,
    SimCSE,
    Triplet,
)
from larvatus.tasks.embed.examples import Rows
from larvatus.tasks.embed.mining import MiningOptions

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
