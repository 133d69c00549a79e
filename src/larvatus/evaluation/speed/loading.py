"""How many tokens a second the loader packs and corrupts, by the number of its worker processes.

    loading_rates(subject, length=512, tokens=65_536, workers=(0, 1, 2, 4), seconds=3.0)

Whole blocks are counted, from the first that is there on: what was made ahead while nobody looked is not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from larvatus.data.corpus.loader import Cursor
from larvatus.evaluation.speed.model import BenchmarkModel
from larvatus.evaluation.speed.results import LoaderSpeed


def loading_rates(
    subject: BenchmarkModel, *, length: int, tokens: int, workers: Sequence[int], seconds: float
) -> tuple[LoaderSpeed, ...]:
    return tuple(
        LoaderSpeed(workers=count, tokens_per_second=_rate(subject, length, tokens, count, seconds))
        for count in workers
    )


def _rate(subject: BenchmarkModel, length: int, tokens: int, workers: int, seconds: float) -> float:
    """Over at least twice as many blocks as may be made ahead, and for as long as was asked for."""
    loader = subject.loader(length=length, tokens=tokens, workers=workers)
    steps = loader.steps()
    least, blocks, read = 2 * workers + 1, 0, 0
    began: float | None = None
    place = Cursor()
    try:
        for batch, cursor in steps:
            if began is not None:
                read += batch.tokens.size
            if (cursor.epoch, cursor.block) != (place.epoch, place.block):  # a block has been used up
                now = time.perf_counter()
                if began is None:
                    began = now
                else:
                    blocks += 1
                    if blocks >= least and now - began >= seconds:
                        return read / (now - began)
            place = cursor
    finally:
        loader.close()
        close = getattr(steps, "close", None)
        if close is not None:
            close()
    raise AssertionError("steps have no end")
