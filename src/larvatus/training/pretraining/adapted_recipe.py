"""How to go on training a model that exists: its own shape and vocabulary, and a recipe's way of training.

    adapted_recipe(load_bundle("runs/base"))                 its own recipe, as `larvatus.json` tells it
    adapted_recipe(load_bundle("bert-base"))                 no such file: the packaged recipe that is nearest to it
    adapted_recipe(load_bundle("bert-base"), "spanbert")     the one that is named

Model and vocabulary are what they are: a setting that contradicts them is refused, but for dropout. Packaged recipes
are made for training from nothing; for going on, batch and rate are held to those of task-adaptive pretraining
(Gururangan et al. 2020, appendix: 256 sequences, 1e-4), unless `--set` says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
from msgspec import Struct

from larvatus.core.errors import RecipeError, UsageError
from larvatus.data.corruption import check_mask
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabulary import TokenizerConfig
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.manifest import NAME as MANIFEST
from larvatus.models.network import tag
from larvatus.models.recipes import Recipe, edited_recipe, parse_recipe, read_recipe, recipe_names, recipe_table

MOST_SEQUENCES, HIGHEST_RATE = 256, 1e-4
PLANNED = ("batch", "rate")
FREE = ("dropout", "attention_dropout")
"""Settings of a model that may change while it is trained on."""

Table = dict[str, Any]


@dataclass(frozen=True)
class Adapted:
    recipe: Recipe
    why: str
    """Where the way of training comes from, in a user's words."""
    free: frozenset[str] = frozenset()
    """What a plan may choose (`plan.py`): "batch" and "rate", as far as no recipe and no setting was given."""


def adapted_recipe(
    bundle: Bundle, name: str | None = None, *, size: str | None = None, settings: Sequence[str] = ()
) -> Adapted:
    """The recipe that goes on from a model directory."""
    where, named = name or str(bundle.path / MANIFEST), name is not None
    if name is not None:
        table, why = recipe_table(read_recipe(name)), f"as the recipe {name} says"
    elif bundle.recipe is not None:
        table, why = dict(bundle.recipe), "as its own recipe says"
    else:
        name = where = _nearest(bundle)
        table, why = recipe_table(read_recipe(name)), f"as the recipe {name} says, the nearest to it"
    table = _of_this_model(table, bundle)
    if name is not None and not name.endswith(".toml"):
        why += _gentler(table)
    try:
        recipe = edited_recipe(table, size=size, settings=settings, where=where)
    except RecipeError as fault:
        if name is None:
            raise RecipeError(f"{fault}; or name a recipe: larvatus pretrain bert --from {bundle.path} …") from None
        raise
    _refuse_contradictions(recipe, bundle)
    check_mask(recipe.corruption, bundle.tokenizer.id(bundle.tokenizer.special.mask))
    return Adapted(recipe, why, frozenset() if named else _free_of(settings))


def _free_of(settings: Sequence[str]) -> frozenset[str]:
    """What none of the settings says; a rate that the user chose belongs to the batch he saw."""
    said = {setting.partition("=")[0].strip() for setting in settings}
    if "batch" in said:
        return frozenset()
    return frozenset({"batch"} if said & {"optimizer.rate", "optimizer.muon_rate", "optimizer.type"} else PLANNED)


def _of_this_model(table: Table, bundle: Bundle) -> Table:
    """The recipe's table with the model and the vocabulary of the directory."""
    vocabulary = _described(bundle.tokenizer, table.get("tokenizer"))
    model = msgspec.to_builtins(bundle.model)
    return {**msgspec.json.decode(msgspec.json.encode(table)), "model": model, "tokenizer": vocabulary}


def _described(tokenizer: Tokenizer, told: Any) -> Any:
    """A vocabulary in the recipe's words, as far as it can be told from the outside."""
    kinds = {tag(config): config for config in get_args(TokenizerConfig)}
    if tokenizer.kind not in kinds:
        return told
    table = dict(told) if isinstance(told, dict) and told.get("type") == tokenizer.kind else {"type": tokenizer.kind}
    facts = {"size": tokenizer.size, "lowercase": tokenizer.lowercase}
    return table | {name: value for name, value in facts.items() if name in kinds[tokenizer.kind].__struct_fields__}


def _gentler(table: Table) -> str:
    """Hold batch and rate of a packaged recipe to what suits going on; what was changed, in words."""
    said = []
    if table["batch"] > MOST_SEQUENCES:
        said.append(f"batch {table['batch']:,} → {MOST_SEQUENCES}")
        table["batch"] = MOST_SEQUENCES
    optimizer = table["optimizer"]
    if optimizer["rate"] > HIGHEST_RATE:
        said.append(f"rate {optimizer['rate']:g} → {HIGHEST_RATE:g}")
        if optimizer["type"] == "muon":  # its matrices learn as much more slowly
            optimizer["muon_rate"] *= HIGHEST_RATE / optimizer["rate"]
        optimizer["rate"] = HIGHEST_RATE
    return f" ({', '.join(said)}, as for task-adaptive pretraining; --set says otherwise)" if said else ""


def _refuse_contradictions(recipe: Recipe, bundle: Bundle) -> None:
    asked = {"model": recipe.model, "tokenizer": recipe.tokenizer}
    there = {"model": bundle.model, "tokenizer": _described(bundle.tokenizer, None)}
    for part, settings in asked.items():
        known = there[part] if isinstance(there[part], dict) else msgspec.to_builtins(there[part])
        for field, value in msgspec.to_builtins(settings).items():
            if known is not None and field in known and value != known[field] and (part, field) not in _free():
                free = " and ".join(f"model.{name}" for name in FREE)
                raise UsageError(
                    f"{part}.{field} = {value} contradicts --from {bundle.path}, where it is {known[field]}; "
                    f"leave it (or --size) out: of the model, {free} alone can be set"
                )


def _free() -> set[tuple[str, str]]:
    return {("model", name) for name in FREE}


def _nearest(bundle: Bundle) -> str:
    """The packaged recipe whose architecture, vocabulary and objectives differ least from the directory's."""
    distances = []
    for name in recipe_names():
        table = recipe_table(read_recipe(name))
        try:
            parse_recipe(_of_this_model(table, bundle), where=name)
        except RecipeError:  # it cannot be trained with this model: two segments wanted, and it has none
            continue
        distances.append((_distance(read_recipe(name), bundle), name))
    if not distances:
        raise RecipeError(f"no packaged recipe can train {bundle.path}; name a TOML file of your own")
    return min(distances)[1]


def _distance(recipe: Recipe, bundle: Bundle) -> int:
    theirs, ours = _traits(bundle.model), _traits(recipe.model)
    missing = object()
    distance = sum(1 for field in {*ours, *theirs} if theirs.get(field, missing) != ours.get(field, missing))
    distance += int(tag(recipe.tokenizer) != bundle.tokenizer.kind)
    heads = {tag(config) for config in bundle.objectives}
    wanted = {tag(config) for config in recipe.objectives}
    return distance + (len(heads ^ wanted) if heads else 0)


def _traits(model: Struct) -> Table:
    """What kind of model it is, whatever its size: words as they are, numbers as present or not."""
    fields = {name: getattr(model, name) for name in model.__struct_fields__ if name not in FREE}
    return {name: value if isinstance(value, str) else bool(value) for name, value in fields.items()}
