"""Decoding: choose the next token of each sequence until it ends; finished sequences leave the batch.

    sequences = decode(state, choose=greedy, limits=np.array([20, 20]), stopping=Stopping(ends=frozenset({3})))

The next token is the likeliest, or sampled with a temperature from the top k (Fan et al. 2018) or the nucleus, the
smallest set of tokens with probability p (Holtzman et al. 2020):

    p_v ∝ exp(logit_v / temperature)      then the k likeliest, then the nucleus of what is left, as `transformers` does

Random numbers are counter-based, f(seed, sample, prompt, position): a prompt is continued in the same way whatever it
is batched with, and however many samples are requested.

    >>> logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    >>> Sampling(temperature=1.0, top_k=2).weights(logits)[0].count_nonzero().item()
    2

A continuation ends at an end token, at a stop text, or at its limit of tokens:

    >>> stopping = Stopping(ends=frozenset({3}), strings=("\\n",), text_of=lambda row, ids: "ab\\n"[: len(ids)])
    >>> stopping.reason(0, [5, 6]), stopping.reason(0, [5, 6, 7]), stopping.reason(0, [5, 3])
    (None, 'stop', 'end')

B sequences at first, R of them unfinished, V vocabulary.
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
        """[R] tokens; `rows` are the initial numbers of the sequences, `place` counts tokens added so far."""


def greedy(logits_RV: Tensor, rows: Ints, place: int) -> Tensor:
    """The likeliest token of each."""
    return logits_RV.argmax(-1)


@dataclass(frozen=True)
class Sampling:
    """How the distribution is changed before sampling."""

    temperature: float
    top_k: int | None = None
    top_p: float | None = None

    def weights(self, logits_RV: Tensor) -> Tensor:
        """Probabilities [R, V] in float64; 0 for excluded tokens."""
        scores_RV = logits_RV.double() / self.temperature
        if self.top_k is not None and self.top_k < scores_RV.shape[-1]:
            least_R1 = scores_RV.topk(self.top_k, dim=-1).values[:, -1:]
            scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            scores_RV = scores_RV.masked_fill(~self._nucleus(scores_RV), -torch.inf)
        return scores_RV.softmax(-1)

    def _nucleus(self, scores_RV: Tensor) -> Tensor:
        """Tokens of the nucleus: those before which less than p has been accumulated, likeliest first."""
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
    prompts: Ints  # [B] numbers of the prompts among all texts
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
"""Why a continuation ended: the model's end token, a stop text, or the number of its tokens."""


@dataclass(frozen=True, eq=False)
class Stopping:
    ends: frozenset[int] = frozenset()
    """Tokens by which the model ends a text."""
    strings: tuple[str, ...] = ()
    text_of: Callable[[int, Sequence[int]], str] | None = None
    """The text that these tokens add to a prompt; needed for stop texts."""

    def reason(self, prompt: int, ids: Sequence[int]) -> StopReason | None:
        """Why a continuation of this prompt ends with its newest token; None if it continues."""
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
    """The generated tokens of a sequence, including the end token."""

    ids: tuple[int, ...]
    log_probability: float
    """By the model itself, whatever the temperature: of all these tokens, given the prompt."""
    reason: StopReason


def decode(
    generation: GenerationState, *, choose: TokenChoice, limits: Ints, stopping: Stopping, prompts: Ints | None = None
) -> list[DecodedSequence]:
    """Continue every sequence; `most` [B] tokens at limits. Sequence b is of prompt `prompts[b]`, by default b."""
    of_prompt = np.arange(len(limits)) if prompts is None else prompts
    ids: list[list[int]] = [[] for _ in limits]
    sums = [0.0] * len(limits)
    reasons: list[StopReason] = ["length"] * len(limits)
    rows = np.flatnonzero(limits > 0)
    if len(rows) < len(limits):
        _keep(generation, rows)
    place = 0
    while len(rows):
        logits_RV = generation.logits()
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
            elif place < limits[row]:
                staying.append(at)
        if len(staying) < len(rows):
            rows = rows[staying]
            next_R = _keep(generation, np.array(staying, np.int64), next_R)
        if len(rows):
            generation.extend(next_R)
    return [DecodedSequence(tuple(got), total, reason) for got, total, reason in zip(ids, sums, reasons, strict=True)]


def _keep(generation: GenerationState, staying: Ints, next_R: Tensor | None = None) -> Tensor:
    """Drop the other sequences; returns the next tokens of those that stay."""
    rows = torch.from_numpy(staying)
    if len(staying):
        generation.take(rows)
    return rows if next_R is None else next_R[rows.to(next_R.device)]
