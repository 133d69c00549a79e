r"""Decoding: choose the next token of each sequence until it ends, one by one or by beam search.

    sequences = decode(state, choose=greedy, limits=np.array([20, 20]), stopping=Stopping(ends=frozenset({3})))

Finished sequences leave the batch. The next token is the likeliest, or **sampled** with a temperature from the top k
(Fan et al. 2018) or the nucleus, the smallest set of tokens with probability p (Holtzman et al. 2020):

    p_v ∝ exp(logit_v / temperature)      then the k likeliest, then the nucleus of what is left, as `transformers` does

    >>> logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    >>> Sampling(temperature=1.0, top_k=2).weights(logits)[0].count_nonzero().item()
    2

Random numbers are counter-based, f(seed, sample, prompt, position): a prompt is continued in the same way whatever it
is batched with, and however many samples are requested.

A continuation **ends** at an end token, at a stop text, or at its limit of tokens:

    >>> stopping = Stopping(ends=frozenset({3}), strings=("\n",), text_of=lambda row, ids: "ab\n"[: len(ids)])
    >>> stopping.reason(0, [5, 6]), stopping.reason(0, [5, 6, 7]), stopping.reason(0, [5, 3])
    (None, 'stop', 'end')

**Beam search** keeps, for each prompt, the `beams` best unfinished continuations, and the best finished ones:

    score = Σ_t log p(x_t | x_<t) / length^penalty        of a finished continuation, including its end token

The steps are those of `transformers`, so that both find the same tokens: for each prompt the 2 × beams best next steps
are considered; those that end, if among the first `beams`, join the finished ones if they are good enough; the best of
the others continue. A prompt is done when its best unfinished continuation, scored at its present length, does not beat
the worst of `beams` finished ones (early stopping: when there are that many), or none can continue. Prompts are
independent, and leave the batch when they are done.

B sequences at first, R of them unfinished, V vocabulary; P prompts, K beams, C candidates, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self

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


# Beam search.

IMPOSSIBLE = -1.0e9
"""Score of an impossible continuation: the value of `transformers`, since sums with it decide ties."""


@dataclass(frozen=True)
class BeamSettings:
    beams: int
    length_penalty: float = 1.0
    early_stopping: bool = False


@dataclass(eq=False)
class _Beams:
    """The state of the unfinished prompts."""

    numbers: Tensor  # [P] of the prompts
    limits: Tensor  # [P] tokens at most
    ids: Tensor  # [P, K, T] of unfinished continuations
    sums: Tensor  # [P, K] their log-probabilities
    ended_ids: Tensor  # [P, K, T] of finished ones
    ended_sums: Tensor  # [P, K] their log-probabilities …
    ended_scores: Tensor  # [P, K] … divided by length^penalty
    ended_lengths: Tensor  # [P, K] 0 where there is none yet

    @classmethod
    def begun(cls, limits: Tensor, beams: int) -> Self:
        prompts, device, longest = len(limits), limits.device, int(limits.max())
        ids = torch.zeros(prompts, beams, longest, dtype=torch.int64, device=device)
        sums = torch.zeros(prompts, beams, device=device)
        sums[:, 1:] = IMPOSSIBLE  # all beams begin equal: one is enough
        nothing = torch.full((prompts, beams), IMPOSSIBLE, device=device)
        lengths = torch.zeros(prompts, beams, dtype=torch.int64, device=device)
        numbers = torch.arange(prompts, device=device)
        return cls(numbers, limits, ids, sums, ids.clone(), nothing.clone(), nothing.clone(), lengths)

    def kept(self, rows: Tensor) -> _Beams:
        return _Beams(**{name: tensor[rows] for name, tensor in vars(self).items()})


def beam_search(
    generation: GenerationState, search: BeamSettings, *, limits: Ints, stopping: Stopping
) -> list[list[DecodedSequence]]:
    """The finished continuations of every prompt, best first; `most` [P] tokens at limits, at least 1."""
    logits_PV = generation.logits()
    device, beams = logits_PV.device, search.beams
    state = _Beams.begun(torch.from_numpy(limits).to(device), beams)
    rows = torch.arange(len(limits), device=device).repeat_interleave(beams)
    generation.take(rows)
    logits = logits_PV[rows]
    results: list[list[DecodedSequence]] = [[] for _ in limits]
    place = 0
    while True:
        parents_PK, going_P = _step(state, logits, search, place, stopping)
        place += 1
        for prompt in torch.nonzero(~going_P)[:, 0].tolist():
            results[int(state.numbers[prompt])] = _finished(state, prompt, stopping)
        if not going_P.any():
            return results
        first_P1 = torch.arange(len(state.numbers), device=device)[:, None] * beams
        rows = (first_P1 + parents_PK)[going_P].flatten()
        state = state.kept(going_P)
        generation.take(rows)
        generation.extend(state.ids[:, :, place - 1].flatten())
        logits = generation.logits()


def _step(state: _Beams, logits: Tensor, search: BeamSettings, place: int, stopping: Stopping) -> tuple[Tensor, Tensor]:
    """Advance every prompt by one token. Returns the beam [P, K] that each new one continues, and which continue."""
    beams, vocabulary = search.beams, logits.shape[-1]
    totals = logits.float().log_softmax(-1).unflatten(0, (-1, beams)) + state.sums[:, :, None]
    candidates = min(max(2, 1 + len(stopping.ends)) * beams, beams * vocabulary)
    sums_PC, index_PC = totals.flatten(1).topk(candidates, dim=-1)
    from_PC, tokens_PC = index_PC // vocabulary, index_PC % vocabulary
    ids_PCT = _gather(state.ids, from_PC)
    ids_PCT[:, :, place] = tokens_PC
    ends_PC = _ends(state, ids_PCT, place, stopping)
    _finish(state, search, place, sums_PC=sums_PC, ids_PCT=ids_PCT, ends_PC=ends_PC)
    going_on_PC = sums_PC + ends_PC * IMPOSSIBLE
    state.sums, best_PK = going_on_PC.topk(beams, dim=-1)
    state.ids = _gather(ids_PCT, best_PK)
    going_P = _may_improve(state, search, place + 1) & (state.sums[:, 0] > IMPOSSIBLE / 2)
    return _gather(from_PC, best_PK), going_P


def _ends(state: _Beams, ids_PCT: Tensor, place: int, stopping: Stopping) -> Tensor:
    """Which candidates end with their newest token, [P, C]."""
    tokens_PC = ids_PCT[:, :, place]
    ends = torch.tensor(sorted(stopping.ends), dtype=torch.int64, device=tokens_PC.device)
    ends_PC = torch.isin(tokens_PC, ends) | (place + 1 >= state.limits)[:, None]
    if stopping.strings:
        written = ids_PCT[:, :, : place + 1].tolist()
        stops = [
            [stopping.reason(number, ids) is not None for ids in candidates]
            for number, candidates in zip(state.numbers.tolist(), written, strict=True)
        ]
        ends_PC = ends_PC | torch.tensor(stops, device=ends_PC.device)
    return ends_PC


def _finish(
    state: _Beams, search: BeamSettings, place: int, *, sums_PC: Tensor, ids_PCT: Tensor, ends_PC: Tensor
) -> None:
    """Add candidates that end, if among the first `beams`, to the finished continuations."""
    length = place + 1
    new_PC = (
        ends_PC & (torch.arange(sums_PC.shape[1], device=sums_PC.device) < search.beams) & (sums_PC > IMPOSSIBLE / 2)
    )
    scores_PC = (sums_PC / length**search.length_penalty).masked_fill(~new_PC, 2 * IMPOSSIBLE)
    scores = torch.cat([state.ended_scores, scores_PC], dim=1)
    best_PK = scores.topk(search.beams, dim=-1).indices
    state.ended_scores = _gather(scores, best_PK)
    state.ended_sums = _gather(torch.cat([state.ended_sums, sums_PC], dim=1), best_PK)
    state.ended_ids = _gather(torch.cat([state.ended_ids, ids_PCT], dim=1), best_PK)
    lengths_PC = torch.full_like(ends_PC, length, dtype=torch.int64)
    state.ended_lengths = _gather(torch.cat([state.ended_lengths, lengths_PC], dim=1), best_PK)


def _may_improve(state: _Beams, search: BeamSettings, length: int) -> Tensor:
    """Whether a prompt's best unfinished continuation may still enter its finished ones, [P]."""
    open_P: Tensor = (state.ended_lengths == 0).any(-1)
    if search.early_stopping:
        return open_P
    best_P = state.sums[:, 0] / length**search.length_penalty
    return torch.logical_or(open_P, best_P > state.ended_scores.min(-1).values)


def _finished(state: _Beams, prompt: int, stopping: Stopping) -> list[DecodedSequence]:
    """Best first."""
    continuations = []
    number = int(state.numbers[prompt])
    lengths, sums = state.ended_lengths[prompt].tolist(), state.ended_sums[prompt].tolist()
    for ids, length, total in zip(state.ended_ids[prompt].tolist(), lengths, sums, strict=True):
        if length:
            got = ids[:length]
            continuations.append(DecodedSequence(tuple(got), total, stopping.reason(number, got) or "length"))
    return continuations


def _gather(tensor: Tensor, index_PK: Tensor) -> Tensor:
    """Rows of the second dimension, chosen for each prompt."""
    index = index_PK if tensor.dim() == 2 else index_PK[:, :, None].expand(-1, -1, tensor.shape[2])
    return tensor.gather(1, index)
