"""Restoration of masked names and numbers: does the model restore them exactly, and more often in training text?

    restoration(model, members, held_out).kinds["number"].difference

A name is one to three capitalised words that do not begin a sentence. A number has two digits or more. Names and
numbers that occur elsewhere in the text could be copied and are excluded. A span is restored if every token is correct,
filled from left to right (`masked_loss.py`) with one mask per token. Held-out texts show what can be guessed. A higher
share in training text is memorisation, if both are random samples of one source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, get_args

import numpy as np
import regex

from larvatus.core.arrays import Bools, Doubles, Ints
from larvatus.core.errors import DataError
from larvatus.core.ranges import whole
from larvatus.core.rng import stream
from larvatus.core.settings import SeededSettings
from larvatus.core.tables import Table
from larvatus.evaluation.audit.intervals import DOCUMENTS, between, percent, resampled, signed_between, spread_note
from larvatus.evaluation.audit.masked_loss import HiddenSpan, read_spans
from larvatus.inference.cloze.fill import window
from larvatus.inference.model import Model
from larvatus.metrics.accuracy import clopper_pearson
from larvatus.metrics.figures import Figure, spread_figures
from larvatus.metrics.intervals import bootstrap
from larvatus.models.masked_prediction import require_predictor

Kind = Literal["name", "number"]
PATTERNS = {
    "name": regex.compile(r"(?<=[\p{Ll},;] )\p{Lu}[\p{L}'’-]+(?: \p{Lu}[\p{L}'’-]+){0,2}"),
    "number": regex.compile(r"(?<![\p{L}\d])\d[\d.,:/-]*\d(?![\p{L}\d])"),
}
SAMPLES = 1_000
_AT_ONCE = 256


class RestorationOptions(SeededSettings):
    """Options of restoration."""

    spans: Annotated[int, whole(1, 1_000)] = 3
    """Most names, and most numbers, sampled from a text."""
    tokens: Annotated[int, whole(1, 1_000)] = 8
    """Most tokens of a name or number."""


@dataclass(frozen=True)
class RestoredShare:
    restored: int
    asked: int
    share: float
    low: float
    high: float
    """Upper end of the 95% interval; documents are resampled, since names of one document depend on each other."""

    @property
    def cells(self) -> tuple[str, str, str]:
        return f"{self.asked:,}", percent(self.share), between(self.low, self.high, digits=1, times=100)


@dataclass(frozen=True, kw_only=True)
class ShareDifference:
    """A share in training documents, the same share in held-out documents, and their difference."""

    members: RestoredShare
    held_out: RestoredShare
    difference: float
    low: float
    """Lower end of the 95% interval of the difference; `high` is the upper end."""
    high: float
    by_draw: tuple[float, ...] = ()
    """The difference for each sample of members, if there are several."""

    @property
    def cells(self) -> tuple[str, str]:
        return f"{100 * self.difference:+.1f}", signed_between(self.low, self.high, digits=1, times=100)

    def spread_notes(self, name: str) -> tuple[str, ...]:
        """The spread over samples, if there are several."""
        return (spread_note(name, self.by_draw, digits=1, times=100, sign="+"),) if self.by_draw else ()

    def figures(self, verb: str, *, names: tuple[str, str], unit: str, category: str) -> Iterator[Figure]:
        """Both shares, their difference, and its spread over samples."""
        for name, share in zip(names, (self.members, self.held_out), strict=True):
            yield Figure.between(name, share.share, (share.low, share.high), unit=unit, category=category)
        metric = f"{verb}, difference"
        yield Figure.between(metric, self.difference, (self.low, self.high), unit=unit, category=category)
        yield from spread_figures(metric, self.by_draw, {"category": category})


@dataclass(frozen=True)
class Restoration:
    kinds: dict[str, ShareDifference]
    absent: tuple[str, ...] = ()
    """Kinds that one of the two sets lacks."""
    unit: str = DOCUMENTS
    """Unit of resampling."""

    def figures(self) -> Iterator[Figure]:
        names = ("restored of training text", "restored of held-out text")
        for kind, each in self.kinds.items():
            yield from each.figures("restored", names=names, unit=self.unit, category=f"{kind}s")

    def to_dict(self) -> dict[str, Any]:
        kinds = {kind: asdict(each) for kind, each in self.kinds.items()}
        return {"kinds": kinds, "absent": list(self.absent), "unit": self.unit}

    def shown(self) -> Table:
        rows = tuple(
            (f"{kind}s", *each.members.cells, *each.held_out.cells, *each.cells) for kind, each in self.kinds.items()
        )
        columns = ("", "training", "restored", "95%", "held out", "restored", "95%", "difference", "95%")
        notes: tuple[str, ...] = (resampled(self.unit),)
        notes += tuple(f"one set has no {kind}s that occur once and are in the vocabulary" for kind in self.absent)
        for kind, each in self.kinds.items():
            notes += each.spread_notes(f"difference of {kind}s")
        return Table(columns, rows, title="masked names and numbers that are restored exactly", notes=notes)


def unique_spans(text: str, kind: str) -> list[tuple[int, int]]:
    """Character spans of names or numbers that occur once in a text.

    >>> text = "In 1984 the poet met Anna Berg, and Anna Berg met Oskar in 1987."
    >>> [text[start:end] for kind in ("name", "number") for start, end in unique_spans(text, kind)]
    ['Oskar', '1984', '1987']
    """
    lowered = text.lower()
    spans = [match.span() for match in PATTERNS[kind].finditer(text)]
    return [(a, b) for a, b in spans if all(lowered.count(word) == 1 for word in lowered[a:b].split())]


def restoration(
    model: Model,
    members: Sequence[str],
    held_out: Sequence[str],
    options: RestorationOptions = RestorationOptions(),
    *,
    draws: Ints | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Restoration:
    """Restore names and numbers. `draws` are the samples of members, if there are several. `progress` is called with
    the number of finished texts."""
    texts = [*members, *held_out]
    counts = _counts(model, texts, options, progress)
    kinds: dict[str, ShareDifference] = {}
    absent = []
    for number, kind in enumerate(get_args(Kind)):
        inside, outside = counts[number, : len(members)], counts[number, len(members) :]
        if inside[:, 1].sum() == 0 or outside[:, 1].sum() == 0:
            absent.append(kind)
        else:
            kinds[kind] = _restored(inside, outside, options.seed, draws)
    if not kinds:
        raise DataError("neither names nor numbers occur once in both sets of texts: there is nothing to restore")
    return Restoration(kinds, tuple(absent))


def _restored(inside: Doubles, outside: Doubles, seed: int, draws: Ints | None) -> ShareDifference:
    members, held_out = (_share(rows, seed + side) for side, rows in enumerate((inside, outside)))
    low, high = difference_interval(members, held_out)
    by_draw: tuple[float, ...] = ()
    if draws is not None:
        samples = (inside[draws == number].sum(0) for number in range(int(draws.max()) + 1))
        by_draw = tuple(float(right / asked) - held_out.share for right, asked in samples if asked)
    difference = members.share - held_out.share
    return ShareDifference(
        members=members, held_out=held_out, difference=difference, low=low, high=high, by_draw=by_draw
    )


def difference_interval(first: RestoredShare, second: RestoredShare) -> tuple[float, float]:
    """Interval of the difference of two shares from their intervals (Newcombe 1998; Zou & Donner 2008)."""
    difference = first.share - second.share
    low = difference - math.hypot(first.share - first.low, second.high - second.share)
    high = difference + math.hypot(first.high - first.share, second.share - second.low)
    return low, high


def _share(rows: Doubles, seed: int) -> RestoredShare:
    """A share with its bootstrap interval, or the exact binomial one if none or all are restored."""
    right, asked = rows.sum(0).astype(int).tolist()
    if right in (0, asked):
        low, high = clopper_pearson(right, asked)
        return RestoredShare(right, asked, right / asked, low, high)
    interval = bootstrap(rows, _ratio, samples=SAMPLES, seed=seed)
    return RestoredShare(
        right, asked, interval.value, min(interval.low, interval.value), max(interval.high, interval.value)
    )


def _ratio(sums: Doubles) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[..., 0] / sums[..., 1]  # NaN where a sample holds none: left out


def _counts(
    model: Model, texts: Sequence[str], options: RestorationOptions, progress: Callable[[int], None]
) -> Doubles:
    """[kinds, texts, 2] restored and masked."""
    name = str(model.bundle.path)
    predictor = require_predictor(model.network, model.tokenizer, what="restore names", name=name)
    room = predictor.longest_text(model.tokenizer)
    kinds = get_args(Kind)
    counts = np.zeros((len(kinds), len(texts), 2))
    for first in range(0, len(texts), _AT_ONCE):
        block = list(texts[first : first + _AT_ONCE])
        spans: list[HiddenSpan] = []
        owners: list[tuple[int, int]] = []
        for offset, alignment in enumerate(model.tokenizer.encode_many(block)):
            for number, kind in enumerate(kinds):
                places = unique_spans(block[offset], kind)
                order = stream(options.seed, f"audit {kind}s", 0, first + offset).permutation(len(places))
                hidden = (alignment.marked_tokens_of_chars(*places[place]) for place in order.tolist())
                fit = [each for each in hidden if _can_be_asked(model, alignment.ids, each, min(options.tokens, room))]
                for each in fit[: options.spans]:
                    start, end = window(len(alignment), list(each), room)
                    spans.append(HiddenSpan(alignment.ids[start:end], each.start - start, each.stop - start))
                    owners.append((number, first + offset))
        restored: Bools = read_spans(predictor, model.tokenizer, spans, choose=True).restored
        for owner, right in zip(owners, restored.tolist(), strict=True):
            counts[owner] += (right, 1)
        progress(first + len(block))
    return counts


def _can_be_asked(model: Model, ids: Any, tokens: range, most: int) -> bool:
    unknown = model.tokenizer.id(model.tokenizer.special.unk)
    return 0 < len(tokens) <= most and not (ids[tokens.start : tokens.stop] == unknown).any()
