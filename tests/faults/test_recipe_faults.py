"""Rows 63 and 64 in full: every field, misspelt in every place; compositions that cannot work, refused before data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from larvatus.core.errors import RecipeError, UsageError
from larvatus.data.corpus.packing import PackingConfig
from larvatus.data.corruption import CorruptionConfig
from larvatus.data.text.vocabularies import TokenizerConfig
from larvatus.models.network import ObjectiveConfig
from larvatus.models.nn.encoder import EncoderConfig
from larvatus.models.recipes import read_recipe
from larvatus.models.recipes.recipe import Recipe
from larvatus.tasks.registry import parse_options

SINGLE = {"mixture", "optimizer", "schedule"}
UNIONS = {
    "model": EncoderConfig,
    "tokenizer": TokenizerConfig,
    "packing": PackingConfig,
    "corruption": CorruptionConfig,
}


def names_of(kind: type) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def places() -> list[tuple[str, str, str, str]]:
    """(path, table header in TOML, what must stand in the table besides, field) of every field of a recipe."""
    found = [("", "", "", name) for name in names_of(Recipe)]
    types = {field.name: field.type for field in msgspec.structs.fields(Recipe)}
    for part in sorted(SINGLE):
        found += [(part, f"[{part}]", "", name) for name in names_of(types[part])]
    for part, union in UNIONS.items():
        for kind in get_args(union):
            tag = kind.__struct_config__.tag
            found += [(part, f"[{part}]", f'type = "{tag}"', name) for name in names_of(kind)]
    for kind in get_args(ObjectiveConfig):
        tag = kind.__struct_config__.tag
        found += [("objectives.0", "[[objectives]]", f'type = "{tag}"', name) for name in names_of(kind)]
    found += [("phases.0", "[[phases]]", "", name) for name in names_of(get_args(types["phases"])[0])]
    return found


def typos(name: str) -> list[str]:
    """A letter twice, and two letters exchanged where that makes another word."""
    middle = len(name) // 2
    exchanged = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    return [name[0] + name, *([exchanged] if len(name) > 3 and exchanged != name else [])]


def test_63_the_walk_finds_all_parts_of_a_recipe() -> None:
    assert len(places()) > 120
    assert {path.partition(".")[0] for path, *_ in places()} == set(names_of(Recipe)) - {"name", "about", "batch"} | {
        ""
    }


def test_63_a_typo_of_any_field_is_suggested_back_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for path, header, beside, name in places():
        for wrong in typos(name):
            file.write_text(f'base = "bert"\n{header}\n{beside}\n{wrong} = 1\n')
            full, meant = (f"{path}.{word}" if path else word for word in (wrong, name))
            with pytest.raises(RecipeError) as caught:
                read_recipe(str(file))
            assert str(caught.value) == f"{file}: {full} is not a setting; did you mean {meant}?"


def test_63_and_with_set() -> None:
    bert = read_recipe("bert")
    for path, _, beside, name in places():
        kind = beside.partition('"')[2].rstrip('"')
        part = path.partition(".")[0]
        if part == "objectives" and kind not in ("masked-lm", "next-sentence"):
            continue  # --set enters the objectives that are there
        first = [f"{part}.type={kind}"] if kind and part != "objectives" else []
        for wrong in typos(name):
            own = f"objectives.{kind}" if part == "objectives" else path
            full = f"{own}.{wrong}" if own else wrong
            with pytest.raises(RecipeError, match=rf"is not a setting; did you mean (\S+\.)?{name}\?"):
                read_recipe("bert", settings=[*first, f"{full}=1"])
    assert read_recipe("bert") == bert


def test_63_kinds_and_the_options_of_tasks_are_suggested_too() -> None:
    for part, union in UNIONS.items():
        for kind in get_args(union):
            tag = str(kind.__struct_config__.tag)
            with pytest.raises(RecipeError, match=f"did you mean {tag}"):
                read_recipe("bert", settings=[f"{part}.type={tag[0]}{tag}"])
    for task in ("spans", "answer"):
        kind = type(parse_options(task, {}))
        for name in names_of(kind):
            with pytest.raises(UsageError, match=f"did you mean {name}"):
                parse_options(task, {name[0] + name: 1})


# — row 64 —

PAIRS = ["packing.type=sentence-pairs"]
IMPOSSIBLE: list[tuple[str, list[str], str]] = [
    ("bert", ["model.heads=7"], "set model.heads = "),
    ("bert", ["model.max_positions=64"], "does not fit model.max_positions = 64"),
    ("bert", ["packing.type=full-sentences"], "next-sentence needs sentence pairs"),
    ("bert", ["model.segments=0"], "set model.segments = 2"),
    ("bert", ["phases.0.share=0.5", "phases.1.share=0.2"], "phases.share must sum to 1"),
    ("bert", ["corruption.mask=0.5"], "must be 1"),
    ("bert", ["corruption.type=noise", "corruption.mask=0", "corruption.delete=0.2"], "leaves no place"),
    ("bert", ["objectives.masked-lm.weight=0", "objectives.next-sentence.weight=0"], "all objectives have weight 0"),
    ("bert", ["model.first_norm=false"], 'set model.norm = "pre"'),
    ("bert", ["model.local_attention=128"], "set model.global_every = 3"),
    ("bert", ["model.global_every=3"], "set model.local_attention = 128"),
    ("bert", ["model.local_attention=127", "model.global_every=3"], "must be even"),
    ("bert", ["model.positions=rotary", "model.hidden=36", "model.heads=12"], "rotary positions rotate pairs"),
    ("bert", ["model.relative_distance=64"], "without buckets"),
    (
        "bert",
        ["schedule.type=trapezoid", "schedule.warmup=0.8", "schedule.cooldown=0.5"],
        "exceed the whole run; lower one of them",
    ),
    ("spanbert", ["corruption.type=tokens"], "span-boundary needs"),
    ("spanbert", ["corruption.rate=0.9"], "spans of 3.8 words"),
    ("spanbert", ["phases.0.length=16"], "too few for a span"),
    ("electra", ["objectives.replaced-tokens.generator=0"], "needs a generator"),
    ("electra", ["corruption.type=tokens"], "replaced-tokens needs"),
    ("albert", ["packing.type=documents"], "sentence-order needs"),
    ("xlm-r", ["mixture.alpha=-0.3"], "mixture.alpha"),
]


def test_64_compositions_that_cannot_work_are_refused_before_data(
    tmp_path: Path, larvatus: Callable[..., tuple[int, str]]
) -> None:
    """The corpus is not there: whoever looked for it first would say so, with exit code 4."""
    for recipe, settings, says in IMPOSSIBLE:
        with pytest.raises(RecipeError) as caught:  # nothing that reads a recipe is given any data
            read_recipe(recipe, settings=settings)
        assert says in str(caught.value)
    for recipe, settings, says in IMPOSSIBLE[::7]:
        sets: list[Any] = [word for setting in settings for word in ("--set", setting)]
        code, said = larvatus("pretrain", recipe, "--corpus", tmp_path / "absent.txt", "--out", tmp_path / "run", *sets)
        assert code == 3, (recipe, settings, said)
        assert says in said
        assert not (tmp_path / "run").exists()


def test_64_what_sets_nothing_impossible_is_read() -> None:
    for recipe in {recipe for recipe, *_ in IMPOSSIBLE}:
        assert read_recipe(recipe)
