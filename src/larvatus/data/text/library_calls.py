"""Calls of the `tokenizers` library: what it says of bad texts in our words, and its encodings as arrays.

ids, spans = arrays_of(run_library(library.encode_batch, ["Mt. Sanitas"])[0])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError
from larvatus.core.text_inputs import refuse_surrogates


def run_library(encode: Any, texts: Sequence[str]) -> list[Any]:
    """Encode by a method of the library, which says nothing useful of a text that is no text: find it."""
    try:
        encodings: list[Any] = encode(list(texts), add_special_tokens=False)
    except TypeError:
        for index, text in enumerate(texts):
            refuse_surrogates(text, f"text {index + 1}" if len(texts) > 1 else "the text")
        raise
    except BaseException as fault:
        refuse_panic(fault)
        raise
    return encodings


def refuse_panic(fault: BaseException) -> None:
    """The library panics where its pattern engine gives up, and a panic is no Exception."""
    if type(fault).__name__ == "PanicException":
        raise DataError(f"the tokenizers library gave up on a text ({fault}); cut it into shorter ones") from fault


def arrays_of(encoding: Any) -> tuple[Ints, Ints]:
    """Ids and spans of the library's encoding; spans are made monotone, which normalisation may break in theory."""
    ids = np.asarray(encoding.ids, dtype=np.int64)
    spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return ids, np.maximum.accumulate(spans, axis=0)
