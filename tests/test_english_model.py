"""The English model as it is shipped: it is whole, small enough, and knows some English. Larger claims: its card."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import larvatus as lv
from larvatus.inference.cloze.fill import LESS
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.model_names import packaged_model
from larvatus.models.bundle.partial_updates import card_state

DIRECTORY = packaged_model()
assert DIRECTORY is not None, "the clone carries it"


@pytest.fixture(scope="module")
def english() -> lv.Model:
    return lv.load(device="cpu")


def test_it_is_whole_and_no_larger_than_39_mib():
    manifest = manifests.read_manifest(DIRECTORY)
    manifests.verify(DIRECTORY, manifest)
    size = sum(path.stat().st_size for path in DIRECTORY.rglob("*") if path.is_file())
    assert size <= 39 * 2**20, "a wheel packs it into 37 MiB"
    assert {path.name for path in DIRECTORY.iterdir()} == {*manifest.files, *manifest.parts, "larvatus.json"}


def test_its_card_says_what_its_claims_are_and_names_no_path_of_a_machine():
    state = card_state(DIRECTORY)
    assert state.rendered
    assert not state.edited
    for text in (state.text, json.dumps(state.manifest.lineage), json.dumps(state.manifest.recipe)):
        assert not re.search(r"(?<![\w.:/])/(tmp|work|home|root|Users)/", text)
    for heading in ("As shipped", "Datasheet", "What it is not fit for"):
        assert f"## {heading}\n" in state.text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Paris is the [MASK] of France.", "capital"),
        ("The opposite of hot is [MASK].", "cold"),
        ("He was born in London, the capital of [MASK].", "England"),
        ("The dogs in the garden [MASK] barking.", "were"),
        ("She has lived there [MASK] 1990.", "since"),
        ("The keys to the cabinet [MASK] on the table.", "are"),
    ],
)
def test_it_fills_plain_blanks(english, text, word):
    assert word in [fill.token.strip() for fill in english.fill(text, top=5)]


@pytest.mark.parametrize(
    ("text", "likely"),
    [
        ("She was married to [MASK].", "him"),
        ("He lives in [MASK].", "London"),
        ("They went to [MASK].", "bed"),
        ("Please come with [MASK].", "me"),  # the splitter knows me, too (Maine)
    ],
)
def test_it_offers_whole_words_with_the_probabilities_that_they_had(english, text, likely):
    """An abbreviation loses two thirds of its probability before an exclamation mark, and only then is left out."""
    words, every, exclaimed = (
        {fill.id: fill for fill in english.fill(asked, top=english.tokenizer.size, words_only=only)}
        for asked, only in ((text, True), (text, False), (text.replace(".", "!"), False))
    )
    assert likely in [fill.token for fill in words.values()][:5]
    assert all(fill.probability == every[id].probability for id, fill in words.items())
    begins = [piece.startswith("Ġ") for piece in english.tokenizer.tokens]
    titles = [id for id, fill in every.items() if begins[id] and fill.token in ("St", "Mr", "Mrs", "Dr")]
    left_out = [id for id in titles if exclaimed[id].probability < LESS * every[id].probability]
    assert left_out
    assert [id for id in titles if id not in words] == left_out


def test_a_sentence_is_more_likely_than_its_words_in_another_order(english):
    good, bad = english.score(["The children were playing in the garden.", "The garden the in were playing children."])
    assert good.total > bad.total


def test_two_senses_of_a_word_lie_apart(english):
    texts = [
        "She sat on the *bank* of the river and watched the water.",
        "The boat lay at the muddy *bank* of the stream.",
        "The *bank* raised its rates on loans and savings.",
        "He opened an account at the *bank* in the city.",
    ]
    cosines = np.asarray(english.similarities(texts).matrix)
    within = [cosines[0, 1], cosines[2, 3]]
    between = [cosines[a, b] for a in (0, 1) for b in (2, 3)]
    assert min(within) > max(between)
