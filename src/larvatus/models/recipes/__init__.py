"""Recipes: the schema, and one TOML file per published system (`larvatus recipes`, `larvatus recipes show bert`)."""

from larvatus.models.recipes.annotated import annotated_recipe
from larvatus.models.recipes.files import (
    edited_recipe,
    parse_recipe,
    read_recipe,
    recipe_names,
    recipe_table,
    recipe_text,
    recipe_toml,
)
from larvatus.models.recipes.recipe import SIZES, OptimizerConfig, Phase, Recipe, ScheduleConfig, steps_of_phases

__all__ = [
    "SIZES",
    "OptimizerConfig",
    "Phase",
    "Recipe",
    "ScheduleConfig",
    "annotated_recipe",
    "edited_recipe",
    "parse_recipe",
    "read_recipe",
    "recipe_names",
    "recipe_table",
    "recipe_text",
    "recipe_toml",
    "steps_of_phases",
]
