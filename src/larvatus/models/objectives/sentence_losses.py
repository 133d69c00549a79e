"""Losses of sentence vectors: what is minimised when a model learns to embed.

    class MyLoss(SentenceLoss, tag="my-loss"):
        def __call__(self, x_TD, targets): …          # one number: the mean over the examples of a step

| loss | an example is |
| --- | --- |
| multiple-negatives | an anchor, its positive, maybe hard negatives |
| simcse | one text, embedded twice with two dropout masks |
| cosent | two texts and how similar they are |
| triplet | an anchor, a positive, a negative |
| distillation | any texts, and the vectors of a teacher |

Matryoshka applies any of them to the first dimensions too. Texts that are a vector each are compared by cosine. Others
(`TextVectors`: token vectors, sparse vectors) have their own score, and every loss that is computed from scores takes
them in place of x_TD.

E examples, T texts (those of an example follow each other), D size of a vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.errors import UsageError
from larvatus.core.ranges import PositiveWeight, Size, Weight
from larvatus.core.settings import Settings
from larvatus.core.targets import SentenceTargets


class SentenceLoss(Settings, tag_field="type"):
    """Settings of a loss, which is their call."""

    @property
    def whole(self) -> bool:
        """Whether an example's loss depends on the others of its step, so that the parts of a step do not add up."""
        return True

    @property
    def contrasts(self) -> bool:
        """Whether the other texts of a step are negatives, so that a step must not hold a text twice."""
        return False

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        """The mean loss of the examples, in float32."""
        raise NotImplementedError


class TextVectors(ABC):
    """T texts that are not compared by the cosine of one vector each."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, texts: Tensor) -> Self:
        """Some of the texts, by number."""

    @abstractmethod
    def float(self) -> Self:
        """The texts in float32."""

    @abstractmethod
    def scores(self, others: Self) -> Tensor:
        """[N, M] the score of each text, as the query, with each of the others."""

    @abstractmethod
    def paired_scores(self, others: Self) -> Tensor:
        """[N] the score of each text with the one of the same number."""

    @abstractmethod
    def cosines(self, others: Self) -> Tensor:
        """[N, M] the scores on the scale of cosines: at most 1."""


Texts = Tensor | TextVectors
"""Texts that are compared: a vector for each [T, D], or another kind of vectors."""


class Roles(NamedTuple):
    """The texts of a step by their role."""

    anchors_ED: Texts
    positives_ED: Texts
    negatives_ND: Texts
    """Hard negatives of all examples, N ≥ 0."""
    owners_N: Tensor
    """The example that each hard negative is of."""


def roles(x_TD: Texts, texts_E: Tensor) -> Roles:
    """The first text of each example is its anchor, the second its positive, all others are hard negatives."""
    first_E = torch.cumsum(texts_E, 0) - texts_E
    owner_T = torch.repeat_interleave(torch.arange(len(texts_E), device=x_TD.device), texts_E, output_size=len(x_TD))
    place_T = torch.arange(len(x_TD), device=x_TD.device) - first_E[owner_T]
    negatives_N = torch.nonzero(place_T > 1)[:, 0]
    return Roles(x_TD[first_E], x_TD[first_E + 1], x_TD[negatives_N], owner_T[negatives_N])


def similarities(x: Texts, y: Texts) -> Tensor:
    """[N, M] the similarity of each text with each: cosines of vectors, or the scores of another kind of vectors."""
    if isinstance(x, TextVectors):
        return x.scores(y)  # type: ignore[arg-type]  # texts of one model are of one kind
    return cosines(x, y)  # type: ignore[arg-type]


def paired_similarities(x: Texts, y: Texts) -> Tensor:
    """[N] the similarity of each text with the text of the same number."""
    if isinstance(x, TextVectors):
        return x.paired_scores(y)  # type: ignore[arg-type]
    return paired_cosines(x, y)  # type: ignore[arg-type]


def cosines(x_ND: Tensor, y_MD: Tensor) -> Tensor:
    """[N, M] the cosine of each row with each row."""
    return F.normalize(x_ND, dim=-1) @ F.normalize(y_MD, dim=-1).T


def paired_cosines(x_ND: Tensor, y_ND: Tensor) -> Tensor:
    """[N] the cosine of each row with the row of the same number."""
    return (F.normalize(x_ND, dim=-1) * F.normalize(y_ND, dim=-1)).sum(-1)


# The losses.


class MultipleNegatives(SentenceLoss, tag="multiple-negatives"):
    """Multiple negatives ranking: the positives of all other examples are negatives (Henderson et al. 2017, §4.4).

        L = −1/E Σ_i log exp(s cos(a_i, p_i)) / Σ_c exp(s cos(a_i, c))      c over all positives and all hard negatives

    This is InfoNCE (van den Oord et al. 2018) with the temperature 1/s. `symmetric` adds the other direction, from a
    positive to all anchors, and takes the mean of both (Günther et al. 2023, §4.2). Hard negatives (the third text of
    an example, and any after it) are negatives of all examples, as in DPR (Karpukhin et al. 2020, §3.2).

        MultipleNegatives(scale=20.0, symmetric=True)

    A text that is in a step twice would be a negative of its own positive: `tasks/embed/encode.py` avoids that.
    """

    scale: PositiveWeight = 20.0
    """Factor of the cosines, the inverse of a temperature."""
    symmetric: bool = False
    """Also rank the anchors for each positive."""

    @property
    def contrasts(self) -> bool:
        return True

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        anchors_ED, positives_ED, negatives_ND, _ = roles(x_TD.float(), targets.texts)
        own_E = torch.arange(len(anchors_ED), device=x_TD.device)
        candidates = [similarities(anchors_ED, texts) for texts in (positives_ED, negatives_ND)]
        scores_EC = self.scale * torch.cat(candidates, 1)
        loss = F.cross_entropy(scores_EC, own_E)
        if self.symmetric:
            loss = (loss + F.cross_entropy(scores_EC[:, : len(own_E)].T, own_E)) / 2
        return loss


class SimCSE(SentenceLoss, tag="simcse"):
    """Unsupervised SimCSE: a text is its own positive, under another dropout mask (Gao, Yao & Chen 2021, eq. 4).

        L = −1/E Σ_i log exp(cos(h_i, h'_i) / τ) / Σ_j exp(cos(h_i, h'_j) / τ)        τ = 0.05

    h and h' are the vectors of one text in two passes of a model in training mode. The batch holds every text twice, so
    that one pass samples both masks; a model without dropout learns nothing from it, and is refused.

        SimCSE()
    """

    scale: PositiveWeight = 20.0
    """1 / τ."""

    @property
    def contrasts(self) -> bool:
        return True

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        return MultipleNegatives(scale=self.scale)(x_TD, targets)


class CoSENT(SentenceLoss, tag="cosent"):
    """CoSENT: pairs with a higher score shall have a higher cosine (Su 2022, *CoSENT*, kexue.fm/archives/8847).

        L = log(1 + Σ_{score_i > score_j} exp(s (cos_j − cos_i)))

    Only the order of the scores counts, as in Spearman's ρ, by which such models are measured. Equal scores are not
    compared. The double sum is over pairs of pairs; sorted by score, it is one pass: what is above a pair is a suffix.

        CoSENT(scale=20.0)
    """

    scale: PositiveWeight = 20.0
    """Factor of the cosines."""

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        firsts_ED, seconds_ED, _, _ = roles(x_TD.float(), targets.texts)
        scaled_E = self.scale * paired_similarities(firsts_ED, seconds_ED)
        sorted_E, order_E = torch.sort(targets.scores)
        scaled_E = scaled_E[order_E]
        # log Σ exp(−s cos_i) over the pairs from each place to the end; after the last, there is none
        suffix_E = torch.logcumsumexp(-scaled_E.flip(0), 0).flip(0)
        suffix = torch.cat([suffix_E, suffix_E.new_full((1,), -torch.inf)])
        above_E = torch.searchsorted(sorted_E, sorted_E, right=True)
        terms_E = scaled_E + suffix[above_E]
        return torch.logsumexp(torch.cat([terms_E.new_zeros(1), terms_E]), 0)


class Triplet(SentenceLoss, tag="triplet"):
    """Triplet loss: a positive shall be nearer to its anchor than a negative, by a margin (Schroff et al. 2015, eq. 3).

        L = 1/E Σ_i 1/N_i Σ_n max(0, d(a_i, p_i) − d(a_i, n) + margin)        d = 1 − cos, or ‖a − b‖

    An example i has an anchor a, a positive p and N negatives n, mostly one. The margin of the Euclidean distance is
    for vectors that are not normalised (Reimers & Gurevych 2019 use 1, their library 5). Of other kinds of vectors, d
    is 1 − score.

        Triplet(distance="cosine", margin=0.2)
    """

    distance: Literal["cosine", "euclidean"] = "cosine"
    """Distance of two vectors."""
    margin: Weight = 0.2
    """How much nearer the positive shall be."""

    @property
    def whole(self) -> bool:
        return False

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        anchors_ED, positives_ED, negatives_ND, owners_N = roles(x_TD.float(), targets.texts)
        anchors_ND, positives_ND = anchors_ED[owners_N], positives_ED[owners_N]
        gap_N = self._distances(anchors_ND, positives_ND) - self._distances(anchors_ND, negatives_ND)
        counts_N = (targets.texts - 2)[owners_N]
        return ((gap_N + self.margin).relu() / counts_N).sum() / len(anchors_ED)

    def _distances(self, x_ND: Texts, y_ND: Texts) -> Tensor:
        if self.distance == "cosine" or isinstance(x_ND, TextVectors) or isinstance(y_ND, TextVectors):
            return 1 - paired_similarities(x_ND, y_ND)
        distances_N: Tensor = torch.linalg.vector_norm(x_ND - y_ND, dim=-1)
        return distances_N


class Distillation(SentenceLoss, tag="distillation"):
    """Distillation: a student learns the vectors of a teacher, or how similar they are to each other.

        L = w_v · 1/T Σ_i (1 − cos(s_i, t_i))  +  w_s · 1/T² Σ_ij (cos(s_i, s_j) − cos(t_i, t_j))²

    The first term needs vectors of one size (Reimers & Gurevych 2020 use their squared distance); the second compares
    matrices of cosines, which have no size of their own (Park et al. 2019, *Relational knowledge distillation*, by
    cosines in place of distances). s are the student's vectors, t the teacher's.

        Distillation(vectors=1.0, similarities=1.0)

    Where Matryoshka shortens the student's vectors, the first term compares them with the teacher's first dimensions.
    Of token vectors and sparse vectors, only similarities are compared.
    """

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


PlainLoss = MultipleNegatives | SimCSE | CoSENT | Triplet | Distillation
"""Losses that Matryoshka and SPLADE may be applied to."""


class Matryoshka(SentenceLoss, tag="matryoshka"):
    """Matryoshka representation learning: the first dimensions are a good vector too (Kusupati et al. 2022).

        L = Σ_d w_d L_inner(x[: d] / ‖x[: d]‖)                  d over some sizes, such as 384, 192, 96

        Matryoshka(inner=MultipleNegatives(), dimensions=(384, 192, 96))

    The vectors of a model trained so may be cut to any of these sizes and normalised again. The full size should
    be among them: vectors that are not cut would not be trained otherwise.
    """

    inner: PlainLoss
    """The loss of each size."""
    dimensions: tuple[Size, ...]
    """Sizes of the vectors that are trained."""
    weights: tuple[Weight, ...] = ()
    """Weight of each size; all 1 by default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dimensions or len(set(self.dimensions)) < len(self.dimensions):
            raise UsageError(f"Matryoshka needs one size or more, each once, not {list(self.dimensions)}")
        if self.weights and len(self.weights) != len(self.dimensions):
            raise UsageError(f"Matryoshka has {len(self.dimensions)} sizes, but {len(self.weights)} weights")

    @property
    def whole(self) -> bool:
        return self.inner.whole

    @property
    def contrasts(self) -> bool:
        return self.inner.contrasts

    def __call__(self, x_TD: Texts, targets: SentenceTargets[Tensor]) -> Tensor:
        assert isinstance(x_TD, Tensor), "only one vector for each text can be cut"
        weights = self.weights or (1.0,) * len(self.dimensions)
        losses = [
            weight * self.inner(F.normalize(x_TD[:, :size].float(), dim=-1), targets)
            for size, weight in zip(self.dimensions, weights, strict=True)
        ]
        return torch.stack(losses).sum()
