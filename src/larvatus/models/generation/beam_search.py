"""Beam search: for each prompt the `beams` best unfinished continuations are kept, and the best finished ones.

    score = Σ_t log p(x_t | x_<t) / length^penalty        of a finished continuation, including its end token

The steps are those of `transformers`, so that both find the same tokens: for each prompt the 2 × beams best next steps
are considered; those that end, if among the first `beams`, join the finished ones if they are good enough; the best of
the others continue. A prompt is done when its best unfinished continuation, scored at its present length, does not beat
the worst of `beams` finished ones (early stopping: when there are that many), or none can continue. Prompts are
independent, and leave the batch when they are done. P prompts, K beams, C candidates, T tokens, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.models.generation.decoding import DecodedSequence, Stopping
from larvatus.models.generation.generator import GenerationState

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
