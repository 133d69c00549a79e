"""Fill-in templates: how likely attributes are with one group of people and with another (Kurita et al. 2019).

    sentences = ["[GROUP] works as a [MASK].", "[GROUP] is a good [MASK]."]
    [groups]
    men = ["he", "the man"]
    women = ["she", "the woman"]
    [attributes]
    technical = ["engineer", "programmer"]
    caring = ["nurse", "carer"]

    attribute         log p(attribute | group) − log p(attribute | group masked)
    group predicted   log p(group | attribute) − log p(group | attribute masked)

The second term is the prior: what the model says where it does not know the other word, so that frequent words, and
words that it likes in that sentence, have no advantage. Kurita et al. ask for the group's word; asked for the
attribute, the prior is the same for groups of as many tokens, and falls out of their difference. A word of several
tokens is asked for from left to right. Groups are compared on the same sentences and attributes, by the mean over a
group's words. Intervals resample sentences and attribute words, each by itself: a word is asked for in every sentence,
so the cells are not independent. The words of a group are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.tables import ReportPart, Table
from larvatus.evaluation.audit.bias.reader import LikelihoodReader
from larvatus.evaluation.audit.bias.report import (
    TEMPLATES,
    BiasPart,
    Resampling,
    number,
    read_texts,
    read_toml,
    read_word_lists,
)
from larvatus.evaluation.audit.intervals import resampled, template_unit
from larvatus.inference.cloze.slots import Slot
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval

GROUP, MASK = "[GROUP]", "[MASK]"
FIELDS = ("sentences", "groups", "attributes")


@dataclass(frozen=True)
class Templates:
    sentences: tuple[str, ...]
    groups: dict[str, tuple[str, ...]]
    attributes: dict[str, tuple[str, ...]]
    source: str

    def slot(self, cell: tuple[str, str, str], *, asked: str, prior: bool) -> Slot:
        """The slot of a word in a sentence; `prior` masks the other word (group or attribute)."""
        sentence, member, attribute = cell
        text, places = "", {}
        for part in _parts(sentence):
            word = {GROUP: member, MASK: attribute}.get(part)
            if part == GROUP and not text.strip():
                word = member[:1].upper() + member[1:]
            if word is not None:
                places[part] = len(text), len(text) + len(word)
            text += part if word is None else word
        hidden = (places[GROUP if asked == MASK else MASK],) if prior else ()
        return Slot(text, places[asked], hidden, f"{self.source}: {sentence!r} with {member!r} and {attribute!r}")


def _parts(sentence: str) -> Iterator[str]:
    """The sentence split at its two placeholders."""
    first, second = sorted((GROUP, MASK), key=sentence.index)
    before, _, rest = sentence.partition(first)
    between, _, after = rest.partition(second)
    yield from (before, first, between, second, after)


@dataclass(frozen=True)
class TemplateDifference:
    """The difference between two groups for one set of attributes."""

    attributes: str
    groups: tuple[str, str]
    associations: tuple[float, float]
    """Mean log p(attribute | group) − log p(attribute | group masked) of each group, in nats."""
    difference: Interval
    """First group minus second group, over sentences and attributes."""
    unit: str
    """Unit of resampling; the words of a group are fixed."""
    group_asked: Interval
    """The difference if the group's word is predicted, as in Kurita et al."""
    cells: int
    """Number of sentences times attributes."""
    by_attribute: dict[str, float]
    """Difference of each attribute."""


@dataclass(frozen=True)
class TemplateResult(BiasPart):
    source: str
    differences: tuple[TemplateDifference, ...]
    notes: tuple[str, ...]
    limits: tuple[str, ...] = TEMPLATES

    @property
    def unit(self) -> str:
        """Units of resampling; several if some sets of attributes have one word and others more."""
        return " | ".join(dict.fromkeys(each.unit for each in self.differences))

    def figures(self) -> Iterator[Figure]:
        for each in self.differences:
            at: dict[str, Any] = {"category": each.attributes, "group": " − ".join(each.groups)}
            yield Figure.of("association, difference in nats", each.difference, unit=each.unit, **at)
            asked = "association with the group asked for, difference in nats"
            yield Figure.of(asked, each.group_asked, unit=each.unit, **at)

    def tables(self) -> Iterator[ReportPart]:
        yield f"Templates: {self.source}"
        columns = ("attributes", "groups", "cells", "first", "second", "difference", "95%", "group predicted", "95%")
        rows = [
            (
                each.attributes,
                " − ".join(each.groups),
                f"{each.cells:,}",
                *(f"{value:+.3f}" for value in each.associations),
                *number(each.difference),
                *number(each.group_asked),
            )
            for each in self.differences
        ]
        yield Table(columns, tuple(rows))
        for unit in dict.fromkeys(each.unit for each in self.differences):
            yield f"{resampled(unit)}; the words of a group are fixed"
        for each in self.differences:
            ranked = sorted(each.by_attribute.items(), key=lambda item: -abs(item[1]))[:5]
            words = ", ".join(f"{word} {value:+.2f}" for word, value in ranked)
            yield f"{each.attributes}, {' − '.join(each.groups)}: most {words}"
        yield from (f"note: {note}" for note in self.notes)


def read_templates(given: str | Path | Mapping[str, Any]) -> Templates:
    """Read templates from a TOML file or a mapping."""
    record, where = read_toml(given, FIELDS)
    sentences = read_texts(record.get("sentences"), where, what="sentences")
    for sentence in sentences:
        if sentence.count(GROUP) != 1 or sentence.count(MASK) != 1:
            raise DataError(f"{where}: {sentence!r} must hold {GROUP} once and {MASK} once")
    groups = read_word_lists(record.get("groups"), where, what="groups", least=2)
    attributes = read_word_lists(record.get("attributes"), where, what="attributes", least=1)
    for name, words in attributes.items():
        if len(words) * len(sentences) < 2:
            raise DataError(
                f"{where}: {name} is one word in one sentence, which has no interval; add words or sentences"
            )
    return Templates(sentences, groups, attributes, where)


def score_templates(reader: LikelihoodReader, templates: Templates, resampling: Resampling) -> TemplateResult:
    """Compare every pair of groups on every set of attributes."""
    members = [(name, word) for name, words in templates.groups.items() for word in words]
    attributes = [(name, word) for name, words in templates.attributes.items() for word in words]
    cells = list(product(templates.sentences, attributes))
    slots = [
        templates.slot((sentence, member, attribute), asked=asked, prior=prior)
        for asked in (MASK, GROUP)
        for prior in (False, True)
        for sentence, (_, attribute) in cells
        for _, member in members
    ]
    scores = reader.slots(slots)
    totals = np.array([score.total for score in scores]).reshape(2, 2, len(cells), len(members))
    corrected = totals[:, 0] - totals[:, 1]  # attribute or group predicted, cells, members
    asked_for = [attribute for _, (_, attribute) in cells for _ in members]
    unknown = {word for word, score in zip(asked_for, scores, strict=False) if score.unknown}
    notes = [f"{word!r} is unknown to the vocabulary: its figures are of the unknown token" for word in sorted(unknown)]
    notes += [
        f"group {name!r} has one member, {words[0]!r}: its figures are of that word, not of a group"
        for name, words in templates.groups.items()
        if len(words) == 1
    ]
    sets = np.array([name for _, (name, _) in cells])
    of_group = np.array([name for name, _ in members])
    by_group = {name: corrected[:, :, of_group == name].mean(-1) for name in templates.groups}
    names = list(templates.groups)
    differences = [
        _difference(chosen, (first, second), [by_group[first], by_group[second]], cells, sets == chosen, resampling)
        for chosen in templates.attributes
        for at, first in enumerate(names)
        for second in names[at + 1 :]
    ]
    return TemplateResult(templates.source, tuple(differences), tuple(notes))


def _difference(
    attributes: str,
    groups: tuple[str, str],
    scores: list[Doubles],
    cells: list[tuple[str, tuple[str, str]]],
    chosen: Any,
    resampling: Resampling,
) -> TemplateDifference:
    """The difference of two groups from their scores, each [attribute or group predicted, cells]."""
    (first, group_first), (second, group_second) = (each[:, chosen] for each in scores)
    difference, group_asked = first - second, group_first - group_second
    words = [word for (_, (_, word)), taken in zip(cells, chosen, strict=True) if taken]
    by_word: dict[str, list[float]] = {}
    for word, value in zip(words, difference.tolist(), strict=True):
        by_word.setdefault(word, []).append(value)
    shape = -1, len(by_word)  # sentences × attribute words, as the cells are ordered
    return TemplateDifference(
        attributes=attributes,
        groups=groups,
        associations=(float(first.mean()), float(second.mean())),
        difference=resampling.crossed_mean(difference.reshape(shape)),
        unit=template_unit(*difference.reshape(shape).shape),
        group_asked=resampling.crossed_mean(group_asked.reshape(shape)),
        cells=len(words),
        by_attribute={word: float(np.mean(values)) for word, values in by_word.items()},
    )
