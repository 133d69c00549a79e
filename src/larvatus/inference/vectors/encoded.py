"""Texts as tokens and units: which tokens each word, span or sentence is made of.

A text of T tokens is read between special tokens (`data/text/template.py`), mostly `[CLS] tokens [SEP]`: it has T + 2
*places*,
and token t stands at place t + 1. Units are ranges of places, so that a sentence (0 … T + 2) takes in the special
tokens, as sentence encoders are trained to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.align import Alignment, join_words
from larvatus.data.text.template import SequenceTemplate
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.search.marks import read_marks
from larvatus.inference.vectors.units import Unit

Text = str | Sequence[str]
"""A text, or its words already cut (they are joined by spaces)."""
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Encoded:
    text: str
    ids: Ints  # [T]
    places: Ints  # [U, 2] first place of each unit, and the one after its last; empty where no token covers a unit
    spans: Ints  # [U, 2] characters of each unit


def encode_units(
    tokenizer: Tokenizer, texts: Sequence[Text], unit: Unit, spans: Sequence[Spans] | None = None, *, before: int = 0
) -> list[Encoded]:
    """The tokens and units of texts. Spans are given in characters, or marked with stars in the texts.

    `before` is how many texts the user gave before these, for messages.
    """
    plain, cut = _plain(texts)
    if unit == "span" and spans is None:
        marked = [read_marks(text) for text in plain]
        plain, spans = [marks.text for marks in marked], [marks.spans for marks in marked]
        if any(words is not None for words in cut):
            raise UsageError("spans of texts that are cut into words are given by spans=…, not by stars")
    elif spans is not None:
        _check(plain, spans, unit, before)
    template = tokenizer.template.single
    if unit in ("sentence", "document"):
        return [_whole(text, ids, template) for text, ids in zip(plain, tokenizer.encode_fast(plain), strict=True)]
    alignments = tokenizer.encode_many(plain, cut)
    if unit == "token":
        return [
            Encoded(alignment.text, alignment.ids, _each(len(alignment)) + template.opening, alignment.spans)
            for alignment in alignments
        ]
    if unit == "word":
        return [
            Encoded(alignment.text, alignment.ids, alignment.word_tokens + template.opening, alignment.word_spans)
            for alignment in alignments
        ]
    assert spans is not None
    return [_spans(alignment, wanted, template) for alignment, wanted in zip(alignments, spans, strict=True)]


def check_texts(texts: Sequence[Text]) -> None:
    """Refuse what is no list of texts, by its place."""
    if isinstance(texts, str):
        raise UsageError("a list of texts is wanted, not one text; write [text]")
    for number, text in enumerate(texts, start=1):
        words = isinstance(text, Sequence) and all(isinstance(word, str) for word in text)
        if not (isinstance(text, str) or words):
            raise DataError(f"text {number} is {type(text).__name__}, not a string or a list of words")


def _plain(texts: Sequence[Text]) -> tuple[list[str], list[Ints | None]]:
    """Each text as a string, with the spans of its words where it came cut."""
    plain: list[str] = []
    cut: list[Ints | None] = []
    for text in texts:
        joined, words = (text, None) if isinstance(text, str) else join_words(text)
        plain.append(joined)
        cut.append(words)
    return plain, cut


def _whole(text: str, ids: npt.NDArray[np.int32], template: SequenceTemplate) -> Encoded:
    ends = np.array([[0, len(ids) + template.special_count]]), np.array([[0, len(text)]])
    return Encoded(text, ids.astype(np.int64), *ends)


def _each(count: int) -> Ints:
    return np.arange(count, dtype=np.int64)[:, None] + np.arange(2)


def _spans(alignment: Alignment, wanted: Spans, template: SequenceTemplate) -> Encoded:
    ranges = [alignment.tokens_of_chars(start, end) for start, end in wanted]
    places = (
        np.array([[tokens.start, tokens.stop] for tokens in ranges], dtype=np.int64).reshape(-1, 2) + template.opening
    )
    return Encoded(alignment.text, alignment.ids, places, np.array(wanted, dtype=np.int64).reshape(-1, 2))


def _check(texts: Sequence[str], spans: Sequence[Spans], unit: Unit, before: int) -> None:
    if unit != "span":
        raise UsageError(f'spans are given, but the unit is {unit}; say unit="span"')
    for number, (text, spans_of_text) in enumerate(zip(texts, spans, strict=True), start=before + 1):
        for span in spans_of_text:
            if len(span) != 2 or not 0 <= span[0] < span[1] <= len(text):
                raise UsageError(
                    f"text {number} has no span {tuple(span)}: spans are (start, end) in its {len(text)} characters"
                )
