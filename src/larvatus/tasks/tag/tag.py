"""Tagging words (chapter §11.4.3): options and head, sentences as training batches, scores as tags and entities.

    config = tagging_head(train, TagOptions(crf=True), scheme="BIO", natural={})
    data = tagged_words(bundle, train.examples, config, windows)

In training, every subword has the tag of its word (example 11.16). In prediction, a word has the scores of its first
subword (or their mean or maximum), taken from the window with the most context. The best sequence of tags is then found
over the whole text, among those that the scheme allows: I-PER never follows O. A CRF adds its transitions.
E examples, S sequences, W words, K tags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import DataError, did_you_mean
from larvatus.core.ranges import DropoutRate, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.core.targets import WordTags
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.data.text.align import Alignment
from larvatus.data.text.tag_schemes import (
    LETTERS,
    Scheme,
    convert,
    detect_scheme,
    find_illegal,
    legal_transitions,
    read_leniently,
    split_tag,
)
from larvatus.data.text.tag_schemes import repair as repaired
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import Tagging, TaggingConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.models.network import Network
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.crf import AllowedTransitions, constrained_viterbi
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions, word_sequences
from larvatus.tasks.encoding.words import WordExample, align_examples, check_word_pool, spacing_of
from larvatus.tasks.results import Coverage, Entity, Tagged, TaggedWord, coverages
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences


def scheme_of(data: Dataset[TaggedExample]) -> Scheme:
    """The scheme that the tags are written in."""
    return detect_scheme([example.tags or () for example in data])


def convert_scheme(
    data: Dataset[TaggedExample], target: Scheme, *, source: Scheme | None = None, repair: bool = False
) -> Dataset[TaggedExample]:
    """The same entities in the scheme `target`; tags without entities stay as they are.

    A sequence that its scheme forbids (I-PER after O) is refused with file and line, unless `repair` reads it as
    `conlleval` does: an I-PER that follows no entity begins one.
    """
    source = source or scheme_of(data)
    if source == "none" or target == "none":
        if source != target:
            raise DataError(f"{data.source}: its tags are of the scheme {source}, and cannot be read as {target}")
        return data
    examples, mended = [], 0
    for example in data:
        tags = list(example.tags or ())
        illegal = find_illegal(tags, source)
        if illegal and not repair:
            raise DataError(
                f"{example.place}: word {illegal[0].index + 1} of the sentence that begins here is tagged "
                f"{illegal[0].message}; mend it, or --repair reads it as conlleval does"
            )
        if illegal:
            tags, mended = repaired(tags, source), mended + 1
        tags = convert(tags, source, target) if source != target else tags
        examples.append(dataclasses.replace(example, tags=tuple(tags)))
    notes = [*data.notes]
    if mended:
        notes.append(f"illegal tags of {mended:,} sentences mended")
    if source != target:
        notes.append(f"{source} read as {target}")
    return dataclasses.replace(data, examples=tuple(examples), notes=tuple(notes))


def all_tags(tags: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Every tag with which the scheme can encode the types that occur: also I-LOC if B-LOC always occurred by itself.

    >>> all_tags(["B-LOC", "O"], "BIO")
    ('O', 'B-LOC', 'I-LOC')
    """
    seen = set(tags)
    if scheme == "none":
        return tuple(sorted(seen))
    types = sorted({split_tag(tag, scheme)[1] for tag in seen} - {""})
    bare = "" in {tag.partition("-")[2] for tag in seen if tag != "O"}
    if bare:
        return tuple(letter for letter in LETTERS[scheme])
    return ("O", *(f"{letter}-{name}" for name in types for letter in LETTERS[scheme] if letter != "O"))


class TagOptions(Settings):
    """Options of a tagging head."""

    pool: WordPool | None = None
    """Vector of a word, from its subwords: first, mean or max; default: first."""
    dropout: DropoutRate | None = None
    """Dropout before the tags; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""
    layers: str | None = None
    """Which layers are read: all, last4 or concat4, or one by number (0: embeddings); default: the last."""
    crf: bool = False
    """A CRF over the tags: learned transitions."""
    lstm: SizeOrNone = 0
    """Size of a BiLSTM over the words; 0: none."""
    learn: Literal["subwords", "words"] = "subwords"
    """Units of the loss: every subword with the gold tag of its word, or whole words."""
    scheme: Scheme | None = None
    """Scheme of entity tags; default: that of the training set, but BIO for IOB1."""
    repair: bool = False
    """Read illegal sequences of tags as conlleval does, instead of refusing them."""


def tagging_head(
    train: Dataset[TaggedExample], options: TagOptions, *, scheme: Scheme, natural: Mapping[str, Any]
) -> TaggingConfig:
    """The tags of the training set; a scheme is complete, so that decoding can spell every entity it has seen."""
    check_word_pool(options.pool)
    labels = all_tags(train.labels(), scheme)
    if len(train.labels()) < 2:
        raise DataError(
            f"{train.source}: all words are tagged {', '.join(train.labels())}; tagging needs two tags or more"
        )
    settings: dict[str, Any] = dict(natural)
    if options.dropout is not None:
        settings["dropout"] = options.dropout
    return TaggingConfig(
        labels=labels,
        scheme=scheme,
        pool=options.pool or "first",
        learn=options.learn,
        crf=options.crf,
        lstm=options.lstm,
        mix=options.layers or bool(options.mix),
        spacing=spacing_of(train.examples),
        **settings,
    )


@dataclass(frozen=True, eq=False)
class TaggedWords:
    """Training examples of tagging."""

    sequences: Sequences
    tags: Ints  # [W] of all words of all sequences; IGNORE of a tag that is unknown
    unknown: UnknownLabels = field(default_factory=UnknownLabels)

    def __len__(self) -> int:
        return len(self.sequences)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        sequences = self.sequences.of(examples)
        tokens = self.sequences.batch(sequences)
        assert tokens.word_tokens is not None
        tags = self.sequences.of_words(sequences, self.tags)
        return TrainingBatch(tokens=tokens, targets={WordTags: WordTags(tags=tags, counts=tokens.word_tokens.counts)})


def tag_array(examples: Sequence[TaggedExample], sequences: Sequences, labels: Sequence[str]) -> Ints:
    """Gold tags of the words that are read, as numbers: [W]. A truncated example's later words are not there.

    A tag that the model does not know is IGNORE; see `unknown_tags`.
    """
    ids = {label: number for number, label in enumerate(labels)}
    tags: list[int] = []
    for example, count in zip(examples, words_read(sequences).tolist(), strict=True):
        tags += [IGNORE] * count if example.tags is None else [ids.get(tag, IGNORE) for tag in example.tags[:count]]
    return np.array(tags, dtype=np.int64)


def unknown_tags(examples: Sequence[TaggedExample], sequences: Sequences, labels: Sequence[str]) -> UnknownLabels:
    """The tags of words that are read which are none of the model's."""
    ids = set(labels)
    unknown: list[tuple[int, str]] = []
    first, before = "", 0
    for example, count in zip(examples, words_read(sequences).tolist(), strict=True):
        for word, tag in enumerate((example.tags or ())[:count]):
            if tag not in ids:
                unknown.append((before + word, tag))
                first = first or (
                    f"{example.place}: word {word + 1} ({example.words[word]}) is tagged {tag!r}, which the model "
                    f"does not know{did_you_mean(tag, ids)}"
                )
        before += count
    return UnknownLabels.of(unknown, total=before, first=first)


def tagger_of(model: Network, name: str = "the model") -> Tagging:
    """The head of a model that tags words."""
    return head_as(model, Tagging, "tag words", name)


def words_read(sequences: Sequences) -> Ints:
    """[E] how many words of each example the model reads."""
    assert sequences.words is not None
    starts = edges(sequences.parts)[:-1]
    return np.add.reduceat(sequences.words.counts, starts) if len(starts) else np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class AlignedWords:
    """Texts as the model reads them, with their words."""

    texts: list[Alignment]
    sequences: Sequences


def encode_words(
    bundle: Bundle, examples: Sequence[WordExample], config: TaggingConfig, windows: WindowOptions
) -> AlignedWords:
    """Texts, or words already cut, tagged or not: all are aligned as the model's training data were (`words.py`)."""
    texts = align_examples(bundle.tokenizer, examples, spacing=config.spacing)
    sequences = word_sequences(
        bundle.tokenizer, texts, limit=windows.limit, truncate=windows.truncate, overlap=windows.overlap
    )
    return AlignedWords(texts, sequences)


def tagged_words(
    bundle: Bundle, examples: Sequence[TaggedExample], config: TaggingConfig, windows: WindowOptions
) -> TaggedWords:
    """Encoded sentences with the tags of the words that are read."""
    sequences = encode_words(bundle, examples, config, windows).sequences
    tags = tag_array(examples, sequences, config.labels)
    return TaggedWords(sequences, tags, unknown_tags(examples, sequences, config.labels))


def allowed_by(config: TaggingConfig) -> AllowedTransitions | None:
    """Tags that may follow each tag; None if any may."""
    return None if config.scheme == "none" else AllowedTransitions.of(legal_transitions(config.labels, config.scheme))


@torch.inference_mode()
def decode(head: Tagging, scores_WK: Floats, counts_E: Ints) -> Ints:
    """The best legal sequence of tags for the words of each example: [W, K] → [W]."""
    e_WK, lengths_E = torch.from_numpy(scores_WK), torch.from_numpy(counts_E)
    allowed = allowed_by(head.config)
    if head.crf is not None:
        best_path: Ints = head.crf.viterbi(e_WK, lengths_E, allowed=allowed).numpy()
        return best_path
    best = e_WK.argmax(-1) if allowed is None else constrained_viterbi(e_WK, lengths_E, allowed)
    return np.asarray(best.numpy(), dtype=np.int64)


@torch.inference_mode()
def tag_probabilities(head: Tagging, scores_WK: Floats, counts_E: Ints) -> Floats:
    """Probabilities [W, K] of every tag for every word: the softmax of its scores, or under a CRF its marginals."""
    e_WK = torch.from_numpy(scores_WK) / head.config.temperature
    if head.crf is None:
        return torch.softmax(e_WK, -1).numpy()
    marginals: Floats = head.crf.marginals(e_WK, torch.from_numpy(counts_E)).float().numpy()
    return marginals


def tag(model: Network, texts: Sequence[Alignment], sequences: Sequences, *, scoring: ScoringOptions) -> list[Tagged]:
    """The answers of a model for texts that are aligned and encoded already."""
    head = tagger_of(model)
    scores = score_sequences(model, sequences, scoring)
    counts = words_read(sequences)
    tags = decode(head, scores, counts)
    sure = tag_probabilities(head, scores, counts)[np.arange(len(tags)), tags]
    borders = edges(counts)
    answers = []
    for number, (text, coverage) in enumerate(zip(texts, coverages(sequences), strict=True)):
        place = slice(int(borders[number]), int(borders[number + 1]))
        answers.append(_answer(text, tags[place].tolist(), sure[place].tolist(), coverage, head.config))
    return answers


def _answer(text: Alignment, tags: list[int], sure: list[float], coverage: Coverage, config: TaggingConfig) -> Tagged:
    outside = "O" if "O" in config.labels else config.labels[0]
    words = []
    for number, (start, end) in enumerate(text.word_spans.tolist()):
        read = number < len(tags)
        words.append(
            TaggedWord(
                text=text.text[start:end],
                tag=config.labels[tags[number]] if read else outside,
                start=start,
                end=end,
                probability=sure[number] if read else 0.0,
                read=read,
            )
        )
    return Tagged(text=text.text, words=tuple(words), entities=_entities(text.text, words, config), coverage=coverage)


def _entities(text: str, words: Sequence[TaggedWord], config: TaggingConfig) -> tuple[Entity, ...]:
    """Read leniently, as `evaluate` does: the tags of models of others may be out of place, those of ours never are."""
    tags, scheme = [word.tag for word in words], config.scheme
    if scheme == "none":  # models of others do not say: by the letters of their tags
        scheme = detect_scheme([config.labels])
    entities = []
    for first, last, label in read_leniently(tags, scheme):
        start, end = words[first].start, words[last - 1].end
        score = min(word.probability for word in words[first:last])
        entities.append(Entity(text=text[start:end], label=label, start=start, end=end, score=score))
    return tuple(entities)
