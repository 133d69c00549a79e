"""XLM-R says what Conneau et al. published, and has the size they gave."""

import pytest
import torch

from larvatus.core.errors import RecipeError
from larvatus.models.network import Network
from larvatus.models.recipes import read_recipe, recipe_table


def test_xlm_r_says_what_conneau_et_al_published():
    recipe, roberta = read_recipe("xlm-r"), read_recipe("roberta")
    table = recipe_table(recipe)
    assert (table["tokenizer"]["type"], recipe.tokenizer.size, recipe.tokenizer.lowercase) == (
        "unigram",
        250_002,
        False,
    )
    assert recipe.mixture.alpha == 0.3
    assert (recipe.batch, recipe.schedule.steps) == (8_192, 1_500_000)
    assert round(recipe.schedule.warmup * recipe.schedule.steps) == 24_000
    for part in ("packing", "corruption", "model", "objectives", "optimizer", "phases"):
        assert getattr(recipe, part) == getattr(roberta, part), part
    assert roberta.mixture.alpha == 1.0


@pytest.mark.parametrize(("size", "parameters"), [("base", 278e6), ("large", 560e6)])
def test_the_published_sizes(size, parameters):
    """270M and 550M in the paper's table; 278M and 560M as released, which their head and positions make exact."""
    recipe = read_recipe("xlm-r", size=size)
    with torch.device("meta"):
        model = Network(recipe.model, recipe.objectives, recipe.tokenizer.size)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize("alpha", ["-0.1", "1.01", "nan"])
def test_an_alpha_outside_0_and_1_is_one_line(alpha):
    with pytest.raises(RecipeError) as caught:
        read_recipe("xlm-r", settings=[f"mixture.alpha={alpha}"])
    assert "must lie between 0 and 1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_alpha_suggests_the_right_one():
    with pytest.raises(RecipeError, match=r"mixture\.alph is not a setting; did you mean mixture\.alpha"):
        read_recipe("xlm-r", settings=["mixture.alph=0.5"])
