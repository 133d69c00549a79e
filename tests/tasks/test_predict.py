"""Predictions: in order whatever the batches, long texts to their end; what is not read is said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

import larvatus
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.data.labelled.records import TextExample
from larvatus.data.text.tag_schemes import find_illegal
from larvatus.data.text.words import segment_words
from larvatus.inference.model import Model, load
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.tasks import predict as module
from larvatus.tasks.predict import PredictOptions, ReadTotals, TaskPredictor, blocks
from larvatus.tasks.results import Classified, Tagged, TaggedWord
from larvatus.tasks.tag.tag import _entities

LABELS = ("bad", "fair", "good")
TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
HEADS = {
    "classify": ClassificationConfig(labels=LABELS, temperature=1.7),
    "labels": ClassificationConfig(labels=LABELS, kind="multi-label"),
    "number": ClassificationConfig(labels=("value",), kind="regression"),
    "tag": TaggingConfig(labels=TAGS, scheme="BIO"),
    "crf": TaggingConfig(labels=TAGS, scheme="BIO", crf=True),
    "pos": TaggingConfig(labels=("NOUN", "VERB"), scheme="none"),
}
TEXTS = ["The river bank was wide.", "Please turn your homework in!", "run", "deep, deep and wide " * 9, "The a of ?"]


@pytest.fixture(scope="module")
def saved(tiny_model: Any, save_tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("tuned")

    def directory(name: str) -> Path:
        if not (folder / name).exists():
            save_tiny(folder / name, tiny_model(seed=5, objectives=(HEADS[name],)), (HEADS[name],))
        return folder / name

    return directory


@pytest.fixture(scope="module")
def model(saved: Callable[[str], Path]) -> Callable[[str], Model]:
    return lambda name: load(saved(name), device="cpu")


def test_one_text_gives_one_answer_and_a_list_a_list(model: Callable[[str], Model]) -> None:
    classifier = model("classify")
    one = classifier.predict(TEXTS[0])
    assert isinstance(one, larvatus.Classified)
    assert one.label in LABELS
    assert sum(one.probabilities.values()) == pytest.approx(1)
    assert one.probability == max(one.probabilities.values())
    assert classifier(TEXTS[0]) == one
    assert classifier.predict([TEXTS[0]])[0].label == one.label
    assert [found.text for found in classifier.predict(iter(TEXTS))] == TEXTS
    pair = classifier.predict((TEXTS[0], TEXTS[1]))
    assert isinstance(pair, Classified)
    assert (pair.text, pair.pair) == (TEXTS[0], TEXTS[1])
    assert pair.probabilities != one.probabilities
    assert classifier.predict([]) == []


def test_labels_and_numbers(model: Callable[[str], Model]) -> None:
    found = model("labels")(TEXTS[0])
    assert isinstance(found, Classified)
    assert found.labels == tuple(label for label in LABELS if found.probabilities[label] >= 0.5)
    number = model("number")(TEXTS[0])
    assert isinstance(number, Classified)
    assert number.value is not None
    assert math.isfinite(number.value)
    assert number.to_dict()["tokens_read"] == 6


def test_a_tagger_gives_words_characters_and_legal_entities(model: Callable[[str], Model]) -> None:
    for name in ("tag", "crf"):
        found = model(name)("The river bank was wide.")
        assert isinstance(found, larvatus.Tagged)
        assert [word.text for word in found.words] == ["The", "river", "bank", "was", "wide", "."]
        assert all(found.text[word.start : word.end] == word.text for word in found.words)
        assert not find_illegal(list(found.tags), "BIO")
        assert all(isinstance(entity, larvatus.Entity) for entity in found.entities)
        assert all(found.text[entity.start : entity.end] == entity.text for entity in found.entities)
        own = model(name).predict(("The", "river", "bank"))
        assert isinstance(own, Tagged)
        assert [word.text for word in own.words] == ["The", "river", "bank"]
        assert model(name).predict([["The", "river", "bank"]]) == [own]
    assert not model("pos")("The river bank").entities  # type: ignore[union-attr]


def test_probabilities_are_those_of_transformers(saved: Callable[[str], Path], model: Callable[[str], Model]) -> None:
    """Texts that fit into a window, one at a time, by nobody's batching."""
    theirs = AutoModelForSequenceClassification.from_pretrained(saved("classify")).eval()
    tagger = AutoModelForTokenClassification.from_pretrained(saved("pos")).eval()
    ours, pos = model("classify"), model("pos")
    inputs = [TEXTS[0], TEXTS[2], (TEXTS[0], TEXTS[1])]
    tokenizer = ours.tokenizer
    for given_, found in zip(inputs, ours.predict(inputs), strict=True):
        parts = [tokenizer.encode(text).ids.tolist() for text in ([given_] if isinstance(given_, str) else given_)]
        ids = [tokenizer.cls_id, *itertools.chain.from_iterable([*part, tokenizer.sep_id] for part in parts)]
        segments = [0] * (len(parts[0]) + 2) + [1] * (len(ids) - len(parts[0]) - 2)
        with torch.inference_mode():
            logits = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).logits[0]
        expected = torch.softmax(logits / 1.7, -1).tolist()
        assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-5)  # type: ignore[union-attr]
    aligned = tokenizer.encode(TEXTS[0])
    with torch.inference_mode():
        logits = tagger(torch.tensor([[tokenizer.cls_id, *aligned.ids.tolist(), tokenizer.sep_id]])).logits[0, 1:-1]
    best = torch.softmax(logits[aligned.word_tokens[:, 0]], -1)
    found = pos(TEXTS[0])
    assert isinstance(found, Tagged)
    assert [word.probability for word in found.words] == pytest.approx(best.max(-1).values.tolist(), abs=1e-5)
    assert list(found.tags) == [("NOUN", "VERB")[number] for number in best.argmax(-1).tolist()]


@pytest.mark.parametrize("name", ["classify", "crf"])
def test_answers_do_not_depend_on_batches_or_blocks(
    name: str, model: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [" ".join(TEXTS[: 1 + n % 5]) for n in range(40)]
    alone = [model(name)(text) for text in texts]
    monkeypatch.setattr(module, "FIRST_BLOCK", 3)
    monkeypatch.setattr(module, "CHARACTERS_AT_ONCE", 300)
    together = model(name).predict(texts, batch_tokens=50)
    for one, other in zip(alone, together, strict=True):
        assert one.text == other.text
        assert one.coverage == other.coverage
        assert str(one) == str(other)


def test_memory_holds_a_block_not_the_stream(model: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 64)
    taken = 0

    def texts() -> Iterator[str]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield TEXTS[0]

    bundle = model("classify").bundle
    found = TaskPredictor(bundle).predict(texts())
    next(found)
    assert taken == module.FIRST_BLOCK  # the first answer comes soon
    for _ in range(200):
        next(found)
    assert taken <= 201 + 64


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 20))
@settings(max_examples=40)
def test_blocks_keep_the_order_and_their_bounds(sizes: list[int], most: int) -> None:
    examples = [TextExample("x" * size, None, None, module.InputPlace("text", n)) for n, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHARACTERS_AT_ONCE", 50)
        patch.setattr(module, "TEXTS_AT_ONCE", most)
        patch.setattr(module, "FIRST_BLOCK", min(2, most))
        made = list(blocks(examples))
    assert [one for block in made for one in block] == examples
    assert all(1 <= len(block) <= most for block in made)
    assert all(len(block) == 1 or sum(len(one.text) for one in block) <= 50 for block in made)  # type: ignore[union-attr]


# Show 5: a document of 5,000 words, read to its end
DOCUMENT = "the river bank was wide and deep please turn in " * 500


def test_a_document_of_5000_words_is_read_to_its_end(model: Callable[[str], Model]) -> None:
    for name in ("classify", "tag", "crf"):
        found = model(name)(DOCUMENT)
        assert found.coverage.share == 1
        assert found.coverage.read == found.coverage.tokens == 5_000
        assert found.coverage.windows > 5_000 / 30
        if isinstance(found, Tagged):
            assert len(found.words) == 5_000
            assert all(word.read for word in found.words)
            assert not find_illegal(list(found.tags), "BIO")


def test_under_truncate_it_says_what_was_not_read(model: Callable[[str], Model]) -> None:
    for name in ("classify", "tag"):
        texts = [TEXTS[0], DOCUMENT]
        short, long = model(name).predict(texts, truncate=True)
        assert (short.coverage.share, long.coverage.windows) == (1, 1)
        assert (long.coverage.tokens, long.coverage.read) == (5_000, 30)
        totals = ReadTotals()
        totals.add(short)
        assert totals.unread == ""
        totals.add(long)
        assert totals.unread == "1 of 2 texts were cut; 99.3% of tokens not read"
        if isinstance(long, Tagged):
            assert [word.read for word in long.words] == [True] * 30 + [False] * 4_970
            assert long.to_dict()["words"][30]["read"] is False


def test_windows_are_merged_by_mean_or_maximum_of_their_scores(model: Callable[[str], Model]) -> None:
    """Against the scores of windows that are cut by hand, without overlap."""
    classifier = model("labels")
    words = DOCUMENT.split()[:60]
    parts = [" ".join(words[:30]), " ".join(words[30:])]
    logits = np.array([_logits(classifier(part)) for part in parts])
    for merge, expected in (("mean", logits.mean(0)), ("max", logits.max(0))):
        found = classifier.predict(" ".join(words), merge=merge, overlap=0)  # type: ignore[arg-type]
        assert found.coverage.windows == 2
        assert _logits(found) == pytest.approx(expected, abs=1e-4)
    assert classifier.predict(" ".join(words), length=12).coverage.windows > 6


def _logits(found: Any) -> list[float]:
    return [math.log(share / (1 - share)) for share in found.probabilities.values()]


def test_the_words_of_a_long_text_have_the_scores_of_their_best_window(model: Callable[[str], Model]) -> None:
    tagger = model("pos")
    words = DOCUMENT.split()[:60]
    parts = tagger.predict([words[:30], words[30:]])
    (whole,) = tagger.predict([words], overlap=0)
    assert isinstance(whole, Tagged)
    expected = [word.probability for part in parts for word in part.words]  # type: ignore[union-attr]
    assert [word.probability for word in whole.words] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("name", "characters"), [("classify", 1_000_000), ("pos", 200_000)])
def test_a_text_of_a_million_characters(name: str, characters: int, model: Callable[[str], Model]) -> None:
    text = ("the river bank was wide and deep, " * 30_000)[:characters]
    loaded = model(name)
    found = loaded(text)
    assert found.coverage.share == 1
    assert found.coverage.tokens > characters / 5
    if isinstance(found, Tagged):
        assert len(found.words) == len(segment_words(text))


def test_nothing_to_tag_is_no_words(model: Callable[[str], Model]) -> None:
    for name in ("tag", "crf", "pos"):
        for truncate in (False, True):
            found = model(name).predict(["", "  \n", "\u0301\x00", [], TEXTS[0]], truncate=truncate)
            assert [len(one.words) for one in found][:2] == [0, 0]  # type: ignore[union-attr]
            assert len(found[-1].words) == 6  # type: ignore[union-attr]
            assert found[0].coverage.share == 1


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["the", ""], "text 2 is empty: there is nothing to classify"),
        (["the", " \n"], "text 2 is empty"),
        ([("the", " ")], "text 1 is empty"),
        (["\u0301"], "text 1 has no tokens: the vocabulary deletes all its characters"),
        (["the", 3], r"texts\[1\] is int, not text"),
        ([["the", "river"]], "text 1 is list, not a text or a pair, a tuple of two texts"),
        ([("the",)], "text 1 is tuple"),
        (["the"] * 40 + ["\ud800"], "text 41 holds a lone surrogate U\\+D800"),
    ],
)
def test_what_cannot_be_classified_is_named(texts: Any, said: str, model: Callable[[str], Model]) -> None:
    with pytest.raises((DataError, UsageError), match=said):
        model("classify").predict(texts)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([3], r"texts\[0\] is int, not text"),
        (["the", ["river", " "]], "text 2: a word is empty"),
        (["the", "\ud800"], "text 2 holds a lone surrogate"),
    ],
)
def test_what_cannot_be_tagged_is_named(texts: Any, said: str, model: Callable[[str], Model]) -> None:
    with pytest.raises((DataError, UsageError), match=said):
        model("tag").predict(texts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"merge": "sum"}, "merged by mean or max"),
        ({"length": 33}, "33 tokens is more than the model's 32 positions"),
        ({"length": 4}, "4 tokens is too short"),
        ({"overlap": 30}, "overlap must be from 0 to 29"),
        ({"overlap": -1}, "overlap = -1 must lie between 0"),
        ({"batch_tokens": -1}, "tokens = -1 must lie between 0"),
    ],
)
def test_options_that_make_no_sense(options: Any, said: str, model: Callable[[str], Model]) -> None:
    with pytest.raises(UsageError, match=said):
        model("classify").predict("the river", **options)


def test_a_model_without_a_head_says_so_by_its_path(tmp_path: Path, tiny_model: Any, save_tiny: Any) -> None:
    directory = save_tiny(tmp_path / "plain", tiny_model())
    with pytest.raises(ArtefactError, match=f"{directory} has no head to predict with; give it one with larvatus fin"):
        load(directory)("the river")


def test_a_model_is_called_with_one_text_or_many(model: Callable[[str], Model]) -> None:
    tagger = model("tag")
    assert tagger(["the", "the river"])[1].to_dict() == tagger("the river").to_dict()
    with pytest.raises(UsageError, match="not one text: \\[text\\]"):
        TaskPredictor(load_bundle(model("tag").bundle.path), PredictOptions()).predict("the")


def test_entities_of_a_tagger_that_does_not_say_its_scheme_are_read_by_the_letters_of_its_tags() -> None:
    words = [
        TaggedWord(text="Mt.", tag="I-LOC", start=0, end=3, probability=0.9),
        TaggedWord(text="Sanitas", tag="I-LOC", start=4, end=11, probability=0.8),
        TaggedWord(text="is", tag="O", start=12, end=14, probability=0.7),
    ]
    (found,) = _entities("Mt. Sanitas is", words, TaggingConfig(labels=("O", "B-LOC", "I-LOC")))
    assert (found.text, found.label, found.score) == ("Mt. Sanitas", "LOC", 0.8)
    assert _entities("Mt.", words[2:], TaggingConfig(labels=("O", "NOUN"))) == ()
