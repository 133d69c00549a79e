"""Recipes: what the files say, what may be set, and one clear line for everything that cannot work."""

import tomllib

import pytest

from larvatus.core.errors import RecipeError
from larvatus.core.run_identity import changed_fields
from larvatus.models.recipes import (
    SIZES,
    Phase,
    parse_recipe,
    read_recipe,
    recipe_names,
    recipe_table,
    recipe_toml,
    steps_of_phases,
)
from tests.models.recipes.refusals import refused


@pytest.fixture
def recipe_file(tmp_path):
    def write(text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return str(path)

    return write


def test_bert_says_what_devlin_et_al_published():
    bert = read_recipe("bert")
    assert (bert.model.layers, bert.model.hidden, bert.model.heads) == (12, 768, 12)
    assert (bert.tokenizer.size, bert.tokenizer.lowercase) == (30_522, True)
    assert (bert.corruption.rate, bert.corruption.mask, bert.corruption.random) == (0.15, 0.8, 0.1)
    assert (bert.batch, bert.schedule.steps, bert.optimizer.rate) == (256, 1_000_000, 1e-4)
    assert bert.schedule.warmup * bert.schedule.steps == 10_000
    assert [(p.share, p.length) for p in bert.phases] == [(0.9, 128), (0.1, 512)]


def test_roberta_says_what_liu_et_al_published():
    roberta = read_recipe("roberta")
    table = recipe_table(roberta)
    assert (roberta.model.layers, roberta.model.hidden, roberta.model.heads) == (12, 768, 12)
    assert (roberta.model.segments, roberta.model.max_positions, roberta.model.norm_epsilon) == (0, 512, 1e-5)
    assert (table["tokenizer"]["type"], roberta.tokenizer.size) == ("byte-bpe", 50_265)
    assert table["packing"]["type"] == "full-sentences"
    assert [objective["type"] for objective in table["objectives"]] == ["masked-lm"]
    assert table["corruption"] == recipe_table(read_recipe("bert"))["corruption"]  # static or fresh: ours are fresh
    assert (roberta.batch, roberta.schedule.steps) == (8_192, 500_000)
    optimizer = roberta.optimizer
    assert (optimizer.rate, optimizer.beta1, optimizer.beta2, optimizer.epsilon) == (6e-4, 0.9, 0.98, 1e-6)
    assert (optimizer.decay, optimizer.clip) == (0.01, 0.0)
    assert roberta.schedule.warmup * roberta.schedule.steps == 24_000
    assert [(p.share, p.length) for p in roberta.phases] == [(1.0, 512)]


def test_spanbert_says_what_joshi_et_al_published():
    spanbert = read_recipe("spanbert")
    assert (spanbert.tokenizer.size, spanbert.tokenizer.lowercase) == (28_996, False)
    assert (spanbert.corruption.rate, spanbert.corruption.geometric, spanbert.corruption.longest) == (0.15, 0.2, 10)
    assert (spanbert.corruption.mask, spanbert.corruption.random, spanbert.corruption.keep) == (0.8, 0.1, 0.1)
    assert [recipe_table(spanbert)[part]["type"] for part in ("packing", "corruption")] == ["single-segment", "spans"]
    assert [o["type"] for o in recipe_table(spanbert)["objectives"]] == ["masked-lm", "span-boundary"]
    assert spanbert.objectives[1].place_size == 200
    assert (spanbert.model.segments, spanbert.model.dropout, spanbert.model.activation) == (0, 0.1, "gelu")
    assert (spanbert.batch, spanbert.schedule.steps, spanbert.schedule.type) == (256, 2_400_000, "linear")
    assert round(spanbert.schedule.warmup * spanbert.schedule.steps) == 10_000
    assert (spanbert.optimizer.rate, spanbert.optimizer.decay, spanbert.optimizer.epsilon) == (1e-4, 0.1, 1e-8)
    assert [(p.share, p.length) for p in spanbert.phases] == [(1.0, 512)]


def test_albert_says_what_lan_et_al_published():
    albert = read_recipe("albert")
    table = recipe_table(albert)
    assert (albert.model.layers, albert.model.hidden, albert.model.heads) == (12, 768, 12)
    assert (albert.model.embedding, albert.model.shared, albert.model.activation) == (128, True, "gelu-tanh")
    assert (albert.model.segments, albert.model.max_positions, albert.model.norm) == (2, 512, "post")
    assert table["tokenizer"] | {"type": "unigram", "size": 30_000, "lowercase": True} == table["tokenizer"]
    assert table["packing"] == {"type": "sentence-order", "short": 0.1, "swapped": 0.5}
    assert [o["type"] for o in table["objectives"]] == ["masked-lm", "sentence-order"]
    assert (table["corruption"]["type"], albert.corruption.longest, albert.corruption.rate) == ("n-grams", 3, 0.15)
    assert (albert.corruption.mask, albert.corruption.random, albert.corruption.keep) == (0.8, 0.1, 0.1)
    assert (albert.batch, albert.schedule.steps, albert.schedule.type) == (4_096, 125_000, "linear")
    assert albert.schedule.warmup * albert.schedule.steps == 3_125
    optimizer = albert.optimizer
    assert (optimizer.type, optimizer.rate, optimizer.decay, optimizer.epsilon) == ("lamb", 1.76e-3, 0.01, 1e-6)
    assert [(p.share, p.length) for p in albert.phases] == [(1.0, 512)]


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        (
            "albert",
            ["packing.type=sentence-pairs"],
            'in and out of order, but packing "sentence-pairs" gives none; set packing.type = "sentence-order"',
        ),
        (
            "bert",
            ["packing.type=sentence-order"],
            'needs sentence pairs, but packing "sentence-order" gives none; set packing.type = "sentence-pairs"',
        ),
        ("albert", ["model.segments=0"], 'packing "sentence-order" gives two segments'),
        ("albert", ["packing.swapped=1.5"], "packing.swapped = 1.5 must lie between 0 and 1"),
        ("albert", ["objectives.sentence-order.weight=-1"], "sentence-order: weight = -1.0 must lie between 0 and"),
        ("albert", ["optimizer.type=lam"], "optimizer.type: invalid enum value 'lam'"),
    ],
)
def test_the_order_of_segments_is_not_the_next_sentence(name, settings, line):
    assert line in refused(name, settings)


def test_another_optimizer_or_schedule_keeps_what_else_was_said():
    recipe = read_recipe("roberta", settings=["optimizer.type=lamb", "schedule.type=cosine"])
    assert (recipe.optimizer.type, recipe.optimizer.rate, recipe.optimizer.clip) == ("lamb", 6e-4, 0.0)
    assert (recipe.schedule.type, recipe.schedule.steps) == ("cosine", 500_000)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["corruption.lenght=3"], "corruption.lenght is not a setting; did you mean corruption.longest?"),
        (
            ["corruption.type=whole-words"],
            'span-boundary needs hidden spans, but corruption "whole-words" gives none; set corruption.type = "spans"',
        ),
        (["corruption.geometric=0"], "corruption.geometric = 0.0 must be above 0"),
    ],
)
def test_what_spanbert_cannot_do_is_one_line_too(settings, line):
    assert line in refused("spanbert", settings)


@pytest.mark.parametrize("name", recipe_names())
def test_every_packaged_recipe_reads_at_every_size_and_survives_a_round_trip(name):
    for size in SIZES:
        recipe = read_recipe(name, size=size)
        own = (12, 256, 4) if (name, size) == ("electra", "small") else SIZES[size]  # the published ELECTRA-Small
        if hasattr(recipe.model, "heads"):  # those of elmo: test_elmo_run.py
            assert (recipe.model.layers, recipe.model.hidden, recipe.model.heads) == own
        assert parse_recipe(recipe_table(recipe), where=name) == recipe


def test_later_words_win_file_then_size_then_settings():
    recipe = read_recipe(
        "bert", size="tiny", settings=["model.layers=3", "objectives.next-sentence.pooler=false", "phases.1.length=256"]
    )
    assert (recipe.model.layers, recipe.model.hidden) == (3, 128)
    assert recipe.objectives[1].pooler is False
    assert recipe.phases[1].length == 256


def test_a_base_is_everything_that_is_not_said(recipe_file):
    path = recipe_file('base = "bert"\n[corruption]\ntype = "whole-words"\nrate = 0.2\n[model]\nlayers = 3\n')
    mine, bert = read_recipe(path), read_recipe("bert")
    assert mine.name == "mine"
    assert (mine.corruption.rate, mine.model.layers) == (0.2, 3)
    assert (mine.model.hidden, mine.packing, mine.objectives) == (bert.model.hidden, bert.packing, bert.objectives)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["corruption.lenght=3"], "corruption.lenght is not a setting"),
        (["corruption.rat=3"], "corruption.rat is not a setting; did you mean corruption.rate?"),
        (["model.layrs=3"], "model.layrs is not a setting; did you mean model.layers?"),
        (["optimiser.rate=3"], "optimiser is not a setting; did you mean optimizer?"),
        (["phases.0.lengt=64"], "phases.0.lengt is not a setting; did you mean phases.0.length?"),
        (["corruption.type=tokns"], "corruption.type = 'tokns' is not one of its kinds; did you mean tokens?"),
        (["model.layers=many"], "model.layers: expected `int`, got `str`"),
        (["model.heads=5"], "set model.heads = "),
        (["model.max_positions=128"], "a phase of length 512 does not fit model.max_positions = 128"),
        (["phases.0.share=0.5"], "phases.share must sum to 1, not 0.6"),
        (
            ["packing.type=full-sentences"],
            'needs sentence pairs, but packing "full-sentences" gives none; set packing.type = "sentence-pairs"',
        ),
        (["model.segments=0"], "set model.segments = 2"),
        (["model.layers"], "--set needs field=value"),
        (["model.layers.x=1"], "layers has no fields of its own"),
        (["objectives.span.x=1"], "there is no element span"),
        (["corruption.rate=1.5"], "rate"),
        (["batch=0"], "batch = 0 must lie between 1 and"),
        (["model.auto_map=x"], "model.auto_map is not a setting"),
        (["_target_=os.system"], "_target_ is not a setting"),
    ],
)
def test_what_cannot_work_is_one_line_that_names_the_fix(settings, line):
    assert line in refused("bert", settings)


def test_unknown_names_suggest_the_nearest(recipe_file):
    with pytest.raises(RecipeError, match="there is no recipe 'brt'; did you mean bert"):
        read_recipe("brt")
    with pytest.raises(RecipeError, match="there is no size 'tny'; did you mean tiny"):
        read_recipe("bert", size="tny")
    with pytest.raises(RecipeError, match=r"mine\.toml: not valid TOML"):
        read_recipe(recipe_file("[model"))
    with pytest.raises(RecipeError, match=r"absent\.toml is missing"):
        read_recipe("absent.toml")


def test_recipes_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a.toml").write_text('base = "b.toml"')
    (tmp_path / "b.toml").write_text('base = "a.toml"')
    with pytest.raises(RecipeError, match="in a circle"):
        read_recipe(str(tmp_path / "a.toml"))


def test_differences_name_the_fields():
    old, new = (recipe_table(read_recipe("bert", settings=s)) for s in ([], ["model.layers=3", "phases.0.length=64"]))
    assert list(map(str, changed_fields(old, new))) == ["model.layers: 12 → 3", "phases.0.length: 128 → 64"]


@pytest.mark.parametrize("steps", [1, 2, 9, 10, 11, 999])
def test_phases_share_out_every_step(steps):
    phases = (Phase(length=128, share=0.9), Phase(length=512, share=0.1))
    counts = steps_of_phases(phases, steps)
    assert sum(counts) == steps
    assert abs(counts[0] - 0.9 * steps) <= 1


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_at_size_tiny_is_for_a_laptop(name):
    tiny = read_recipe(name, size="tiny")
    assert (tiny.model.layers, tiny.model.hidden) == SIZES["tiny"][:2]
    assert getattr(tiny.model, "heads", SIZES["tiny"][2]) == SIZES["tiny"][2]
    assert tiny.batch * max(phase.length for phase in tiny.phases) <= 8_192
    assert tiny.tokenizer.size <= 8_000
    assert tiny.schedule.steps <= 5_000


def test_what_a_size_sets_is_overruled_by_what_the_user_sets(recipe_file):
    mine = recipe_file('base = "bert"\n[sizes]\ntiny = ["batch=8", "optimizer.rate=1e-2"]')
    assert read_recipe(mine).batch == 256
    assert (read_recipe(mine, size="mini").batch, read_recipe(mine, size="tiny").batch) == (256, 8)
    chosen = read_recipe(mine, size="tiny", settings=["batch=9"])
    assert (chosen.batch, chosen.optimizer.rate) == (9, 1e-2)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ('tinny = ["batch=8"]', "sizes.tinny is not a size; did you mean tiny"),
        ('tiny = "batch=8"', 'sizes names settings, such as tiny = ["batch=64"]'),
        ('tiny = ["batch"]', "sizes.tiny: needs field=value"),
        ('tiny = ["phases.7.length=8"]', "sizes.tiny: phases.7.length: there is no element 7 in the list of 2"),
        ('tiny = ["batch.size=8"]', "sizes.tiny: batch.size: batch has no fields of its own"),
    ],
)
def test_a_size_that_cannot_be_set_is_one_clear_line(recipe_file, sizes, said):
    mine = recipe_file(f'base = "bert"\n[sizes]\n{sizes}')
    with pytest.raises(RecipeError) as raised:
        read_recipe(mine, size="tiny")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_recipe_may_do_without_corruption():
    """Only where no objective asks for what it hides; said over a base by the word none."""
    pairs = 'objectives=[{type="next-sentence"}]'
    recipe = read_recipe("bert", settings=["corruption=none", pairs])
    assert recipe.corruption is None
    assert recipe.words_per_token == 0
    assert parse_recipe(tomllib.loads(recipe_toml(recipe)), where="shown") == recipe
    assert parse_recipe(recipe_table(recipe), where="saved") == recipe
    with pytest.raises(
        RecipeError, match=r'needs hidden tokens, but there is no corruption; set corruption\.type = "tokens"'
    ):
        read_recipe("bert", settings=["corruption=none"])


@pytest.mark.parametrize("name", recipe_names())
def test_objectives_say_how_many_words_to_expect(name):
    recipe = read_recipe(name)
    if recipe.corruption is None:  # all words, of which there are fewer than characters
        assert 0 < recipe.words_per_token <= 1
    else:
        special = {"t5": 0.2 / 0.9, "modern": (0.4 + 0.15) / 2}
        # t5: sentinels and what they hide, of what is read; modern: the mean of a share that falls
        expected = special.get(name, recipe.corruption.rate)
        assert recipe.words_per_token == pytest.approx(expected)


def test_pairs_that_two_separators_tell_apart_need_no_second_segment():
    settings = ["tokenizer.type=byte-bpe", "model.segments=0"]
    assert read_recipe("bert", settings=settings).model.segments == 0


def test_the_model_is_a_transformer_where_no_type_is_said(recipe_file):
    said = read_recipe("bert", size="tiny", settings=["model.type=transformer"])
    assert said == read_recipe("bert", size="tiny")
    assert "type" not in recipe_table(said)["model"]  # as before there was a choice: runs and directories go on
    assert parse_recipe(recipe_table(said), where="table") == said
    mine = recipe_file('base = "bert"\n[model]\ntype = "transformer"\nlayers = 3')
    assert (read_recipe(mine).model.layers, read_recipe(mine).model.hidden) == (3, 768)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("model.type=lstm", "bert: model.type = 'lstm' is not one of its kinds; "),
        ("model.tpye=lstm", "bert: model.tpye is not a setting; did you mean model.type?"),
    ],
)
def test_a_model_of_no_kind_is_one_line(setting, line):
    assert refused("bert", [setting]).startswith(line)
