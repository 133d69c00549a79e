"""Texts and pairs in their pattern, as the model reads them. The pattern is never cut; a text that is too long is.

    prompts = encode_prompts(tokenizer, config, examples, limit=128)
    prompts.sequences.read < prompts.sequences.tokens      # which were cut
    prompts.shown                                          # how many demonstrations fit before each

Of a text the beginning stays, of a pair the longer is cut first, as published; every example is one sequence, since a
window without the blank says nothing. Texts, literal parts and words are tokenised apart, so that what is cut is text.
Demonstrations (Brown et al. 2020) precede the text with their words in their blanks; those that still fit are
shown, in their order, and never a part of one. E examples, M blanks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from larvatus.core.arrays import Integers, Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Place, TextExample
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.prompt.pattern import Pattern


@dataclass(frozen=True, eq=False)
class Prompts:
    sequences: Sequences
    shown: Ints  # [E] demonstrations before each text
    demonstrations: int
    """Number of demonstrations that were given."""

    def describe(self) -> str:
        """Truncated texts and omitted demonstrations, a line for people; empty if there are none."""
        cut = int((self.sequences.read < self.sequences.tokens).sum())
        fewer = int((self.shown < self.demonstrations).sum())
        lines = []
        if cut:
            lines.append(f"{cut:,} of {len(self.shown):,} texts are too long for the pattern, and cut")
        if fewer:
            many, mean = self.demonstrations, float(self.shown.mean())
            lines.append(f"not all {many} demonstrations fit before {fewer:,} texts: {mean:.1f} do on average")
        return "; ".join(lines)


@dataclass(frozen=True, eq=False)
class PatternTokens:
    """A pattern in the tokens of a vocabulary."""

    pattern: Pattern
    literals: tuple[Integers, ...]
    """Tokens of each part; empty for slots."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, pattern: Pattern) -> PatternTokens:
        return cls(pattern, tuple(tokenizer.encode_fast([piece.literal for piece in pattern.pieces])))

    @property
    def fixed(self) -> int:
        """Number of tokens other than texts and blank."""
        return sum(map(len, self.literals))

    def ids(self, texts: Sequence[Integers], blank: Integers) -> Ints:
        """One prompt without special tokens; texts in the order of an example."""
        slots = {"text": 0, "first": 0, "second": 1}
        parts = [
            literal if piece.slot is None else blank if piece.slot == "blank" else texts[slots[piece.slot]]
            for piece, literal in zip(self.pattern.pieces, self.literals, strict=True)
        ]
        return np.concatenate([np.asarray(part, np.int64) for part in parts])

    def text_ids(self, tokenizer: Tokenizer, examples: Sequence[TextExample]) -> list[list[Integers]]:
        """Tokens of the one or two texts of each example."""
        slots = [piece for piece in self.pattern.pieces if piece.slot not in (None, "blank")]
        slots.sort(key=lambda piece: piece.slot == "second")
        for example in examples:
            self._check(example)
        columns = []
        for piece in slots:
            texts = [str(example.pair if piece.slot == "second" else example.text) for example in examples]
            columns.append(tokenizer.encode_fast([" " * piece.spaced + text for text in texts]))
        return [list(row) for row in zip(*columns, strict=True)]

    def _check(self, example: TextExample) -> None:
        if self.pattern.pair and example.pair is None:
            raise DataError(f"{example.place} is one text, but the pattern is of pairs; write {{text}} in its place")
        if not self.pattern.pair and example.pair is not None:
            raise DataError(f"{example.place} is a pair, but the pattern has {{text}}; write {{first}} and {{second}}")


def pattern_of(config: VerbaliserConfig, *, pair: bool) -> Pattern:
    return Pattern.read(config.pattern, pair=pair)


def encode_prompts(
    tokenizer: Tokenizer,
    config: VerbaliserConfig,
    examples: Sequence[TextExample],
    *,
    limit: int,
    blanks: int | None = None,
) -> Prompts:
    """`limit` tokens of a sequence at most; `blanks` of each, by default as many as the longest word has tokens."""
    pair = bool(examples) and examples[0].pair is not None
    pattern = PatternTokens.of(tokenizer, pattern_of(config, pair=pair))
    template = tokenizer.template.single
    hidden = np.full(config.blanks if blanks is None else blanks, config.mask, np.int64)
    room = template.text_length(limit)
    before = pattern.fixed + len(hidden)
    if before + 2 > room:
        raise UsageError(
            f"the pattern takes {before:,} of the {room:,} tokens that the model reads at once; give a shorter one"
        )
    shots = demonstrations(tokenizer, config, pattern)
    bodies, tokens, read, shown = [], [], [], []
    for texts in pattern.text_ids(tokenizer, examples):
        sizes = truncated_lengths([len(text) for text in texts], room - before)
        asked = pattern.ids([text[:size] for text, size in zip(texts, sizes, strict=True)], hidden)
        chosen = demonstrations_that_fit(shots, room - len(asked))
        bodies.append(template.ids(np.concatenate([*chosen, asked])))
        shown.append(len(chosen))
        tokens.append(before + sum(map(len, texts)))
        read.append(before + sum(sizes))
    lengths = np.array([len(body) for body in bodies], np.int64)
    sequences = Sequences(
        ids=np.concatenate([*bodies, np.empty(0, np.int64)]).astype(np.int64),
        segments=template.segments(lengths - template.special_count) if len(lengths) else np.empty(0, np.int64),
        lengths=lengths,
        parts=np.ones(len(bodies), np.int64),
        tokens=np.array(tokens, np.int64),
        read=np.array(read, np.int64),
    )
    return Prompts(sequences, np.array(shown, np.int64), len(shots))


def demonstrations(tokenizer: Tokenizer, config: VerbaliserConfig, template: PatternTokens) -> list[Ints]:
    """Labelled texts in the pattern, the first word of their label in the blank."""
    words, word_tokens = config.owners, config.tokens()
    place = Place("demonstrations", 1)
    examples = [TextExample(text, pair, label, place) for text, pair, label in config.demonstrations]
    rows = zip(template.text_ids(tokenizer, examples), examples, strict=True) if examples else ()
    return [
        template.ids(texts, np.array(word_tokens[words.index(config.labels.index(str(example.label)))], np.int64))
        for texts, example in rows
    ]


def demonstrations_that_fit(shots: Sequence[Ints], room: int) -> list[Ints]:
    """Demonstrations that fit completely, in order."""
    chosen = []
    for shot in shots:
        if len(shot) <= room:
            chosen.append(shot)
            room -= len(shot)
    return chosen


def truncated_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """How many tokens of one or two texts stay: the longer is cut first.

    >>> truncated_lengths([9], 4), truncated_lengths([3, 2], 8)
    ([4], [3, 2])
    >>> truncated_lengths([9, 2], 8), truncated_lengths([9, 7], 8)
    ([6, 2], [4, 4])
    """
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    first, second = lengths
    if first + second <= room:
        return [first, second]
    half = room // 2
    if first <= half:
        return [first, room - first]
    return [room - second, second] if second <= room - half else [half, room - half]
