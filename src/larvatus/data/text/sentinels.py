"""Sentinels: special tokens that stand for hidden spans of a text (T5), by their names and ids.

>>> sentinel_name(0)
'<extra_id_0>'
"""

from __future__ import annotations

from itertools import count, takewhile

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.data.text.tokenizer import Tokenizer


def sentinel_name(number: int) -> str:
    return f"<extra_id_{number}>"


def sentinel_ids(tokenizer: Tokenizer) -> Ints:
    """Ids of the first sentinel, the second …; none in vocabularies without them."""
    ids = (tokenizer.id(sentinel_name(number)) for number in count())
    return np.array(list(takewhile(lambda index: index is not None, ids)), dtype=np.int64)
