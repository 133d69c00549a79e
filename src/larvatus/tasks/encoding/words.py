"""The words of a text with the tokens that the model reads: one function for training, evaluation and prediction.

    aligned = align_examples(tokenizer, examples, spacing=config.spacing)
    aligned[0].tokens_of_word(2), aligned[0].chars_of_word(2)         # characters of the text as it was written

How the model's training data was read is its `spacing`, and texts are read in the same way ever after:

| spacing | training data | how text is read |
| --- | --- | --- |
| apart | words in running text (CoNLL-U, spans) | as written, but a space parts words with a common token |
| spaced | only words (CoNLL, lists) | with single spaces between the words |
| written | unknown: a model of others | plain text as written, as in `transformers`; words of data as "apart" |

"don't" is "do" and "n't" in Universal Dependencies, but its first token is "don": read as "do n't", each word has
tokens of its own, and the rest of the sentence stays as written. Words that come without their text have single spaces
between them under every spacing; the words of plain text are those of `segment_words`.
T tokens, W words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from larvatus.core.arrays import Bools, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import TaggedExample, TextExample, WordsExample
from larvatus.data.text.align import Alignment, join_words
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import segment_words

Spacing = Literal["written", "apart", "spaced"]
WordExample = TextExample | WordsExample


def align_examples(
    tokenizer: Tokenizer, examples: Sequence[WordExample], *, spacing: Spacing = "written"
) -> list[Alignment]:
    """The tokens of each example, aligned with its words."""
    texts, spans = [], []
    for example in examples:
        text, located = _located(example)
        refuse_surrogates(text, str(example.place))
        texts.append(text)
        spans.append(located)
    written = tokenizer.encode_many(texts, spans)
    if spacing == "spaced":
        joined = {number: _spaced(alignment) for number, alignment in enumerate(written)}
        other = {number: spaced for number, spaced in joined.items() if spaced[0] != texts[number]}
        return _respelt(tokenizer, written, written, other)
    plain = {number for number, example in enumerate(examples) if example.plain_text() is not None}
    return _apart(tokenizer, written, set(range(len(examples))) - (plain if spacing == "written" else set()))


def check_word_pool(pool: str | None) -> None:
    """Refuse what pools texts, where words are pooled."""
    if pool not in (None, "first", "mean", "max"):
        raise UsageError(f"a word is pooled by first, mean or max of its subwords, not {pool}")


def spacing_of(examples: Sequence[TaggedExample]) -> Spacing:
    """How a model trained on these reads texts: as written, unless they are only words."""
    return "apart" if any(example.text is not None for example in examples) else "spaced"


def _located(example: WordExample) -> tuple[str, Ints]:
    """The text and the characters of each word."""
    if (cut := example.located()) is not None:
        return cut[0], np.asarray(cut[1], dtype=np.int64).reshape(-1, 2)
    plain = example.plain_text()
    if plain is None or plain.pair is not None:
        raise DataError(f"{example.place} is a pair, but the model tags the words of one text")
    return plain.text, segment_words(plain.text)


def _shared(aligned: Alignment) -> Bools:
    """[W] Whether a token serves this word and the one before it, which it touches."""
    tokens, spans = aligned.word_tokens, aligned.word_spans
    before = np.zeros(len(spans), np.bool_)
    before[1:] = (tokens[1:, 0] < tokens[:-1, 1]) & (spans[1:, 0] == spans[:-1, 1])
    return before


def _apart(tokenizer: Tokenizer, written: list[Alignment], chosen: set[int]) -> list[Alignment]:
    """Some texts with a space before each word that would share a token with the one before it."""
    aligned, broken = written, {number: np.zeros(len(written[number].word_spans), np.bool_) for number in chosen}
    left = sorted(chosen)
    while left:  # a space may join what was apart
        other = {}
        for number in left:
            shared = _shared(aligned[number]) & ~broken[number]
            if shared.any():
                broken[number] |= shared
                other[number] = _with_spaces(written[number], broken[number])
        aligned, left = _respelt(tokenizer, written, aligned, other), [*other]
    return aligned


def _with_spaces(written: Alignment, before: Bools) -> tuple[str, Ints]:
    """The text with a space before some words, and where its words are then."""
    cuts = [0, *written.word_spans[before, 0].tolist(), len(written.text)]
    text = " ".join(written.text[low:high] for low, high in pairwise(cuts))
    return text, written.word_spans + np.cumsum(before)[:, None]


def _spaced(written: Alignment) -> tuple[str, Ints]:
    return join_words([written.text[start:end] for start, end in written.word_spans.tolist()])


def _respelt(
    tokenizer: Tokenizer, written: list[Alignment], aligned: list[Alignment], other: dict[int, tuple[str, Ints]]
) -> list[Alignment]:
    """`aligned` with the same words of some texts in other spaces; characters are those of the texts as written."""
    aligned = list(aligned)
    read = tokenizer.encode_many([text for text, _ in other.values()], [spans for _, spans in other.values()])
    for (number, (_, spans)), new in zip(other.items(), read, strict=True):
        old = written[number]
        back = _moved(new.spans.ravel(), spans, old).reshape(-1, 2)
        aligned[number] = Alignment(old.text, new.ids, back, new.words, old.word_spans, new.word_tokens)
    return aligned


def _moved(places: Ints, word_spans: Ints, written: Alignment) -> Ints:
    """Borders between characters of the text with other spaces → of the text as written."""
    if not len(word_spans):
        return np.zeros_like(places)
    # text before the first word counts as the end of a word at 0
    starts, ends = (np.concatenate([[0], column]) for column in word_spans.T)
    old_starts, old_ends = (np.concatenate([[0], column]) for column in written.word_spans.T)
    limits = np.append(old_starts[1:], len(written.text))
    ends[0] = old_ends[0] = 0
    word = np.searchsorted(word_spans[:, 0], places, side="right")
    inside = old_starts[word] + places - starts[word]
    beyond = np.minimum(old_ends[word] + places - ends[word], limits[word])
    moved: Ints = np.where(places <= ends[word], inside, beyond)
    return moved
