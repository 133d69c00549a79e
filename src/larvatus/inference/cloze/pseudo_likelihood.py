"""Pseudo-log-likelihood of texts under a masked language model (Salazar et al. 2020, *Masked language model scoring*;
Kauf & Ivanova 2023, *A better way to do masked language model scoring*).

    PLL(x) = Σ_t log p(x_t | x with token t masked)
    word-l2r: … with token t and the rest of its word masked; otherwise the end of a word gives it away

    for score in score_texts(network, tokenizer, ["The souvenir was broken."], method="word-l2r"):
        score.total, score.perplexity, [(word.text, word.score) for word in score.words]

Words are those of the aligner. All masked copies of all texts go through the encoder in flat batches of nearly equal
length under a budget of tokens; only masked positions reach the head, and equal copies are read once
(`masked_copies.py`). A left-to-right model scores texts by their exact likelihood instead (`likelihood.py`).

    for block in BulkScoring(model, "original", executor)(blocks):    # many texts, here or on a Ray cluster
        block.scores, block.faults
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.batch import edges, runs
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.skipped import compute_good_rows, skips_bad_rows
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze import likelihood
from larvatus.inference.cloze.likelihood import find_reader
from larvatus.inference.cloze.masked_copies import CopyBatch, Method, masked_copies
from larvatus.inference.cloze.scores import Score
from larvatus.models.loaded import LoadedModel
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries, require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import forward_budget, on_device

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
    exact = partial(likelihood.token_scores, reader, tokenizer, budget=tokens)
    return _Reading("left-to-right", reader.encoder.reach - len(likelihood.before_texts(tokenizer)), exact)


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
