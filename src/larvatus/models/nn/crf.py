"""Linear-chain conditional random field (Lafferty, McCallum & Pereira 2001): tags of a sequence chosen together.

    score(y) = start(y_1) + Σ_t e_t(y_t) + Σ_t T(y_t, y_{t+1}) + end(y_n)
    log p(y | x) = score(y) − log Σ_y' exp score(y')

over the flat batch: emissions of all tokens end to end with the lengths of the sequences, no padding. The gradient is
what the sequence has less what the model expects (forward–backward), not a walk back through the recursion.

    crf = CRF(17)
    loss = -crf(emissions_NK, tags_N, lengths_B).mean()
    tags = crf.viterbi(emissions_NK, lengths_B, allowed=AllowedTransitions.of(legal_transitions(labels, scheme)))

A table of what is allowed (`AllowedTransitions`) makes all other sequences impossible: at decoding, and in the sum over
all sequences where it is given there too. `constrained_viterbi` wants nothing else: no learned transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from larvatus.core.errors import UsageError
from larvatus.models.nn.linear_chain import ChainSteps, best_path, forward_backward, pair_posteriors, wide_float


class TagConstraints(Protocol):
    """What is allowed, as arrays of truth: first tags [K], one tag after another [K, K] (from, to), last tags [K]."""

    @property
    def starts(self) -> npt.NDArray[np.bool_]: ...
    @property
    def transitions(self) -> npt.NDArray[np.bool_]: ...
    @property
    def ends(self) -> npt.NDArray[np.bool_]: ...


@dataclass(frozen=True, eq=False)
class AllowedTransitions:
    """A table as scores, 0 or −inf, on a device. Every length has a sequence that it allows."""

    starts: Tensor
    transitions: Tensor
    ends: Tensor
    reachable: Tensor
    """[2, K] tags that an allowed sequence can come to from its start, and from its end."""

    @classmethod
    def of(cls, table: TagConstraints, device: torch.device | str | None = None) -> AllowedTransitions:
        starts, between, ends = (np.asarray(array, np.bool_) for array in (table.starts, table.transitions, table.ends))
        if between.shape != (len(starts), len(starts)) or ends.shape != starts.shape:
            raise UsageError(
                f"{len(starts)} first tags, {len(ends)} last tags and a table {between.shape} do not agree"
            )
        if (length := _impossible_length(starts, between, ends)) is not None:
            raise UsageError(f"the table of allowed tags leaves no sequence of length {length}")
        reachable = np.stack([_closure(starts, between), _closure(ends, between.T)])
        first, after, last = (
            torch.where(torch.from_numpy(array), 0.0, -torch.inf).to(device) for array in (starts, between, ends)
        )
        return cls(first, after, last, torch.from_numpy(reachable).to(device))

    def to(self, device: torch.device | str) -> AllowedTransitions:
        return AllowedTransitions(
            self.starts.to(device), self.transitions.to(device), self.ends.to(device), self.reachable.to(device)
        )


def _closure(first: npt.NDArray[np.bool_], between: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    reached = first
    while (more := reached | between[reached].any(0)).sum() > reached.sum():
        reached = more
    return reached


def _impossible_length(
    starts: npt.NDArray[np.bool_], between: npt.NDArray[np.bool_], ends: npt.NDArray[np.bool_]
) -> int | None:
    """The least length for which no sequence is allowed; the tags that may come last repeat sooner or later."""
    seen: set[bytes] = set()
    now, length = starts, 1
    while now.tobytes() not in seen:
        if not (now & ends).any():
            return length
        seen.add(now.tobytes())
        now, length = np.asarray(between[now].any(0)), length + 1
    return None


class CRF(nn.Module):
    """Scores of neighbouring tags, learned. They begin at 0: a softmax of each token's own."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # from, to
        self.start = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """All 0; there is nothing to draw."""
        for parameter in self.parameters():
            parameter.zero_()

    def forward(
        self, e_NK: Tensor, tags_N: Tensor, lengths_B: Tensor, *, allowed: AllowedTransitions | None = None
    ) -> Tensor:
        """[B] log-likelihood of each sequence's tags; of an empty one 0.

        Under `allowed`, among the allowed sequences: −inf where the tags are not one of them.
        """
        with _plain(e_NK):
            e_NK, scores = self._scores(e_NK, lengths_B, allowed)
            total_B: Tensor = _LogLikelihood.apply(
                e_NK, *scores, tags_N, ChainSteps.of(lengths_B, e_NK.device), allowed
            )  # type: ignore[no-untyped-call]
        return total_B

    log_likelihood = forward

    def score(self, e_NK: Tensor, tags_N: Tensor, lengths_B: Tensor) -> Tensor:
        """[B] score(y) of the tags, not normalised."""
        with _plain(e_NK):
            e_NK, (transitions, start, end) = self._scores(e_NK, lengths_B, None)
            return _score(e_NK, transitions, start, end, tags_N=tags_N, steps=ChainSteps.of(lengths_B, e_NK.device)).to(
                e_NK.dtype
            )

    @torch.no_grad()
    def viterbi(self, e_NK: Tensor, lengths_B: Tensor, *, allowed: AllowedTransitions | None = None) -> Tensor:
        """[N] tags of each sequence's best allowed tag sequence. `score` gives its score."""
        with _plain(e_NK):
            e_NK, scores = self._scores(e_NK, lengths_B, allowed)
            return best_path(_levelled(e_NK), *scores, steps=ChainSteps.of(lengths_B, e_NK.device))

    @torch.no_grad()
    def marginals(self, e_NK: Tensor, lengths_B: Tensor, *, allowed: AllowedTransitions | None = None) -> Tensor:
        """[N, K] probability of each tag at each token, over all (allowed) sequences."""
        with _plain(e_NK):
            e_NK, scores = self._scores(e_NK, lengths_B, allowed)
            reachable = None if allowed is None else allowed.reachable
            steps = ChainSteps.of(lengths_B, e_NK.device)
            return forward_backward(_levelled(e_NK), *scores, steps=steps, reachable_2K=reachable).posterior

    def _scores(
        self, e_NK: Tensor, lengths_B: Tensor, allowed: AllowedTransitions | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Emissions and parameters in float32, or float64 where the emissions are; forbidden ones −inf."""
        e_NK = e_NK if e_NK.dtype == torch.float64 else e_NK.float()
        scores = tuple(score.to(e_NK.device, e_NK.dtype) for score in (self.transitions, self.start, self.end))
        if e_NK.ndim != 2 or e_NK.shape[1] != len(self.start):
            raise UsageError(
                f"a CRF of {len(self.start)} tags wants emissions [N, {len(self.start)}], not {[*e_NK.shape]}"
            )
        if allowed is not None:
            scores = tuple(
                a + b for a, b in zip(scores, (allowed.transitions, allowed.starts, allowed.ends), strict=True)
            )
        return e_NK, scores  # type: ignore[return-value]


def constrained_viterbi(e_NK: Tensor, lengths_B: Tensor, allowed: AllowedTransitions) -> Tensor:
    """[N] the allowed tags with the largest sum of emissions: decoding of a tagger that has no CRF.

    With log-probabilities of independent tags as emissions, the likeliest allowed sequence.
    """
    with torch.no_grad(), _plain(e_NK):
        e_NK = _levelled(e_NK if e_NK.dtype == torch.float64 else e_NK.float())
        scores = (score.to(e_NK.dtype) for score in (allowed.transitions, allowed.starts, allowed.ends))
        return best_path(e_NK, *scores, steps=ChainSteps.of(lengths_B, e_NK.device))


def _plain(x: Tensor) -> torch.autocast:
    """No mixed precision: sums over hundreds of steps want their digits."""
    return torch.autocast(x.device.type, enabled=False)


def _levelled(e_NK: Tensor) -> Tensor:
    """Best emission of each token 0: no sequence's choice changes, and sums stay small where the model is sure."""
    return e_NK - e_NK.amax(-1, keepdim=True)


def _score(e_NK: Tensor, t_KK: Tensor, start_K: Tensor, end_K: Tensor, *, tags_N: Tensor, steps: ChainSteps) -> Tensor:
    """[B] in float64 where the device has it."""
    wide = wide_float(e_NK)
    scores_N = e_NK.gather(1, tags_N[:, None]).squeeze(1).to(wide)
    scores_N[1:] += t_KK[tags_N[:-1], tags_N[1:]]
    first, last = tags_N[steps.first], tags_N[steps.last]
    crossing = steps.first[steps.first > 0]  # a sequence's first tag does not follow the last of another
    scores_N[crossing] = e_NK.gather(1, tags_N[:, None]).squeeze(1)[crossing].to(wide)
    scores_N[steps.first] += start_K[first]
    scores_N[steps.last] += end_K[last]
    return torch.zeros(steps.batch, dtype=wide, device=e_NK.device).index_add(0, steps.sequence, scores_N)


class _LogLikelihood(torch.autograd.Function):
    """∂ log p(y) / ∂ score of a part = how often y has the part − how often it is expected."""

    @staticmethod
    def forward(
        ctx: Any,
        e_NK: Tensor,
        t_KK: Tensor,
        start_K: Tensor,
        end_K: Tensor,
        tags_N: Tensor,
        steps: ChainSteps,
        allowed: AllowedTransitions | None,
    ) -> Tensor:
        e_NK = _levelled(e_NK)
        reachable = None if allowed is None else allowed.reachable
        sums = forward_backward(e_NK, t_KK, start_K, end_K, steps=steps, reachable_2K=reachable)
        ctx.save_for_backward(t_KK, tags_N)
        ctx.steps, ctx.sums = steps, sums
        gold = _score(e_NK, t_KK, start_K, end_K, tags_N=tags_N, steps=steps)
        return (gold - sums.log_partition).to(e_NK.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient_B: Tensor) -> tuple[Tensor | None, ...]:
        t_KK, tags_N = ctx.saved_tensors
        steps, sums = ctx.steps, ctx.sums
        weight_N = gradient_B.index_select(0, steps.sequence)
        e_NK = -sums.posterior * weight_N[:, None]
        e_NK.scatter_add_(1, tags_N[:, None], weight_N[:, None])
        tags_NK = nn.functional.one_hot(tags_N, len(t_KK)).to(t_KK.dtype)  # counts by a product: the same every time
        within_N1 = weight_N.index_fill(0, steps.first, 0.0)[:, None]  # a first token follows none of its own sequence
        transitions_KK = tags_NK[:-1].mT @ (tags_NK * within_N1)[1:]
        transitions_KK = transitions_KK - pair_posteriors(sums, t_KK, weight_N, steps=steps)
        return e_NK, transitions_KK, e_NK[steps.first].sum(0), e_NK[steps.last].sum(0), None, None, None
