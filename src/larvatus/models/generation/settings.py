"""Settings of generation, the same for Python and the command; checked before a model is loaded.

GenerateSettings(max_tokens=20, temperature=0.8, top_p=0.9, samples=3) GenerateSettings(beams=4, length_penalty=1.2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import Count, PositiveShare, Range, Seed, short_repr, whole
from larvatus.core.settings import Flag, Settings

DEFAULT_MAX_TOKENS = 50
"""Tokens that are added by default, if that many fit."""
Beams = Annotated[int, whole(1, 1_000)]
Samples = Annotated[int, whole(1, 100_000)]
SamplingTemperature = Annotated[float, Range(0, 1e6)]
"""A temperature; 0: no sampling."""
MIN_TEMPERATURE = 1e-3
"""Lowest temperature above 0: below it, differences between logits would overflow."""
Penalty = Annotated[float, Range(-100, 100)]


class GenerateSettings(Settings):
    """How a prompt is continued."""

    max_tokens: Count | None = None
    """Most tokens to add; None: 50, or as many as fit after the prompt."""
    temperature: SamplingTemperature | None = None
    """0 takes the likeliest token, 1 samples from the model's distribution, None: 0, or 1 with top-k, top-p or samples.
    """
    top_k: Count | None = None
    """Sample from this many of the likeliest tokens."""
    top_p: PositiveShare | None = None
    """Sample from the smallest set of tokens with this much of the probability (nucleus)."""
    beams: Beams = 1
    """Continuations kept on the way (beam search); 1: no search."""
    length_penalty: Penalty = 1.0
    """For beam search: log-probabilities are divided by the length to this power; above 0 favours longer texts."""
    early_stopping: bool = False
    """For beam search: stop as soon as there are as many finished continuations as beams."""
    stop: Annotated[tuple[str, ...], Flag(metavar="TEXT")] = ()
    """End before this text; repeatable."""
    samples: Samples = 1
    """Continuations of each prompt; with beams, the best of them."""
    seed: Seed = 0
    """Seed of all sampling, with the number of the prompt and the position."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature and self.temperature < MIN_TEMPERATURE:
            raise UsageError(
                f"temperature = {short_repr(self.temperature)} must be 0, which takes the likeliest token, or at least "
                f"{MIN_TEMPERATURE}"
            )
        if "" in self.stop:
            raise UsageError("stop = '' occurs everywhere; give a text at which to end, such as a full stop")
        if self.beams > 1:
            self._check_beams()
        elif self.length_penalty != 1.0 or self.early_stopping:
            raise UsageError("length_penalty and early_stopping are for beam search; give beams above 1, such as 4")
        elif self.temperature == 0 and (self.top_k or self.top_p or self.samples > 1):
            raise UsageError(
                "temperature = 0 samples nothing, so top_k, top_p and samples have no effect; leave it out"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> GenerateSettings:
        """Settings from keyword arguments; an unknown one is refused with the nearest name. `stop` may be one text."""
        for name in given:
            if name not in cls.__struct_fields__:
                raise UsageError(f"generate has no setting {name!r}{did_you_mean(name, cls.__struct_fields__)}")
        stop = given.get("stop", ())
        try:
            return msgspec.convert({**given, "stop": [stop] if isinstance(stop, str) else stop}, cls)
        except msgspec.ValidationError as fault:
            if isinstance(fault.__cause__, UsageError):
                raise fault.__cause__ from None
            raise UsageError(f"fill: {fault}") from fault

    def _check_beams(self) -> None:
        if self.temperature or self.top_k or self.top_p:
            raise UsageError(
                f"beams = {self.beams} searches and does not sample; leave out temperature, top_k and top_p, or beams"
            )
        if self.samples > self.beams:
            raise UsageError(
                f"samples = {self.samples} is more than the {self.beams} continuations that beams = {self.beams} keeps;"
                f" give beams = {self.samples}"
            )

    @property
    def warmth(self) -> float:
        """The temperature in force; 0 without sampling."""
        if self.temperature is not None:
            return self.temperature
        samples = self.beams == 1 and (self.top_k or self.top_p or self.samples > 1)
        return 1.0 if samples else 0.0

    @property
    def width(self) -> int:
        """Sequences of a prompt that are generated at once."""
        return max(self.beams, self.samples)
