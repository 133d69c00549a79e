"""Generate continuations of many prompts: settings, batches of similar length, results.

    for generated in generate(network, tokenizer, ["Once upon a", "The"], GenerateSettings(max_tokens=20)):
        print(generated.text)
    GenerateSettings(max_tokens=20, temperature=0.8, top_p=0.9, samples=3)
    GenerateSettings(beams=4, length_penalty=1.2)

Settings are the same for Python and the command, and are checked before a model is loaded. Batches have prompts of
similar length, within a budget of tokens. A prompt is read completely or refused; it is never cut. A continuation does
not depend on the rest of the batch. B prompts of a batch, each with `width` sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, overload

import msgspec
import numpy as np
import torch

from larvatus.core import notebook
from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, runs
from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import Count, PositiveShare, Range, Seed, short_repr, whole
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Tabular
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.generation.decoding import (
    BeamSettings,
    DecodedSequence,
    SampledChoice,
    Sampling,
    Stopping,
    beam_search,
    decode,
    greedy,
)
from larvatus.models.generation.generator import (
    GenerationState,
    Generator,
    continuation_text,
    end_ids,
    prompt_ids,
    require_generator,
)
from larvatus.models.network import Network
from larvatus.models.nn.device import check_fits, explain_out_of_memory, on_device

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


# Results.

Ending = Literal["end", "stop", "length", "context"]


@dataclass(frozen=True)
class Continuation:
    """One continuation of a prompt."""

    text: str
    """The added text, up to the end or to a stop text."""
    whole: str
    """With the prompt before it, if the text continues it; the output of an encoder–decoder is a text of its own."""
    ids: tuple[int, ...]
    """All generated tokens, including an end token."""
    log_probability: float
    """Log-probability of these tokens given the prompt, by the model itself, whatever the temperature."""
    ended: Ending
    """Reason for the end: the model's `end` token, a `stop` text, max_tokens (`length`), or a full `context` of the
    model.
    """

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "whole": self.whole,
            "ids": list(self.ids),
            "log_probability": self.log_probability,
            "ended": self.ended,
        }

    def __str__(self) -> str:
        return self.whole


@dataclass(frozen=True)
class Generated(Sequence[Continuation], Tabular):
    """The continuations of a prompt: samples in the order of their numbers, beams best first."""

    prompt: str
    continuations: tuple[Continuation, ...]
    read: int
    """Tokens of the prompt, including special ones, all of which the model has read."""

    @property
    def text(self) -> str:
        """What the first continuation adds."""
        return self.continuations[0].text

    @overload
    def __getitem__(self, index: int) -> Continuation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Continuation, ...]: ...
    def __getitem__(self, index: int | slice) -> Continuation | tuple[Continuation, ...]:
        return self.continuations[index]

    def __len__(self) -> int:
        return len(self.continuations)

    def __iter__(self) -> Iterator[Continuation]:
        return iter(self.continuations)

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "continuations": [each.to_dict() for each in self.continuations],
            "read": self.read,
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each continuation, without token ids."""
        rows = []
        for number, each in enumerate(self.continuations, start=1):
            record = {name: value for name, value in each.to_dict().items() if name != "ids"}
            rows.append({"prompt": self.prompt, "number": number, **record})
        return rows

    def _repr_html_(self) -> str:
        rows = [(each.whole, f"{each.log_probability:.2f}", each.ended) for each in self]
        return notebook.table(("text", "log-probability", "ended by"), rows, title=self.prompt)

    def __str__(self) -> str:
        return "\n".join(each.whole for each in self)


# Generation.

MAX_GENERATED = {"cpu": 1 << 18, "cuda": 1 << 22}
"""Most tokens of all continuations of a prompt, including beams and samples: some minutes of a small model."""


@dataclass(frozen=True, eq=False)
class _Prompt:
    number: int
    text: str
    ids: Ints
    max_new: int
    """Most tokens to add."""
    fills_context: bool
    """Whether no more would fit."""


@torch.inference_mode()
def generate(
    network: Network,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: GenerateSettings,
    *,
    labels: Sequence[str] | None = None,
    first: int = 0,
    batch_tokens: int = 0,
    name: str = "the model",
) -> list[Generated]:
    """One result for each text. `labels` are their names in messages, `first` the number of the first among all texts,
    which decides its random numbers.
    """
    generator = require_generator(network, name=name)
    network.eval()
    named = labels or [f"prompt {number}" if len(texts) > 1 else "the prompt" for number in range(1, len(texts) + 1)]
    prompts = [
        _read(generator, tokenizer, text, settings, number=number, label=label)
        for number, (text, label) in enumerate(zip(texts, named, strict=True), start=first)
    ]
    by_length = sorted(prompts, key=lambda prompt: len(prompt.ids))
    sizes = np.array([settings.width * (len(prompt.ids) + prompt.max_new) for prompt in by_length], np.int64)
    results: dict[int, Generated] = {}
    for start, end in runs(sizes, batch_tokens or generator.budget):
        with explain_out_of_memory("lower max_tokens, beams or samples, or take a smaller model"):
            batch = by_length[start:end]
            results |= _of_batch(generator, tokenizer, batch, settings)
    return [results[prompt.number] for prompt in prompts]


def _read(
    generator: Generator, tokenizer: Tokenizer, text: str, settings: GenerateSettings, *, number: int, label: str
) -> _Prompt:
    """The prompt's tokens, and how many may follow; refused if it does not fit the model."""
    encoder = generator.encoder
    ids = prompt_ids(text, tokenizer, closed=encoder.closes_prompts, label=label)
    available = encoder.max_new_tokens(len(ids))
    where = "" if encoder.closes_prompts else ", prompt and continuation together"
    if available < 1:
        raise UsageError(
            f"{label} has {len(ids):,} tokens, and the model's context is {encoder.reach:,} tokens{where}; shorten it"
        )
    if settings.max_tokens is not None and settings.max_tokens > available:
        raise UsageError(
            f"max_tokens = {settings.max_tokens:,} is more than fits: the model's context is {encoder.reach:,} tokens"
            f"{where}, and {label} has {len(ids):,}; give max_tokens = {available:,} or less"
        )
    max_new = min(DEFAULT_MAX_TOKENS, available) if settings.max_tokens is None else settings.max_tokens
    _check_cost(generator, settings, max_new)
    return _Prompt(number, text, ids, max_new, fills_context=settings.max_tokens is None and max_new == available)


def _check_cost(generator: Generator, settings: GenerateSettings, max_new: int) -> None:
    """Refuse more continuations than are practical or fit into memory; the error gives values that work."""
    device, width = generator.encoder.device, settings.width
    name = "beams" if settings.beams > 1 else "samples"
    limit = MAX_GENERATED.get(device.type, MAX_GENERATED["cuda"])
    if width * max_new > limit:
        raise UsageError(
            f"{name} = {width:,} of {max_new:,} tokens are {width * max_new:,} tokens for a prompt, and at most "
            f"{limit:,} are computed on this device; give {name} = {max(1, limit // max_new):,}, or "
            f"max_tokens = {limit // width:,}"
        )
    scores = 12 * width * len(generator.encoder.word_vectors)  # of every word, in single and in double precision
    check_fits(scores, device, what=f"{name} = {width:,}", lower=f"lower {name}")


def _of_batch(
    generator: Generator, tokenizer: Tokenizer, prompts: Sequence[_Prompt], settings: GenerateSettings
) -> dict[int, Generated]:
    """The results by the numbers of the prompts."""
    follows = not generator.encoder.closes_prompts

    def text_of(prompt: int, ids: Sequence[int]) -> str:
        before = prompts[prompt].ids.tolist() if follows else []
        return continuation_text(tokenizer, before, ids)

    stopping = Stopping(end_ids(tokenizer), settings.stop, text_of)
    batch = on_device(TokenBatch.of([prompt.ids.tolist() for prompt in prompts]), generator.encoder.device)
    max_new = max(prompt.max_new for prompt in prompts)
    generation = generator.encoder.generation_state(batch, max_new=max_new, head=generator.head)
    write = _searched if settings.beams > 1 else _sampled
    written = write(generation, prompts, settings, stopping)
    results = {}
    for place, (prompt, sequences) in enumerate(zip(prompts, written, strict=True)):
        texts = [stopping.cut(text_of(place, each.ids)) for each in sequences]
        pairs = zip(sequences, texts, strict=True)
        continuations = tuple(_continuation(each, prompt, text, follows) for each, text in pairs)
        results[prompt.number] = Generated(prompt.text, continuations, len(prompt.ids))
    return results


def _sampled(
    generation: GenerationState, prompts: Sequence[_Prompt], settings: GenerateSettings, stopping: Stopping
) -> list[list[DecodedSequence]]:
    """Greedy decoding, or the requested number of samples of each prompt."""
    samples = settings.samples
    of_prompt = np.repeat(np.arange(len(prompts)), samples)
    if samples > 1:
        generation.take(torch.from_numpy(of_prompt))
    numbers = np.array([prompt.number for prompt in prompts], np.int64)[of_prompt]
    sampling = Sampling(settings.warmth, settings.top_k, settings.top_p)
    draws = SampledChoice(sampling, settings.seed, numbers, np.tile(np.arange(samples), len(prompts)))
    limits = np.array([prompt.max_new for prompt in prompts], np.int64)[of_prompt]
    choose = draws if settings.warmth else greedy
    sequences = decode(generation, choose=choose, limits=limits, stopping=stopping, prompts=of_prompt)
    return [sequences[at : at + samples] for at in range(0, len(sequences), samples)]


def _searched(
    generation: GenerationState, prompts: Sequence[_Prompt], settings: GenerateSettings, stopping: Stopping
) -> list[list[DecodedSequence]]:
    """The best beams of each prompt, as many as requested."""
    search = BeamSettings(settings.beams, settings.length_penalty, settings.early_stopping)
    limits = np.array([prompt.max_new for prompt in prompts], np.int64)
    ranked = beam_search(generation, search, limits=limits, stopping=stopping)
    return [beams[: settings.samples] for beams in ranked]


def _continuation(written: DecodedSequence, prompt: _Prompt, text: str, follows: bool) -> Continuation:
    whole = prompt.text + text if follows else text.strip()
    ended = "context" if written.reason == "length" and prompt.fills_context else written.reason
    return Continuation(text, whole, written.ids, written.log_probability, ended)
