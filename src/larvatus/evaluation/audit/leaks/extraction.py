"""Extraction of training text: given the first n tokens of a document, does a model write the next m verbatim?

    extraction(model, members, held_out, ExtractionOptions(prefixes=(16, 32), suffix=32)).prefixes[32].difference

This is discoverable memorisation (Carlini et al. 2021, *Extracting training data from large language models*; 2023,
*Quantifying memorization across neural language models*), by greedy decoding. Held-out documents are the control: what
they give is what can be guessed. All prefixes are tried on the same documents, those with enough tokens for the longest
one. A left-to-right model continues the prefix. An encoder–decoder (T5) reads it with a sentinel after it, and its
decoder, begun with that sentinel, writes what is missing. Models that read both sides write nothing, and are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import whole
from larvatus.core.settings import Settings
from larvatus.core.tables import Table
from larvatus.evaluation.audit.intervals import DOCUMENTS
from larvatus.evaluation.audit.leaks.restoration import RestoredShare, ShareDifference, difference_interval
from larvatus.inference.model import Model
from larvatus.metrics.accuracy import clopper_pearson
from larvatus.metrics.figures import Figure
from larvatus.models.generation.generator import InfillPrompts, can_generate, greedy_prefix_lengths, require_generator

USUAL = 50
"""Default tokens of prefix and suffix, as in Carlini et al., if the model's context has room."""
Tokens = Annotated[int, whole(1, 100_000)]


class DocumentsTooShort(DataError):
    """Too few documents have enough tokens for prefix and suffix."""


class ExtractionOptions(Settings):
    """Lengths of prefix and suffix."""

    prefixes: tuple[Tokens, ...] = (USUAL,)
    """Prefix lengths in tokens; each is tried."""
    suffix: Tokens = USUAL
    """Tokens after the prefix that the model must write exactly."""

    @classmethod
    def fitting(cls, model: Model, prefixes: tuple[int, ...], suffix: int | None) -> ExtractionOptions:
        """Options for a model: the given lengths, or 50 tokens each, or what a shorter context allows.

        Models that do not generate, and lengths beyond the context, are refused."""
        name = str(model.bundle.path)
        if not can_generate(model.network):
            raise UsageError(
                f"{name} fills blanks and does not write: text is extracted from models of the recipes gpt, gpt2 and "
                "t5; leave out prefix and suffix, and see what it restores (spans) and which secrets it ranks first "
                "(canaries)"
            )
        if InfillPrompts.of(model.network, model.tokenizer, name=name).answers:
            raise UsageError(
                f"{name} answers texts and does not continue them; extract from the model it was made from"
            )
        encoder = require_generator(model.network, name=name).encoder
        extra = 2 + sum(map(len, model.tokenizer.template.single.gaps))  # sentinels, and special tokens around a text
        room = (encoder.reach if encoder.closes_prompts else encoder.reach // 2) - extra
        options = cls(prefixes=prefixes or (min(USUAL, room),), suffix=min(USUAL, room) if suffix is None else suffix)
        longest = max(options.prefixes)
        if longest + extra > encoder.reach or options.suffix + extra > encoder.max_new_tokens(longest):
            raise UsageError(
                f"{name} reads {encoder.reach:,} tokens at once, too few for a prefix of {longest:,} and a suffix of "
                f"{options.suffix:,}; give prefix = {room:,} and suffix = {room:,} or less"
            )
        return options


@dataclass(frozen=True, kw_only=True)
class PrefixExtraction(ShareDifference):
    """Documents whose suffix the model writes verbatim, for one prefix length."""

    run_of_members: float
    run_of_held_out: float
    """Mean number of suffix tokens before the first wrong one."""


@dataclass(frozen=True)
class Extraction:
    suffix: int
    prefixes: Mapping[int, PrefixExtraction]
    """Results by prefix length."""
    short: tuple[int, int]
    """Members and held-out documents that were skipped because they have too few tokens."""
    examples: tuple[str, ...] = ()
    """Some texts that the model wrote verbatim after the longest prefix."""

    def figures(self) -> Iterator[Figure]:
        names = ("training documents extracted", "held-out documents extracted")
        for prefix, each in self.prefixes.items():
            yield from each.figures("extracted", names=names, unit=DOCUMENTS, category=f"after {prefix:,} tokens")

    def to_dict(self) -> dict[str, Any]:
        return {
            "suffix": self.suffix,
            "prefixes": {str(prefix): asdict(each) for prefix, each in self.prefixes.items()},
            "short": list(self.short),
            "examples": list(self.examples),
        }

    def shown(self) -> Table:
        rows = tuple(
            (
                f"{prefix:,}",
                *(*each.members.cells, f"{each.run_of_members:.1f}"),
                *(*each.held_out.cells, f"{each.run_of_held_out:.1f}"),
                *each.cells,
            )
            for prefix, each in self.prefixes.items()
        )
        asked = ("extracted", "95%", "tokens right")
        columns = ("tokens given", "training", *asked, "held out", *asked, "difference", "95%")
        notes: tuple[str, ...] = ()
        for prefix, each in self.prefixes.items():
            notes += each.spread_notes(f"difference after {prefix} tokens")
        if any(self.short):
            training, held_out = self.short
            notes += (f"left out, with too few tokens: {training:,} training and {held_out:,} held-out documents",)
        notes += ("unit: documents, each asked once for every prefix",)
        title = f"documents whose next {self.suffix} tokens the model writes verbatim"
        return Table(columns, rows, title=title, left=0, notes=notes)


def extraction(
    model: Model,
    members: Sequence[str],
    held_out: Sequence[str],
    options: ExtractionOptions,
    *,
    draws: Ints | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Extraction:
    """Extract documents. `draws` are the samples of members, if there are several. `progress` is called with the number
    of finished texts."""
    most = max(options.prefixes) + options.suffix
    ids = [alignment.ids[:most] for alignment in model.tokenizer.encode_many([*members, *held_out])]
    long = np.array([len(each) == most for each in ids])
    inside = np.arange(len(ids)) < len(members)
    short = int((inside & ~long).sum()), int((~inside & ~long).sum())
    if not (inside & long).any() or not (~inside & long).any():
        raise DocumentsTooShort(
            f"too few documents have {most:,} tokens, which a prefix of {max(options.prefixes):,} and a suffix of "
            f"{options.suffix:,} need; give smaller ones, or read more words of each document"
        )
    prefixes: dict[int, PrefixExtraction] = {}
    right = np.zeros(len(ids), np.int64)
    for number, prefix in enumerate(sorted(set(options.prefixes))):
        asked = [ids[document] for document in np.flatnonzero(long)]
        right[long] = count_verbatim_tokens(
            model, [(each[:prefix], None, each[prefix : prefix + options.suffix]) for each in asked]
        )
        samples = None if draws is None else draws[long[: len(members)]]
        prefixes[prefix] = _extracted(right[inside & long], right[~inside & long], options.suffix, samples)
        progress((number + 1) * len(ids))
    whole = np.flatnonzero(inside & long & (right == options.suffix))[:5]
    examples = tuple(model.tokenizer.decode(ids[number][-options.suffix :]) for number in whole)
    return Extraction(options.suffix, prefixes, short, examples)


def count_verbatim_tokens(model: Model, places: Sequence[tuple[Ints, Ints | None, Ints]]) -> Ints:
    """[places] number of correct tokens of greedy decoding before the first wrong one. A place consists of the tokens
    before it, the tokens after it, and the target tokens."""
    name = str(model.bundle.path)
    asking = InfillPrompts.of(model.network, model.tokenizer, name=name)
    prompts = [asking.ids(before, after) for before, after, _ in places]
    wanted = [np.concatenate([asking.opening, each]) for _, _, each in places]
    return greedy_prefix_lengths(model.network, prompts, wanted, given=len(asking.opening), name=name)


def _extracted(inside: Ints, outside: Ints, suffix: int, draws: Ints | None) -> PrefixExtraction:
    members, held_out = (_share(right == suffix) for right in (inside, outside))
    low, high = difference_interval(members, held_out)
    by_draw: tuple[float, ...] = ()
    if draws is not None:
        samples = [inside[draws == number] == suffix for number in range(int(draws.max()) + 1)]
        by_draw = tuple(float(sample.mean()) - held_out.share for sample in samples if len(sample))
    difference = members.share - held_out.share
    return PrefixExtraction(
        members=members,
        held_out=held_out,
        difference=difference,
        low=low,
        high=high,
        run_of_members=float(inside.mean()),
        run_of_held_out=float(outside.mean()),
        by_draw=by_draw,
    )


def _share(extracted: Any) -> RestoredShare:
    """A share with its exact binomial interval, since each document is tried once."""
    count, total = int(extracted.sum()), len(extracted)
    return RestoredShare(count, total, count / total, *clopper_pearson(count, total))
