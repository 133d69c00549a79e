"""Likelihood of texts: exact under a left-to-right model, pseudo under a masked one.

    for score in score_texts(network, tokenizer, ["The souvenir was broken."], method="word-l2r"):
        score.total, score.perplexity, [(word.text, word.score) for word in score.words]

**Left-to-right** models give the likelihood by the chain rule (Radford et al. 2018, eq. 1):

    log p(x) = Σ_t log p(x_t | x_1 … x_{t−1})

The first token follows the end-of-document token, as in running text; in a vocabulary without one (GPT's own) it is
given, with a score of 0. A text longer than the model's context is read in windows, each of which begins half a context
before the tokens that it scores.

**Masked** models give the pseudo-log-likelihood (Salazar et al. 2020, *Masked language model scoring*; Kauf & Ivanova
2023, *A better way to do masked language model scoring*):

    PLL(x) = Σ_t log p(x_t | x with token t masked)
    word-l2r: … with token t and the rest of its word masked; otherwise the end of a word gives it away

Words are those of the aligner. All masked copies of all texts go through the encoder in flat batches of nearly equal
length under a budget of tokens; only masked positions reach the head, and equal copies are read once
(`masked_copies.py`).

M predictions, V vocabulary, T tokens of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.parts import compute_good_rows, skips_bad_rows
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.masked_copies import CopyBatch, Method, masked_copies
from larvatus.inference.cloze.results import Score
from larvatus.models.loaded import LoadedModel
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries, log_sum_exp_, require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import forward_budget, on_device
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
def causal_token_scores(
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


# Pseudo-likelihood, and scores of texts.

CHARACTERS_AT_ONCE = 1 << 18
"""Characters of the texts whose copies are sorted and compared with each other."""


def score_texts(
    network: Network,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    method: Method = "original",
    budget: int | None = None,
    labels: Sequence[str] | None = None,
    name: str = "the model",
) -> Iterator[Score]:
    """Scores of texts, in order, computed lazily. The model must be in evaluation mode.

    `budget` is the number of tokens of a batch; scores do not depend on it. Messages name texts by their `labels`
    (such as a file and line) and the model by its `name`.
    """
    if method not in get_args(Method):
        raise UsageError(f"{method!r} is not a method{did_you_mean(str(method), get_args(Method))}")
    if budget is not None and budget < 1:
        raise UsageError(f"a batch must have at least one token, not {budget}")
    if isinstance(texts, str):
        raise UsageError("expected a list of texts, not one text; write [text]")
    labels = labels or [f"text {number} of {len(texts)}" for number in range(1, len(texts) + 1)]
    _check(texts, labels)
    return _scores(_reading(network, tokenizer, method, budget, name), tokenizer, texts, labels)


@dataclass(frozen=True)
class _Reading:
    """How a model scores texts."""

    method: Method | Literal["left-to-right"]
    longest: int
    """Tokens of its window."""
    scores: Callable[[Sequence[Alignment]], list[Doubles]]


def _reading(network: Network, tokenizer: Tokenizer, method: Method, budget: int | None, name: str) -> _Reading:
    """Masked copies, or the exact likelihood of a left-to-right model."""
    reader = find_reader(network)
    if reader is None:
        predictor = require_predictor(network, tokenizer, what="score texts", name=name)
        scores = partial(token_scores, predictor, tokenizer, method=method, budget=budget)
        return _Reading(method, predictor.longest_text(tokenizer), scores)
    if method != "original":
        raise UsageError(
            f"{method} is for masked language models, and {name} reads left to right; leave the method out"
        )
    tokens = budget or forward_budget(reader.device)
    exact = partial(causal_token_scores, reader, tokenizer, budget=tokens)
    return _Reading("left-to-right", reader.encoder.reach - len(before_texts(tokenizer)), exact)


def _check(texts: Sequence[str], labels: Sequence[str]) -> None:
    """Refuse inputs that are not strings, and empty texts."""
    for label, text in zip(labels, texts, strict=True):
        if not isinstance(text, str):
            raise DataError(f"{label} is {type(text).__name__}, not a string")
        if not text or text.isspace():
            raise DataError(f"{label} is empty: there is nothing to score; leave it out")
        refuse_surrogates(text, label)


def _scores(reading: _Reading, tokenizer: Tokenizer, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Score]:
    unknown = tokenizer.id(tokenizer.special.unk)
    for first, last in runs(np.array([len(text) for text in texts], dtype=np.int64), CHARACTERS_AT_ONCE):
        alignments = tokenizer.encode_many(texts[first:last])
        for label, alignment in zip(labels[first:last], alignments, strict=True):
            if not len(alignment):
                raise DataError(f"{label} has no tokens: the vocabulary deletes all its characters; leave it out")
        for alignment, log_probabilities in zip(alignments, reading.scores(alignments), strict=True):
            yield Score(
                text=alignment.text,
                method=reading.method,
                pieces=tuple(tokenizer.tokens[id] for id in alignment.ids.tolist()),
                log_probabilities=log_probabilities,
                spans=alignment.spans,
                words_of_tokens=alignment.words,
                word_spans=alignment.word_spans,
                context=min(len(alignment), reading.longest),
                unknown=0 if unknown is None else int((alignment.ids == unknown).sum()),
            )


@torch.inference_mode()
def token_scores(
    predictor: MaskedPredictor,
    tokenizer: Tokenizer,
    texts: Sequence[Alignment],
    *,
    method: Method = "original",
    budget: int | None = None,
) -> list[Doubles]:
    """log p of each token of each text [T] with it, and with `word-l2r` the rest of its word, masked."""
    counts = np.array([len(text) for text in texts], dtype=np.int64)
    answers = np.empty(int(counts.sum()), dtype=np.float64)
    budget = budget or forward_budget(predictor.device)
    for copies in masked_copies(texts, tokenizer, method=method, longest=predictor.longest_text(tokenizer)):
        for batch in copies.batches(budget):
            answers[batch.questions] = _answers(predictor, batch)
    return np.split(answers, edges(counts)[1:-1]) if len(texts) else []


def _answers(predictor: MaskedPredictor, batch: CopyBatch) -> Doubles:
    device = predictor.device
    tokens = on_device(batch.tokens, device)
    places, copies, wanted = (
        torch.from_numpy(array).to(device) for array in (batch.places, batch.copies, batch.wanted)
    )
    log_probabilities: Doubles = (
        predictor.log_probabilities(tokens, places, TokenQueries(copies, wanted)).double().cpu().numpy()
    )
    return log_probabilities


class LabelledText(NamedTuple):
    """A text with its name in messages: a file and line."""

    label: str
    text: str


@dataclass(frozen=True)
class ScoredBlock:
    scores: list[Score]
    faults: list[str]
    """Messages about texts that were skipped."""


@dataclass(frozen=True)
class _Work:
    model: LoadedModel
    method: Method
    aside: bool


@dataclass(frozen=True)
class BulkScoring:
    """Blocks of texts to blocks of scores, in order."""

    model: LoadedModel
    method: Method
    executor: Executor

    def __call__(self, blocks: Iterable[list[LabelledText]]) -> Iterator[ScoredBlock]:
        state = partial(_Work, self.model, self.method, aside=skips_bad_rows())
        fix = "run the same command again; with --resume it keeps what was written"
        with self.executor.pool(state, score_block, what="a scoring worker", fix=fix) as pool:
            yield from pool.map(blocks)


def score_block(work: _Work, block: list[LabelledText]) -> ScoredBlock:
    """Score a block; runs in a worker."""
    model = work.model

    def scores(rows: list[LabelledText]) -> list[Score]:
        labels, texts = [row.label for row in rows], [row.text for row in rows]
        name = str(model.bundle.path)
        return list(score_texts(model.network, model.tokenizer, texts, method=work.method, labels=labels, name=name))

    if not work.aside:
        return ScoredBlock(scores(block), [])
    _, good, faults = compute_good_rows(scores, block, lambda row: "")  # messages name their text
    return ScoredBlock(list(good), faults)
