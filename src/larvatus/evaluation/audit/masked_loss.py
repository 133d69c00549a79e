"""The loss of texts under fixed masks, the likelihood of masked spans, and texts sampled for both.

    texts = sample_texts(read_documents(["in.jsonl"]), most=1_000, words=100, seed=0)
    text_losses(model, texts, MaskedLossOptions(masks=10)).losses                 # [texts], nats a hidden word
    answers = read_spans(predictor, tokenizer, [HiddenSpan(ids, 4, 6)], choose=True)
    answers.log_probabilities, answers.restored

**Loss of a text**, the counterpart of a left-to-right model's loss (Mireshghallah et al. 2022, *Quantifying privacy
risks of masked language models using membership inference attacks*, §3.1):

    E(x) = mean over masks m, and over the words that m hides, of −log p(word | x with the words of m masked)

The masked words depend only on the seed and on the characters of the text. Models with different vocabularies predict
the same words, so their losses can be subtracted. A left-to-right model needs no masks; its loss per word is used.

**Masked spans** are predicted token after token:

    log p(x_1 … x_n | the rest) = Σ_i log p(x_i | the rest, x_1 … x_{i−1}, masks at i … n)

There is one mask per hidden token, so the model knows their number. A span is restored if the first choice is correct
at every token, given the tokens before it, as when masks are filled from left to right. Masked copies that several
spans share (candidates with the same beginning) are read once.

**Samples** take one pass over text of any length; the seed determines them.

S spans, C different copies, Q queries, V vocabulary.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.batch import TokenBatch, edges, runs
from larvatus.core.ranges import ShareBetween, whole
from larvatus.core.rng import random_bits
from larvatus.core.settings import SeededSettings
from larvatus.data.text.align import Alignment
from larvatus.data.text.documents import Document
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words
from larvatus.inference.cloze.likelihood import find_reader, score_texts
from larvatus.inference.model import Model
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries, require_predictor
from larvatus.models.nn.device import forward_budget, on_device

SHORTEST = 8
"""Fewest words of a text; fewer give no context."""
_AT_ONCE = 64
"""Texts per block."""
Words = Annotated[int, whole(SHORTEST, 100_000)]
Masks = Annotated[int, whole(1, 10_000)]


class MaskedLossOptions(SeededSettings):
    """Options of masked losses."""

    masks: Masks = 10
    """Masked copies of each text, each with other words masked."""
    hidden: ShareBetween = 0.15
    """Share of masked words in a copy."""
    words: Words = 100
    """Number of words that are read from the beginning of a text."""


@dataclass(frozen=True, eq=False)
class MaskedLosses:
    losses: Doubles
    """[texts] nats per masked word; per word for a left-to-right model."""
    asked: Ints
    """[texts] number of masked words over all masks."""
    cut: int
    """Number of texts that are longer than the model's context."""

    @property
    def mean(self) -> float:
        """Mean over all masked words of all texts."""
        return float((self.losses * self.asked).sum() / max(1, int(self.asked.sum())))


def first_words(text: str, words: int) -> str | None:
    """The first words of a text; None if it has too few.

    >>> first_words("one two three four five six seven eight nine", 8)
    'one two three four five six seven eight'
    """
    spans = segment_words(text[: 40 * words])
    if len(spans) < SHORTEST:
        return None
    return text[int(spans[0, 0]) : int(spans[min(words, len(spans)) - 1, 1])]


def hidden_words(text: str, options: MaskedLossOptions) -> list[Ints]:
    """The indices of the masked words for each mask, at least one each."""
    count = len(segment_words(text))
    hidden = max(1, round(options.hidden * count))
    item = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    items, draws = np.full(count, item, np.int64), np.arange(count, dtype=np.int64)
    orders = (
        np.argsort(random_bits(options.seed, "audit masks", mask, items=items, draws=draws)[0], kind="stable")
        for mask in range(options.masks)
    )
    return [np.sort(order[:hidden]) for order in orders]


def text_losses(
    model: Model,
    texts: Sequence[str],
    options: MaskedLossOptions = MaskedLossOptions(),
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> MaskedLosses:
    """Losses of texts that `first_words` has cut. `progress` is called with the number of finished texts."""
    name = str(model.bundle.path)
    if find_reader(model.network) is not None:
        return _left_to_right(model, texts, name, progress)
    predictor = require_predictor(model.network, model.tokenizer, what="take the loss of texts", name=name)
    room, losses, asked, cut = predictor.longest_text(model.tokenizer), [], [], 0
    for first in range(0, len(texts), _AT_ONCE):
        block = list(texts[first : first + _AT_ONCE])
        copies = [
            copy
            for number, (text, alignment) in enumerate(zip(block, model.tokenizer.encode_many(block), strict=True))
            for copy in _masked(number, text, alignment, model, options, room)
        ]
        cut += len({copy.text for copy in copies if copy.cut})
        sums, counts = np.zeros(len(block)), np.zeros(len(block), np.int64)
        for copy, loss in zip(copies, _losses(predictor, copies), strict=True):
            sums[copy.text] += loss
            counts[copy.text] += copy.words
        losses.append(sums / np.maximum(counts, 1))
        asked.append(counts)
        progress(first + len(block))
    return MaskedLosses(np.concatenate(losses), np.concatenate(asked), cut)


def _left_to_right(model: Model, texts: Sequence[str], name: str, progress: Callable[[int], None]) -> MaskedLosses:
    losses, words = [], []
    for score in score_texts(model.network, model.tokenizer, texts, name=name):
        losses.append(-score.per_word)
        words.append(len(score.word_spans))
        progress(len(losses))
    return MaskedLosses(np.array(losses), np.array(words, np.int64), 0)


@dataclass(frozen=True, eq=False)
class _Copy:
    """A text under one mask."""

    text: int
    ids: Ints  # with special tokens
    places: Ints  # [M] of the masks
    wanted: Ints  # [M]
    words: int
    cut: bool


def _masked(
    number: int, text: str, alignment: Alignment, model: Model, options: MaskedLossOptions, room: int
) -> Iterator[_Copy]:
    tokenizer, template = model.tokenizer, model.tokenizer.template.single
    spans = [alignment.marked_tokens_of_chars(*span) for span in alignment.word_spans.tolist()]
    for words in hidden_words(text, options):
        read = [spans[word] for word in words.tolist() if spans[word] and spans[word].stop <= room]
        places = np.unique(np.concatenate([np.empty(0, np.int64), *(np.arange(s.start, s.stop) for s in read)]))
        ids = alignment.ids[:room].copy()
        wanted = ids[places]
        ids[places] = tokenizer.mask_id
        framed = np.asarray(template.ids(ids), np.int64)
        yield _Copy(number, framed, places + template.opening, wanted, len(read), len(alignment) > room)


@torch.inference_mode()
def _losses(predictor: MaskedPredictor, copies: Sequence[_Copy]) -> Doubles:
    """[copies] −log p of all masked tokens of each copy, in flat batches of similar lengths."""
    losses = np.zeros(len(copies))
    order = np.argsort([len(copy.ids) for copy in copies], kind="stable")
    lengths = np.array([len(copies[number].ids) for number in order], np.int64)
    for first, last in runs(lengths, forward_budget(predictor.device)):
        part = [copies[number] for number in order[first:last]]
        starts = edges(lengths[first:last])[:-1]
        places = np.concatenate([start + copy.places for start, copy in zip(starts, part, strict=True)])
        wanted = np.concatenate([copy.wanted for copy in part])
        owner = np.repeat(order[first:last], [len(copy.wanted) for copy in part])
        tokens = on_device(TokenBatch.of([copy.ids.tolist() for copy in part]), predictor.device)
        places_M, wanted_M = (torch.from_numpy(array).to(predictor.device) for array in (places, wanted))
        log_M = predictor.log_probabilities_at(tokens, places_M, wanted_M)
        np.add.at(losses, owner, -log_M.double().cpu().numpy())
    return losses


# Masked spans.

_SPANS_AT_ONCE = 4_096
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
    for first in range(0, len(spans), _SPANS_AT_ONCE):
        copies = _copies(tokenizer, spans[first : first + _SPANS_AT_ONCE])
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


# Sampled texts.


@dataclass(frozen=True)
class SampledTexts:
    texts: tuple[str, ...]
    """First words of each sampled document, in the order of the source, without duplicates."""
    documents: int
    """Number of documents that are long enough."""
    short: int
    """Number of documents with too few words."""
    order: tuple[int, ...] = ()
    """Rank of each text in the random order of sampling."""

    def split(self, draws: int) -> Ints:
        """[texts] the sample that each text belongs to: disjoint random samples of nearly equal size."""
        ranks = np.array(self.order, np.int64)
        return ranks * draws // max(1, len(ranks))


def sample_texts(documents: Iterable[Document], *, most: int, words: int, seed: int) -> SampledTexts:
    """Sample up to `most` documents; the sample depends on the seed and on the number of each document."""
    heap: list[tuple[int, int, str]] = []
    numbers = np.empty(1, np.int64)
    count = short = 0
    seen: set[int] = set()
    for number, document in enumerate(documents):
        text = first_words(document.text, words)
        if text is None:
            short += 1
            continue
        if hash(text) in seen:
            continue
        seen.add(hash(text))
        count += 1
        numbers[0] = number
        key = int(random_bits(seed, "audit documents", items=numbers, draws=np.zeros(1, np.int64))[0, 0])
        entry = (-key, -number, text)
        if len(heap) < most:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)
    kept = sorted(heap, key=lambda entry: -entry[1])
    rank = {entry[1]: number for number, entry in enumerate(sorted(heap, reverse=True))}
    return SampledTexts(tuple(text for _, _, text in kept), count, short, tuple(rank[entry[1]] for entry in kept))
