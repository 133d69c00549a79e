"""Sentences as the parser reads them: raw text cut into sentences and words, and gold trees as training examples.

    sentences, notes = cut_text("She reads. He doesn't.", head.config)
    encoded = encode_sentences(bundle.tokenizer, sentences, windows)
    data = labelled_trees(bundle, train.examples, config, windows)

The words of a token that they do not spell ("du": de, le) are read in its place, with spaces between them; offsets are
those of the token. E sentences, W words.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.labelled.conllu import ABSENT
from larvatus.data.labelled.records import Place, TaggedExample
from larvatus.data.labelled.trees import TreeExample
from larvatus.data.text.learned_words import WordToken
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.parsing import ParsingConfig, WordTrees, sentence_sizes
from larvatus.models.nn.compiling import IGNORE
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions, word_sequences
from larvatus.tasks.encoding.words import align_examples
from larvatus.tasks.parse.lemmas import edit_script
from larvatus.tasks.parse.sentences import cut_sentences

LONGEST = 1_000
"""Words of the longest sentence: all pairs of its words are scored."""


@dataclass(frozen=True)
class SentenceInput:
    """A sentence, cut into tokens and words."""

    text: str
    start: int
    end: int
    """Characters [start, end) of the whole text."""
    tokens: tuple[WordToken, ...]
    """With characters of the whole text."""
    place: Place
    lines: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(word for token in self.tokens for word in token.words)

    @classmethod
    def of_tree(cls, example: TreeExample) -> SentenceInput:
        return cls(example.text, 0, len(example.text), example.tokens, example.place, example.lines)

    @classmethod
    def of_words(cls, example: TaggedExample) -> SentenceInput:
        """Words that were cut before."""
        text, spans = example.located()
        ends = [*(start for start, _ in spans[1:]), len(text) + 1]
        tokens = [
            WordToken(text[start:end], (text[start:end],), start, end, end < following)
            for (start, end), following in zip(spans, ends, strict=True)
        ]
        return cls(text, 0, len(text), tuple(tokens), example.place)


def cut_text(text: str, config: ParsingConfig, place: Place) -> tuple[list[SentenceInput], tuple[str, ...]]:
    """The sentences of a raw text, and notes on those that are too long for one tree and were cut into parts."""
    refuse_surrogates(text, str(place))
    sentences, notes = [], []
    for start, end in cut_sentences(text, config.language):
        tokens = config.rules.tokens(text, start, end)
        parts = list(_parts(tokens))
        if len(parts) > 1:
            words = sum(len(token.words) for token in tokens)
            notes.append(
                f"a sentence of {words:,} words (characters {start:,} to {end:,}) is longer than {LONGEST:,} words and "
                f"was parsed in {len(parts):,} parts"
            )
        for part in parts:
            low, high = part[0].start, part[-1].end
            sentences.append(SentenceInput(text[low:high], low, high, tuple(part), place))
    return sentences, tuple(notes)


def _parts(tokens: Sequence[WordToken]) -> Iterable[list[WordToken]]:
    """Runs of tokens of at most `LONGEST` words."""
    part: list[WordToken] = []
    words = 0
    for token in tokens:
        if part and words + len(token.words) > LONGEST:
            yield part
            part, words = [], 0
        part.append(token)
        words += len(token.words)
    if part:
        yield part


def read_as(tokens: Sequence[WordToken]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text that the model reads, and the characters of each word in it."""
    parts: list[str] = []
    spans = []
    place = 0
    for token in tokens:
        for number, word in enumerate(token.words):
            if number and not token.spelled:
                parts.append(" ")
                place += 1
            parts.append(word)
            spans.append((place, place + len(word)))
            place += len(word)
        if token.space:
            parts.append(" ")
            place += 1
    return "".join(parts).rstrip(" "), tuple(spans)


@dataclass(frozen=True, eq=False)
class EncodedTrees:
    """Sentences in sequences; those of one sentence are adjacent."""

    sequences: Sequences
    sizes: Ints  # [E] words of each

    def __len__(self) -> int:
        return len(self.sizes)

    def tokens(self, sentences: Ints) -> TokenBatch[Ints]:
        """Some sentences end to end; the windows of one are never cut apart."""
        batch = self.sequences.batch(self.sequences.of(sentences))
        return dataclasses.replace(batch, groups=self.sequences.parts[sentences])


def encode_sentences(tokenizer: Tokenizer, sentences: Sequence[SentenceInput], windows: WindowOptions) -> EncodedTrees:
    """Sentences as the model reads them; one that is longer than a window is read in several."""
    if windows.truncate:
        raise UsageError("a tree needs the whole sentence, so nothing is cut; leave --truncate out")
    examples = []
    for sentence in sentences:
        words = sentence.words
        if len(words) > LONGEST:
            raise DataError(
                f"{sentence.place}: a sentence of {len(words):,} words; a tree has up to {LONGEST:,}, so split it"
            )
        text, spans = read_as(sentence.tokens)
        examples.append(TaggedExample(words, None, sentence.place, text, spans))
    aligned = align_examples(tokenizer, examples, spacing="apart")
    sequences = word_sequences(tokenizer, aligned, limit=windows.limit, overlap=windows.overlap)
    assert sequences.words is not None
    return EncodedTrees(sequences, np.array(sentence_sizes(sequences.words.counts, sequences.parts), np.int64))


@dataclass(frozen=True, eq=False)
class LabelledTrees:
    """Gold trees as training examples."""

    encoded: EncodedTrees
    gold: tuple[Ints, ...]  # heads, relations, parts of speech, features and scripts of all words, [W] each
    unknown: UnknownLabels = field(default_factory=UnknownLabels)
    """Relations that the model does not know."""

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def sequences(self) -> Sequences:
        return self.encoded.sequences

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        tokens = self.encoded.tokens(examples)
        assert tokens.word_tokens is not None
        assert tokens.groups is not None
        chosen = self.sequences.of(examples)
        words = [self.sequences.of_words(chosen, values) for values in self.gold]
        trees = WordTrees.of(words, tokens.word_tokens.counts, tokens.groups)
        return TrainingBatch(tokens=tokens, targets={WordTrees: trees})


def scripts_of(example: TreeExample) -> list[str]:
    """The edit script of each word; empty where the lemma is not known."""
    pairs = zip(example.words, example.lemmas, strict=True)
    return [edit_script(word, lemma) if lemma != ABSENT or word == ABSENT else "" for word, lemma in pairs]


COLUMNS: dict[str, Callable[[TreeExample], Sequence[str]]] = {
    "labels": lambda example: example.relations or (),
    "upos": lambda example: example.upos,
    "feats": lambda example: example.feats,
    "scripts": scripts_of,
}
"""What the words of an example are labelled with, by the setting of the head that lists it."""


def known_values(examples: Sequence[TreeExample], column: str, *, most: int | None = None) -> tuple[str, ...]:
    """The values of a column, or the `most` frequent; none where it is not annotated."""
    counts = Counter(value for example in examples for value in COLUMNS[column](example))
    counts.pop("", None)
    if not set(counts) - {ABSENT}:
        return ()
    if column == "upos":
        counts.pop(ABSENT, None)
    return tuple(sorted(value for value, _ in counts.most_common(most)))


def labelled_trees(
    bundle: Bundle, examples: Sequence[TreeExample], config: ParsingConfig, windows: WindowOptions
) -> LabelledTrees:
    """Examples as the model learns them; what it does not know is IGNORE."""
    encoded = encode_sentences(bundle.tokenizer, [SentenceInput.of_tree(example) for example in examples], windows)
    heads = [head for example in examples for head in example.heads or ()]
    gold = [np.array(heads, np.int64)]
    for name, column in COLUMNS.items():
        ids = {value: number for number, value in enumerate(getattr(config, name))}
        values = (value for example in examples for value in column(example)) if ids else ()
        numbers = np.fromiter((ids.get(value, IGNORE) for value in values), np.int64)
        gold.append(numbers if ids else np.full(len(heads), IGNORE, np.int64))
    return LabelledTrees(encoded, tuple(gold), unknown_relations(examples, config.labels))


def unknown_relations(examples: Sequence[TreeExample], labels: Sequence[str]) -> UnknownLabels:
    """Words whose relation is none of the model's."""
    known = set(labels)
    unknown: list[tuple[int, str]] = []
    first = ""
    before = 0
    for example in examples:
        for number, name in enumerate(example.relations or ()):
            if name not in known:
                unknown.append((before + number, name))
                first = first or (
                    f"{example.place}: word {number + 1} ({example.words[number]}) has the relation {name!r}, which "
                    f"the model does not know{did_you_mean(name, known)}"
                )
        before += len(example.words)
    return UnknownLabels.of(unknown, total=before, first=first)


def starts_of(sizes: Ints) -> Ints:
    """[E] number of the first word of each sentence."""
    return edges(sizes)[:-1]
