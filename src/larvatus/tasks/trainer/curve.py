"""A learning curve: the held-out score by the number of training examples, to see whether more of them would help.

read_shares("10,30,100%")                  # [0.1, 0.3, 1.0]
part(train, 0.3)                           # the same examples first, whatever the share: parts nest
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from larvatus.core.errors import UsageError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset


@dataclass(frozen=True)
class LearningCurvePoint:
    examples: int
    metric: str
    mean: float
    deviation: float
    """Deviation over the seeds."""


D = TypeVar("D", bound=Dataset[Any])


def read_shares(text: str) -> list[float]:
    """Percentages, in rising order; all examples come last, whether named or not.

    >>> read_shares("30,10")
    [0.1, 0.3, 1.0]
    """
    percentages = [share.strip().removesuffix("%") for share in text.split(",")]
    if not all(re.fullmatch(r"\d+(\.\d+)?", share) for share in percentages):
        raise UsageError(f"--curve {text} is no list of percentages, such as 10,30,100%")
    shares = sorted({float(share) / 100 for share in percentages} | {1.0})
    if shares[0] <= 0 or shares[-1] > 1:
        raise UsageError(f"--curve {text}: percentages lie above 0 and at most at 100")
    return shares


def shuffled(data: Dataset[Any], purpose: str) -> tuple[list[int], int]:
    """Numbers of the examples in a random order, those first that show every label once; and how many those are."""
    order = stream(0, purpose).permutation(len(data)).tolist()
    seen: set[str] = set()
    first = []
    for number in order:
        labels = data.examples[number].strata()
        if labels - seen:
            first.append(number)
            seen |= labels
    shown = set(first)
    return first + [number for number in order if number not in shown], len(first)


def sample_share(data: D, share: float) -> D:
    """A share of the examples, drawn at random; a larger share holds the smaller, and each holds every label."""
    order, fewest = shuffled(data, "finetune curve")
    count = max(2, fewest, round(share * len(data)))
    if count >= len(data):
        return data
    chosen = set(order[:count])
    examples = tuple(example for number, example in enumerate(data.examples) if number in chosen)
    return dataclasses.replace(data, examples=examples, notes=(*data.notes, f"{share:.0%} of the examples"))
