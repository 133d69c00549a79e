"""Attributions of a prediction to the words of its text, by four methods.

| method | score of a word |
| --- | --- |
| `integrated-gradients` | Σ_d (x − x′) ∫₀¹ ∂F/∂x (x′ + α (x − x′)) dα over its tokens (Sundararajan et al. 2017) |
| `gradient-x-input` | Σ_d (x − x′) ∂F/∂x (x) (Shrikumar et al. 2016) |
| `leave-one-out` | F(text) − F(text with the word masked) |
| `attention-rollout` | attention from what the head reads to the word, through all layers (Abnar & Zuidema 2020) |

F is the log-probability of the prediction (`tasks/outcome.py`), x are the word vectors of its tokens. The baseline x′
has the mask token, or zeros, in place of every word; special tokens and blanks stay. Integrated gradients are complete:
their sum is F(x) − F(x′). The integral is a Gauss-Legendre sum, whose steps are doubled until that gap is small. (With
zeros as baseline, gradient × input is 0 wherever a norm follows the word vectors directly, whose scale then has no
effect: Euler's theorem.)

S versions of a text of T tokens and W words, E size of the word vectors, L layers, H heads.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from larvatus.core.arrays import Bools, Doubles
from larvatus.core.batch import NO_WORD, TrainingBatch
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import Count, Range
from larvatus.core.settings import Flag, Settings
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.encoder_base import AttentionEncoder
from larvatus.tasks.outcome import ExplainedOutcome

Method = Literal["integrated-gradients", "gradient-x-input", "leave-one-out", "attention-rollout"]
METHODS: tuple[Method, ...] = get_args(Method)
Baseline = Literal["mask", "zero"]
MOST_STEPS = 1_024
"""Steps after which integrated gradients are reported with their gap."""
BUDGETS = {"cpu": 2_048, "cuda": 16_384}
"""Tokens of a batch, with gradients."""
TOLERANCE = Range(0, 1e6, above=True)


class ExplainOptions(Settings):
    """How predictions are attributed to words."""

    methods: Annotated[tuple[str, ...], Flag("--method", metavar="NAME")] = ()
    """integrated-gradients (default), gradient-x-input, leave-one-out, attention-rollout, or all; repeatable."""
    baseline: Baseline = "mask"
    """Word vectors that gradients compare with: of the mask token, or zeros."""
    steps: Count = 32
    """First steps of integrated gradients; doubled until the gap is small."""
    tolerance: Annotated[float, TOLERANCE] = 0.01
    """Largest completeness gap, in nats."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline not in get_args(Baseline):
            raise UsageError(f"there is no baseline {self.baseline!r}; use mask or zero")
        for name in self.methods:
            if name not in (*METHODS, "all"):
                raise UsageError(f"there is no method {name!r}{did_you_mean(name, METHODS)}; use {', '.join(METHODS)}")

    @property
    def chosen(self) -> tuple[Method, ...]:
        """The methods, each once."""
        named = cast(tuple[Method, ...], self.methods) or METHODS[:1]
        return METHODS if "all" in self.methods else tuple(dict.fromkeys(named))


@dataclass(frozen=True, eq=False)
class Attribution:
    """Scores of words by one method."""

    method: Method
    scores: Doubles
    """[W], in nats; of attention rollout shares of attention."""
    gap: float | None = None
    """Completeness gap of integrated gradients: sum of the scores, minus F(x) − F(x′)."""
    steps: int | None = None


def attribute(outcome: ExplainedOutcome, method: Method, options: ExplainOptions, mask: int) -> Attribution:
    """Scores of the words of a text. `mask` is the id of the mask token."""
    if not isinstance(outcome.encoder, AttentionEncoder) or not hasattr(outcome.encoder, "embeddings"):
        raise UsageError(f"{type(outcome.encoder).__name__} cannot be explained; use a model such as bert")
    if method == "integrated-gradients":
        return _integrated_gradients(outcome, options, mask)
    if method == "leave-one-out":
        every = np.eye(len(outcome.spans), dtype=np.bool_)
        whole, *without = masked_scores(outcome, np.concatenate([np.zeros_like(every[:1]), every]), mask).tolist()
        return Attribution(method, whole - np.array(without))
    if method == "attention-rollout":
        return Attribution(method, by_word(outcome, attention_rollout(outcome)))
    x_TE, base_TE = _ends(outcome, options.baseline, mask)
    (gradient_TE,), _ = _gradients(outcome, x_TE[None])
    return Attribution(method, by_word(outcome, ((x_TE - base_TE) * gradient_TE).sum(-1).double().cpu().numpy()))


def by_word(outcome: ExplainedOutcome, scores_T: Doubles) -> Doubles:
    """[T] → [W]: sums over the tokens of each word."""
    inside = outcome.words != NO_WORD
    sums = np.bincount(outcome.words[inside], scores_T[inside], minlength=len(outcome.spans))
    return sums.astype(np.float64)


# ---- the score of changed texts


@torch.inference_mode()
def masked_scores(outcome: ExplainedOutcome, masked_SW: Bools, mask: int) -> Doubles:
    """F of versions of the text in which some words are masked: [S, W] → [S]."""
    (ids_T,) = (outcome.copies(1).tokens.ids,)
    # the last column is that of tokens of no word, which are never masked
    hidden_ST = np.pad(masked_SW, ((0, 0), (0, 1)))[:, outcome.words]
    ids_ST = np.where(hidden_ST, mask, ids_T)
    parts = []
    for rows in np.array_split(ids_ST, _parts(len(ids_ST), len(ids_T), outcome.encoder.device, gradients=False)):
        batch = _batch(outcome, len(rows))
        ids = torch.from_numpy(rows.ravel()).to(outcome.encoder.device)
        batch = dataclasses.replace(batch, tokens=dataclasses.replace(batch.tokens, ids=ids))
        parts.append(outcome.score(outcome.encoder, batch).double().cpu().numpy())
    return np.concatenate(parts)


def _batch(outcome: ExplainedOutcome, count: int) -> TrainingBatch[Tensor]:
    return cast(TrainingBatch[Tensor], on_device(outcome.copies(count), outcome.encoder.device))


def _parts(count: int, tokens: int, device: torch.device, *, gradients: bool) -> int:
    """Batches for that many versions of a text."""
    budget = BUDGETS.get(device.type, BUDGETS["cuda"]) * (1 if gradients else 4)
    return -(-count // max(1, budget // max(1, tokens)))


# ---- gradients with respect to word vectors


class _GivenWords(nn.Module):
    """Word vectors that are given instead of looked up; the batch has sequences of one length, in their order."""

    def __init__(self, weight: Tensor, x_NE: Tensor) -> None:
        super().__init__()
        self.weight, self.x_NE = weight, x_NE

    def forward(self, ids_N: Tensor) -> Tensor:
        return self.x_NE


def with_word_vectors(encoder: Encoder, x_NE: Tensor) -> Encoder:
    """The same encoder with given word vectors for the tokens of a batch; the weights are shared."""
    view, embeddings = _shallow(encoder), _shallow(cast(nn.Module, encoder.embeddings))
    embeddings.words = _GivenWords(encoder.word_vectors, x_NE)
    view.embeddings = embeddings
    return view


Module = TypeVar("Module", bound=nn.Module)


def _shallow(module: Module) -> Module:
    view = copy.copy(module)
    parts: dict[str, Any] = view.__dict__
    parts["_modules"] = dict(module._modules)
    return view


@torch.inference_mode(False)
@torch.enable_grad()
def _gradients(outcome: ExplainedOutcome, x_STE: Tensor) -> tuple[Tensor, Doubles]:
    """∂F/∂x [S, T, E] at the given word vectors of each version, and F [S]."""
    gradients, values = [], []
    count, tokens, _ = x_STE.shape
    for part_STE in x_STE.tensor_split(_parts(count, tokens, x_STE.device, gradients=True)):
        x_NE = part_STE.flatten(0, 1).clone().requires_grad_()
        scores_S = outcome.score(with_word_vectors(outcome.encoder, x_NE), _batch(outcome, len(part_STE)))
        (gradient_NE,) = torch.autograd.grad(scores_S.sum(), x_NE)
        gradients.append(gradient_NE.view_as(part_STE))
        values.append(scores_S.detach().double().cpu().numpy())
    return torch.cat(gradients), np.concatenate(values)


def _ends(outcome: ExplainedOutcome, baseline: Baseline, mask: int) -> tuple[Tensor, Tensor]:
    """Word vectors x of the text and x′ of the baseline: [T, E] each."""
    vectors_VE = outcome.encoder.word_vectors.detach()
    x_TE = vectors_VE[_batch(outcome, 1).tokens.ids]
    inside_T1 = torch.from_numpy(outcome.words != NO_WORD).to(x_TE.device)[:, None]
    start_E = vectors_VE[mask] if baseline == "mask" else torch.zeros_like(vectors_VE[mask])
    return x_TE, torch.where(inside_T1, start_E, x_TE)


def _integrated_gradients(outcome: ExplainedOutcome, options: ExplainOptions, mask: int) -> Attribution:
    x_TE, base_TE = _ends(outcome, options.baseline, mask)
    _, (whole, base) = _gradients(outcome, torch.stack([x_TE, base_TE]))
    steps = options.steps
    while True:
        total_TE = torch.zeros_like(x_TE, dtype=torch.float64)
        for alphas, weights in gauss_legendre(steps):
            path_STE = base_TE + torch.from_numpy(alphas).to(x_TE)[:, None, None] * (x_TE - base_TE)
            gradient_STE, _ = _gradients(outcome, path_STE)
            total_TE += torch.einsum("s,ste->te", torch.from_numpy(weights).to(total_TE), gradient_STE.double())
        scores_T = (total_TE * (x_TE - base_TE).double()).sum(-1).cpu().numpy()
        gap = float(scores_T.sum() - (whole - base))
        if abs(gap) <= options.tolerance or 2 * steps > max(MOST_STEPS, options.steps):
            return Attribution("integrated-gradients", by_word(outcome, scores_T), gap, steps)
        steps *= 2


def gauss_legendre(steps: int, most: int = 64) -> list[tuple[Doubles, Doubles]]:
    """Points in [0, 1] and their weights, `most` at a time.

    >>> ((points, weights),) = gauss_legendre(2)
    >>> round(float(weights @ points**3), 12)
    0.25
    """
    points, weights = np.polynomial.legendre.leggauss(steps)
    cuts = range(most, steps, most)
    return list(zip(np.split((1 + points) / 2, cuts), np.split(weights / 2, cuts), strict=True))


# ---- attention


@torch.inference_mode()
def attention_rollout(outcome: ExplainedOutcome) -> Doubles:
    """[T] the mean row of R_L … R_1, R_l = (mean_h α_lh + I) / 2, of the tokens that the head reads."""
    batch = _batch(outcome, 1)
    row_T: Tensor | None = None
    for (alpha_HTT,) in reversed(list(outcome.encoder.attention(batch.tokens))):
        step_TT = (alpha_HTT.double().mean(0) + torch.eye(alpha_HTT.shape[-1]).to(alpha_HTT).double()) / 2
        if row_T is None:
            row_T = step_TT.new_zeros(len(step_TT))
            row_T[torch.from_numpy(outcome.reads).to(row_T.device)] = 1 / len(outcome.reads)
        row_T = row_T @ step_TT
    assert row_T is not None
    rolled: Doubles = row_T.cpu().numpy()
    return rolled
