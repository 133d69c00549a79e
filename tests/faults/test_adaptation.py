"""Faults of continuing from a model: models that cannot be, words that are no words, flags that make no sense."""

import json
import shutil

import pytest

from larvatus.models.bundle.directory import load_bundle


@pytest.fixture
def base(save_tiny, tiny_model, tmp_path):
    return save_tiny(tmp_path / "base", tiny_model())


@pytest.fixture
def adapt(larvatus, tmp_path):
    (tmp_path / "text.txt").write_text("the river was wide .\n\n" * 10)

    def call(*more, recipe=("bert",), out="run"):
        return larvatus("pretrain", *recipe, "--corpus", tmp_path / "text.txt", "--out", tmp_path / out, *more)

    return call


def test_flags_that_make_no_sense(adapt, base):
    assert adapt(recipe=()) == (
        2,
        "larvatus: name a recipe (larvatus recipes lists them), or a model to adapt with --from DIR",
    )
    for flag, value in (("--add-words", "5"), ("--old", "embedded")):
        code, said = adapt(flag, value)
        assert (code, flag in said, "--from" in said) == (2, True, True)
    code, said = adapt("--from", base, out="base")
    assert code == 2
    assert "--from and --out are both" in said


def test_directories_that_cannot_be_gone_on_from(adapt, base, tmp_path):
    assert adapt("--from", tmp_path / "nowhere")[0] == 5
    (base / "model.safetensors").rename(tmp_path / "away")
    code, said = adapt("--from", base)
    assert (code, "model.safetensors" in said) == (5, True)
    (tmp_path / "away").rename(base / "model.safetensors")
    (base / "larvatus.json").unlink()
    config = json.loads((base / "config.json").read_text())
    for change in ({"architectures": ["BertLMHeadModel"]}, {"model_type": "gpt2"}):
        (base / "config.json").write_text(json.dumps(config | change))
        code, said = adapt("--from", base)
        assert code == 5
        assert str(base / "config.json") in said


def test_a_recipe_that_the_directory_does_not_tell_whole(adapt, base):
    """The tiny model's manifest has a recipe of one word."""
    code, said = adapt("--from", base, recipe=())
    assert code == 3
    assert "or name a recipe: larvatus pretrain bert --from" in said


def test_a_recipe_that_the_model_cannot_be_trained_by(adapt, base):
    code, said = adapt("--from", base)
    assert (code, "does not fit model.max_positions = 32" in said) == (3, True)
    code, said = adapt("--from", base, "--size", "tiny", "--set", "phases.0.length=16", "--set", "phases.1.length=32")
    assert (code, "contradicts --from" in said) == (2, True)


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ("0", 2, "--add-words needs a number above 0 or a file of words, not 0"),
        ("-3", 2, "--add-words needs a number above 0"),
        ("absent.txt", 2, "is neither a number nor a file of words"),
        ("", 4, "holds no words"),
        ("two words\n", 4, "words.txt:1: 'two words' holds white space"),
    ],
)
def test_words_that_are_no_words(adapt, base, tmp_path, given, code, message):
    if given == "" or "\n" in given:
        (tmp_path / "words.txt").write_text(given)
        given = str(tmp_path / "words.txt")
    short = ("--set", "phases.0.length=16", "--set", "phases.1.length=32", "--set", "batch=4")
    found, said = adapt("--from", base, f"--add-words={given}", *short)
    assert (found, message in said) == (code, True), said


def test_a_run_is_not_begun_where_a_model_is(adapt, base, tmp_path):
    shutil.copytree(base, tmp_path / "run")
    code, said = adapt("--from", base, "--set", "phases.0.length=16", "--set", "phases.1.length=32")
    assert (code, "already holds a run" in said) == (5, True)
    assert load_bundle(tmp_path / "run")
