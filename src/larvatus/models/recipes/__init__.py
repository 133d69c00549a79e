"""Recipes: the schema, and one TOML file per published system (`larvatus recipes`, `larvatus recipes show bert`)."""

from larvatus.models.recipes.reading import (
    edited_recipe,
    read_recipe,
    recipe_names,
    recipe_of,
    recipe_table,
    recipe_text,
)
from larvatus.models.recipes.recipe import SIZES, Recipe
from larvatus.models.recipes.training import OptimizerConfig, Phase, ScheduleConfig, steps_of_phases
from larvatus.models.recipes.writing import recipe_toml

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
