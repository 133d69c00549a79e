"""One yardstick for models with different vocabularies: the same words hidden in the same held-out text.

    yardstick = Yardstick.of(documents)                           # passages.py: what is hidden
    measure(network, tokenizer, yardstick, room=510)          # loss a word, bits a character, words right

Masked losses per token do not compare where vocabularies or mask rates differ: a small vocabulary has easier tokens,
and more of them. Here passages, words and what is hidden are chosen by characters alone, before any vocabulary is
looked at. Every token that touches a hidden word becomes the mask token, one for each; nothing else does.

A mask for each token tells how many tokens the word has, and that is worth more in a vocabulary of small pieces. So
it is paid for: the loss of a word w with n tokens is the length of a code from which w could be read back,

    loss(w) = −log P(n) − Σ_{i ≤ n} log p(x_i | passage, all hidden words masked)

P(n) being the share of n-token words among the words left visible (with a grain of 2^−(n+1) for lengths never seen).
A character that the vocabulary cannot spell (`[UNK]`) is charged as one of Unicode's 1,114,112, and is never right.
A token of two hidden words is paid for by the first. A vocabulary that folds case has fewer words to tell apart: that
is left as it is, and noted beside the table.

M hidden tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.batch import edges
from larvatus.core.settings import Settings
from larvatus.data.text.align import Alignment
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.compare.passages import Passage, Yardstick
from larvatus.inference.cloze.blanks import window
from larvatus.models.masked_prediction import Predictor, find_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device

ROWS_AT_ONCE = 32  # bounds the M × V matrix of log-probabilities
UNICODE = math.log(0x110000)


class YardstickScore(Settings):
    """One model on the yardstick."""

    loss: float
    """Nats a hidden word."""
    error: float
    """Standard error of that mean, over passages."""
    bits: float
    """Bits a character of the hidden words."""
    accuracy: float
    """Share of hidden words of which every token was the model's first choice."""
    words: int
    """Hidden words."""
    pieces: float
    """Tokens a hidden word, in this vocabulary."""
    windowed: int
    """Passages that the model had to read in windows, with less context than others may have had."""
    languages: dict[str, YardstickScore] = {}
    """The same language by language, where there are several; what a number of tokens costs is that of all together."""


@dataclass(frozen=True, eq=False)
class Hidden:
    """A passage in one vocabulary: which tokens stand for its hidden words."""

    alignment: Alignment
    words: tuple[range, ...]
    """Tokens of each hidden word."""
    visible: tuple[int, ...]
    """How many tokens each visible word has."""

    @property
    def places(self) -> list[int]:
        return sorted({place for tokens in self.words for place in tokens})


def in_tokens(passage: Passage, alignment: Alignment) -> Hidden:
    tokens = [alignment.marked_tokens_of_chars(*span) for span in passage.words]
    chosen = set(passage.hidden)
    return Hidden(
        alignment=alignment,
        words=tuple(tokens[number] for number in passage.hidden),
        visible=tuple(len(places) for number, places in enumerate(tokens) if number not in chosen),
    )


@torch.inference_mode()
def measure(network: Network, tokenizer: Tokenizer, yardstick: Yardstick, *, room: int) -> YardstickScore | None:
    """Hold a model to the yardstick; `room` is how many tokens it reads at once, special ones not counted.

    None where the model has nothing to predict words with, or there are none.
    """
    predictor = find_predictor(network, tokenizer)
    if predictor is None or not yardstick.hidden:
        return None
    was_training = network.training
    network.eval()
    try:
        alignments = tokenizer.encode_many([passage.text for passage in yardstick.passages])
        hidden = [in_tokens(p, alignment) for p, alignment in zip(yardstick.passages, alignments, strict=True)]
        price = lengths_price([count for passage in hidden for count in passage.visible])
        reader = _Reader(predictor, tokenizer, room)
        losses, right = [], []
        for k in range(0, len(hidden), ROWS_AT_ONCE):
            part = hidden[k : k + ROWS_AT_ONCE]
            for passage, predictions in zip(part, reader.read(part), strict=True):
                loss, correct = score_words(passage, predictions, price)
                losses.append(loss)
                right.append(correct)
    finally:
        network.train(was_training)
    measured = _Measured(yardstick.passages, hidden, np.array(losses), right)
    languages = yardstick.languages if len(yardstick.languages) > 1 else []
    parts = {language: measured.of(language) for language in languages}
    by_language = {language: part.score(room) for language, part in parts.items() if part.yardstick.hidden}
    return msgspec.structs.replace(measured.score(room), languages=by_language)


@dataclass(frozen=True, eq=False)
class _Measured:
    """Passages, and what each was worth."""

    passages: Sequence[Passage]
    hidden: Sequence[Hidden]
    losses: Doubles
    right: Sequence[int]
    """Words of each that are right."""

    @property
    def yardstick(self) -> Yardstick:
        return Yardstick(tuple(self.passages))

    def of(self, language: str) -> _Measured:
        """Those of one language."""
        mine = [number for number, passage in enumerate(self.passages) if passage.language == language]
        return _Measured(
            [self.passages[number] for number in mine],
            [self.hidden[number] for number in mine],
            self.losses[mine],
            [self.right[number] for number in mine],
        )

    def score(self, room: int) -> YardstickScore:
        return _score(self.yardstick, self.hidden, self.losses, sum(self.right), room)


def _score(yardstick: Yardstick, hidden: Sequence[Hidden], losses: Doubles, right: int, room: int) -> YardstickScore:
    words = yardstick.hidden
    counts = np.array([len(passage.words) for passage in hidden])
    mean = float(losses.sum()) / words
    residuals = losses - mean * counts  # words of a passage are not independent: passages are
    size = len(losses)
    return YardstickScore(
        loss=mean,
        error=math.sqrt(float((residuals**2).sum()) * size / max(size - 1, 1)) / words,
        bits=float(losses.sum()) / math.log(2) / yardstick.characters,
        accuracy=right / words,
        words=words,
        pieces=sum(len(passage.places) for passage in hidden) / words,
        windowed=sum(len(passage.alignment) > room for passage in hidden),
    )


def lengths_price(seen: Sequence[int]) -> Callable[[int], float]:
    """−log P(n): what it costs to say that a word has n tokens, from how many the visible words have.

    >>> price = lengths_price([1, 1, 1, 2])
    >>> round(math.exp(-price(1)), 4)                  # (3 + 1/4) / (4 + 1)
    0.65
    """
    counts, total = Counter(seen), len(seen)
    return lambda n: -math.log((counts[n] + 0.5 ** (n + 1)) / (total + 1))


Predictions = dict[int, tuple[float, bool]]
"""Of each hidden token of a passage: its loss, and whether it was the model's first choice."""


def score_words(passage: Hidden, predictions: Predictions, price: Callable[[int], float]) -> tuple[float, int]:
    """The loss of a passage's hidden words, and how many of them are right in every token."""
    loss, right, paid = 0.0, 0, set[int]()
    for tokens in passage.words:
        unpaid = [place for place in tokens if place not in paid]
        paid.update(unpaid)
        loss += price(len(unpaid)) + math.fsum(predictions[place][0] for place in unpaid)
        right += len(tokens) > 0 and all(predictions[place][1] for place in tokens)
    return loss, right


@dataclass(frozen=True, eq=False)
class _Reader:
    predictor: Predictor
    tokenizer: Tokenizer
    room: int

    def read(self, passages: Sequence[Hidden]) -> list[Predictions]:
        """Loss and first choice at every hidden token; a passage too long for the model is read in windows."""
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

    def _charged(self, passage: Hidden, place: int, id: int, *, loss: float, right: bool) -> tuple[float, bool]:
        if id != self.tokenizer.id(self.tokenizer.special.unk):
            return loss, right
        start, end = passage.alignment.chars_of_token(place)
        return loss + (end - start) * UNICODE, False


def _groups(places: Sequence[int], total: int, room: int) -> Iterator[list[int]]:
    """Hidden tokens to be read together: all where the passage fits, else those within half of what fits."""
    group: list[int] = []
    for place in places:
        if group and total > room and place - group[0] >= max(1, room // 2):
            yield group
            group = []
        group.append(place)
    if group:
        yield group
