"""Published ablations, one file each in `recipes/ablations`: `larvatus ablate next-sentence --corpus my_texts/ …`.

    ablation = read_ablation("next-sentence")
    compare(Comparison(candidates=ablation.candidates(size="tiny"), …), Reporter(console))

An ablation is a recipe with a list of variants. Each variant has a label and changes settings of the recipe, the
recipe itself, the share of the budget, or settings of fine-tuning. Everything else is equal.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from importlib import resources

import msgspec

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.core.ranges import PositiveShare, check_ranges
from larvatus.core.settings import Settings
from larvatus.evaluation.compare.candidates import Candidate, read_candidate_recipe

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
