"""Recipes: the schema, and one TOML file per published system (`larvatus recipes`, `larvatus recipes show bert`)."""

from larvatus.recipes.reading import (
    edited_recipe,
    read_recipe,
    recipe_names,
    recipe_of,
    recipe_table,
    recipe_text,
)
from larvatus.recipes.recipe import SIZES, Recipe
from larvatus.recipes.training import OptimizerConfig, Phase, ScheduleConfig, steps_of_phases
from larvatus.recipes.writing import recipe_toml

__all__ = [
    "SIZES",
    "OptimizerConfig",
    "Phase",
    "Recipe",
    "ScheduleConfig",
    "edited_recipe",
    "read_recipe",
    "recipe_names",
    "recipe_of",
    "recipe_table",
    "recipe_text",
    "recipe_toml",
    "steps_of_phases",
]
