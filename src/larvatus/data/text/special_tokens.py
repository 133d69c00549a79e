"""Special tokens: batches of texts wrapped in them, T5's sentinels, and GPT's delimiters.

    batch = encode_batch(tokenizer, ["One text.", ("A question?", "Its context.")])

The tokenizer's `Template` decides which special tokens are added. They belong to no word; the words of a pair's second
text are numbered on from the first's. Nothing is truncated: split long texts into windows first.

    >>> sentinel_name(0)                                   # replaces a masked span of a text
    '<extra_id_0>'

    _start_ text _classify_                                delimiters: one text
    _start_ premise _delimiter_ hypothesis _classify_      a pair, or a context with one of its endings

Delimiters turn a text into the input of a task for a left-to-right model (Radford et al. 2018, figure 1). Such a model
sees nothing after a token, so a head reads the last one, the extract token, in place of [CLS]. Vocabularies of
pretraining have none of the three: they are added, and the post-processor wraps texts in them, so that anyone who loads
the tokenizer wraps texts as in training. The names are those of the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, takewhile
from typing import Any

import numpy as np
import tokenizers
from tokenizers import AddedToken, processors

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD, TokenBatch
from larvatus.core.errors import ArtefactError
from larvatus.data.text.extend import Extension
from larvatus.data.text.template import SequenceTemplate, Template, read_template
from larvatus.data.text.tokenizer import Tokenizer


def sentinel_name(number: int) -> str:
    return f"<extra_id_{number}>"


def sentinel_ids(tokenizer: Tokenizer) -> Ints:
    """Ids of the sentinels in order; empty for vocabularies without them."""
    ids = (tokenizer.id(sentinel_name(number)) for number in count())
    return np.array(list(takewhile(lambda index: index is not None, ids)), dtype=np.int64)


START, DELIMITER, EXTRACT = "_start_", "_delimiter_", "_classify_"
NAMES = (START, DELIMITER, EXTRACT)


def add_delimiters(tokenizer: Tokenizer) -> Extension:
    """Add the three tokens. Where the vocabulary had others in their places, the new vectors start from those.

    A vocabulary that has them already does not change.
    """
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    new = [name for name in NAMES if tokenizer.id(name) is None]
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in new])
    ids: list[Any] = [library.token_to_id(name) for name in NAMES]
    before = library.post_processor
    wrapping: Any = _template(*ids).post_processor(dict(zip(ids, NAMES, strict=True)))
    if before is not None and read_template(before) is None:  # it adds nothing, but may mend offsets (byte-level BPE)
        wrapping = processors.Sequence([before, wrapping])
    library.post_processor = wrapping
    counts = tokenizer.counts
    if counts is not None:
        counts = np.concatenate([counts, np.zeros(len(new), dtype=np.int64)])
    config = {**tokenizer.config, "cls_token": EXTRACT, "sep_token": DELIMITER, "tokenizer_class": PLAIN_CLASS}
    extended = Tokenizer.from_library(library, config=config, counts=counts)
    if extended.tokens != [*tokenizer.tokens, *new]:
        raise ArtefactError(
            "this vocabulary has ids without a token, so start, delimiter and extract token cannot be added"
        )
    old = dict(zip(NAMES, _gaps(tokenizer.template), strict=True))
    return Extension(extended, tokenizer.size, tuple(old[name] for name in new))


PLAIN_CLASS = "PreTrainedTokenizerFast"
"""Tokenizer class of `transformers`; the classes of GPT and GPT-2 would not keep the post-processor."""


def has_delimiters(tokenizer: Tokenizer) -> bool:
    """Whether the template consists of the three tokens."""
    ids = [tokenizer.id(name) for name in NAMES]
    return None not in ids and tokenizer.template.special_ids == frozenset(ids)


def _template(start: int, delimiter: int, extract: int) -> Template:
    template = Template(
        single=SequenceTemplate(((start,), (extract,)), ((), ()), (0,)),
        pair=SequenceTemplate(((start,), (delimiter,), (extract,)), ((), (), ()), (0, 0)),
    )
    return template.without_segments()


def _gaps(template: Template) -> tuple[tuple[int, ...], ...]:
    """Special tokens before a text, between two, and after the last."""
    return template.single.gaps[0], template.pair.gaps[1], template.single.gaps[-1]


def encode_batch(tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]]) -> TokenBatch[Ints]:
    """One sequence for each text or pair of texts. Special tokens written in a text are read as text."""
    rows: list[list[tuple[Ints, Ints]]] = []
    for text in texts:
        row, before = [], 0
        for part in [text] if isinstance(text, str) else text:
            encoding = tokenizer.encode(part)
            row.append((encoding.ids, np.where(encoding.words == NO_WORD, NO_WORD, encoding.words + before)))
            before += len(encoding.word_spans)
        rows.append(row)
    return wrap_batch(tokenizer, rows)


def wrap_batch(tokenizer: Tokenizer, rows: Sequence[Sequence[tuple[Ints, Ints]]]) -> TokenBatch[Ints]:
    """One sequence for each row of (ids, words) of one or two encoded texts."""
    ids, segments, words = [], [], []
    for row in rows:
        template = tokenizer.template.for_texts(len(row))
        ids.append(template.ids(*(part for part, _ in row)).tolist())
        segments.append(template.segments(*(len(part) for part, _ in row)).tolist())
        words.append(template.fill(NO_WORD, *(part for _, part in row)).tolist())
    return TokenBatch.of(ids, segments=segments, words=words)
