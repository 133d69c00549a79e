"""The text of the English model's second run (packages/english_text.py)."""

from __future__ import annotations

import lzma
import runpy
from pathlib import Path

from larvatus.models.recipes import read_recipe, recipe_table

PACKAGES = Path(__file__).parents[1] / "packages"
MADE = runpy.run_path(str(PACKAGES / "english_text.py"))


def test_sentences_end_where_the_next_begins():
    paragraph = '"Who told you that?" asked the old man. "Nobody did, I am sure. Why?" He laughed.'
    parts = ['Who told you that?" asked the old man.', "Nobody did, I am sure."]
    assert MADE["sentences"](paragraph) == parts  # of three words and more


def test_novels_come_as_paragraphs_twice_and_as_sentences_and_one_paragraph_of_articles_in_seven(tmp_path):
    novels, articles = tmp_path / "novels.xz", tmp_path / "articles.xz"
    told = [f"He had waited for {n} long days. She never came to him." for n in range(400)]
    known = [f"Article {n} is about a village of the north." for n in range(1_400)]
    for path, lines in ((novels, ["CHAPTER I", *told]), (articles, ["History.", *known])):
        with lzma.open(path, "wt", encoding="utf-8") as file:
            file.write("\n\n".join(lines))
    texts = list(MADE["short_texts"]([novels], [articles]))
    of_novels, of_articles = texts[:1_600], texts[1_600:]
    assert sorted(text.lower() for text in of_novels) == sorted(
        text.lower() for line in told for text in (line, line, *line.replace("days. ", "days.\n").split("\n"))
    )
    assert 150 <= len(of_articles) <= 250
    assert {text.lower() for text in of_articles} <= {text.lower() for text in known}
    for part in (of_novels, of_articles):
        assert 0.06 < sum(text.islower() for text in part) / len(part) < 0.2
    assert texts == list(MADE["short_texts"]([novels], [articles]))


def test_its_second_recipe_trains_the_same_model_otherwise():
    first, second = (
        recipe_table(read_recipe(str(PACKAGES / name))) for name in ("english.toml", "english_second.toml")
    )
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"name", "about", "corruption", "optimizer", "schedule", "phases"}


def test_newer_results_take_the_place_of_all_older_claims_of_the_same_measurement() -> None:
    from larvatus.models.bundle.claims import Data, make_claim

    replaced = runpy.run_path(str(PACKAGES / "english_card.py"))["replaced"]
    pairs, blanks = ((Data(name=name, sha256=name),) for name in ("pairs", "blanks"))
    older = [
        make_claim("layers", 9, command="model"),
        make_claim("old name", 1.0, command="audit bias", settings={"task": "winobias"}, data=blanks),
        make_claim("gap", 2.0, command="audit bias", settings={"task": "winobias"}, data=blanks),
        make_claim("share", 3.0, command="audit bias", settings={"task": "crows_pairs"}, data=pairs),
    ]
    newer = [
        make_claim("gap", 4.0, command="audit bias", settings={"task": "winobias"}, data=blanks),
        make_claim("found", 5.0, command="audit leaks", data=pairs),
    ]
    assert [(claim.metric, claim.value) for claim in replaced(older, newer)] == [
        ("layers", 9),
        ("gap", 4.0),
        ("share", 3.0),
        ("found", 5.0),
    ]
