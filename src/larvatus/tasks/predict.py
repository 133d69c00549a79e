"""Answers of a fine-tuned model for texts that come in any number and of any length.

    predictor = Predictor(bundle, PredictOptions(merge="max"))
    for found in predictor.predict(open("reviews.txt")):
        print(found.label, found.probability)

Any iterable goes in and answers come out in its order, a block at a time: memory holds a block (some thousand texts, or
a megabyte of characters), never the file. The first block is small, so that the first answers come soon. A text longer
than a window is read in several that overlap; `truncate` reads its first window alone, and every answer says how much
was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from msgspec import Struct

from larvatus.bundle.directory import Bundle
from larvatus.errors import DataError, UsageError
from larvatus.heads import Answering, Spans, Tagging
from larvatus.labelled.records import Place, TaggedExample, TextExample
from larvatus.nn.memory import saying_what_to_lower
from larvatus.ranges import Count, CountOrNone, Size, SizeOrNone, check_ranges
from larvatus.tasks.answers.answer import Decoding, answer_questions
from larvatus.tasks.classify.classify import Merge, classify, texts_of
from larvatus.tasks.read.sequences import text_sequences, word_sequences
from larvatus.tasks.read.words import align_examples
from larvatus.tasks.results import Prediction
from larvatus.tasks.scoring import Scoring, head_of
from larvatus.tasks.spans.sequences import span_sequences
from larvatus.tasks.spans.spans import spans
from larvatus.tasks.tag.tag import tag
from larvatus.text.align import Alignment
from larvatus.text.surrogates import refuse_surrogates

Input = str | tuple[str, str] | Sequence[str]
"""A text; a pair of texts, for a classifier, or a question and its passage; the words of a text, for a tagger."""
Example = TextExample | TaggedExample

TEXTS_AT_ONCE = 4_096
CHARACTERS_AT_ONCE = 1 << 20
"""Of a block, at most; a longer text is a block of its own."""
FIRST_BLOCK = 32
"""Texts of the first block; each that follows may hold twice as many."""


class PredictOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    merge: Merge = "mean"
    """How the windows of a long text decide on its class: by the mean of their scores, or by the highest."""
    truncate: bool = False
    """Read the first window of a long text alone."""
    overlap: SizeOrNone | None = None
    """Tokens that windows share; None: a quarter of a window."""
    length: Size | None = None
    """Tokens of a window, special ones included; None: as many as the model has positions."""
    tokens: CountOrNone = 0
    """Of a batch; 0: as suits the device."""
    top: Count = 1
    """Spans that are given for a question, likeliest first."""

    def __post_init__(self) -> None:
        check_ranges(self, "")
        if self.merge not in ("mean", "max"):
            raise UsageError(f"windows are merged by mean or max, not {self.merge!r}")


class Given(Place):
    """The place of a text that no file holds: ``text 3``."""

    def __str__(self) -> str:
        return f"{self.source} {self.line}"


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A prediction, and the example that it is of."""

    example: Example
    found: Prediction


@dataclass
class Totals:
    """How much of all texts was read. It grows while answers come."""

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    read: int = 0

    def add(self, found: Prediction) -> None:
        own = found.coverage
        self.texts += 1
        self.cut += own.read < own.tokens
        self.tokens += own.tokens
        self.read += own.read

    @property
    def unread(self) -> str:
        """What was not read, in a line: ``3 of 200 texts were cut; 12.3% of tokens not read``; nothing if all was."""
        if not self.cut:
            return ""
        share = 1 - self.read / self.tokens
        texts = "text was" if self.texts == 1 else "texts were"
        return f"{self.cut:,} of {self.texts:,} {texts} cut; {share:.1%} of tokens not read"


@dataclass(eq=False)
class Predictor:
    """A fine-tuned model that answers."""

    bundle: Bundle
    options: PredictOptions = field(default_factory=PredictOptions)
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        self.head = head_of(self.bundle.network, str(self.bundle.path))
        most = self.bundle.model.max_positions
        length = self.options.length
        if length is not None and length > most:
            raise UsageError(f"a window of {length} tokens is more than the model's {most} positions")
        self.window = length or most
        self.scoring = Scoring(device=str(self.device), tokens=self.options.tokens)

    @property
    def tags(self) -> bool:
        """Whether it reads words, to tag them or to find spans of them; otherwise it reads texts or pairs of texts."""
        return isinstance(self.head, Tagging | Spans)

    @property
    def asks(self) -> bool:
        """Whether it reads questions with their passages."""
        return isinstance(self.head, Answering)

    def predict(self, texts: Iterable[Input]) -> Iterator[Prediction]:
        """One answer for each text, in their order."""
        if isinstance(texts, str):
            raise UsageError("a list of texts is wanted, not one text; write [text]")
        examples = (self._example(text, Given("text", number)) for number, text in enumerate(texts, start=1))
        return (answer.found for answer in self.answers(examples))

    def answers(self, examples: Iterable[Example]) -> Iterator[Predicted]:
        """As `predict`, for examples that know where they come from."""
        for block in blocks(examples):
            with saying_what_to_lower("lower --batch-tokens or --length, or take a smaller --model"):
                found = self._answers(block)
            yield from (Predicted(example=example, found=one) for example, one in zip(block, found, strict=True))

    def _example(self, given: Input, place: Place) -> Example:
        if isinstance(given, str):
            return TextExample(given, None, None, place)
        several = isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)
        if self.tags:
            if not several:
                raise DataError(f"{place} is {type(given).__name__}, not a text or a list of words")
            if not all(word.strip() for word in given):
                raise DataError(f"{place}: a word is empty; drop it, or give it a visible character")
            return TaggedExample(tuple(given), None, place)
        if not (several and isinstance(given, tuple) and len(given) == 2):
            raise DataError(f"{place} is {type(given).__name__}, not a text or a pair, a tuple of two texts")
        return TextExample(given[0], given[1], None, place)

    def _answers(self, block: Sequence[Example]) -> Sequence[Prediction]:
        if isinstance(self.head, Spans):
            return self._spans(block, self.head.config.longest)
        if isinstance(self.head, Tagging):
            return self._tag(block)
        return self._answer(block) if isinstance(self.head, Answering) else self._classify(block)

    def _answer(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        pairs = []
        for example in map(_readable, examples):
            if example.pair is None:
                raise DataError(f"{example.place} is one text; the model answers a question from a passage: give both")
            pairs.append((example.text, example.pair))
        options = self.options
        return answer_questions(
            self.bundle,
            pairs,
            scoring=self.scoring,
            decoding=Decoding(top=options.top),
            length=self.window,
            overlap=options.overlap,
            truncate=options.truncate,
        )

    def _spans(self, examples: Sequence[Example], longest: int) -> Sequence[Prediction]:
        found = self.align(examples)
        encoded = span_sequences(
            self.bundle.tokenizer, found, limit=self.window, longest=longest, truncate=self.options.truncate
        )
        return spans(self.bundle.network, found, encoded, scoring=self.scoring)

    def _classify(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        own = [_readable(example) for example in examples]
        texts, options = texts_of(own), self.options
        sequences = text_sequences(
            self.bundle.tokenizer, texts, limit=self.window, truncate=options.truncate, overlap=options.overlap
        )
        nothing = np.flatnonzero(sequences.tokens == 0)
        if len(nothing):
            place = own[nothing[0]].place
            raise DataError(f"{place} has no tokens: the vocabulary deletes all its characters; leave it out")
        return classify(self.bundle.network, texts, sequences, scoring=self.scoring, merge=options.merge)

    def _tag(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        found, options = self.align(examples), self.options
        sequences = word_sequences(
            self.bundle.tokenizer, found, limit=self.window, truncate=options.truncate, overlap=options.overlap
        )
        return tag(self.bundle.network, found, sequences, scoring=self.scoring)

    def align(self, examples: Sequence[Example]) -> list[Alignment]:
        """Texts with their words, read as in training; see `words.py`."""
        spacing = self.head.config.spacing if isinstance(self.head, Tagging) else "apart"
        return align_examples(self.bundle.tokenizer, examples, spacing=spacing)


def blocks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Examples in their order, as many at a time as memory may hold."""
    held: list[Example] = []
    size, room = 0, FIRST_BLOCK
    for example in examples:
        own = _characters(example)
        if held and size + own > CHARACTERS_AT_ONCE:
            yield held
            held, size = [], 0
        held.append(example)
        size += own
        if len(held) >= room:
            yield held
            held, size, room = [], 0, min(2 * room, TEXTS_AT_ONCE)
    if held:
        yield held


def _characters(example: Example) -> int:
    if isinstance(example, TextExample):
        return len(example.text) + len(example.pair or "")
    return sum(map(len, example.words))


def _readable(example: Example) -> TextExample:
    """A text or pair that has something to read; a fault names its place."""
    if not isinstance(example, TextExample):
        raise DataError(f"{example.place} holds words already cut, which a tagger reads; the model classifies texts")
    for text in (example.text, example.pair):
        if text is not None:
            refuse_surrogates(text, str(example.place))
            if not text.strip():
                raise DataError(f"{example.place} is empty: there is nothing to classify; leave it out")
    return example
