"""Recipes that are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from larvatus.core.errors import RecipeError
from larvatus.models.recipes import read_recipe


def refused(name: str, settings: Sequence[str]) -> str:
    """The one line by which a recipe with these settings is refused."""
    with pytest.raises(RecipeError) as caught:
        read_recipe(name, settings=settings)
    line = str(caught.value)
    assert "\n" not in line
    return line
