"""Losses of objectives: sums and counts, and the cross-entropy of a large vocabulary.

    total objective = Σ over objectives   weight × Σ losses / number of predictions in the WHOLE step

    >>> first, second = Loss(total=torch.tensor(6.0), count=torch.tensor(2)), Loss(torch.tensor(3.0), torch.tensor(1))
    >>> float(first.mean), float(weighted_sum({"masked-lm": first}, {"masked-lm": 3}))
    (3.0, 2.0)

An objective gives sums and counts, never means, so that microbatches, ranks and evaluations simply add up.

**Cross-entropy** of a linear layer with a large vocabulary never holds all its logits:

    L = Σ_i −log softmax(W h_i + b)[x_i]          ∂L/∂logits_i = softmax(W h_i + b) − onehot(x_i)

The gradient of a sum of losses depends on later operations by one factor only, so it is computed in the forward pass, a
chunk of rows at a time (Hsu et al. 2024, *Liger Kernel*; Wijmans et al. 2024, *Cut your losses*): memory is chunk × V,
not three times M × V. Products run in autocast's precision, the softmax in float32. On CPU this is 1.6 × as fast as
`F.cross_entropy(F.linear(…))`, whose M × V logits outgrow every cache.

**Samples.** The chunk's softmax can also serve a sampler (ELECTRA's generator): the logits are computed once for both.
Samples come from the inverse of the cumulative distribution:

    v = min { v : p_1 + … + p_v > u }        u uniform in [0, 1)

    >>> inverse_cdf(torch.tensor([[1.0, 1.0, 2.0]]), torch.tensor([1 << 31]))      # u = 1/2: where the last one begins
    tensor([2])

There is one random number a row, which the corruption adds to the batch, so a sample has no hidden state: it is a
function of the distribution and that number. Two runs whose logits differ by rounding differ in a sample only if u is
that close to a boundary.

M predictions, D hidden size, V vocabulary, C rows of a chunk. Labels of −100 are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.batch import TrainingBatch
from larvatus.data.corruption import CorruptionConfig
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.encoder import Encoder, EncoderConfig


@runtime_checkable
class WordObjective(Protocol):
    """Settings of an objective that predicts words of the vocabulary."""

    def words_per_token(self, corruption: CorruptionConfig | None) -> float:
        """Expected predictions per token of text: for the size of a compiled step and the cost of the head."""


@runtime_checkable
class RestrictsModel(Protocol):
    """Settings of an objective that only some encoders can be trained on."""

    def check(self, model: EncoderConfig) -> None:
        """Refuse an encoder that it cannot be trained on."""


@runtime_checkable
class CustomForward(Protocol):
    """An objective that computes its own states instead of reading the layers: with a decoder, for example."""

    def read(self, batch: TrainingBatch[Tensor], encoder: Encoder, *, limit: int | None) -> Tensor:
        """The states from which its `loss` is computed; `limit` as in `Encoder`."""


@dataclass(frozen=True, eq=False)
class Loss:
    total: Tensor
    """Sum of the losses of all predictions."""
    count: Tensor
    """Number of predictions; those labelled −100 are in neither."""
    correct: Tensor | None = None
    """Number of correct predictions, if requested."""
    positive: Tensor | None = None
    """For a binary objective, how often the answer was yes, if accuracy was requested."""
    weight: float = 1.0
    """Share of this objective in the step's loss."""

    @property
    def mean(self) -> Tensor:
        """Mean loss of a prediction; 0 where there is none."""
        return self.total / self.count.clamp(min=1)

    @property
    def accuracy(self) -> Tensor | None:
        return None if self.correct is None else self.correct / self.count.clamp(min=1)


def weighted_sum(losses: Mapping[str, Loss], counts: Mapping[str, float]) -> Tensor:
    """The number to call `backward` on, for one microbatch of a step with `counts` predictions in total."""
    parts = [loss.total * (loss.weight / max(counts[name], 1.0)) for name, loss in losses.items()]
    return torch.stack(parts).sum()


# Cross-entropy of a large vocabulary, and samples.

_LEVELS = 1 << 24  # float32 holds every multiple of 2^-24 below 1


@torch.no_grad()
def inverse_cdf(weights_CV: Tensor, bits_C: Tensor) -> Tensor:
    """One outcome a row, with probabilities proportional to the weights; `bits` are 32 random bits a row."""
    sums_CV = weights_CV.cumsum(-1)
    u_C1 = (bits_C[:, None] >> 8).to(sums_CV.dtype) / _LEVELS
    index_C1 = torch.searchsorted(sums_CV, u_C1 * sums_CV[:, -1:], right=True)
    return index_C1.squeeze(-1).clamp(max=weights_CV.shape[-1] - 1)  # if rounding raised the product to the sum


_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits held at once: few enough for a CPU's caches, many enough to fill a GPU."""


@dataclass(frozen=True)
class _Sums:
    total: Tensor
    correct: Tensor
    samples: Tensor  # [M], or [0] without bits
    h_MD: Tensor | None  # gradients
    w_VD: Tensor | None
    b_V: Tensor | None


def _rows(device: str, vocabulary: int) -> int:
    return max(64, _NUMBERS.get(device, _NUMBERS["cpu"]) // vocabulary)


def _sums(
    h_MD: Tensor, w_VD: Tensor, b_V: Tensor, ids_M: Tensor, bits_M: Tensor | None, *, grad: bool, accuracy: bool
) -> _Sums:
    device = h_MD.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else h_MD.dtype
    wide = torch.promote_types(dtype, torch.float32)
    h, w, b = h_MD.to(dtype), w_VD.to(dtype), b_V.to(dtype)
    total, correct = torch.zeros((), dtype=wide, device=h.device), torch.zeros((), dtype=torch.int64, device=h.device)
    h_grad = torch.zeros_like(h_MD) if grad else None
    w_grad = torch.zeros_like(w_VD, dtype=wide) if grad else None
    b_grad = torch.zeros_like(b_V, dtype=wide) if grad else None
    samples = torch.zeros_like(ids_M if bits_M is not None else ids_M[:0])
    rows = _rows(device, w.shape[0])
    for first in range(0, h.shape[0], rows):
        h_CD, ids_C = h[first : first + rows], ids_M[first : first + rows]
        counted_C1 = (ids_C != IGNORE).to(wide)[:, None]
        ids_C1 = ids_C.clamp(min=0)[:, None]
        x_CV = F.linear(h_CD, w, b).to(wide)
        if accuracy:
            correct += (x_CV.argmax(-1) == ids_C).sum()
        x_CV -= x_CV.amax(-1, keepdim=True)  # so that no exponential overflows
        right_C1 = x_CV.gather(1, ids_C1)
        x_CV = x_CV.exp_()
        norm_C1 = x_CV.sum(-1, keepdim=True)
        total += ((norm_C1.log() - right_C1) * counted_C1).sum()
        if bits_M is not None:
            samples[first : first + rows] = inverse_cdf(x_CV, bits_M[first : first + rows])
        if h_grad is None or w_grad is None or b_grad is None:
            continue
        x_CV *= counted_C1 / norm_C1
        x_CV.scatter_add_(1, ids_C1, -counted_C1)
        b_grad += x_CV.sum(0)
        g_CV = x_CV.to(dtype)
        h_grad[first : first + rows] = g_CV @ w
        if dtype == wide:
            w_grad.addmm_(g_CV.T, h_CD)
        else:
            w_grad += g_CV.T @ h_CD
    return _Sums(total, correct, samples, h_grad, w_grad, b_grad)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h_MD: Tensor, w_VD: Tensor, b_V: Tensor, ids_M: Tensor, bits_M: Tensor | None, accuracy: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        sums = _sums(h_MD, w_VD, b_V, ids_M, bits_M, grad=True, accuracy=accuracy)
        ctx.save_for_backward(sums.h_MD, sums.w_VD, sums.b_V)
        ctx.dtypes = h_MD.dtype, w_VD.dtype, b_V.dtype
        ctx.mark_non_differentiable(sums.correct, sums.samples)
        return sums.total, sums.correct, sums.samples

    @staticmethod
    def backward(ctx: Any, factor: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        h, w, b = ((grad * factor).to(dtype) for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return h, w, b, None, None, None


def linear_cross_entropy(
    h_MD: Tensor, w_VD: Tensor, b_V: Tensor, ids_M: Tensor, *, accuracy: bool = False
) -> tuple[Tensor, Tensor]:
    """Sum of the losses, and how many rows have their label as the largest logit (0 unless `accuracy`)."""
    return _forward(h_MD, w_VD, b_V, ids_M, None, accuracy=accuracy)[:2]


def linear_cross_entropy_and_samples(
    h_MD: Tensor, w_VD: Tensor, b_V: Tensor, ids_M: Tensor, bits_M: Tensor, *, accuracy: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and one sample of each row's softmax [M], decided by 32 random bits each; without gradient."""
    return _forward(h_MD, w_VD, b_V, ids_M, bits_M, accuracy=accuracy)


def _forward(
    h_MD: Tensor, w_VD: Tensor, b_V: Tensor, ids_M: Tensor, bits_M: Tensor | None, *, accuracy: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if torch.compiler.is_compiling():
        # The compiler fuses the softmax of a plain cross-entropy with its casts, so no float32 copy of the logits is
        # made either; and torch 2.11 on CUDA gets gradients wrong that an autograd.Function makes in its forward pass.
        logits_MV = F.linear(h_MD, w_VD, b_V)
        total = F.cross_entropy(logits_MV, ids_M, reduction="sum", ignore_index=IGNORE)
        right = (logits_MV.argmax(-1) == ids_M).sum() if accuracy else torch.zeros_like(ids_M[:0]).sum()
        return total, right, _sampled(logits_MV.detach(), bits_M) if bits_M is not None else ids_M[:0]
    if torch.is_grad_enabled() and (h_MD.requires_grad or w_VD.requires_grad or b_V.requires_grad):
        made: tuple[Tensor, Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            h_MD, w_VD, b_V, ids_M, bits_M, accuracy
        )
        return made
    sums = _sums(h_MD, w_VD, b_V, ids_M, bits_M, grad=False, accuracy=accuracy)
    return sums.total, sums.correct, sums.samples


def _sampled(logits_MV: Tensor, bits_M: Tensor) -> Tensor:
    """A sample of each row, a chunk of rows at a time: the sums over the vocabulary are float32."""
    rows = _rows(logits_MV.device.type, logits_MV.shape[1])
    parts = zip(logits_MV.split(rows), bits_M.split(rows), strict=True)
    wide = torch.promote_types(logits_MV.dtype, torch.float32)
    return torch.cat([inverse_cdf(x_CV.softmax(-1, dtype=wide), bits_C) for x_CV, bits_C in parts])


def word_loss(
    h_MD: Tensor, words_VD: Tensor, bias_V: Tensor | None, ids_M: Tensor, *, weight: float, accuracy: bool
) -> Loss:
    """The loss of an objective that predicts words from vectors; without a bias, it is 0."""
    bias_V = words_VD.new_zeros(len(words_VD)) if bias_V is None else bias_V
    total, correct = linear_cross_entropy(h_MD, words_VD, bias_V, ids_M, accuracy=accuracy)
    return Loss(total=total, count=(ids_M != IGNORE).sum(), correct=correct if accuracy else None, weight=weight)
