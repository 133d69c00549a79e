"""Token after token: each sequence gets its next one until it ends; those that have ended leave the batch.

    sequences = unroll(under_way, choose=greedy, most=np.array([20, 20]), stopping=Stopping(ends=frozenset({3})))

B sequences at first, R of them still under way, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.models.generation.continuing import Continuing
from larvatus.models.generation.sampling import Choice
from larvatus.models.generation.stopping import Reason, Stopping


@dataclass(frozen=True)
class Unrolled:
    """The tokens that a sequence got, the end token included."""

    ids: tuple[int, ...]
    log_probability: float
    """By the model itself, whatever the temperature: of all these tokens, given the prompt."""
    reason: Reason


def unroll(
    under_way: Continuing, *, choose: Choice, most: Ints, stopping: Stopping, prompts: Ints | None = None
) -> list[Unrolled]:
    """Go on with every sequence; `most` [B] tokens at most. Sequence b is of prompt `prompts[b]`: b where not said."""
    of_prompt = np.arange(len(most)) if prompts is None else prompts
    ids: list[list[int]] = [[] for _ in most]
    sums = [0.0] * len(most)
    reasons: list[Reason] = ["length"] * len(most)
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
    return [Unrolled(tuple(got), total, reason) for got, total, reason in zip(ids, sums, reasons, strict=True)]


def _keep(under_way: Continuing, staying: Ints, next_R: Tensor | None = None) -> Tensor:
    """Let the others go; gives back the next tokens of those that stay."""
    rows = torch.from_numpy(staying)
    if len(staying):
        under_way.take(rows)
    return rows if next_R is None else next_R[rows.to(next_R.device)]
