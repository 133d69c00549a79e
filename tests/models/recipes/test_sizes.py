"""Sizes: published values for the published sizes, values of their own for the smaller ones."""

import pytest

from larvatus.models.network import Network
from larvatus.models.recipes import SIZES, read_recipe, recipe_names, recipe_table
from larvatus.models.recipes.files import recipe_text

PUBLISHED = {  # rate, steps of warm-up, steps, as the papers' tables have them; XLM-R takes RoBERTa's
    ("roberta", "base"): (6e-4, 24_000, 500_000),
    ("roberta", "large"): (4e-4, 30_000, 500_000),
    ("xlm-r", "large"): (4e-4, 30_000, 1_500_000),
    ("electra", "small"): (5e-4, 10_000, 1_000_000),
    ("electra", "base"): (2e-4, 10_000, 766_000),
    ("electra", "large"): (2e-4, 10_000, 400_000),
    ("bert", "base"): (1e-4, 10_000, 1_000_000),
    ("t5", "base"): (0.01, 10_000, 2**19),
    ("bert", "large"): (1e-4, 10_000, 1_000_000),
}
SMALL = ("tiny", "mini", "small", "medium")


@pytest.mark.parametrize(("name", "size"), PUBLISHED)
def test_a_published_size_has_the_published_rate_and_warm_up(name, size):
    recipe = read_recipe(name, size=size)
    steps = recipe.schedule.steps
    assert (recipe.optimizer.rate, recipe.schedule.warmup_steps(steps), steps) == PUBLISHED[name, size]


def test_electra_small_is_electra_small():
    small = read_recipe("electra", size="small")
    assert recipe_table(small) == recipe_table(read_recipe("electra"))
    made = Network.empty(small.model, small.objectives, small.tokenizer.size)
    assert sum(tensor.numel() for tensor in made.own_state().values()) == 13_549_057


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_warms_up_for_a_hundred_steps_of_a_short_run_and_as_published_in_a_long_one(name):
    for size in SIZES:
        schedule = read_recipe(name, size=size).schedule
        assert schedule.warmup_steps(600) >= 100
        assert schedule.warmup_steps(schedule.steps) == round(schedule.warmup * schedule.steps)


@pytest.mark.parametrize("name", recipe_names())
def test_sizes_that_nobody_published_have_a_small_epsilon_and_a_batch_for_one_machine(name):
    for size in SMALL:
        recipe = read_recipe(name, size=size)
        if (name, size) not in PUBLISHED:
            assert recipe.optimizer.epsilon <= 1e-8, size  # 1e-6 is not small beside the gradients of small models
            assert recipe.model.init > 0.02 or name == "t5", size  # whose deviations follow from the width
        assert recipe.batch * recipe.phases[0].length <= 256 * 512, size
        if name != "modern":
            assert recipe.optimizer.type == ("adafactor" if name == "t5" else "adamw"), size


@pytest.mark.parametrize("name", recipe_names())
def test_whatever_draws_random_tokens_says_from_where(name):
    corruption = recipe_table(read_recipe(name))["corruption"]
    if corruption is not None and corruption.get("random"):
        assert f'replacement = "{corruption["replacement"]}"' in recipe_text(name)  # said, not inherited


def test_a_recipe_of_ones_own_with_other_objectives_and_phases_has_every_size(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "bert"\n[packing]\ntype = "single-segment"\n'
        '[[objectives]]\ntype = "masked-lm"\n[[phases]]\nlength = 96\n'
    )
    for size in SIZES:
        mine = read_recipe(str(path), size=size)
        assert [o["type"] for o in recipe_table(mine)["objectives"]] == ["masked-lm"]
        assert len(mine.phases) == 1
    assert read_recipe(str(path), size="tiny").optimizer.epsilon == 1e-8
