"""Word-level masked NLL: a metric that compares models with different vocabularies on the same masked words.

    passages = MaskedPassages.of(documents)
    passages.passages[0].hidden                                   # 15% of its words, the same for every model
    measure_word_nll(network, tokenizer, passages, room=510)      # nats per word, bits per character, accuracy

Masked losses per token do not compare if vocabularies or mask rates differ: a small vocabulary has easier tokens, and
more of them. Here passages and masked words are chosen by characters only, without any vocabulary. A passage consists
of whole sentences of one document, up to 64 words, so that models with short contexts can read it. Every token that
touches a masked word becomes a mask token; all other tokens stay.

One mask per token reveals how many tokens the word has, which helps a vocabulary of short subwords more. So the number
of tokens is charged too. The loss of a word w with n tokens is the length of a code from which w can be decoded:

    loss(w) = −log P(n) − Σ_{i ≤ n} log p(x_i | passage, all hidden words masked)

P(n) is the share of n-token words among the visible words, smoothed by 2^−(n+1) for lengths that do not occur. A
character outside the vocabulary (`[UNK]`) costs one of Unicode's 1,114,112 code points and is never correct. The first
of two masked words pays for a token they share. A lower-casing vocabulary has fewer words to distinguish: the metric
does not correct for that, but the table has a note.

M hidden tokens, V vocabulary.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.batch import edges
from larvatus.core.rng import derive, stream
from larvatus.core.settings import Settings
from larvatus.data.text.align import Alignment
from larvatus.data.text.readers import Document
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import Mode, segment_words, sentence_spans
from larvatus.inference.cloze.fill import window
from larvatus.models.masked_prediction import MaskedPredictor, find_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device

SEED = 0  # of passages and masked words, independent of training seeds
RATE = 0.15
LONGEST, SHORTEST = 64, 8  # words per passage; fewer give no context
PASSAGES = 1024  # about nine masked words each


@dataclass(frozen=True)
class MaskedPassage:
    """Whole sentences of one document, some of whose words are masked."""

    text: str
    words: tuple[tuple[int, int], ...]
    """Character spans of the words that contain a letter or a digit."""
    hidden: tuple[int, ...]
    """Indices of the masked words in `words`, ascending."""
    language: str = ""


@dataclass(frozen=True)
class MaskedPassages:
    passages: tuple[MaskedPassage, ...]

    @classmethod
    def of(
        cls, documents: Iterable[Document], *, language: str = "en", sentences: Mode = "library", limit: int = PASSAGES
    ) -> MaskedPassages:
        """Sample up to `limit` passages in one pass over the text. The same text gives the same passages."""
        drawn: list[tuple[int, int, str, str]] = []  # a heap: the passages with the smallest random numbers, negated
        for number, (text, spoken) in enumerate(_passages(documents, language, sentences)):
            entry = (-derive(SEED, "yardstick", 0, number), number, text, spoken)
            if len(drawn) < limit:
                heapq.heappush(drawn, entry)
            elif entry > drawn[0]:
                heapq.heapreplace(drawn, entry)
        chosen = sorted((number, text, spoken) for _, number, text, spoken in drawn)
        return cls(tuple(mask_words(text, number, language=spoken) for number, text, spoken in chosen))

    @property
    def languages(self) -> list[str]:
        """Languages of the passages, sorted."""
        return sorted({passage.language for passage in self.passages})

    @property
    def hidden(self) -> int:
        """Total number of masked words."""
        return sum(len(passage.hidden) for passage in self.passages)

    @cached_property
    def characters(self) -> int:
        """Number of characters of the masked words."""
        return sum(len(word) for word in self._hidden_words())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the passages and their masked words."""
        digest = hashlib.sha256()
        for passage in self.passages:
            digest.update(f"{passage.text}\x00{passage.hidden}\x00".encode(errors="surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def guess(self) -> tuple[str, float]:
        """The most frequent visible word, and its accuracy as a constant prediction (case folded)."""
        seen = Counter(
            passage.text[start:end].casefold()
            for passage in self.passages
            for number, (start, end) in enumerate(passage.words)
            if number not in passage.hidden
        )
        if not seen:
            return "", 0.0
        word = min(seen, key=lambda w: (-seen[w], w))
        return word, sum(w.casefold() == word for w in self._hidden_words()) / max(self.hidden, 1)

    def _hidden_words(self) -> Iterator[str]:
        for passage in self.passages:
            for number in passage.hidden:
                start, end = passage.words[number]
                yield passage.text[start:end]


def mask_words(text: str, number: int, *, language: str = "") -> MaskedPassage:
    """Mask 15% of the words of passage `number`, at least one. Punctuation, which is easy, is never masked."""
    spans = [(start, end) for start, end in segment_words(text).tolist() if any(map(str.isalnum, text[start:end]))]
    count = min(len(spans), max(1, round(RATE * len(spans))))
    chosen = stream(SEED, "yardstick/words", 0, number).choice(len(spans), size=count, replace=False) if spans else ()
    return MaskedPassage(text, tuple(spans), tuple(sorted(int(word) for word in chosen)), language)


def _passages(documents: Iterable[Document], language: str, mode: Mode) -> Iterator[tuple[str, str]]:
    """Consecutive sentences of each document up to `LONGEST` words, with the language.

    Longer sentences are split. Remainders of fewer than `SHORTEST` words are dropped.
    """
    for document in documents:
        text, begin, end, count = document.text, 0, 0, 0
        spoken = document.language or language
        for first, last in sentence_spans(text, language=spoken, mode=mode):
            for start, stop, words in _cut(text, first, last):
                if count and count + words > LONGEST:
                    if count >= SHORTEST:
                        yield text[begin:end], spoken
                    count = 0
                begin = begin if count else start
                end, count = stop, count + words
        if count >= SHORTEST:
            yield text[begin:end], spoken


def _cut(text: str, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Segments of a sentence of at most `LONGEST` words: start, end, number of words."""
    spans = segment_words(text[first:last]) + first
    for k in range(0, len(spans), LONGEST):
        part = spans[k : k + LONGEST]
        yield int(part[0, 0]), int(part[-1, 1]), len(part)


# The metric.

ROWS_AT_ONCE = 32  # bounds the M × V matrix of log-probabilities
UNICODE = math.log(0x110000)


class WordNLL(Settings):
    """Word-level masked NLL of one model."""

    loss: float
    """Nats per masked word."""
    error: float
    """Standard error of `loss`, over passages."""
    bits: float
    """Bits per character of the masked words."""
    accuracy: float
    """Share of masked words whose every token is the model's first choice."""
    words: int
    """Number of masked words."""
    pieces: float
    """Mean number of tokens per masked word."""
    windowed: int
    """Number of passages longer than the model's context, which it read in windows."""
    languages: dict[str, WordNLL] = {}
    """Scores by language, if there are several. All languages share the costs of token counts."""


@dataclass(frozen=True, eq=False)
class TokenisedPassage:
    """The tokens of a passage in one vocabulary, and which of them belong to masked words."""

    alignment: Alignment
    words: tuple[range, ...]
    """Token positions of each masked word."""
    visible: tuple[int, ...]
    """Number of tokens of each visible word."""

    @property
    def places(self) -> list[int]:
        return sorted({place for tokens in self.words for place in tokens})


def tokenise_passage(passage: MaskedPassage, alignment: Alignment) -> TokenisedPassage:
    tokens = [alignment.marked_tokens_of_chars(*span) for span in passage.words]
    chosen = set(passage.hidden)
    return TokenisedPassage(
        alignment=alignment,
        words=tuple(tokens[number] for number in passage.hidden),
        visible=tuple(len(places) for number, places in enumerate(tokens) if number not in chosen),
    )


def measure_word_nll(network: Network, tokenizer: Tokenizer, passages: MaskedPassages, *, room: int) -> WordNLL | None:
    """Score a model on masked passages. `room` is its longest input in tokens, without special tokens.

    Returns None if the model has no head that predicts words, or no word is masked.
    """
    read = masked_word_losses(network, tokenizer, passages, room=room)
    if read is None:
        return None
    hidden, losses, right = read
    scored = _ScoredPassages(passages.passages, hidden, np.array(losses), right)
    languages = passages.languages if len(passages.languages) > 1 else []
    by_language = {language: score for language in languages if (score := scored.only(language).score(room))}
    overall = scored.score(room)
    return None if overall is None else msgspec.structs.replace(overall, languages=by_language)


@torch.inference_mode()
def masked_word_losses(
    network: Network, tokenizer: Tokenizer, passages: MaskedPassages, *, room: int
) -> tuple[list[TokenisedPassage], list[float], list[int]] | None:
    """For each passage its tokens, the summed loss of its masked words, and how many of them are right.

    None if the model has no head that predicts words, or no word is masked.
    """
    predictor = find_predictor(network, tokenizer)
    if predictor is None or not passages.hidden:
        return None
    was_training = network.training
    network.eval()
    try:
        alignments = tokenizer.encode_many([passage.text for passage in passages.passages])
        hidden = [tokenise_passage(p, alignment) for p, alignment in zip(passages.passages, alignments, strict=True)]
        cost = length_cost([count for passage in hidden for count in passage.visible])
        reader = _Reader(predictor, tokenizer, room)
        losses, right = [], []
        for k in range(0, len(hidden), ROWS_AT_ONCE):
            part = hidden[k : k + ROWS_AT_ONCE]
            for passage, predictions in zip(part, reader.read(part), strict=True):
                loss, correct = score_words(passage, predictions, cost)
                losses.append(loss)
                right.append(correct)
    finally:
        network.train(was_training)
    return hidden, losses, right


@dataclass(frozen=True, eq=False)
class _ScoredPassages:
    """Passages with their losses and the number of correct words in each."""

    passages: Sequence[MaskedPassage]
    hidden: Sequence[TokenisedPassage]
    losses: Doubles
    right: Sequence[int]

    def only(self, language: str) -> _ScoredPassages:
        """The passages of one language."""
        chosen = [number for number, passage in enumerate(self.passages) if passage.language == language]
        return _ScoredPassages(
            [self.passages[number] for number in chosen],
            [self.hidden[number] for number in chosen],
            self.losses[chosen],
            [self.right[number] for number in chosen],
        )

    def score(self, room: int) -> WordNLL | None:
        """Means over all masked words; None if there are none."""
        passages = MaskedPassages(tuple(self.passages))
        return _score(passages, self.hidden, self.losses, sum(self.right), room) if passages.hidden else None


def _score(
    passages: MaskedPassages, hidden: Sequence[TokenisedPassage], losses: Doubles, right: int, room: int
) -> WordNLL:
    words = passages.hidden
    counts = np.array([len(passage.words) for passage in hidden])
    mean = float(losses.sum()) / words
    residuals = losses - mean * counts  # words of a passage are not independent: passages are
    size = len(losses)
    return WordNLL(
        loss=mean,
        error=math.sqrt(float((residuals**2).sum()) * size / max(size - 1, 1)) / words,
        bits=float(losses.sum()) / math.log(2) / passages.characters,
        accuracy=right / words,
        words=words,
        pieces=sum(len(passage.places) for passage in hidden) / words,
        windowed=sum(len(passage.alignment) > room for passage in hidden),
    )


def length_cost(seen: Sequence[int]) -> Callable[[int], float]:
    """The cost −log P(n) of a word with n tokens, estimated from the token counts of the visible words.

    >>> cost = length_cost([1, 1, 1, 2])
    >>> round(math.exp(-cost(1)), 4)                  # (3 + 1/4) / (4 + 1)
    0.65
    """
    counts, total = Counter(seen), len(seen)
    return lambda n: -math.log((counts[n] + 0.5 ** (n + 1)) / (total + 1))


Predictions = dict[int, tuple[float, bool]]
"""For each masked token of a passage: its loss, and whether it was the model's first choice."""


def score_words(passage: TokenisedPassage, predictions: Predictions, cost: Callable[[int], float]) -> tuple[float, int]:
    """The summed loss of a passage's masked words, and the number of words with every token correct."""
    loss, right, paid = 0.0, 0, set[int]()
    for tokens in passage.words:
        unpaid = [place for place in tokens if place not in paid]
        paid.update(unpaid)
        loss += cost(len(unpaid)) + math.fsum(predictions[place][0] for place in unpaid)
        right += len(tokens) > 0 and all(predictions[place][1] for place in tokens)
    return loss, right


@dataclass(frozen=True, eq=False)
class _Reader:
    predictor: MaskedPredictor
    tokenizer: Tokenizer
    room: int

    def read(self, passages: Sequence[TokenisedPassage]) -> list[Predictions]:
        """Losses and first choices at masked tokens. Passages longer than the context are read in windows."""
        rows: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        asked: list[tuple[int, int, list[int]]] = []  # passage, first token of the window, hidden tokens to predict
        for number, passage in enumerate(passages):
            ids = passage.alignment.ids.copy()
            ids[passage.places] = self.tokenizer.mask_id
            for group in _groups(passage.places, len(ids), self.room):
                start, end = window(len(ids), group, self.room)
                rows.append((ids[start:end], passage.alignment.words[start:end]))
                asked.append((number, start, group))
        results: list[Predictions] = [{} for _ in passages]
        if not rows:
            return results
        template = self.tokenizer.template.single
        starts = edges(np.array([len(ids) for ids, _ in rows]) + template.special_count).tolist()
        flat = [
            starts[row] + template.opening + p - start for row, (_, start, group) in enumerate(asked) for p in group
        ]
        device = self.predictor.device
        batch = on_device(wrap_batch(self.tokenizer, [[row] for row in rows]), device)
        log_MV = torch.log_softmax(self.predictor.logits(batch, torch.tensor(flat, device=device)).float(), dim=-1)
        names = [(number, place) for number, _, group in asked for place in group]
        ids_M = [int(passages[number].alignment.ids[place]) for number, place in names]
        losses = (-log_MV[torch.arange(len(ids_M)), torch.tensor(ids_M, device=device)]).tolist()
        firsts = log_MV.argmax(dim=-1).tolist()
        for (number, place), id, loss, first in zip(names, ids_M, losses, firsts, strict=True):
            results[number][place] = self._charged(passages[number], place, id, loss=loss, right=first == id)
        return results

    def _charged(
        self, passage: TokenisedPassage, place: int, id: int, *, loss: float, right: bool
    ) -> tuple[float, bool]:
        if id != self.tokenizer.id(self.tokenizer.special.unk):
            return loss, right
        start, end = passage.alignment.chars_of_token(place)
        return loss + (end - start) * UNICODE, False


def _groups(places: Sequence[int], total: int, room: int) -> Iterator[list[int]]:
    """Masked tokens that are read in one window: all if the passage fits, else those within half a context."""
    group: list[int] = []
    for place in places:
        if group and total > room and place - group[0] >= max(1, room // 2):
            yield group
            group = []
        group.append(place)
    if group:
        yield group
