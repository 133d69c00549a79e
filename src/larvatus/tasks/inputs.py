"""Inputs of `predict`: texts, pairs or words, where they come from, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import Count, CountOrNone, Size, SizeOrNone
from larvatus.core.settings import Flag, Settings
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import Place, TaggedExample, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.generation.generate import Beams
from larvatus.tasks.classify.classify import Merge
from larvatus.tasks.encoding.sequences import WindowOptions

Input = str | tuple[str, str] | tuple[str, Sequence[str]] | Sequence[str]
"""A text; a pair of texts, for a classifier, or a question and its passage; a context with its endings; the words of a
text, for a tagger."""


class PredictOptions(Settings):
    merge: Merge = "mean"
    """How the windows of a long text decide on its class: by the mean of their scores, or by the highest."""
    truncate: bool = False
    """Read only the first window of a long text."""
    overlap: SizeOrNone | None = None
    """Tokens that windows share; None: a quarter of a window."""
    length: Size | None = None
    """Tokens of a window, special ones included; None: as many as the model has positions."""
    tokens: CountOrNone = 0
    """Tokens of a batch; 0: by device."""
    top: Count = 1
    """Spans that are given for a question, likeliest first."""
    beams: Beams | None = None
    """Beam size of a model that generates text; None: greedy."""
    task: str | None = None
    """Task to predict, of a model that has several; None: all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.merge not in ("mean", "max"):
            raise UsageError(f"windows are merged by mean or max, not {self.merge!r}")

    def windows(self, bundle: Bundle) -> WindowOptions:
        """How the model reads long texts."""
        return WindowOptions.of(bundle, length=self.length, truncate=self.truncate, overlap=self.overlap)


class PlainTexts(Settings):
    """Texts of the command line. A task whose inputs have more parts adds fields, which become flags."""

    def inputs(self, texts: Sequence[str], *, files: bool) -> list[Input]:
        """Inputs of `predict`; `files`: whether others come from files or standard input."""
        return list(texts)


class TextOrPairInput(PlainTexts):
    pair: Annotated[str | None, Flag(metavar="TEXT")] = None
    """The second text of a pair, or the passage of a question, for one TEXT."""

    def inputs(self, texts: Sequence[str], *, files: bool) -> list[Input]:
        if self.pair is None:
            return list(texts)
        if files or len(texts) != 1:
            raise UsageError("--pair goes with one TEXT; the pairs of a file are a column, --pair-column")
        return [(texts[0], self.pair)]


class InputPlace(Place):
    """The place of a text that no file holds: ``text 3``."""

    def __str__(self) -> str:
        return f"{self.source} {self.line}"


def text_or_pair(given: Input, place: Place) -> TextExample:
    """The example of a model that reads texts or pairs."""
    if isinstance(given, str):
        return TextExample(given, None, None, place)
    if isinstance(given, tuple) and len(given) == 2:
        text, pair = given
        if isinstance(text, str) and isinstance(pair, str):
            return TextExample(text, pair, None, place)
    raise UsageError(f"{place} is {type(given).__name__}, not a text or a pair, a tuple of two texts")


def text_or_words(given: Input, place: Place) -> TextExample | TaggedExample:
    """The example of a model that reads words: a text, which is split into words, or words."""
    if isinstance(given, str):
        return TextExample(given, None, None, place)
    if not (isinstance(given, list | tuple) and all(isinstance(part, str) for part in given)):
        raise UsageError(f"{place} is {type(given).__name__}, not a text or a list of words")
    if not all(word.strip() for word in given):
        raise DataError(f"{place}: a word is empty; drop it, or give it a visible character")
    return TaggedExample(tuple(given), None, place)


def readable(example: TextExample | TaggedExample) -> TextExample:
    """A text or pair that is not empty; errors name its place."""
    plain = example.plain_text()
    if plain is None:
        raise DataError(f"{example.place} holds words already cut, which a tagger reads; the model classifies texts")
    for text in (plain.text, plain.pair):
        if text is not None:
            refuse_surrogates(text, str(example.place))
            if not text.strip():
                raise DataError(f"{example.place} is empty: there is nothing to classify; leave it out")
    return plain
