"""What the recipe `modern` says."""

from pathlib import Path

from larvatus.models.recipes import SIZES, read_recipe, recipe_table

ENGLISH = Path(__file__).parents[3] / "packages" / "english.toml"


def test_modern_is_the_architecture_of_warner_et_al_with_our_own_training():
    modern = read_recipe("modern")
    model = modern.model
    assert (model.norm, model.positions, model.gated, model.biases, model.first_norm) == (
        "pre",
        "rotary",
        True,
        False,
        False,
    )
    assert (model.local_attention, model.global_every, model.segments) == (128, 3, 0)
    assert (model.dropout, model.attention_dropout) == (0.0, 0.0)
    assert [layer for layer in range(12) if not model.window(layer)] == [0, 3, 6, 9]
    assert (recipe_table(modern)["tokenizer"]["type"], modern.tokenizer.size) == ("byte-bpe", 32_768)
    assert recipe_table(modern)["packing"]["type"] == "documents"
    masks = modern.corruption
    assert (masks.first_rate, masks.rate, masks.mask, masks.random, masks.keep) == (0.4, 0.15, 0.8, 0.1, 0.1)
    assert [o.__struct_config__.tag for o in modern.objectives] == ["masked-lm"]
    assert modern.schedule.type == "trapezoid"
    assert max(phase.length for phase in modern.phases) == model.max_positions


def test_modern_is_trained_by_muon_from_mini_on_with_the_settings_of_its_search():
    for size in SIZES:
        optimizer = read_recipe("modern", size=size).optimizer
        assert optimizer.type == ("adamw" if size == "tiny" else "muon")
        assert (optimizer.muon_rate, optimizer.muon_decay) == (0.02, 0.05)
        assert (optimizer.beta2, optimizer.epsilon, optimizer.decay) == (0.98, 1e-8, 0.0125)
    assert {read_recipe("modern", size=size).optimizer.rate for size in ("small", "medium")} == {2.5e-3}
    assert {read_recipe("modern", size=size).optimizer.rate for size in ("base", "large")} == {8e-4}
    assert read_recipe("modern", settings=["optimizer.type=adamw"]).optimizer.type == "adamw"


def test_the_english_model_is_modern_at_its_own_shape():
    english = recipe_table(read_recipe(str(ENGLISH)))
    shape = ["model.layers=9", "model.hidden=512", "model.heads=8", "tokenizer.size=12288", "schedule.steps=500000"]
    modern = recipe_table(read_recipe("modern", size="medium", settings=shape))
    assert {name for name in modern if english[name] != modern[name]} == {"name", "about"}


def test_modern_has_about_as_many_weights_in_its_blocks_as_bert_at_every_size():
    for size in SIZES:
        modern, bert = (read_recipe(name, size=size).model for name in ("modern", "bert"))
        weights = 4 * modern.hidden**2 + 3 * modern.hidden * modern.inner
        assert 1 <= weights / (4 * bert.hidden**2 + 2 * bert.hidden * bert.inner) < 1.1
