"""Who takes part in a comparison: recipes by name or file, at a size, with settings for all or for one of them.

candidates_of("bert,roberta", size="tiny", settings=["batch=64", "bert:optimizer.rate=5e-4"])
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from larvatus.core.errors import RecipeError, UsageError, did_you_mean
from larvatus.models.recipes import Recipe, read_recipe


@dataclass(frozen=True)
class Candidate:
    """A column of the table: a recipe, its share of the budget, and its settings of fine-tuning."""

    label: str
    recipe: Recipe
    share: float = 1.0
    """Share of the budget."""
    tuning: tuple[str, ...] = ()
    """Its own settings of fine-tuning, as given to `--then-set`."""

    def pretrained_as(self, other: Candidate) -> bool:
        """Whether both have the same pretraining and differ only in fine-tuning."""
        return self.recipe == other.recipe and self.share == other.share

    @property
    def folder(self) -> str:
        """The label as a directory name."""
        return re.sub(r"[^\w.+-]+", "-", self.label).strip("-.") or "run"


def read_candidates(names: str, *, size: str | None = None, settings: Sequence[str] = ()) -> tuple[Candidate, ...]:
    """Read comma-separated recipes by name or file. A setting applies to all, or with the prefix `name:` to one."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    labels = [Path(name).stem if name.endswith(".toml") else name for name in wanted]
    addressed = [_addressed(setting, labels) for setting in settings]
    candidates = []
    for name, label in zip(wanted, labels, strict=True):
        chosen = [setting for to, setting in addressed if to in (None, label)]
        candidates.append(Candidate(label, read_candidate_recipe(label, name, size=size, settings=chosen)))
    return tuple(candidates)


def read_candidate_recipe(label: str, name: str, *, size: str | None, settings: Sequence[str]) -> Recipe:
    """Like `read_recipe`, but errors name the candidate."""
    try:
        return read_recipe(name, size=size, settings=settings)
    except RecipeError as fault:
        said = str(fault)
        raise RecipeError(said if name in said or label in said else f"{label}: {said}") from None


def _addressed(setting: str, labels: Sequence[str]) -> tuple[str | None, str]:
    path = setting.partition("=")[0]
    if ":" not in path:
        return None, setting
    label, _, rest = setting.partition(":")
    if label not in labels:
        raise UsageError(f"--set {setting}: {label!r} is not compared here{did_you_mean(label, labels)}")
    return label, rest
