"""Token after token: each sequence gets its next one until it ends; those that have ended leave the batch.

    sequences = unroll(under_way, choose=greedy, most=np.array([20, 20]), stopping=Stopping(ends=frozenset({3})))

B sequences at first, R of them still under way, V vocabulary.

When a continuation ends: at an end token, at a text that the user named, or when it has its tokens.

>>> stopping = Stopping(ends=frozenset({3}), strings=("\\n",), text_of=lambda row, ids: "ab\\n"[: len(ids)])
>>> stopping.reason(0, [5, 6]), stopping.reason(0, [5, 6, 7]), stopping.reason(0, [5, 3])
(None, 'stop', 'end')

The next token: the likeliest, or one drawn by temperature among the top k (Fan et al. 2018) or the nucleus, the
fewest tokens that have p of the probability together (Holtzman et al. 2020).

    p_v ∝ exp(logit_v / temperature)      then the k likeliest, then the nucleus of what is left, as `transformers` does

Draws are counter-based, f(seed, sample, prompt, place): a prompt is gone on with in the same way whatever it is batched
with, and however many samples are asked for. R sequences under way, V vocabulary.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    >>> Sampling(temperature=1.0, top_k=2).weights(logits)[0].count_nonzero().item()
    2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from larvatus.core import rng
from larvatus.core.arrays import Ints
from larvatus.models.generation.generator import GenerationState
from larvatus.models.objectives.linear_cross_entropy import inverse_cdf

PURPOSE = "generate"


class TokenChoice(Protocol):
    """How the next token of each sequence is chosen."""

    def __call__(self, logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
        """[R] tokens; `rows` are the numbers that the sequences began with, `place` counts tokens added so far."""


def greedy(logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
    """The likeliest token of each."""
    return logits_RV.argmax(-1)


@dataclass(frozen=True)
class Sampling:
    """What the distribution is made into before a token is drawn from it."""

    temperature: float
    top_k: int | None = None
    top_p: float | None = None

    def weights(self, logits_RV: Tensor) -> Tensor:
        """Probabilities [R, V] in float64; 0 for tokens that are not drawn."""
        scores_RV = logits_RV.double() / self.temperature
        if self.top_k is not None and self.top_k < scores_RV.shape[-1]:
            least_R1 = scores_RV.topk(self.top_k, dim=-1).values[:, -1:]
            scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            scores_RV = scores_RV.masked_fill(~self._nucleus(scores_RV), -torch.inf)
        return scores_RV.softmax(-1)

    def _nucleus(self, scores_RV: Tensor) -> Tensor:
        """Which tokens are in it: those before which less than p has been gathered, likeliest first."""
        assert self.top_p is not None
        sorted_RV, order_RV = scores_RV.sort(dim=-1, descending=True, stable=True)
        likely_RV = sorted_RV.softmax(-1)
        inside_RV = likely_RV.cumsum(-1) - likely_RV < self.top_p
        inside_RV[:, 0] = True
        return torch.zeros_like(inside_RV).scatter_(-1, order_RV, inside_RV)


@dataclass(frozen=True, eq=False)
class SampledChoice:
    """A choice by sampling: sequence b is the sample `samples[b]` of the prompt `prompts[b]`."""

    sampling: Sampling
    seed: int
    prompts: Ints  # [B] numbers of the prompts among all that were given
    samples: Ints  # [B]

    def __call__(self, logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
        bits_R = torch.from_numpy(self.bits(rows, place)).to(logits_RV.device)
        return inverse_cdf(self.sampling.weights(logits_RV), bits_R)

    def bits(self, rows: Ints, place: int) -> Ints:
        """32 random bits for the next token of each sequence."""
        prompts, samples = self.prompts[rows], self.samples[rows]
        bits = np.empty(len(rows), dtype=np.int64)
        for sample in np.unique(samples).tolist():
            of_sample = samples == sample
            items = prompts[of_sample]
            drawn = rng.random_bits(self.seed, PURPOSE, sample, items=items, draws=np.full(len(items), place))
            bits[of_sample] = drawn[0].astype(np.int64)
        return bits


StopReason = Literal["end", "stop", "length"]
"""Why a continuation ended: the model's end token, a text at which to stop, or the number of its tokens."""


@dataclass(frozen=True, eq=False)
class Stopping:
    ends: frozenset[int] = frozenset()
    """Tokens by which the model says that it is done."""
    strings: tuple[str, ...] = ()
    text_of: Callable[[int, Sequence[int]], str] | None = None
    """The text that these tokens add to a prompt; asked for where there are texts at which to stop."""

    def reason(self, prompt: int, ids: Sequence[int]) -> StopReason | None:
        """Why a continuation of this prompt ends with its newest token; None where it goes on."""
        if ids and ids[-1] in self.ends:
            return "end"
        if self.strings and self.text_of is not None:
            text = self.text_of(prompt, ids)
            if any(string in text for string in self.strings):
                return "stop"
        return None

    def cut(self, text: str) -> str:
        """The text before the first of the strings."""
        places = [place for string in self.strings if (place := text.find(string)) >= 0]
        return text[: min(places)] if places else text


@dataclass(frozen=True)
class DecodedSequence:
    """The tokens that a sequence got, the end token included."""

    ids: tuple[int, ...]
    log_probability: float
    """By the model itself, whatever the temperature: of all these tokens, given the prompt."""
    reason: StopReason


def decode(
    under_way: GenerationState, *, choose: TokenChoice, most: Ints, stopping: Stopping, prompts: Ints | None = None
) -> list[DecodedSequence]:
    """Go on with every sequence; `most` [B] tokens at most. Sequence b is of prompt `prompts[b]`: b where not said."""
    of_prompt = np.arange(len(most)) if prompts is None else prompts
    ids: list[list[int]] = [[] for _ in most]
    sums = [0.0] * len(most)
    reasons: list[StopReason] = ["length"] * len(most)
    rows = np.flatnonzero(most > 0)
    if len(rows) < len(most):
        _keep(under_way, rows)
    place = 0
    while len(rows):
        logits_RV = under_way.logits()
        next_R = choose(logits_RV, rows, place)
        likely = logits_RV.log_softmax(-1).gather(-1, next_R[:, None])[:, 0].tolist()
        place += 1
        staying = []
        for at, (row, token) in enumerate(zip(rows.tolist(), next_R.tolist(), strict=True)):
            ids[row].append(token)
            sums[row] += likely[at]
            reason = stopping.reason(int(of_prompt[row]), ids[row])
            if reason is not None:
                reasons[row] = reason
            elif place < most[row]:
                staying.append(at)
        if len(staying) < len(rows):
            rows = rows[staying]
            next_R = _keep(under_way, np.array(staying, np.int64), next_R)
        if len(rows):
            under_way.extend(next_R)
    return [DecodedSequence(tuple(got), total, reason) for got, total, reason in zip(ids, sums, reasons, strict=True)]


def _keep(under_way: GenerationState, staying: Ints, next_R: Tensor | None = None) -> Tensor:
    """Let the others go; gives back the next tokens of those that stay."""
    rows = torch.from_numpy(staying)
    if len(staying):
        under_way.take(rows)
    return rows if next_R is None else next_R[rows.to(next_R.device)]
