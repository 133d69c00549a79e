"""What may be chosen where words are tagged, and the head that the training sentences then ask for.

config = tagging_head(train, TagOptions(crf=True), scheme="BIO", natural={})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.data.text.tag_schemes import LETTERS, Scheme, convert, detect_scheme, find_illegal, split_tag
from larvatus.data.text.tag_schemes import repair as repaired
from larvatus.models.heads import TaggingConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.tasks.encoding.words import check_word_pool, spacing_of


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
    """Every tag with which the scheme can spell the types that occur: an I-LOC for a B-LOC that always stood alone.

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
    """Which of a word's subwords speak for it: first, mean or max; default: first."""
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
    """The gold tag stands on every subword, or on the word."""
    scheme: Scheme | None = None
    """How tags are to spell entities; default: as the training set does, but BIO for IOB1."""
    repair: bool = False
    """Read illegal sequences of tags as conlleval does, in place of refusing them."""


def tagging_head(
    train: Dataset[TaggedExample], options: TagOptions, *, scheme: Scheme, natural: Mapping[str, Any]
) -> TaggingConfig:
    """The tags of the training set; a scheme is complete, so that decoding can spell every entity it has seen."""
    check_word_pool(options.pool)
    labels = all_tags(train.labels(), scheme)
    if len(train.labels()) < 2:
        raise DataError(
            f"{train.source}: all words are tagged {', '.join(train.labels())}; tagging wants two tags or more"
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
