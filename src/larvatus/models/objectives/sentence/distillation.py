"""Distillation: a student learns the vectors of a teacher, or how similar they are to each other.

    L = w_v · 1/T Σ_i (1 − cos(s_i, t_i))  +  w_s · 1/T² Σ_ij (cos(s_i, s_j) − cos(t_i, t_j))²

The first term needs vectors of one size (Reimers & Gurevych 2020 use their squared distance); the second compares
matrices of cosines, which have no size of their own (Park et al. 2019, *Relational knowledge distillation*, by cosines
in place of distances). s are the student's vectors, t the teacher's.

    Distillation(vectors=1.0, similarities=1.0)

Where Matryoshka shortens the student's vectors, the first term compares them with the teacher's first dimensions. Of
token vectors and sparse vectors, only similarities are compared.
"""

from __future__ import annotations

from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import Weight
from larvatus.core.targets import SentenceTargets
from larvatus.models.objectives.sentence.base import SentenceLoss, Texts, TextVectors, cosines, paired_cosines


class Distillation(SentenceLoss, tag="distillation"):
    vectors: Weight = 1.0
    """Weight of the cosines of a student's and a teacher's vector."""
    similarities: Weight = 1.0
    """Weight of the squared differences of the matrices of cosines."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.vectors and not self.similarities:
            raise UsageError("distillation compares vectors, similarities or both; give one of them a weight above 0")

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        x_TD, teacher_TK = x_TD.float(), targets.teacher.float()
        loss = teacher_TK.new_zeros(())
        if self.vectors and not isinstance(x_TD, TextVectors):
            loss = loss + self.vectors * (1 - paired_cosines(x_TD, teacher_TK[:, : x_TD.shape[1]])).mean()
        if self.similarities:
            student_TT = x_TD.cosines(x_TD) if isinstance(x_TD, TextVectors) else cosines(x_TD, x_TD)
            differences_TT = student_TT - cosines(teacher_TK, teacher_TK)
            loss = loss + self.similarities * differences_TT.square().mean()
        return loss
