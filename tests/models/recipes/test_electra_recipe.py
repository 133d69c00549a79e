"""The recipe `electra`: what was published, and one clear line for what cannot work."""

import pytest

from larvatus.core.errors import RecipeError
from larvatus.models.network import Network, generator_config
from larvatus.models.recipes import read_recipe, recipe_table
from tests.models.recipes.refusals import refused


def test_electra_says_what_clark_et_al_published():
    electra = read_recipe("electra")
    table = recipe_table(electra)
    model = electra.model
    assert (model.layers, model.hidden, model.heads, model.embedding) == (12, 256, 4, 128)
    assert (model.inner, model.max_positions, model.segments, model.dropout) == (1024, 512, 2, 0.1)
    assert (table["tokenizer"]["type"], electra.tokenizer.size, electra.tokenizer.lowercase) == (
        "wordpiece",
        30_522,
        True,
    )
    assert (table["packing"]["type"], table["corruption"]["type"]) == ("full-sentences", "sampled")
    corruption = electra.corruption
    assert (corruption.rate, corruption.mask, corruption.random, corruption.keep) == (0.15, 0.85, 0.0, 0.15)
    assert [(o["type"], o["weight"]) for o in table["objectives"]] == [("masked-lm", 1.0), ("replaced-tokens", 50.0)]
    assert (electra.batch, electra.schedule.steps, electra.schedule.type) == (128, 1_000_000, "linear")
    assert electra.schedule.warmup * electra.schedule.steps == 10_000
    assert (electra.optimizer.rate, electra.optimizer.decay, electra.optimizer.epsilon) == (5e-4, 0.01, 1e-6)
    assert [(p.share, p.length) for p in electra.phases] == [(1.0, 128)]
    generator = generator_config(model, electra.objectives)
    assert (generator.layers, generator.hidden, generator.heads, generator.inner) == (12, 64, 1, 256)


def test_the_small_model_has_the_published_14_million_parameters():
    electra = read_recipe("electra")
    made = Network.empty(electra.model, electra.objectives, electra.tokenizer.size)
    assert sum(tensor.numel() for tensor in made.own_state().values()) == 13_549_057


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ["corruption.type=tokens"],
            'needs replaced tokens, but corruption "tokens" gives none; set corruption.type = "sampled"',
        ),
        (
            ["objectives.replaced-tokens.generator=0"],
            "replaced-tokens needs a generator; set objectives.replaced-tokens.generator = 0.25",
        ),
        (["objectives.replaced-tokens.generator=2"], "generator = 2.0 must lie between 0 and 1"),
        (["objectives.replaced-tokens.genrator=2"], "did you mean objectives.1.generator?"),
        (["model.positions=rotary", "objectives.replaced-tokens.generator=0.02"], "heads of 5 numbers"),
    ],
)
def test_what_electra_cannot_do_is_one_line(settings, line):
    assert line in refused("electra", settings)


def test_a_generator_that_nothing_teaches_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "electra"\n[[objectives]]\ntype = "replaced-tokens"\n')
    with pytest.raises(RecipeError, match=r'add \[\[objectives\]\] with type = "masked-lm"'):
        read_recipe(str(path))
