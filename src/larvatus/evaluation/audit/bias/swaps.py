"""Counterfactual swaps of group words, and what they change for a fine-tuned model.

    swapper = Swapper(DEFAULT_SWAPS)
    swapper.swap("He lost his keys.", "gender").text          # "She lost her keys."
    result = audit_swaps(model, dataset, read_swaps("swaps.csv"), Resampling())
    result.categories["gender"].changed.value          # per cent of texts whose decision changes with the group words

A file of swaps has two words and an optional category per line (`he,she,gender`), separated by commas or tabs; `#`
begins a comment. Swaps work in both directions, on whole words, and keep the case of the original (lower case, Capital,
CAPITALS). All words of one category are swapped at once, so that a text stays about one person. A word with several
partners takes the partner of its first line. There is one exception: if a file maps both *his* and *him* to *her*, then
*her* becomes *his* before a word that is no preposition, conjunction or particle, and *him* elsewhere. This is a
heuristic.

The audit (Garg et al. 2019; Prabhakaran et al. 2019) predicts every test text with a word of the list twice: unchanged,
and with the words of one category swapped. A changed answer is a decision that depended on the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from larvatus.core.errors import DataError, UsageError
from larvatus.core.tables import ReportPart, Table
from larvatus.data.labelled.records import Dataset, LabelledExample, TextExample
from larvatus.data.text.streams import numbered_lines
from larvatus.evaluation.audit.bias.report import SWAPS, BiasPart, Resampling, number, percent, span
from larvatus.evaluation.audit.intervals import TEXTS, resampled
from larvatus.inference.model import Model
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval
from larvatus.tasks.registry import task_of


class Swap(NamedTuple):
    first: str
    second: str
    category: str = "group"


class WordSwap(NamedTuple):
    """A word that was swapped."""

    word: str
    """In lower case."""
    partner: str


class SwappedText(NamedTuple):
    text: str
    changes: tuple[WordSwap, ...]
    """Empty where the text holds no word of the list."""


_GENDER = """
    he/she him/her his/her his/hers himself/herself man/woman men/women boy/girl boys/girls father/mother
    fathers/mothers dad/mom son/daughter sons/daughters brother/sister brothers/sisters husband/wife
    husbands/wives uncle/aunt nephew/niece grandfather/grandmother male/female males/females gentleman/lady
    gentlemen/ladies king/queen prince/princess mr/mrs sir/madam actor/actress waiter/waitress
    businessman/businesswoman
"""
DEFAULT_SWAPS = tuple(Swap(first, second, "gender") for first, second in (pair.split("/") for pair in _GENDER.split()))
"""English gender words. Users name words of other groups, whose counterparts depend on the data."""
_PARTICLES = """
    to and or but for in on at with that as by from when if because out up off away back about into over after
    before so then than while who which was is were are had has did will would again too
"""
_OBJECT = frozenset(_PARTICLES.split())
"""After these, *her* is *him*."""
_NEXT = re.compile(r"\s+([^\W\d_]+)")


@dataclass(frozen=True)
class Swapper:
    swaps: tuple[Swap, ...]

    def __post_init__(self) -> None:
        for swap in self.swaps:
            if swap.first.lower() == swap.second.lower():
                raise DataError(f"swaps: {swap.first!r} is swapped with itself: the two words must differ")

    @property
    def categories(self) -> list[str]:
        return list(dict.fromkeys(swap.category for swap in self.swaps))

    def swap(self, text: str, category: str) -> SwappedText:
        """The text with all words of a category replaced by their partners."""
        partners: dict[str, str] = {}
        for swap in self.swaps:
            if swap.category == category:
                partners.setdefault(swap.first.lower(), swap.second)
                partners.setdefault(swap.second.lower(), swap.first)
        words = sorted(partners, key=len, reverse=True)  # the longer phrase first
        pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)
        both = {"him", "his"} <= {swap.first.lower() for swap in self.swaps if swap.second.lower() == "her"}
        changes: list[WordSwap] = []

        def change(match: re.Match[str]) -> str:
            word = match[0].lower()
            partner = partners[word]
            if word == "her" and both:
                after = _NEXT.match(text, match.end())
                partner = "his" if after and after[1].lower() not in _OBJECT else "him"
            changes.append(WordSwap(word, partner))
            return _written_as(match[0], partner)

        return SwappedText(pattern.sub(change, text), tuple(changes))


def _written_as(original: str, word: str) -> str:
    if original.isupper() and len(original) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if original[:1].isupper() else word


def read_swaps(given: str | Path | Sequence[Sequence[str]] | None) -> Swapper:
    """Read a file or pairs, with or without a category; None for the default list."""
    if given is None:
        return Swapper(DEFAULT_SWAPS)
    if isinstance(given, str | Path):
        lines = ((f"{given}:{number}", line.partition("#")[0].strip()) for number, line in numbered_lines(str(given)))
        rows = [(where, re.split(r"[\t,]", line)) for where, line in lines if line]
    else:
        rows = [(f"swap {number} of {len(given)}", list(row)) for number, row in enumerate(given, start=1)]
    swaps = []
    for where, row in rows:
        cells = [cell.strip() for cell in row]
        if not 2 <= len(cells) <= 3 or not all(cells):
            raise DataError(f"{where}: a swap is two words and maybe a category: he,she,gender")
        swaps.append(Swap(*cells))
    if not swaps:
        raise DataError(f"{given} holds no swaps; write two words a line: he,she,gender")
    return Swapper(tuple(swaps))


# The audit of a fine-tuned model.

MOST_EXAMPLES = 50
"""Most changed decisions that are kept with their texts."""
MOST_SHOWN = 5
MOST_WORDS = 12


@dataclass(frozen=True)
class WordChange:
    """The effect of swapping one word, over the texts that contain it."""

    word: str
    partner: str
    texts: int
    changed: Interval | None
    """Per cent of decisions that changed; None for a regression."""
    moved: Interval
    """Mean distance of the scores: half the sum of |Δ probability|, or |Δ value| for a regression."""
    by_label: dict[str, Interval]
    """Mean signed change of each label's probability (or of the value) when the word becomes its partner."""


@dataclass(frozen=True)
class CategoryChange:
    texts: int
    """Number of texts with a word of the category."""
    changed: Interval | None
    moved: Interval
    accuracy: tuple[Interval, Interval] | None
    """Per cent correct on unchanged and on swapped texts; None without labels."""
    words: tuple[WordChange, ...]
    examples: tuple[dict[str, Any], ...]
    """Changed decisions, largest distance first."""


@dataclass(frozen=True)
class SwapResult(BiasPart):
    source: str
    texts: int
    categories: dict[str, CategoryChange]
    without: tuple[str, ...]
    """Categories without a word in any text."""
    unit: str = TEXTS
    """Unit of resampling."""
    limits: tuple[str, ...] = SWAPS

    def figures(self) -> Iterator[Figure]:
        for category, each in self.categories.items():
            at: dict[str, Any] = {"unit": self.unit, "category": category}
            if each.changed is not None:
                yield Figure.of(f"decisions changed, % of {each.texts:,} texts", each.changed, percent=True, **at)
            yield Figure.of("scores moved", each.moved, **at)
            if each.accuracy is not None:
                for name, interval in zip(("as it stands", "swapped"), each.accuracy, strict=True):
                    yield Figure.of(f"right {name}, %", interval, percent=True, **at)

    def tables(self) -> Iterator[ReportPart]:
        yield f"Counterfactual swaps: {self.source}, {self.texts:,} texts"
        columns = (
            "category",
            "texts with words",
            "decisions changed %",
            "95%",
            "scores moved",
            "95%",
            "right %",
            "swapped",
        )
        rows = []
        for name, each in self.categories.items():
            changed = ("–", "") if each.changed is None else percent(each.changed)
            right = ("–", "–") if each.accuracy is None else tuple(f"{score.value:.1f}" for score in each.accuracy)
            rows.append(
                (
                    name,
                    f"{each.texts:,}",
                    *changed,
                    f"{each.moved.value:.3f}",
                    span(each.moved, ".3f"),
                    *right,
                )
            )
        yield Table(columns, tuple(rows))
        for name, each in self.categories.items():
            yield from _words(name, each)
        yield resampled(self.unit)
        for name in self.without:
            yield f"note: no text holds a word of {name!r}: nothing was measured for it"


def _words(name: str, category: CategoryChange) -> Iterator[ReportPart]:
    rows = []
    for each in category.words[:MOST_WORDS]:
        label, most = max(each.by_label.items(), key=lambda item: abs(item[1].value))
        changed = "–" if each.changed is None else f"{each.changed.value:.1f}"
        moved = f"{each.moved.value:.3f}"
        rows.append((f"{each.word} → {each.partner}", f"{each.texts:,}", changed, moved, label, *number(most)))
    columns = (f"{name}: words", "texts", "changed %", "moved", "label that moves most", "by", "95%")
    yield Table(columns, tuple(rows), blank_before=True)
    for example in category.examples[:MOST_SHOWN]:
        yield f"  {example['before']} → {example['after']}: {example['swapped']:.160}"


@dataclass(frozen=True, eq=False)
class _Judged:
    """Predictions of a text before and after the swap."""

    example: TextExample
    swapped: SwappedText
    before: Any
    after: Any
    text: str
    """The swapped text; the two texts of a pair are separated by a tab."""

    @property
    def changed(self) -> bool | None:
        return None if self.before.value is not None else _decision(self.before) != _decision(self.after)

    @property
    def shifts(self) -> dict[str, float]:
        if self.before.value is not None:
            return {"value": self.after.value - self.before.value}
        return {label: self.after.probabilities[label] - share for label, share in self.before.probabilities.items()}

    @property
    def moved(self) -> float:
        total = sum(abs(shift) for shift in self.shifts.values())
        return total if self.before.value is not None else total / 2

    def right(self, answer: Any) -> bool:
        gold = self.example.label
        return bool(_decision(answer) == (tuple(sorted(gold)) if isinstance(gold, tuple) else gold))


def _decision(answer: Any) -> Any:
    return answer.label if answer.label is not None else tuple(sorted(answer.labels))


def audit_swaps(model: Model, data: Dataset[Any], swapper: Swapper, resampling: Resampling) -> SwapResult:
    """Compare the model's decisions and scores on texts before and after swaps."""
    examples = [_text_of(example, model) for example in data.examples]
    if not examples:
        raise DataError(f"{data.source} holds no examples")
    categories, without = {}, []
    for category in swapper.categories:
        judged = _judged(model, examples, swapper, category)
        if judged:
            categories[category] = _category(judged, resampling)
        else:
            without.append(category)
    if not categories:
        raise DataError(f"{data.source}: no text holds a word of the swaps; give swaps of words that are in the data")
    return SwapResult(data.source, len(examples), categories, tuple(without))


def _text_of(example: LabelledExample, model: Model) -> TextExample:
    plain = example.plain_text()
    if plain is None:
        what = task_of(model.bundle).card.what
        raise UsageError(
            f"{model.bundle.path} {what}; swaps are for models that classify texts or pairs, or give numbers"
        )
    return plain


def _judged(model: Model, examples: Sequence[TextExample], swapper: Swapper, category: str) -> list[_Judged]:
    chosen, inputs, swaps = [], [], []
    for example in examples:
        first = swapper.swap(example.text, category)
        second = SwappedText("", ()) if example.pair is None else swapper.swap(example.pair, category)
        if first.changes or second.changes:
            chosen.append(example)
            inputs.append(first.text if example.pair is None else (first.text, second.text))
            text = first.text if example.pair is None else f"{first.text}\t{second.text}"
            swaps.append(SwappedText(text, first.changes + second.changes))
    if not chosen:
        return []
    originals = [each.text if each.pair is None else (each.text, each.pair) for each in chosen]
    answers = list(model.predict([*originals, *inputs]))
    before, after = answers[: len(chosen)], answers[len(chosen) :]
    return [
        _Judged(example, swapped, first, second, swapped.text)
        for example, swapped, first, second in zip(chosen, swaps, before, after, strict=True)
    ]


def _category(judged: Sequence[_Judged], resampling: Resampling) -> CategoryChange:
    by_change: dict[tuple[str, str], list[_Judged]] = {}
    for each in judged:
        for change in dict.fromkeys(each.swapped.changes):
            by_change.setdefault((change.word, change.partner), []).append(each)
    words = [_word(word, partner, texts, resampling) for (word, partner), texts in by_change.items()]
    changed = sorted((each for each in judged if each.changed), key=lambda each: -each.moved)
    labelled = [each for each in judged if each.example.label is not None and each.changed is not None]
    accuracy = None
    if labelled:
        before = resampling.mean([each.right(each.before) for each in labelled], scale=100.0)
        accuracy = before, resampling.mean([each.right(each.after) for each in labelled], scale=100.0)
    return CategoryChange(
        texts=len(judged),
        changed=_changed(judged, resampling),
        moved=resampling.mean([each.moved for each in judged]),
        accuracy=accuracy,
        words=tuple(sorted(words, key=lambda each: (-each.texts, each.word))),
        examples=tuple(
            {
                "place": str(each.example.place),
                "text": each.example.reads(),
                "swapped": each.text,
                "words": [list(change) for change in each.swapped.changes],
                "before": str(each.before),
                "after": str(each.after),
            }
            for each in changed[:MOST_EXAMPLES]
        ),
    )


def _changed(judged: Sequence[_Judged], resampling: Resampling) -> Interval | None:
    flags = [each.changed for each in judged if each.changed is not None]
    return resampling.mean(flags, scale=100.0) if flags else None


def _word(word: str, partner: str, judged: Sequence[_Judged], resampling: Resampling) -> WordChange:
    labels = list(judged[0].shifts)
    return WordChange(
        word=word,
        partner=partner,
        texts=len(judged),
        changed=_changed(judged, resampling),
        moved=resampling.mean([each.moved for each in judged]),
        by_label={label: resampling.mean(np.array([each.shifts[label] for each in judged])) for label in labels},
    )
