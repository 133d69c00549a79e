"""Candidates of a comparison: recipes by name or file, at a size, with settings for all or for one of them; ablations.

    read_candidates("bert,roberta", size="tiny", settings=["batch=64", "bert:optimizer.rate=5e-4"])
    read_ablation("next-sentence").candidates(size="tiny")

Published ablations have one file each in `recipes/ablations`: `larvatus ablate next-sentence --corpus my_texts/ …`. An
ablation is a recipe with a list of variants. Each variant has a label and changes settings of the recipe, the recipe
itself, the share of the budget, or settings of fine-tuning. Everything else is equal.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import msgspec

from larvatus.core.errors import RecipeError, UsageError, did_you_mean
from larvatus.core.ranges import PositiveShare, check_ranges
from larvatus.core.settings import Settings
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


_HOME = "larvatus.models.recipes"


class Variant(Settings):
    label: str
    recipe: str | None = None
    """Another recipe than the ablation's: its name, or a file in the folder of ablations."""
    settings: tuple[str, ...] = ()
    """Settings of the recipe, as given to `--set`."""
    tuning: tuple[str, ...] = ()
    """Settings of fine-tuning, as given to `--then-set`. Variants that differ only in these are pretrained once."""
    share: PositiveShare = 1.0
    """Share of the budget."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.label}: ")


class Ablation(Settings):
    name: str
    about: str
    """The varied property."""
    paper: str
    """The publication, with the place in it."""
    finding: str
    """The published finding."""
    recipe: str = "bert"
    """Default recipe."""
    wants: str = ""
    """A task that shows the difference, if pretraining does not."""
    variants: tuple[Variant, ...]

    def candidates(
        self, *, recipe: str | None = None, size: str | None = None, settings: Sequence[str] = ()
    ) -> tuple[Candidate, ...]:
        """The variants as candidates; `settings` apply to all, after a variant's own."""
        candidates: list[Candidate] = []
        for variant in self.variants:
            chosen = [*variant.settings, *settings]
            base = recipe or self.recipe if variant.recipe is None else _beside(variant.recipe)
            made = Candidate(
                variant.label,
                read_candidate_recipe(variant.label, base, size=size, settings=chosen),
                share=variant.share,
                tuning=variant.tuning,
            )
            for other in candidates:
                if made.pretrained_as(other) and made.tuning == other.tuning:
                    raise UsageError(
                        f"--set makes the variants {other.label} and {variant.label} the same; leave it out"
                    )
            candidates.append(made)
        return tuple(candidates)

    def check_sets(self, sets: Collection[object]) -> None:
        """Refuse an ablation of fine-tuning without labelled sets: its columns would all be equal."""
        if self.wants and not sets:
            raise UsageError(
                f"{self.name} varies what is fine-tuned: give labelled sets, such as --then {self.wants}=PATH"
            )


def _beside(recipe: str) -> str:
    """The name of a recipe, or the path of a packaged recipe file."""
    return str(resources.files(_HOME).joinpath("ablations", recipe)) if recipe.endswith(".toml") else recipe


def ablation_names() -> list[str]:
    folder = resources.files(_HOME).joinpath("ablations")
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def read_ablation(name: str) -> Ablation:
    if name not in ablation_names():
        raise UsageError(f"there is no ablation {name!r}{did_you_mean(name, ablation_names())}")
    text = resources.files(_HOME).joinpath("ablations", f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert({"name": name, **tomllib.loads(text)}, Ablation)
