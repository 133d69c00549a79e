"""The published ablations, one file each in `recipes/ablations`: `larvatus ablate next-sentence --corpus my_texts/ …`.

    ablation = read_ablation("next-sentence")
    compare(Comparison(contestants=ablation.contestants(size="tiny"), …), Watcher(console))

An ablation is a recipe and a list of variants, each a label with the settings that make it; everything else is equal.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources

import msgspec
from msgspec import Struct

from larvatus.errors import UsageError, did_you_mean
from larvatus.evaluation.contestants import Contestant, read_for

_HOME = "larvatus.recipes"


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    label: str
    settings: tuple[str, ...] = ()
    """As after `--set`."""


class Ablation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    about: str
    """What is varied."""
    paper: str
    """Who published it, and where to look."""
    finding: str
    """What they found."""
    recipe: str = "bert"
    """What is varied if nothing else is asked for."""
    variants: tuple[Variant, ...]

    def contestants(
        self, *, recipe: str | None = None, size: str | None = None, settings: Sequence[str] = ()
    ) -> tuple[Contestant, ...]:
        """The variants as recipes; `settings` are for all of them, and come after a variant's own."""
        contestants: list[Contestant] = []
        for variant in self.variants:
            chosen = [*variant.settings, *settings]
            made = read_for(variant.label, recipe or self.recipe, size=size, settings=chosen)
            for other in contestants:
                if other.recipe == made:
                    raise UsageError(
                        f"--set makes the variants {other.label} and {variant.label} the same; leave it out"
                    )
            contestants.append(Contestant(variant.label, made))
        return tuple(contestants)


def ablation_names() -> list[str]:
    folder = resources.files(_HOME).joinpath("ablations")
    return sorted(file.name[:-5] for file in folder.iterdir() if file.name.endswith(".toml"))


def read_ablation(name: str) -> Ablation:
    if name not in ablation_names():
        raise UsageError(f"there is no ablation {name!r}{did_you_mean(name, ablation_names())}")
    text = resources.files(_HOME).joinpath("ablations", f"{name}.toml").read_text(encoding="utf-8")
    return msgspec.convert({"name": name, **tomllib.loads(text)}, Ablation)
