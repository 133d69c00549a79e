"""Likelihood of masked spans, token after token, and whether the model restores them exactly.

    log p(x_1 … x_n | the rest) = Σ_i log p(x_i | the rest, x_1 … x_{i−1}, masks at i … n)

    answers = read_spans(predictor, tokenizer, [HiddenSpan(ids, 4, 6)], choose=True)
    answers.log_probabilities, answers.restored

There is one mask per hidden token, so the model knows their number. A span is restored if the first choice is correct
at every token, given the tokens before it, as when masks are filled from left to right. Masked copies that several
spans share (candidates with the same beginning) are read once.

S spans, C different copies, Q queries, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries
from larvatus.models.nn.device import forward_budget, on_device

_AT_ONCE = 4_096
"""Spans that may share copies."""


@dataclass(frozen=True, eq=False)
class HiddenSpan:
    """Tokens of a text, without special tokens; those from `start` to `end` are hidden."""

    ids: Ints
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class SpanAnswers:
    log_probabilities: Doubles
    """[S] in nats."""
    restored: Bools
    """[S] whether every token is the model's first choice; all False if not requested."""


@dataclass(frozen=True, eq=False)
class _Copies:
    """Distinct masked sequences with special tokens, and the queries about them."""

    rows: list[Ints]
    places: list[int]  # the first mask of each row
    copy_of: Ints  # [Q] row of each question
    wanted: Ints  # [Q]
    span_of: Ints  # [Q]


@torch.inference_mode()
def read_spans(
    predictor: MaskedPredictor, tokenizer: Tokenizer, spans: Sequence[HiddenSpan], *, choose: bool = False
) -> SpanAnswers:
    """Score spans. `choose` also finds the first choices, which needs scores of the whole vocabulary."""
    scores, restored = np.zeros(len(spans)), np.full(len(spans), choose)
    for first in range(0, len(spans), _AT_ONCE):
        copies = _copies(tokenizer, spans[first : first + _AT_ONCE])
        log_Q, right_Q = _asked(predictor, copies, choose=choose)
        np.add.at(scores, first + copies.span_of, log_Q)
        if choose:
            restored[first + copies.span_of[~right_Q]] = False
    return SpanAnswers(scores, restored)


def _copies(tokenizer: Tokenizer, spans: Sequence[HiddenSpan]) -> _Copies:
    template = tokenizer.template.single
    known: dict[bytes, int] = {}
    rows: list[Ints] = []
    places: list[int] = []
    asked: list[tuple[int, int, int]] = []
    for number, span in enumerate(spans):
        for token in range(span.start, span.end):
            ids = span.ids.copy()
            ids[token : span.end] = tokenizer.mask_id
            key = b"%d:" % token + ids.tobytes()
            if key not in known:
                known[key] = len(rows)
                rows.append(np.asarray(template.ids(ids), np.int64))
                places.append(template.opening + token)
            asked.append((known[key], int(span.ids[token]), number))
    questions = np.array(asked, np.int64).reshape(-1, 3)
    return _Copies(rows, places, questions[:, 0], questions[:, 1], questions[:, 2])


def _asked(predictor: MaskedPredictor, copies: _Copies, *, choose: bool) -> tuple[Doubles, Bools]:
    """[Q] log p of each target token, and whether it is the first choice."""
    log_Q, right_Q = np.zeros(len(copies.wanted)), np.zeros(len(copies.wanted), np.bool_)
    order = np.argsort([len(row) for row in copies.rows], kind="stable")
    budget = forward_budget(predictor.device)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    by_rank = np.argsort(rank[copies.copy_of], kind="stable")
    ranks = rank[copies.copy_of][by_rank]
    lengths = np.array([len(copies.rows[row]) for row in order], np.int64)
    for first, last in runs(lengths, budget):
        part = order[first:last]
        mine = by_rank[slice(*np.searchsorted(ranks, [first, last]).tolist())]
        batch = TokenBatch.of([copies.rows[row].tolist() for row in part])
        starts = edges(lengths[first:last])[:-1]
        places = starts + np.array([copies.places[row] for row in part])
        arrays = (places, rank[copies.copy_of[mine]] - first, copies.wanted[mine])
        places_C, rows_Q, wanted_Q = (torch.from_numpy(array).to(predictor.device) for array in arrays)
        tokens = on_device(batch, predictor.device)
        if choose:
            logits_CV = predictor.logits(tokens, places_C).float()
            right_Q[mine] = (logits_CV.argmax(-1)[rows_Q] == wanted_Q).cpu().numpy()
            scores_Q = logits_CV[rows_Q, wanted_Q] - logits_CV.logsumexp(-1)[rows_Q]
        else:
            scores_Q = predictor.log_probabilities(tokens, places_C, TokenQueries(rows_Q, wanted_Q))
        log_Q[mine] = scores_Q.double().cpu().numpy()
    return log_Q, right_Q
