"""Packings turn documents into training sequences: a `TextBlock` goes in, a `TrainingBatch` comes out.

    sentence-pairs     [CLS] A [SEP] B [SEP], B the continuation or that of another document (BERT)
    full-sentences     sentences up to the limit, across documents with a separator (RoBERTa)
    sentences          one sentence (ELMo)
    single-segment     sentences of one document up to the limit (SpanBERT)
    documents          whole documents, windowed where they are longer (no leaking across documents)
    sentence-order     [CLS] A [SEP] B [SEP], neighbours in one document, half of them swapped (ALBERT)
    contiguous         running text, cut wherever a sequence is full (GPT, T5, XLNet)

The vocabulary's `Template` decides which special tokens are written as [CLS] and [SEP] here.

Every packing uses each token of the block at least once in an epoch: long sentences are cut into successive pieces,
never lost. Two exceptions: a document of one sentence has no order, and one of a single token makes no pair, so
`sentence-order` and `sentence-pairs` skip them. A new packing is a subclass of `PackingSettings` with its fields and
its `plan`, and a line in `PackingConfig`.
"""

from __future__ import annotations

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import RecipeError
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing.pieces import Pieces, assemble
from larvatus.data.corpus.packing.sentence_order import SentenceOrderPackingConfig
from larvatus.data.corpus.packing.sentence_pairs import SentencePairsConfig
from larvatus.data.corpus.packing.single_text import (
    ContiguousConfig,
    DocumentsConfig,
    FullSentencesConfig,
    SentencesConfig,
    SingleSegmentConfig,
)
from larvatus.data.text.template import Template

PackingConfig = (
    SentencePairsConfig
    | FullSentencesConfig
    | SingleSegmentConfig
    | DocumentsConfig
    | SentenceOrderPackingConfig
    | ContiguousConfig
    | SentencesConfig
)

__all__ = [
    "ContiguousConfig",
    "DocumentsConfig",
    "FullSentencesConfig",
    "PackingConfig",
    "SentenceOrderPackingConfig",
    "SentencePairsConfig",
    "SentencesConfig",
    "SingleSegmentConfig",
    "pack",
    "plan_sequences",
]


def pack(
    block: TextBlock, config: PackingConfig, *, length: int, template: Template, random: np.random.Generator
) -> TrainingBatch[Ints]:
    """Pack a block into sequences of at most `length` tokens, in random order, with special tokens of `template`."""
    pieces = plan_sequences(block, config, length=length, template=template, random=random)
    return assemble(block, pieces, config.sequence_template(template))


def plan_sequences(
    block: TextBlock, config: PackingConfig, *, length: int, template: Template, random: np.random.Generator
) -> Pieces:
    """Decide which pieces of a block make which sequence, in random order: all of a packing but the tokens."""
    sequence = config.sequence_template(template)
    if sequence.text_length(length) < config.least:
        raise RecipeError(
            f"{length} tokens are too few for a sequence of {config.__struct_config__.tag}; set a length of 8 or more"
        )
    pieces = config.plan(block, length=length, template=sequence, random=random)
    return pieces.in_order(random.permutation(pieces.count))
