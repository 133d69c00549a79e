"""Settings of a suite: its parts, the amount of data, and fine-tuning.

SuiteSettings(only=("blimp", "ewt"), quick=True, seeds=1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from larvatus.core.flags import Flag
from larvatus.core.ranges import Count, LearningRate, whole
from larvatus.core.settings import Settings
from larvatus.training.engine.settings import MICROBATCH

SEEDS = whole(1, 10_000)
"""Number of seeds."""


def _parts(name: str) -> Callable[[Sequence[str]], Mapping[str, Any]]:
    """Parse a repeatable flag whose words list parts, separated by commas."""
    return lambda words: {name: tuple(part.strip() for word in words for part in word.split(",") if part.strip())}


class SuiteSettings(Settings):
    """Parts of the suite, and how much is spent on each."""

    only: Annotated[tuple[str, ...], Flag(metavar="PART,…", words=_parts("only"))] = ()
    """Only these parts: masked, blimp, sst2, cola, rte, stsb, mrpc, ewt, wikiann, wnut17, gum, xquad, senses, scws,
    wic, isotropy; repeatable."""
    leave_out: Annotated[tuple[str, ...], Flag(metavar="PART,…", words=_parts("leave_out"))] = ()
    """All parts but these; repeatable."""
    quick: bool = False
    """The first 100 pairs of each set of BLiMP, and 131,072 tokens of held-out text."""
    examples: Annotated[Count, Flag(metavar="N")] | None = None
    """Fine-tune on at most this many examples, sampled at random, with a tenth as validation set."""
    epochs: Count | None = None
    """Epochs of fine-tuning; default: by task and number of examples, as in finetune."""
    rate: LearningRate | None = None
    """Peak learning rate of fine-tuning; default: by task."""
    seeds: Annotated[int, SEEDS] | None = None
    """Fine-tune from seeds 0, 1, …; default: 3 on sets of fewer than 8,000 examples, else 1."""
    layers: str | None = None
    """Layers of word vectors (senses, scws, wic): last, last4 (mean), or the number of a layer; default: each model's
    own, mostly the last."""
    precision: str = "auto"
    """Precision of fine-tuning: fp32, bf16 (mixed), or auto. Other measurements use fp32."""
    microbatch: Annotated[int, MICROBATCH] | None = None
    """Tokens of one pass of fine-tuning."""
