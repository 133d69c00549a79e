"""The published ablations, one file each in `recipes/ablations`: `larvatus ablate next-sentence --corpus my_texts/ …`.

    ablation = read_ablation("next-sentence")
    compare(Comparison(candidates=ablation.candidates(size="tiny"), …), Reporter(console))

An ablation is a recipe and a list of variants, each a label with what makes it: settings of the recipe, another recipe,
a share of the budget, or settings of fine-tuning. Everything else is equal.
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
    """Where it is another than the others': a recipe's name, or a file beside the ablation's."""
    settings: tuple[str, ...] = ()
    """Of the recipe, as after `--set`."""
    tuning: tuple[str, ...] = ()
    """Of fine-tuning, as after `--then-set`. Variants that differ in these alone are pretrained once."""
    share: PositiveShare = 1.0
    """Of the budget."""

    def __post_init__(self) -> None:
        check_ranges(self, f"{self.label}: ")


class Ablation(Settings):
    name: str
    about: str
    """What is varied."""
    paper: str
    """Who published it, and where to look."""
    finding: str
    """What they found."""
    recipe: str = "bert"
    """What is varied if nothing else is asked for."""
    wants: str = ""
    """A task that shows it, where pretraining alone does not: the difference is downstream."""
    variants: tuple[Variant, ...]

    def candidates(
        self, *, recipe: str | None = None, size: str | None = None, settings: Sequence[str] = ()
    ) -> tuple[Candidate, ...]:
        """The variants as recipes; `settings` are for all of them, and come after a variant's own."""
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
        """Refuse an ablation of fine-tuning where nothing is fine-tuned: its columns would all be the same."""
        if self.wants and not sets:
            raise UsageError(
                f"{self.name} varies what is fine-tuned: give labelled sets, such as --then {self.wants}=PATH"
            )


def _beside(recipe: str) -> str:
    """A recipe's name as it is, a packaged file by its path."""
    return str(resources.files(_HOME).joinpath("ablations", recipe)) if recipe.endswith(".toml") else recipe


def ablation_names() -> list[str]:
    folder = resources.files(_HOME).joinpath("ablations")
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def read_ablation(name: str) -> Ablation:
    if name not in ablation_names():
        raise UsageError(f"there is no ablation {name!r}{did_you_mean(name, ablation_names())}")
    text = resources.files(_HOME).joinpath("ablations", f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert({"name": name, **tomllib.loads(text)}, Ablation)
