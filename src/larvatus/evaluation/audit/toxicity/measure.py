"""Toxicity of a model's fills of blanks, by group of prompts, and differences between groups.

    toxicity(model, read_prompts(NEUTRAL), WordListJudge.read("list.txt")).groups["women"].weighted.value

The k likeliest words of each prompt are judged, without word pieces. There are two figures: the plain mean (with a word
list, the share of listed words among the top k, the HONEST score of Nozza et al. 2021), and the mean weighted by the
model's probabilities. Intervals resample prompts. Groups are compared with the first one, pair by pair over the
templates that both have.

Prompts are lines `group<TAB>prompt with [MASK][<TAB>template]`; lines that begin with # are comments:

    women<TAB>The woman worked as a [MASK].<TAB>work
    men<TAB>The man worked as a [MASK].<TAB>work

Prompts of one template differ only in the group. Without a third column, the n-th prompts of all groups share a
template, if groups have equally many. Generating models also continue prompts without a blank. `NEUTRAL` is a small
neutral set of twelve templates and six groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import DataError
from larvatus.core.ranges import whole
from larvatus.core.settings import SeededSettings
from larvatus.core.tables import Table
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.data.text.streams import numbered_lines
from larvatus.evaluation.audit.intervals import PROMPTS, TEMPLATES, between, mean_interval, resampled, signed_between
from larvatus.evaluation.audit.toxicity.judges import Judge
from larvatus.inference.cloze.fill import fill_blanks
from larvatus.inference.cloze.results import Fills
from larvatus.inference.model import Model
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval
from larvatus.models.bundle.claims import Claim, claim_dicts
from larvatus.models.masked_prediction import require_predictor

MASK = "[MASK]"
NEUTRAL = Path(__file__).parent / "neutral.tsv"


@dataclass(frozen=True)
class GroupPrompt:
    group: str
    text: str
    """Text with one `[MASK]`; generating models also take texts without."""
    template: str | None
    """Template shared with prompts of other groups; None if unknown."""


def read_prompts(name: str | Path, *, blank: bool = True) -> tuple[GroupPrompt, ...]:
    """Read the prompts of a file; errors name the line. `blank` requires a blank in each."""
    prompts = []
    for number, line in numbered_lines(str(name)):
        if line.strip() and not line.startswith("#"):
            prompts.append(_prompt(line.split("\t"), f"{name}:{number}", blank=blank))
    if not prompts:
        raise DataError(f"{name} has no prompts; give group<TAB>prompt with {MASK} lines")
    return with_templates(prompts, str(name))


def _prompt(cells: Sequence[str], where: str, *, blank: bool) -> GroupPrompt:
    if not 2 <= len(cells) <= 3 or not cells[0].strip():
        raise DataError(f"{where}: {len(cells)} columns; a line is group<TAB>prompt with {MASK}[<TAB>template]")
    blanks = cells[1].count(MASK)
    if blanks > 1 or (blank and not blanks):
        raise DataError(f"{where}: the prompt has {blanks} blanks; mark one, with {MASK}")
    if not cells[1].replace(MASK, "").strip():
        raise DataError(f"{where}: the prompt is only a blank; write some words around it")
    return GroupPrompt(cells[0].strip(), cells[1].strip(), cells[2].strip() if len(cells) == 3 else None)


def with_templates(prompts: Sequence[GroupPrompt], name: str) -> tuple[GroupPrompt, ...]:
    """The prompts with templates, if groups correspond; groups with one prompt are refused."""
    groups: dict[str, list[GroupPrompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.group, []).append(prompt)
    for group, members in groups.items():
        if len(members) < 2:
            raise DataError(f"{name}: group {group!r} has one prompt, which has no interval; give two or more")
        templates = [prompt.template for prompt in members if prompt.template is not None]
        if len(set(templates)) < len(templates):
            raise DataError(f"{name}: group {group!r} has two prompts of one template; name each template once a group")
    if all(prompt.template is None for prompt in prompts) and len({len(members) for members in groups.values()}) == 1:
        return tuple(
            GroupPrompt(prompt.group, prompt.text, str(number))
            for members in groups.values()
            for number, prompt in enumerate(members, start=1)
        )
    return tuple(prompts)


LIMITS = (
    "these figures are of these prompts, groups and words: a low one says nothing of other groups, of longer texts, or "
    "of abuse without abusive words"
)
_AT_ONCE = 64
G = TypeVar("G")
"""A record of one group."""


class ToxicityOptions(SeededSettings):
    """Options of filling blanks."""

    top: Annotated[int, whole(1, 1_000)] = 20
    """Number of likeliest words of each blank that are judged."""


@dataclass(frozen=True)
class FillToxicity:
    prompts: int
    plain: Interval
    """Mean with equal weights."""
    weighted: Interval
    """Mean weighted by probability."""


@dataclass(frozen=True)
class GroupDifference:
    """A group minus the first group, over the templates that both have."""

    prompts: int
    difference: float
    low: float
    high: float


def interval_cells(figure: Interval) -> tuple[str, str]:
    """A figure in per cent and its interval, for a table."""
    return f"{100 * figure.value:.2f}", between(figure.low, figure.high, digits=2, times=100)


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupReport:
    """Toxicity by group of prompts; base of the reports on fills and on continuations."""

    model: str
    judge: str
    prompts: tuple[GroupPrompt, ...]
    groups: Mapping[str, Any]
    """Figures of each group."""
    differences: Mapping[str, GroupDifference]
    """A group's figure minus that of the first group, over templates that both have."""
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    """Claims for the model card, with data, settings and versions."""

    def difference_figures(self, metric: str, name: str) -> Iterator[Figure]:
        """The figure of one group's difference from the first group; nothing for the first."""
        if (less := self.differences.get(name)) is not None:
            yield Figure.between(metric, less.difference, (less.low, less.high), unit=TEMPLATES, group=name)

    def difference_cells(self, name: str) -> tuple[str, str]:
        """The difference in per cent and its interval, for a table."""
        if (less := self.differences.get(name)) is None:
            return "–", "–"
        return f"{100 * less.difference:+.2f}", signed_between(less.low, less.high, digits=2, times=100)

    def setup_dict(self) -> dict[str, Any]:
        """Options of the measurement, for `to_dict`."""
        raise NotImplementedError

    def prompt_dicts(self) -> list[dict[str, Any]]:
        """The prompts with their scores, for `to_dict`."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "judge": self.judge,
            **self.setup_dict(),
            "groups": {name: asdict(group) for name, group in self.groups.items()},
            "differences": {name: asdict(each) for name, each in self.differences.items()},
            "prompts": self.prompt_dicts(),
            "notes": [*self.notes, LIMITS],
            "claims": claim_dicts(self.claims),
        }

    def shown(self) -> list[Table]:
        """Tables of the printed report."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n\n".join([*(str(table) for table in self.shown()), f"note: {LIMITS}"])


@dataclass(frozen=True, kw_only=True, eq=False)
class ToxicityReport(GroupReport):
    groups: Mapping[str, FillToxicity]
    plain: Doubles
    """[prompts]"""
    weighted: Doubles
    """[prompts]"""
    words: tuple[tuple[str, ...], ...]
    """Judged words of each prompt, likeliest first."""
    worst: tuple[tuple[str, str, float], ...]
    """Fills with the largest probability × score over all prompts: prompt, word, product."""
    top: int = 20

    @property
    def compared(self) -> tuple[str, Doubles]:
        """Name and [prompts] values of the figure that compares two models."""
        return "toxic fills", self.weighted

    def figures(self) -> Iterator[Figure]:
        first = next(iter(self.groups))
        for name, group in self.groups.items():
            yield Figure.of(f"toxic share of the top {self.top}", group.plain, unit=PROMPTS, group=name)
            yield Figure.of("toxic share by probability", group.weighted, unit=PROMPTS, group=name)
            yield from self.difference_figures(f"toxic share by probability, less {first}", name)

    def setup_dict(self) -> dict[str, Any]:
        return {"top": self.top, "units": {"groups": PROMPTS, "differences": TEMPLATES}}

    def prompt_dicts(self) -> list[dict[str, Any]]:
        rows = zip(self.prompts, self.plain.tolist(), self.weighted.tolist(), self.words, strict=True)
        return [
            {"group": prompt.group, "prompt": prompt.text, "plain": plain, "weighted": weighted, "words": words}
            for prompt, plain, weighted, words in rows
        ]

    def shown(self) -> list[Table]:
        first = next(iter(self.groups))
        rows = [
            (
                *(name, f"{group.prompts:,}", f"{100 * group.plain.value:.2f}"),
                *interval_cells(group.weighted),
                *self.difference_cells(name),
            )
            for name, group in self.groups.items()
        ]
        columns = ("group", "prompts", f"top {self.top}", "weighted", "95%", f"less {first}", "95%")
        notes = (f"{resampled(PROMPTS)}; of differences {TEMPLATES}", *self.notes)
        tables = [Table(columns, rows, title=f"toxic fills, %, by {self.judge}", notes=notes)]
        if self.worst:
            worst = tuple((prompt, word, f"{100 * weight:.2f}") for prompt, word, weight in self.worst)
            tables.append(Table(("prompt", "word", "%"), worst, title="what weighs most", left=2))
        return tables


def toxicity(
    model: Model,
    prompts: Sequence[GroupPrompt],
    judge: Judge,
    options: ToxicityOptions = ToxicityOptions(),
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> ToxicityReport:
    """Fill and judge prompts. `progress` is called with the number of finished prompts."""
    name = str(model.bundle.path)
    require_predictor(model.network, model.tokenizer, what="fill blanks", name=name)
    plain, weighted, words, weights = [], [], [], []
    for first in range(0, len(prompts), _AT_ONCE):
        block = prompts[first : first + _AT_ONCE]
        fills = _filled(model, block, min(options.top, model.tokenizer.size))
        for prompt, each, scores in zip(block, fills, judge.scores(fills), strict=True):
            chances = np.array([fill.probability for fill in each.marginals[0]])
            plain.append(float(scores.mean()))
            weighted.append(float((scores * chances).sum() / max(float(chances.sum()), 1e-300)))
            words.append(tuple(fill.token for fill in each.marginals[0]))
            weights += [
                (prompt.text, word, float(weight))
                for word, weight in zip(words[-1], scores * chances, strict=True)
                if weight
            ]
        progress(first + len(block))
    values = np.array([plain, weighted])
    return ToxicityReport(
        model=name,
        judge=judge.name,
        prompts=tuple(prompts),
        plain=values[0],
        weighted=values[1],
        words=tuple(words),
        worst=tuple(sorted(weights, key=lambda entry: -entry[2])[:5]),
        groups=group_means(FillToxicity, prompts, values, options.seed),
        differences=group_differences(prompts, values[1], options.seed),
        notes=judge.notes(model.tokenizer),
        top=options.top,
    )


def _filled(model: Model, prompts: Sequence[GroupPrompt], top: int) -> list[Fills]:
    mask = model.tokenizer.special.mask
    texts = [prompt.text.replace(MASK, mask) for prompt in prompts]
    warn_of_other_language(texts, model.tokenizer)
    settings: Any = {"top": top, "joint": False, "candidates": "word-starts"}  # as published claims were measured
    return [fill_blanks(model.network, model.tokenizer, text, **settings) for text in texts]


def group_means(
    record: Callable[..., G], prompts: Sequence[GroupPrompt], figures: Sequence[Doubles] | Doubles, seed: int
) -> dict[str, G]:
    """A record for each group: number of prompts, then the mean of each figure [prompts] with its interval."""
    groups = {}
    for name in dict.fromkeys(prompt.group for prompt in prompts):
        mine = [number for number, prompt in enumerate(prompts) if prompt.group == name]
        groups[name] = record(len(mine), *(mean_interval(figure[mine], seed) for figure in figures))
    return groups


def group_differences(prompts: Sequence[GroupPrompt], figures: Doubles, seed: int) -> dict[str, GroupDifference]:
    """Difference of each group from the first, over at least two shared templates."""
    by_group: dict[str, dict[str, float]] = {}
    for prompt, value in zip(prompts, figures.tolist(), strict=True):
        if prompt.template is not None:
            by_group.setdefault(prompt.group, {})[prompt.template] = value
    differences = {}
    first = prompts[0].group
    for name, of_template in by_group.items():
        shared = [template for template in of_template if template in by_group.get(first, {})]
        if name != first and len(shared) > 1:
            less = mean_interval(np.array([of_template[each] - by_group[first][each] for each in shared]), seed)
            differences[name] = GroupDifference(len(shared), less.value, less.low, less.high)
    return differences
