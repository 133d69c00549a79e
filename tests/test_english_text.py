"""The text of the English model (packages/english_text.py, english_overlap.py)."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import numpy as np

from larvatus.models.recipes import read_recipe, recipe_table

PACKAGES = Path(__file__).parents[1] / "packages"
sys.path.insert(0, str(PACKAGES))
OVERLAP, TEXT = map(importlib.import_module, ("english_overlap", "english_text"))
sys.path.pop(0)


def cleaned(source: str, text: str) -> list[list[str]]:
    return list(TEXT.MADE[source](text))


def test_articles_lose_what_a_converter_left():
    line = "Cello ( ; plural cellos) () is{{cn}} a village, [ [update]] in  Spain ."
    assert cleaned("wiki.1", f"{line}\nA|b|c|d\n\nNew.") == [
        ["Cello (plural cellos) is a village, in Spain."],
        ["New."],
    ]


def test_chapters_are_documents_and_a_table_of_contents_stays_with_the_first():
    told = "He had waited for `days´ [2] and _never_ came. " * 40
    novel = f"CHAPTER I.\nCHAPTER II.\nCHAPTER I.\n{told}\nCHAPTER II.\nThe end."
    first, second = cleaned("novels", novel)
    assert first[:3] == ["CHAPTER I.", "CHAPTER II.", "CHAPTER I."]
    assert first[3].startswith("He had waited for ‘days’ and never came. He")
    assert second == ["CHAPTER II.", "The end."]


def test_names_of_speakers_stay_in_half_of_the_transcripts_and_never_in_short_texts():
    shows = [f"Ann Lee: Well, here is show {n}. [laughs]\nBreak:\nBo: Yes -- it is!" for n in range(200)]
    made = cleaned("podcasts", "\n\n".join(shows))
    with_names = [document for document in made if document[0].startswith("Ann Lee: ")]
    assert 70 < len(with_names) < 130
    assert all(document[0].endswith("[laughs]") and document[1] == "Bo: Yes — it is!" for document in with_names)
    assert all(
        document[0] == f"Well, here is show {n}." for n, document in enumerate(made) if document not in with_names
    )
    short = list(TEXT.short_texts("podcasts", ["\n".join(document) for document in made]))
    assert len(short) >= 200
    assert not any("Ann Lee" in text for text in short)


def test_textbooks_lose_lists_of_sources_and_headings_of_all_chapters():
    book = "📝 Prices\nReview\nA price (credit: J. (Jo) Doe) is paid.\nDoe, Jane. On Prices. New York: Penguin, 1999.\nhttp://x"
    made = cleaned("textbooks", "\n\n".join([book] * 11))
    assert made == [["Prices", "A price is paid."]] * 11 or made == [[]] * 11  # what repeats eleven times is a heading
    assert cleaned("textbooks", book) == [["Prices", "Review", "A price is paid."]]


def test_lines_of_stories_are_joined_where_the_page_broke_them():
    assert cleaned("children", "The Bee\nIt went to get\nhoney.\nI said,\nNo.") == [
        ["The Bee", "It went to get honey.", "I said, No."]
    ]


def test_repeated_paragraphs_are_kept_once_whatever_their_case_and_short_ones_always():
    once = TEXT.Unrepeated("novels")
    long = "This paragraph is of exactly eight words here."
    assert once([long, "Yes.", "* * *"]) == [long, "Yes."]
    assert once(["Yes.", long.upper() + " —", "New."]) == ["Yes.", "New."]
    assert once.repeated == 1


def test_short_texts_are_the_same_every_time_and_one_in_eight_is_in_lower_case():
    told = [f'He waited for {n} days at "Mr. Brown\'s". She came to him in {n} years.' for n in range(400)]
    texts = list(TEXT.short_texts("novels", ["\n".join(told)]))
    assert texts == list(TEXT.short_texts("novels", ["\n".join(told)]))
    assert len(texts) == 1_200  # each paragraph, and its two sentences
    assert 0.08 < sum(text.islower() for text in texts) / len(texts) < 0.2
    assert any(text.islower() and text[-1] == "s" for text in texts)
    articles = list(
        TEXT.short_texts("wiki.1", [f"Article {n} is about a village. It is small and old." for n in range(1_400)])
    )
    assert 150 < sum(" village. it is" in text.lower() for text in articles) < 250
    chat = list(TEXT.short_texts("chat", ["How are you?\nI am fine", "Hi"]))
    assert chat[:2] == ["how are you", "I am fine"]  # the first is drawn for lower case
    assert len(chat) in (2, 3)


def test_paragraphs_that_share_a_run_of_words_with_an_evaluation_set_go_even_across_paragraphs():
    run = [f"w{n}" for n in range(13)]
    sets = {"one": [[" ".join(run)], ["nothing of it"]], "two": [["too short"], [" ".join(f"v{n}" for n in range(14))]]}
    runs = OVERLAP.EvaluationRuns.of(sets)
    found = np.zeros(len(runs.grams), bool)
    documents = [
        ["Before.", " ".join(run[:6]).upper() + " --", ", ".join(run[6:]), "After."],
        ["Clean " + " ".join(run[:12])],
        [run[12], "x " + " ".join(run) + " y"],
    ]
    cleaned, removed = runs.cleaned(documents, found)
    assert cleaned == [["Before.", "After."], documents[1], [run[12]]]
    assert removed == 3
    assert runs.examples_with(found) == {
        "one": {"examples": 2, "of 13 words and more": 1, "shared": 1},
        "two": {"examples": 2, "of 13 words and more": 1, "shared": 0},
    }


def test_runs_agree_with_a_naive_search():
    draw = np.random.default_rng(0)
    words = [str(word) for word in draw.integers(0, 2, 3_000)]
    documents = [
        [" ".join(words[at : at + 40]) for at in range(place, place + 400, 40)] for place in range(0, 2_000, 400)
    ]
    sets = {"set": [[" ".join(words[2_000:])]]}
    runs = OVERLAP.EvaluationRuns.of(sets)
    known = {tuple(words[at : at + 13]) for at in range(2_000, 2_988)}
    marks, _ = runs.touched(documents)
    for document, mark in zip(documents, marks, strict=True):
        flat = [(number, word) for number, paragraph in enumerate(document) for word in paragraph.split()]
        hit = set()
        for at in range(len(flat) - 12):
            if tuple(word for _, word in flat[at : at + 13]) in known:
                hit |= {number for number, _ in flat[at : at + 13]}
        assert set(np.flatnonzero(mark)) == hit


def test_tokenised_sets_are_read_as_text_has_them():
    assert OVERLAP.joined(["It", "does", "n't", "<b>work</b>"]) == "It doesn't work"
    assert OVERLAP.whole("do n 't") == "don't"


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
