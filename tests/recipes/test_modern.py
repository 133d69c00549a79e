"""What the recipe `modern` says."""

from larvatus.recipes import SIZES, read_recipe, recipe_table


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
    assert (masks.rate, masks.mask, masks.random, masks.keep) == (0.3, 1.0, 0.0, 0.0)
    assert [o.__struct_config__.tag for o in modern.objectives] == ["masked-lm"]
    assert modern.schedule.type == "trapezoid"
    assert {read_recipe("modern", size=size).optimizer.epsilon for size in SIZES} == {1e-8}
    assert max(phase.length for phase in modern.phases) == model.max_positions


def test_modern_has_about_as_many_weights_in_its_blocks_as_bert_at_every_size():
    for size in SIZES:
        modern, bert = (read_recipe(name, size=size).model for name in ("modern", "bert"))
        weights = 4 * modern.hidden**2 + 3 * modern.hidden * modern.inner
        assert 1 <= weights / (4 * bert.hidden**2 + 2 * bert.hidden * bert.inner) < 1.1
