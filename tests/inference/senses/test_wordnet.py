"""WordNet's own files: ranks, keys, synsets, morphology; and folders that are not whole."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.inference.senses.wordnet import DETACHMENT, LEXNAMES, WordNet, base_forms
from tests.inference.senses.conftest import SYNSETS


def test_senses_come_in_the_order_of_their_rank_with_their_keys(wordnet):
    assert [sense.key for sense in wordnet.senses("bank", "n")] == [
        "bank%1:14:00::",
        "bank%1:17:01::",
        "bank%1:06:02::",
    ]
    assert [sense.key for sense in wordnet.senses("Bank")][-1] == "bank%2:38:00::"
    assert [sense.count for sense in wordnet.senses("bank", "n")] == [20, 15, 1]
    assert wordnet.senses("river bank")[0].key == "river_bank%1:17:00::"
    assert wordnet.senses("absent") == []
    assert len(wordnet) == sum(len(one[2].split()) for one in SYNSETS.values())


def test_a_satellite_is_an_adjective_and_its_key_names_its_head(wordnet):
    (sense,) = wordnet.senses("deep", "a")
    assert (sense.key, sense.pos, sense.lemma, sense.lexname) == ("deep%5:00:00:wide:00", "a", "deep", "adj.all")
    assert wordnet.synset(sense.synset).words == ("broad", "deep")  # without its syntactic marker


def test_a_synset_says_its_class_what_is_above_it_gloss_and_examples(wordnet):
    bank, nile = (wordnet.synset(wordnet.sense(key).synset) for key in ("bank%1:17:01::", "nile%1:17:00::"))
    assert (bank.lexname, bank.definition) == ("noun.object", "sloping land")
    assert bank.examples == ("on the bank of the river", "by the bank")
    assert [wordnet.synset(up).words for up in bank.hypernyms] == [("slope",)]
    assert [wordnet.synset(up).words for up in nile.hypernyms] == [("river",)]  # an instance of it


def test_the_45_lexicographer_classes_stand_at_their_numbers():
    assert len(LEXNAMES) == 45
    assert (LEXNAMES[3], LEXNAMES[17], LEXNAMES[28], LEXNAMES[29], LEXNAMES[44]) == (
        *("noun.Tops", "noun.object", "noun.time", "verb.body", "adj.ppl"),
    )


@pytest.mark.parametrize(
    ("word", "lemmas"),
    [
        ("banks", [("bank", "n"), ("bank", "v")]),
        ("geese", [("goose", "n")]),
        ("Ran", [("run", "v")]),
        ("banking", [("bank", "v")]),
        ("wider", [("wide", "a")]),
        ("turned in", [("turn_in", "v")]),
        ("River banks", [("river_bank", "n")]),
        ("please", [("please", "r")]),
        ("pleases", []),
        ("", []),
    ],
)
def test_inflected_words_are_taken_to_their_lemmas(wordnet, word, lemmas):
    assert wordnet.lemmas(word) == lemmas


def test_morphys_own_cases():
    known = {"box", "boxful", "man", "glas", "ax", "axis", "axe"}
    nouns = lambda word, exceptions=(): base_forms(word, "n", dict(exceptions), lambda form, _: form in known)  # noqa: E731
    assert nouns("boxes") == ["box"]
    assert nouns("boxesful") == ["boxful"]
    assert nouns("men") == ["man"]
    assert nouns("glass") == []  # what ends in -ss is no plural
    assert nouns("axes", {"axes": ["ax", "axis"]}) == ["ax", "axis"]  # an exception shuts out the rules
    assert nouns("axes") == ["axe", "ax"]


@given(
    word=st.text("abes_'", max_size=12),
    pos=st.sampled_from("nvar"),
    known=st.sets(st.text("abes_'", max_size=8), max_size=30),
)
def test_what_morphy_gives_is_known_and_the_word_itself_comes_first(word, pos, known):
    forms = base_forms(word, pos, {}, lambda form, _: form in known)
    assert set(forms) <= known
    assert len(set(forms)) == len(forms)
    if word in known:
        assert forms[0] == word
    for ending, new in DETACHMENT[pos]:
        stem = word.removesuffix(ending) + new
        if word.endswith(ending) and stem in known and not (pos == "n" and (word.endswith("ss") or len(word) <= 2)):
            assert stem in forms


@pytest.mark.parametrize("name", ["index.sense", "data.noun", "data.verb", "data.adj", "data.adv", "verb.exc"])
def test_a_folder_that_lacks_a_file_is_refused_by_its_name(wordnet_folder, tmp_path, name):
    folder = shutil.copytree(wordnet_folder, tmp_path / "part")
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"part lacks {name} of WordNet's database files; take all of them"):
        WordNet.open(folder)


def test_no_folder_and_files_of_two_wordnets_are_refused_in_a_line(wordnet_folder, tmp_path):
    with pytest.raises(DataError, match="absent is not a folder of WordNet; check the path"):
        WordNet.open(tmp_path / "absent")
    folder = shutil.copytree(wordnet_folder, tmp_path / "mixed")
    (folder / "data.noun").write_text("another licence\n" + (folder / "data.noun").read_text())
    mixed = WordNet.open(folder)
    with pytest.raises(DataError, match=r"data.noun has no synset at \d+, though index.sense names it; take all files"):
        mixed.synset(mixed.sense("bank%1:17:01::").synset)
    (folder / "index.sense").write_text("bank%1:17:01:: 00000010 1 2\nbank 00000010 1 2\n")
    with pytest.raises(DataError, match=r"index.sense:2: not a line of a sense index: bank 00000010"):
        WordNet.open(folder)
    (folder / "index.sense").write_text("")
    with pytest.raises(DataError, match=r"index.sense is empty"):
        WordNet.open(folder)
