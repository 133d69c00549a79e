"""A pattern: a text with slots for what is classified and one blank (PET), and texts in it as the model reads them.

    pattern = Pattern.read("{text} It was {blank}.")
    pattern.filled(["A dull film."], "great")        # "A dull film. It was great."
    Pattern.read("{first} ? {blank} , {second}")     # of a pair
    prompts = encode_prompts(tokenizer, config, examples, limit=128)
    prompts.sequences.read < prompts.sequences.tokens      # which were cut

The word in the blank gives the label. A null prompt (Logan et al. 2022) is the text and a blank with nothing around
them: `Pattern.read("null")`. A literal brace is written twice, as in Python: ``{{``.

The pattern is never cut; a text that is too long is. Of a text the beginning stays, of a pair the longer is cut first,
as published; every example is one sequence, since a window without the blank says nothing. Texts, literal parts and
words are tokenised separately, so that what is cut is text. Demonstrations (Brown et al. 2020) precede the text with
their words in their blanks; those that still fit are shown whole, in their order. E examples, M blanks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Any, Literal

import numpy as np

from larvatus.core.arrays import Integers, Ints
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.ranges import short_repr
from larvatus.core.settings import Flag, Settings
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.records import Place, TextExample
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.verbaliser import VerbaliserConfig
from larvatus.tasks.encoding.sequences import Sequences

Slot = Literal["text", "first", "second", "blank"]
NULL = "null"
SINGLE, PAIR = ("text",), ("first", "second")
WORKS = 'such as "{text} It was {blank}.", of pairs "{first}? {blank}, {second}", or null'
NULL_OF_TEXT, NULL_OF_PAIR = "{text} {blank}", "{first} {second} {blank}"


@dataclass(frozen=True)
class PatternPart:
    """Literal text, or a slot."""

    slot: Slot | None
    literal: str = ""
    spaced: bool = False
    """Whether a space precedes the slot and belongs to it; in byte-level vocabularies it is part of the word."""


@dataclass(frozen=True)
class Pattern:
    source: str
    """As it was written."""
    pieces: tuple[PatternPart, ...]

    @classmethod
    def read(cls, source: str, *, pair: bool = False) -> Pattern:
        """Parsed and checked. `pair`: what a null prompt is about."""
        refuse_surrogates(source, "the pattern")
        written = source if source != NULL else NULL_OF_PAIR if pair else NULL_OF_TEXT
        pieces = tuple(_pieces(written))
        slots = [piece.slot for piece in pieces if piece.slot is not None]
        said = f"the pattern {short_repr(source)}"
        for slot in slots:
            if slots.count(slot) > 1:
                raise UsageError(f"{said} has {{{slot}}} {slots.count(slot)} times; write each slot once, {WORKS}")
        if "blank" not in slots:
            raise UsageError(f"{said} has no {{blank}} for the word of a label; write one, {WORKS}")
        texts = sorted(slot for slot in slots if slot != "blank")
        if not texts:
            raise UsageError(f"{said} has no place for the text; write {{text}}, {WORKS}")
        if tuple(texts) not in (SINGLE, PAIR):
            raise UsageError(
                f"{said} has {{{'} and {'.join(texts)}}}; write only {{text}}, or {{first}} and {{second}}"
            )
        return cls(source, pieces)

    @property
    def pair(self) -> bool:
        """Whether it is about pairs of texts."""
        return any(piece.slot == "first" for piece in self.pieces)

    def filled(self, texts: Sequence[str], word: str) -> str:
        """The whole text, with a word in its blank."""
        values = {"text": texts[0], "first": texts[0], "second": texts[-1], "blank": word}
        return "".join(
            piece.literal if piece.slot is None else " " * piece.spaced + values[piece.slot] for piece in self.pieces
        )


def _pieces(source: str) -> Iterator[PatternPart]:
    """Literal text and slots; white space before a slot goes to the slot, as one space."""
    known = ("text", "first", "second", "blank")
    try:
        parsed = list(Formatter().parse(source))
    except ValueError as fault:
        raise UsageError(f"the pattern {short_repr(source)}: {fault}; a brace as such is written twice, {{{{") from None
    for literal, field, form, conversion in parsed:
        if field is None:
            if literal:
                yield PatternPart(None, literal)
            continue
        if field not in known or form or conversion:
            asked = field + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise UsageError(f"the pattern has no slot {{{asked}}}{did_you_mean(field, known)}; write one {WORKS}")
        stripped = literal.rstrip()
        if stripped:
            yield PatternPart(None, stripped)
        yield PatternPart(field, spaced=stripped != literal)  # type: ignore[arg-type]


LabelWords = Mapping[str, str | Sequence[str]]
"""Label → its word, or several."""


def parse_verbaliser(words: Sequence[str]) -> dict[str, Any]:
    """A verbaliser from the command line: ``pos=great``, several times, also for one label."""
    by_label: dict[str, tuple[str, ...]] = {}
    for given in words:
        refuse_surrogates(given, "--verbaliser")
        label, equals, word = given.partition("=")
        if not (label and equals and word.strip()):
            raise UsageError(f"--verbaliser {given:.60} is not LABEL=WORD, such as pos=great")
        by_label[label] = (*by_label.get(label, ()), word)
    return {"verbaliser": by_label}


def words_by_label(words: LabelWords) -> dict[str, tuple[str, ...]]:
    """The words of each label."""
    if not isinstance(words, Mapping):
        raise UsageError(f'the words of labels are a mapping, such as {{"pos": "great"}}, not {type(words).__name__}')
    for label, word in words.items():
        several = [word] if isinstance(word, str) else word
        if not isinstance(several, Sequence) or not all(isinstance(each, str) for each in several):
            raise UsageError(f"the label {label!r:.40} has no word: give a string or a list of strings")
    return {label: (word,) if isinstance(word, str) else tuple(word) for label, word in words.items()}


def verbaliser(
    tokenizer: Tokenizer, pattern: Pattern, *, labels: Sequence[str], words: LabelWords, mask: int | None = None
) -> VerbaliserConfig:
    """Config of the head: which word at the blank belongs to which label, checked against labels and vocabulary.

    A word of several tokens has as many blanks. A word that the vocabulary cannot represent is refused. `mask` is the
    token of a blank; None uses the vocabulary's own.
    """
    chosen = words_by_label(words)
    _check_labels(labels, chosen)
    spaced = next(piece.spaced for piece in pattern.pieces if piece.slot == "blank")
    word_ids = [
        (word, label, word_tokens(tokenizer, word, spaced=spaced))
        for label, name in enumerate(labels)
        for word in chosen[name]
    ]
    seen: dict[tuple[int, ...], tuple[str, int]] = {}
    for word, label, ids in word_ids:
        if ids in seen:
            other, owner = seen[ids]
            same = "twice" if owner == label else f"the same as {other!r} of {labels[owner]}"
            raise UsageError(f"the word {word!r} of {labels[label]} is {same} in this vocabulary; give another")
        seen[ids] = word, label
    return VerbaliserConfig(
        labels=tuple(labels),
        pattern=pattern.source,
        words=tuple(word for word, _, _ in word_ids),
        owners=tuple(label for _, label, _ in word_ids),
        sizes=tuple(len(ids) for _, _, ids in word_ids),
        ids=tuple(id for _, _, ids in word_ids for id in ids),
        mask=tokenizer.mask_id if mask is None else mask,
        dense="none",
        dropout=0.0,
    )


def word_tokens(tokenizer: Tokenizer, word: str, *, spaced: bool) -> tuple[int, ...]:
    """The tokens of a word at a blank; refused where the vocabulary does not know it."""
    refuse_surrogates(word, "a word of the verbaliser")
    ids = tuple(tokenizer.encode_fast([f" {word}" if spaced else word])[0].tolist())
    unknown = tokenizer.id(tokenizer.special.unk)
    if not ids or unknown in ids:
        raise DataError(
            f"the vocabulary cannot spell {word!r}: it is {'nothing' if not ids else tokenizer.special.unk} there; "
            "give a word that it knows (larvatus tokenizer show says how a text is cut)"
        )
    return ids


def _check_labels(labels: Sequence[str], words: Mapping[str, Iterable[str]]) -> None:
    if not labels:
        raise UsageError("a prompt needs the words of its labels: --verbaliser LABEL=WORD, such as pos=great")
    if not words:
        raise UsageError(f"labels need words: --verbaliser {labels[0]}=WORD, one or more for each of {_some(labels)}")
    missing = [label for label in labels if not words.get(label)]
    if missing:
        raise UsageError(f"the label {missing[0]} has no word; give it one: --verbaliser {missing[0]}=WORD")
    for label in words:
        if label not in labels:
            near = did_you_mean(label, labels)
            raise UsageError(f"--verbaliser {label}: there is no such label{near}; there are {_some(labels)}")


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")


class PromptOptions(Settings):
    """Options of a prompt that is fine-tuned."""

    pattern: str = NULL
    """The text with a blank for the label's word, "{text} It was {blank}."; of pairs {first} and {second}; null: the
    text and a blank only."""
    verbaliser: Annotated[
        Mapping[str, str | tuple[str, ...]], Flag("--verbaliser", metavar="LABEL=WORD", words=parse_verbaliser)
    ] = {}
    """The word of a label; repeatable, for each label, and for several words of one."""


# Texts in their pattern.


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
