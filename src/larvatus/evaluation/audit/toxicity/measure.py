"""How much of what a model puts into blanks is toxic, by group of prompts, and how groups differ.

    toxicity(model, read_prompts(NEUTRAL), WordList.read("list.txt")).groups["women"].weighted.value

Of each prompt the k likeliest words are judged, pieces of words left out. Two figures: their mean, each word counted
alike (with a list: the share of listed words among the top k, the HONEST score of Nozza et al. 2021), and weighted by
the probability that the model gives each. Intervals resample prompts. Groups are compared with the first one, over the
templates that both have, pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.ranges import Seed, whole
from larvatus.core.settings import Settings
from larvatus.core.tables import Table
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.evaluation.audit.means import mean_interval
from larvatus.evaluation.audit.tables import between, signed_between
from larvatus.evaluation.audit.toxicity.judges import Judge
from larvatus.evaluation.audit.toxicity.prompts import MASK, GroupPrompt
from larvatus.evaluation.audit.units import PROMPTS, TEMPLATES, resampled
from larvatus.inference.cloze.fill import fill_blanks
from larvatus.inference.cloze.results import Fills
from larvatus.inference.model import Model
from larvatus.metrics.bootstrap import Interval
from larvatus.metrics.figures import Figure
from larvatus.models.bundle.claims import Claim, claim_dicts
from larvatus.models.masked_prediction import require_predictor

LIMITS = (
    "these figures are of these prompts, groups and words: a low one says nothing of other groups, of longer texts, or "
    "of abuse without abusive words"
)
_AT_ONCE = 64


class ToxicityOptions(Settings):
    """How blanks are filled."""

    top: Annotated[int, whole(1, 1_000)] = 20
    """Words of each blank that are judged, the likeliest."""
    seed: Seed = 0
    """Of resampling."""


@dataclass(frozen=True)
class FillToxicity:
    prompts: int
    plain: Interval
    """Each word counts alike."""
    weighted: Interval
    """Each word counts by its probability."""


@dataclass(frozen=True)
class GroupDifference:
    """A group less the first one, over the templates that both have."""

    prompts: int
    difference: float
    low: float
    high: float


def difference_figures(metric: str, differences: Mapping[str, GroupDifference], name: str) -> Iterator[Figure]:
    """The figure of one group's difference from the first group; nothing for the first."""
    if (less := differences.get(name)) is not None:
        yield Figure.between(metric, less.difference, (less.low, less.high), unit=TEMPLATES, group=name)


@dataclass(frozen=True, eq=False)
class ToxicityReport:
    model: str
    judge: str
    prompts: tuple[GroupPrompt, ...]
    plain: Doubles
    """[prompts]"""
    weighted: Doubles
    """[prompts]"""
    words: tuple[tuple[str, ...], ...]
    """Of each prompt the judged words, likeliest first."""
    worst: tuple[tuple[str, str, float], ...]
    """Of all prompts, what weighs most: prompt, word, probability × score."""
    groups: Mapping[str, FillToxicity]
    differences: Mapping[str, GroupDifference]
    notes: tuple[str, ...] = ()
    top: int = 20
    claims: tuple[Claim, ...] = ()
    """The figures as a model card takes them over: with data, settings and versions."""

    @property
    def compared(self) -> tuple[str, Doubles]:
        """The figure by which two models are compared, of each prompt."""
        return "toxic fills", self.weighted

    def figures(self) -> Iterator[Figure]:
        first = next(iter(self.groups))
        for name, group in self.groups.items():
            yield Figure.of(f"toxic share of the top {self.top}", group.plain, unit=PROMPTS, group=name)
            yield Figure.of("toxic share by probability", group.weighted, unit=PROMPTS, group=name)
            yield from difference_figures(f"toxic share by probability, less {first}", self.differences, name)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "judge": self.judge,
            "top": self.top,
            "units": {"groups": PROMPTS, "differences": TEMPLATES},
            "groups": {name: asdict(group) for name, group in self.groups.items()},
            "differences": {name: asdict(each) for name, each in self.differences.items()},
            "prompts": [
                {
                    "group": prompt.group,
                    "prompt": prompt.text,
                    "plain": plain,
                    "weighted": weighted,
                    "words": words,
                }
                for prompt, plain, weighted, words in zip(
                    self.prompts, self.plain.tolist(), self.weighted.tolist(), self.words, strict=True
                )
            ],
            "notes": [*self.notes, LIMITS],
            "claims": claim_dicts(self.claims),
        }

    def shown(self) -> list[Table]:
        first = next(iter(self.groups))
        rows = []
        for name, group in self.groups.items():
            less = self.differences.get(name)
            rows.append(
                (
                    name,
                    f"{group.prompts:,}",
                    f"{100 * group.plain.value:.2f}",
                    f"{100 * group.weighted.value:.2f}",
                    between(group.weighted.low, group.weighted.high, digits=2, times=100),
                    "–" if less is None else f"{100 * less.difference:+.2f}",
                    "–" if less is None else signed_between(less.low, less.high, digits=2, times=100),
                )
            )
        columns = ("group", "prompts", f"top {self.top}", "weighted", "95%", f"less {first}", "95%")
        notes = (f"{resampled(PROMPTS)}; of differences {TEMPLATES}", *self.notes)
        tables = [Table(columns, rows, title=f"toxic fills, %, by {self.judge}", notes=notes)]
        if self.worst:
            worst = tuple((prompt, word, f"{100 * weight:.2f}") for prompt, word, weight in self.worst)
            tables.append(Table(("prompt", "word", "%"), worst, title="what weighs most", left=2))
        return tables

    def __str__(self) -> str:
        tables = [str(table) for table in self.shown()]
        return "\n\n".join([*tables, f"note: {LIMITS}"])


def toxicity(
    model: Model,
    prompts: Sequence[GroupPrompt],
    judge: Judge,
    options: ToxicityOptions | None = None,
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> ToxicityReport:
    """`progress` is told how many prompts are done."""
    options = options or ToxicityOptions()
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
        groups=_groups(prompts, values, options.seed),
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


def _groups(prompts: Sequence[GroupPrompt], values: Doubles, seed: int) -> dict[str, FillToxicity]:
    groups = {}
    for name in dict.fromkeys(prompt.group for prompt in prompts):
        mine = [number for number, prompt in enumerate(prompts) if prompt.group == name]
        groups[name] = FillToxicity(len(mine), *(mean_interval(kind[mine], seed) for kind in values))
    return groups


def group_differences(prompts: Sequence[GroupPrompt], figures: Doubles, seed: int) -> dict[str, GroupDifference]:
    """Of each group but the first, over shared templates; none where there are fewer than two."""
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
