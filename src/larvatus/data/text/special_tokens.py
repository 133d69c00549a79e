"""Sentinels: special tokens that stand for hidden spans of a text (T5), by their names and ids.

>>> sentinel_name(0)
'<extra_id_0>'

The tokens that make a text a question to a left-to-right model (Radford et al. 2018, figure 1): start, delimiter,
extract.

    _start_ text _classify_                                one text
    _start_ premise _delimiter_ hypothesis _classify_      a pair; so too a context with one of its endings

Such a model sees nothing after a token, so what is told of the text is told from the last, the extract token, which
takes the place of [CLS]. Vocabularies of pretraining have none of the three: they are added, and the post-processor
dresses texts with them, so that whoever loads the tokenizer does as in training. The names are those of the release.

Texts as the model reads them: one text, or the two of a pair, dressed with special tokens and laid end to end.

    batch = inputs(tokenizer, ["One text.", ("A question?", "Its context.")])

How they are dressed the tokenizer's `Frame` says. Special tokens belong to no word; the words of a pair's second text
are counted on from the first's. Nothing is cut: who has a limit windows the text first.
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
from larvatus.data.text.template import Dress, Frame, read_frame
from larvatus.data.text.tokenizer import Tokenizer


def sentinel_name(number: int) -> str:
    return f"<extra_id_{number}>"


def sentinel_ids(tokenizer: Tokenizer) -> Ints:
    """Ids of the first sentinel, the second …; none in vocabularies without them."""
    ids = (tokenizer.id(sentinel_name(number)) for number in count())
    return np.array(list(takewhile(lambda index: index is not None, ids)), dtype=np.int64)


START, DELIMITER, EXTRACT = "_start_", "_delimiter_", "_classify_"
NAMES = (START, DELIMITER, EXTRACT)


def delimited(tokenizer: Tokenizer) -> Extension:
    """The vocabulary with the three tokens. Where it had others in their places, the new vectors start from those.

    Of a vocabulary that has them already nothing changes.
    """
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    new = [name for name in NAMES if tokenizer.id(name) is None]
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in new])
    ids: list[Any] = [library.token_to_id(name) for name in NAMES]
    before = library.post_processor
    dressing: Any = _frame(*ids).post_processor(dict(zip(ids, NAMES, strict=True)))
    if before is not None and read_frame(before) is None:  # it adds nothing, but may mend offsets (byte-level BPE)
        dressing = processors.Sequence([before, dressing])
    library.post_processor = dressing
    counts = tokenizer.counts
    if counts is not None:
        counts = np.concatenate([counts, np.zeros(len(new), dtype=np.int64)])
    config = {**tokenizer.config, "cls_token": EXTRACT, "sep_token": DELIMITER, "tokenizer_class": PLAIN_CLASS}
    extended = Tokenizer.from_library(library, config=config, counts=counts)
    if extended.pieces != [*tokenizer.pieces, *new]:
        raise ArtefactError(
            "this vocabulary has ids that no piece has, so start, delimiter and extract token cannot be added"
        )
    old = dict(zip(NAMES, _places(tokenizer.frame), strict=True))
    return Extension(extended, tokenizer.size, tuple(old[name] for name in new))


PLAIN_CLASS = "PreTrainedTokenizerFast"
"""Of `transformers`: those of GPT and GPT-2 would not keep the post-processor."""


def is_delimited(tokenizer: Tokenizer) -> bool:
    """Whether its texts are dressed with the three tokens."""
    ids = [tokenizer.id(name) for name in NAMES]
    return None not in ids and tokenizer.frame.specials == frozenset(ids)


def _frame(start: int, delimiter: int, extract: int) -> Frame:
    frame = Frame(
        single=Dress(((start,), (extract,)), ((), ()), (0,)),
        pair=Dress(((start,), (delimiter,), (extract,)), ((), (), ()), (0, 0)),
    )
    return frame.without_segments()


def _places(frame: Frame) -> tuple[tuple[int, ...], ...]:
    """What stood before a text, between two, and after the last."""
    return frame.single.gaps[0], frame.pair.gaps[1], frame.single.gaps[-1]


def inputs(tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]]) -> TokenBatch[Ints]:
    """One sequence for each text or pair of texts. A special token written out in a text is text."""
    rows: list[list[tuple[Ints, Ints]]] = []
    for text in texts:
        row, before = [], 0
        for part in [text] if isinstance(text, str) else text:
            encoding = tokenizer.encode(part)
            row.append((encoding.ids, np.where(encoding.words == NO_WORD, NO_WORD, encoding.words + before)))
            before += len(encoding.word_spans)
        rows.append(row)
    return framed(tokenizer, rows)


def framed(tokenizer: Tokenizer, rows: Sequence[Sequence[tuple[Ints, Ints]]]) -> TokenBatch[Ints]:
    """The same for what is encoded already: each row holds (ids, words) of one or two texts."""
    ids, segments, words = [], [], []
    for row in rows:
        dress = tokenizer.frame.of(len(row))
        ids.append(dress.ids(*(part for part, _ in row)).tolist())
        segments.append(dress.segments(*(len(part) for part, _ in row)).tolist())
        words.append(dress.filled(NO_WORD, *(part for _, part in row)).tolist())
    return TokenBatch.of(ids, segments=segments, words=words)
