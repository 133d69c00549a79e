"""The exact likelihood of a text under a left-to-right model, by the chain rule (Radford et al. 2018, eq. 1).

    log p(x) = Σ_t log p(x_t | x_1 … x_{t−1})

The first token follows the end-of-document token, as in running text; in a vocabulary without one (GPT's own) it is
given, with a score of 0. A text longer than the model's context is read in windows, each of which begins half a context
before the tokens that it scores.

    token_scores(CausalReader(encoder, head), tokenizer, alignments)      # [T] of each text, in nats

M predictions, V vocabulary, T tokens of a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.masked_prediction import log_sum_exp_
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder import Encoder
from larvatus.models.objectives import CausalLM

_LOGITS = 1 << 22
"""Logits that are held at once."""
ENDS = ("eos_token", "bos_token")
"""Fields of tokenizer_config.json with the token that ends, and so precedes, a document."""


@dataclass(frozen=True, eq=False)
class CausalReader:
    """An encoder with its causal-lm head, which predict next tokens."""

    encoder: Encoder
    head: CausalLM

    @property
    def device(self) -> torch.device:
        return self.encoder.device

    def log_probabilities(self, batch: TokenBatch[Tensor], places_M: Tensor, ids_M: Tensor) -> Tensor:
        """log p of each token, given the tokens up to its place: [M]."""
        words_VD = self.encoder.word_vectors
        z_MD = self.encoder(batch).index_select(0, places_M)
        rows = max(1, _LOGITS // len(words_VD))
        norms_M = torch.cat([log_sum_exp_(F.linear(z_CD, words_VD).float()) for z_CD in z_MD.split(rows)])
        scores_M: Tensor = (z_MD * words_VD[ids_M]).sum(-1).float()
        return scores_M - norms_M


def find_reader(network: Network) -> CausalReader | None:
    """The reader of a left-to-right model; None for other models."""
    heads = [head for head in network.heads.values() if isinstance(head, CausalLM)]
    return CausalReader(network.encoder, heads[0]) if heads else None


def before_texts(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Tokens before a text: those of its template, or the one that ends documents; empty if there is neither."""
    template = tokenizer.template.single
    if template.gaps[0] or template.gaps[-1]:
        return template.gaps[0] or template.gaps[-1][-1:]
    for role in ENDS:
        name = tokenizer.config.get(role)
        index = tokenizer.id(name.get("content", "") if isinstance(name, dict) else str(name or ""))
        if index is not None:
            return (index,)
    return ()


@torch.inference_mode()
def token_scores(
    reader: CausalReader, tokenizer: Tokenizer, texts: Sequence[Alignment], *, budget: int
) -> list[Doubles]:
    """log p of each token of each text, [T]; `budget` is the number of tokens of a batch."""
    before = np.array(before_texts(tokenizer), np.int64)
    answers = [np.zeros(len(text), np.float64) for text in texts]
    windows = [
        (number, window)
        for number, text in enumerate(texts)
        for window in _windows(np.concatenate([before, text.ids]), reader.encoder.reach, given=max(1, len(before)))
    ]
    windows.sort(key=lambda numbered: len(numbered[1].ids))
    for first, last in runs(np.array([len(window.ids) for _, window in windows], np.int64), budget):
        part = windows[first:last]
        starts = edges(np.array([len(window.ids) for _, window in part]))
        places = [starts[n] + np.arange(w.scored - 1, len(w.ids) - 1) for n, (_, w) in enumerate(part)]
        wanted = np.concatenate([window.ids[window.scored :] for _, window in part])
        batch = on_device(TokenBatch.of([window.ids.tolist() for _, window in part]), reader.device)
        queries = [torch.from_numpy(array).to(reader.device) for array in (np.concatenate(places), wanted)]
        scores = reader.log_probabilities(batch, *queries).double().cpu().numpy()
        borders = np.cumsum([len(window.ids) - window.scored for _, window in part])[:-1]
        for (number, window), of_window in zip(part, np.split(scores, borders), strict=True):
            at = window.start + window.scored - len(before)
            answers[number][at : at + len(of_window)] = of_window
    return answers


@dataclass(frozen=True, eq=False)
class _Window:
    start: int  # in the text, including the tokens before it
    ids: Ints
    scored: int  # the first token of the window that it scores


def _windows(ids: Ints, reach: int, *, given: int) -> Iterator[_Window]:
    """Windows over the text: each scores the tokens that the previous one has not read; the first ones are `given`."""
    step = max(1, reach // 2)
    done = given
    for start in chain([0], range(step, max(step, len(ids) - reach + step), step)):
        end = min(len(ids), start + reach)
        if end > done:
            yield _Window(start, ids[start:end], done - start)
        done = max(done, end)
