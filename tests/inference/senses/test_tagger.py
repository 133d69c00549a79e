"""The nearest sense (eq. 11.9), the ladder, one sense per discourse, and running text, against naive loops."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from numpy.testing import assert_allclose

from larvatus.core.errors import DataError, UsageError
from larvatus.inference.senses.build import SenseBackoff, build_senses, describe_senses
from larvatus.inference.senses.evaluate import evaluate_set
from larvatus.inference.senses.tagged import ReadingCounts, SenseInstance, SenseSentence, read_semcor
from larvatus.inference.senses.tagger import SenseOptions, SenseTagger, find_instances, find_tagged
from larvatus.inference.vectors.pooling import EmbedOptions

EVERY = ("synset", "hypernym", "lexname")


@pytest.fixture(scope="module")
def inventory(model, semcor, wordnet):
    return build_senses(
        model.encoder,
        model.tokenizer,
        read_semcor(semcor, wordnet, ReadingCounts()),
        EmbedOptions(unit="span"),
        wordnet=wordnet,
        reading=ReadingCounts(),
        model=("print", "tiny"),
    )


@pytest.fixture
def tagger(model, inventory, wordnet):
    def make(**options):
        return SenseTagger(model.encoder, model.tokenizer, inventory, wordnet, SenseOptions(**options))

    return make


def cosine(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return a @ b / np.sqrt((a @ a) * (b @ b))


def sentence(text, word="bank", document="d", lemmas=(("bank", "n"),)):
    start = text.index(word)
    return SenseSentence(document, text, (SenseInstance(start, start + len(word), lemmas),))


@pytest.mark.parametrize("standardise", [False, True])
def test_eq_11_9_a_word_takes_the_sense_with_the_largest_cosine(tagger, model, inventory, wordnet, standardise):
    texts = ["the bank of the river", "your bank was wide", "run , bank ! please", '" Wide River Bank bank run bank "']
    found = tagger(standardise=standardise, backoff=()).tag_sentences([sentence(text) for text in texts])
    seen = set()
    for text, word in zip(texts, found, strict=True):
        start = text.index("bank")
        own = model.embed([text], unit="span", spans=[[(start, start + 4)]])[0][0].astype(np.float64)
        vectors = {key: inventory.vectors[inventory.row(key)].astype(np.float64) for key in inventory.keys}
        if standardise:
            mean, deviation = inventory.mean.astype(np.float64), inventory.deviation.astype(np.float64)
            own = (own - mean) / deviation
            vectors = {key: (vector - mean) / deviation for key, vector in vectors.items()}
        cosines = {one.key: cosine(own, vectors[one.key]) for one in wordnet.senses("bank", "n")}
        assert word.key == max(cosines, key=cosines.__getitem__)
        assert word.similarity == pytest.approx(cosines[word.key], abs=1e-4)
        assert (word.how, word.text, word.start) == ("sense", "bank", start)
        seen.add(word.key)
    assert len(seen) > 1  # or the texts would show nothing


def test_each_rung_of_the_ladder_is_the_mean_it_says(inventory, wordnet):
    own = {key: inventory.vectors[inventory.row(key)].astype(np.float64) for key in inventory.keys}
    synset = {key: wordnet.sense(key).synset for key in inventory.keys}
    ladder = SenseBackoff(inventory, wordnet, steps=EVERY)

    def rung(key, ladder=ladder):
        vector, name = ladder.vector(wordnet.sense(key))
        return name, vector

    name, vector = rung("bank%1:14:00::")
    assert name == "sense"
    assert_allclose(vector, own["bank%1:14:00::"], atol=1e-6)
    name, vector = rung("depository%1:14:00::")  # of one synset with bank%1:14:00::
    assert name == "synset"
    assert_allclose(vector, own["bank%1:14:00::"], atol=1e-5)
    name, vector = rung("nile%1:17:00::")  # no synset below river is tagged, so its class: river, bank, shore
    assert name == "lexname"
    class_of = [own[key] for key in own if "%1:17" in key]
    assert len(class_of) == 3
    assert_allclose(vector, np.mean(class_of, axis=0), atol=1e-5)
    name, vector = rung("slope%1:17:00::")
    assert name == "hypernym"  # under entity, as river and the building are
    assert_allclose(vector, np.mean([own["river%1:17:00::"], own["bank%1:06:02::"]], axis=0), atol=1e-5)
    assert len({synset[key] for key in own}) == len(own)  # so that means over synsets are means over senses here


@pytest.mark.parametrize(
    ("steps", "rungs"),
    [
        (EVERY, ("synset", "hypernym", "lexname", None)),
        (("hypernym", "lexname"), ("hypernym", "hypernym", "lexname", None)),
        (("synset", "lexname"), ("synset", "lexname", "lexname", None)),
        (("synset", "hypernym"), ("synset", "hypernym", None, None)),
        ((), (None, None, None, None)),
    ],
)
def test_each_step_can_be_switched_off(inventory, wordnet, steps, rungs):
    ladder = SenseBackoff(inventory, wordnet, steps=steps)
    keys = ("depository%1:14:00::", "slope%1:17:00::", "nile%1:17:00::", "turn%2:38:00::")
    found = [ladder.vector(wordnet.sense(key)) for key in keys]
    assert tuple(one and one[1] for one in found) == rungs


def test_one_sense_and_no_vector(tagger, inventory, wordnet):
    """A word with one sense takes it; one whose senses have no vector takes WordNet's first, or none if that is off."""
    run = sentence("please run", "run", lemmas=(("run", "v"),))
    assert [(word.key, word.how) for word in tagger().tag_sentences([run])] == [("run%2:38:00::", "only")]
    verbs = sentence("please run", "run", lemmas=(("run", "v"), ("turn", "v")))
    (word,) = tagger().tag_sentences([verbs])
    assert (word.how, word.similarity) == ("first-sense", None)
    (word,) = tagger(backoff=EVERY).tag_sentences([verbs])
    assert (word.key, word.how, word.lemma) == (None, None, "run")
    (word,) = tagger().tag_sentences([sentence("please run", "run", lemmas=(("absent", "n"),))])
    assert word.key is None
    deleted = sentence("the \u0301", "\u0301")  # the vocabulary deletes the word: nothing can be compared
    (word,) = tagger().tag_sentences([deleted])
    assert (word.key, word.how, word.similarity) == ("bank%1:14:00::", "first-sense", None)


def _cosines(tagger, one):
    """Of the sentence's word with each of its senses."""
    candidates = tagger.backoff.candidates(one.instances[0].lemmas)
    return [cosine(tagger.embed([one])[0][0], vector) for vector in candidates.vectors]


def test_one_sense_per_discourse_is_the_largest_sum_of_similarities(tagger, wordnet):
    texts = ["the bank of the river", "your bank was wide", "run , bank ! please", "bank ? bank ing in a deep river"]
    sentences = [sentence(text, document="d1") for text in texts] + [
        sentence(text, document="d2") for text in texts[1:3]
    ]
    plain, voted = tagger(), tagger(discourse=True)
    keys = [one.key for one in wordnet.senses("bank", "n")]
    for document in ("d1", "d2"):
        own = [one for one in sentences if one.document == document]
        sums = np.sum([_cosines(plain, one) for one in own], axis=0)
        answers = {word.key for word in voted.tag_sentences(own)}
        assert answers == {keys[int(np.argmax(sums))]}
    assert len({word.key for word in plain.tag_sentences(sentences)}) > 1
    river = sentence(texts[0])
    deleted = sentence("the \u0301", "\u0301")  # a word without a vector has no vote, and follows the others
    expected = voted.tag_sentences([river])[0].key
    found = voted.tag_sentences([river, deleted])
    assert [word.key for word in found] == [expected, expected]
    assert found[1].similarity is None


def test_a_heavy_prior_gives_the_most_frequent_sense(tagger, inventory):
    words = tagger(prior=100.0, backoff=()).tag_sentences([sentence("your bank was wide"), sentence("run , bank !")])
    assert {word.key for word in words} == {"bank%1:17:01::"}  # tagged twice, the others once
    with pytest.raises(UsageError, match="prior = -1 must lie between 0"):
        SenseOptions(prior=-1)
    with pytest.raises(UsageError, match=r"'synsets' is not a back-off step; did you mean synset\?"):
        SenseOptions(backoff=("synsets",))


def test_running_text_is_cut_into_what_wordnet_knows_longest_first(wordnet):
    text = "Please turn in your homework. The geese ran by the river banks!"
    found = find_instances(text, wordnet)
    assert [one.start for one in found] == [0, 30]
    words = [(text[s.start + i.start : s.start + i.end], i.lemmas) for s in found for i in s.instances]
    assert words == [
        ("Please", (("please", "r"),)),
        ("turn in", (("turn_in", "v"),)),
        ("homework", (("homework", "n"),)),
        ("geese", (("goose", "n"),)),
        ("ran", (("run", "v"),)),
        ("river banks", (("river_bank", "n"),)),
    ]
    (only,) = find_instances("banks", wordnet, pos=["v"])
    assert only.instances[0].lemmas == (("bank", "v"),)
    assert find_instances("", wordnet) == []


def test_words_may_carry_their_part_of_speech(wordnet):
    text, found = find_tagged("The/DET bank/NOUN banks/VBZ\n\nwide/a in/IN", wordnet)
    words = [(text[s.start + i.start : s.start + i.end], i.lemmas) for s in found for i in s.instances]
    assert text == "The bank banks\n\nwide in"
    assert words == [("bank", (("bank", "n"),)), ("banks", (("bank", "v"),)), ("wide", (("wide", "a"),))]
    with pytest.raises(DataError, match=r"here:3: bank in line 1 has no part of speech; write bank/NOUN"):
        find_tagged("the/DET bank", wordnet, where="here:3: ")


def test_a_text_is_tagged_with_its_own_characters(tagger):
    text = "Please turn in.  The river bank was deep."
    words = tagger().tag(text)
    assert [text[word.start : word.end] for word in words] == ["Please", "turn in", "river bank", "deep"]
    assert [word.key for word in words][1:3] == ["turn_in%2:40:00::", "river_bank%1:17:00::"]
    assert words[0].to_dict()["how"] == "only"


def test_a_test_set_is_scored_beside_its_baselines(tagger, made_set, wordnet):
    result = evaluate_set(made_set, tagger())
    assert (result.name, result.score.total, result.score.answered) == ("made", 4, 4)
    assert result.first_sense.right == 3  # wrong for the river's bank alone
    assert result.most_frequent.right == 3  # wrong for the other: bank%1:17:01:: was tagged twice
    assert sum(count for count, _ in result.rungs.values()) == 4
    assert sum(right for _, right in result.rungs.values()) == result.score.right
    assert {pos: score.total for pos, score in result.by_pos.items()} == {"n": 3, "v": 1}


def test_gold_of_other_words_or_another_wordnet_is_refused(tagger, made_set, tmp_path):
    gold = tmp_path / "gold.txt"
    gold.write_text("d999.s000.t000 bank%1:17:01::\n")
    with pytest.raises(DataError, match=r"gold.txt answers no word of .*made.data.xml"):
        evaluate_set(made_set, tagger(), gold)
    gold.write_text("d000.s000.t000 bank%1:99:01::\n")
    with pytest.raises(
        DataError, match=r"gold.txt: 1 of its sense keys are not in .* \(bank%1:99:01::\); use the WordNet"
    ):
        evaluate_set(made_set, tagger(), gold)


def test_a_word_is_described_with_its_nearest_senses(inventory, wordnet):
    entries = describe_senses("banks", wordnet, inventory, nearest=2)
    assert [entry.key for entry in entries][:2] == ["bank%1:14:00::", "bank%1:17:01::"]
    river = entries[1]
    assert (river.count, river.rung, river.definition, river.lexname) == (2, "sense", "sloping land", "noun.object")
    others = {key: cosine(inventory.vectors[inventory.row(key)], inventory.vectors[inventory.row(river.key)])
              for key in inventory.keys if key != river.key}  # fmt: skip
    assert [key for key, _ in river.nearest] == sorted(others, key=others.__getitem__, reverse=True)[:2]
    assert entries[3].nearest == () or entries[3].rung is not None
    assert describe_senses("bank", wordnet)[0].count is None
    with pytest.raises(DataError, match="WordNet has no 'bnak'; check the spelling"):
        describe_senses("bnak", wordnet)


def test_an_inventory_of_another_wordnet_makes_no_tagger(model, inventory, wordnet):
    origin = msgspec.structs.replace(inventory.origin, wordnet="other")
    odd = replace(inventory, keys=("bank%1:88:00::", *inventory.keys[1:]), origin=origin)
    with pytest.raises(DataError, match=r"1 of the \d+ senses are not in"):
        SenseTagger(model.encoder, model.tokenizer, odd, wordnet)
