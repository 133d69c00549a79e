"""What may be chosen where words are tagged, and the head that the training sentences then ask for.

config = tagging_head(train, TagOptions(crf=True), scheme="BIO", natural={})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.data.text.tag_schemes import Scheme
from larvatus.models.heads import TaggingConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.tasks.encoding.words import check_word_pool, spacing_of
from larvatus.tasks.tag.schemes import all_tags


class TagOptions(Settings):
    """Of a head that tags words."""

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
