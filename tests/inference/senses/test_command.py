"""`larvatus senses`: from tagged text to senses and a score, as a user gives the commands; and what is refused."""

from __future__ import annotations

import functools
import json

import pytest


@pytest.fixture
def larvatus(larvatus):
    return functools.partial(larvatus, "senses", stdin="")


@pytest.fixture
def paths(larvatus, model, semcor, wordnet_folder, tmp_path):
    """Options that name the model, its senses and WordNet; the senses are built by the command."""
    senses = tmp_path / "senses"
    code, out, _ = larvatus(
        *("build", semcor, "--model", model.bundle.path, "--wordnet", wordnet_folder, "--out", senses)
    )
    assert code == 0
    assert "senses: 8 senses from 8 words of 3 sentences" in out
    assert "skipped: 1 tags that this WordNet has not: run%2:99:00:: (1)" in out
    return ["--model", model.bundle.path, "--senses", senses, "--wordnet", wordnet_folder]


def test_text_goes_in_and_senses_come_out(larvatus, paths, tmp_path):
    code, out, _ = larvatus("tag", "Please turn in your homework.", *paths)
    assert code == 0
    assert "turn_in%2:40:00::" in out
    assert "hand over" in out
    file = tmp_path / "text.txt"
    file.write_text("The river bank was wide.\n")
    code, out, _ = larvatus("tag", "-", "--file", file, "--json", *paths, stdin="the geese ran\n")
    first, second = map(json.loads, out.splitlines())
    assert [word["key"] for word in first["words"]] == ["goose%1:05:00::", "run%2:38:00::"]
    assert [word["text"] for word in second["words"]] == ["river bank", "wide"]
    code, out, _ = larvatus("tag", "the/DET bank/VERB", "--pos", "--json", *paths)
    (word,) = json.loads(out)["words"]
    assert (word["key"], json.loads(out)["text"][word["start"] : word["end"]]) == ("bank%2:38:00::", "bank")


def test_answers_to_a_test_set_are_scored_the_same_from_a_file(larvatus, paths, made_set, tmp_path):
    code, answers, _ = larvatus("tag", "--file", made_set, *paths)
    assert answers.startswith("d000.s000.t000 bank%1:")
    (tmp_path / "answers.txt").write_text(answers)
    code, out, _ = larvatus("evaluate", made_set, "--json", *paths)
    (result,) = json.loads(out)
    code, out, _ = larvatus("evaluate", made_set, "--keys", tmp_path / "answers.txt", "--json")
    assert json.loads(out)["f1"] == result["f1"]
    assert result["first_sense"]["f1"] == 0.75
    code, out, _ = larvatus("evaluate", made_set, *paths)
    assert code == 0
    assert "first sense" in out
    code, out, _ = larvatus("evaluate", made_set, "--backoff", "none", "--json", *paths)
    assert json.loads(out)[0]["answered"] == 4  # all have tagged senses, or one sense only


def test_show_says_what_is_known_of_a_word(larvatus, paths):
    code, out, _ = larvatus("show", "banks", "--senses", paths[3], "--wordnet", paths[5], "--json")
    assert code == 0
    assert [entry["count"] for entry in json.loads(out)] == [1, 2, 1, 0]
    code, out, _ = larvatus("show", "bank", "--wordnet", paths[5])
    assert "sloping land" in out


def test_bad_input_is_one_line(larvatus, paths, model, tiny_model, save_tiny, made_set, semcor, tmp_path):
    other = save_tiny(tmp_path / "other", tiny_model(seed=3))
    *_, said = larvatus("tag", "a bank", "--model", other, *paths[2:])
    assert said.endswith("use the model they were built with, or build them again: larvatus senses build")
    assert "\n" not in said
    code, _, said = larvatus("build", semcor, *paths[:2], "--wordnet", tmp_path, "--out", tmp_path / "new")
    assert (code, "lacks index.sense, data.noun" in said) == (4, True)
    code, _, said = larvatus("build", semcor, *paths[:2], *paths[4:], "--out", paths[3])
    assert (code, said.endswith("is there already; remove it, or choose another --out")) == (5, True)
    assert larvatus("build", semcor, *paths[:2], *paths[4:], "--layers", "all", "--out", tmp_path / "new")[0] == 2
    assert larvatus("tag", *paths)[0] == 2
    assert larvatus("tag", "-", *paths)[::2] == (4, "larvatus: there is no text to tag: what was given is empty")
    assert larvatus("tag", "a bank", "--backoff", "synonym", *paths)[0] == 2
    assert larvatus("evaluate", made_set)[0] == 2
    assert larvatus("evaluate", made_set, made_set, "--gold", "x", *paths)[0] == 2
    assert not (tmp_path / "new").exists()


def test_python_has_the_same(paths, model):
    tagger = model.senses(paths[3], wordnet=paths[5])
    assert [word.lemma for word in tagger.tag("They ran along the river bank.")] == ["run", "river_bank"]
