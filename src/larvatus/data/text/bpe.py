"""Byte-pair encoding (Sennrich et al. 2016): merge the commonest pair of neighbours, again and again.

The `tokenizers` library does the merging. Its result depends only on the counts of the words as long as every symbol is
one character of a fixed order; its ``##`` and ``</w>`` variants number their symbols in the order of a hash table, so
they differ from run to run. Here each symbol (``a``, ``##a``, ``a</w>``) is given a private-use character of its own
before merging, and its name back after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from larvatus.core.errors import DataError
from larvatus.data.text.counting import repeated

PRIVATE = 0xF0000
"""First of the 131,068 private-use characters of planes 15 and 16 that stand for symbols."""


@dataclass(frozen=True)
class Merges:
    pieces: list[str]
    """The alphabet in order, then merged pieces in the order of learning."""
    pairs: list[tuple[str, str]]
    """What to merge, in order; two pairs may make the same piece."""


def learn_merges(
    words: Sequence[tuple[str, int]],
    *,
    symbols: Callable[[str], list[str]],
    join: Callable[[str, str], str],
    alphabet: Sequence[str],
    pieces: int,
    min_count: int,
) -> Merges:
    """Learn merges until there are `pieces` pieces, or none is left that occurs `min_count` times.

    `symbols` cuts a word, `join` names a merged pair; a word with a symbol outside the alphabet is left out.
    """
    stand = {
        symbol: chr(PRIVATE + 0x10000 * (index // 0xFFFE) + index % 0xFFFE) for index, symbol in enumerate(alphabet)
    }
    if len(stand) > 2 * 0xFFFE:
        raise DataError(f"the text has {len(stand):,} different symbols; lower the character coverage")
    coded = []
    for word, count in words:
        cut = symbols(word)
        if all(symbol in stand for symbol in cut):
            coded.append(("".join(stand[symbol] for symbol in cut), count))
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        min_frequency=min_count,
        initial_alphabet=list(stand.values()),
        show_progress=False,
    )
    library.train_from_iterator(repeated(coded), trainer)
    names = {char: symbol for symbol, char in stand.items()}
    pairs = []
    for left, right in msgspec.json.decode(library.to_str())["model"]["merges"]:
        names[left + right] = join(names[left], names[right])
        pairs.append((names[left], names[right]))
    return Merges(list(dict.fromkeys([*alphabet, *(join(left, right) for left, right in pairs)])), pairs)
