"""`--ray` with or without an address: typer's options take a value always or never.

larvatus embed texts/ --ray --out …                   # a cluster that runs here, or a new one
larvatus embed --ray 10.0.0.4:6379 texts/ --out …
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

OPTION = "--ray"
ADDRESS = re.compile(r"auto|local|(?:ray://)?[^/\s]+:\d+")


def with_address(words: Sequence[str]) -> list[str]:
    """The words with an address after every ``--ray``: ``auto`` where what follows is none.

    >>> with_address(["embed", "--ray", "texts/"])
    ['embed', '--ray', 'auto', 'texts/']
    """
    options = list(takewhile(lambda word: word != "--", words))
    written: list[str] = []
    for number, word in enumerate(words):
        written.append(word)
        follows = words[number + 1] if number + 1 < len(words) else ""
        if word == OPTION and number < len(options) and not ADDRESS.fullmatch(follows):
            written.append("auto")
    return written
