"""Predictions as spaCy's `Doc`, and the component of a pipeline; skipped where spaCy is not installed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.tasks.multitask.results import TaskPredictions
from larvatus.tasks.results import Classified, Coverage, Entity, Spanned, Tagged, TaggedWord
from tests import made_up as made

spacy = pytest.importorskip("spacy")
component = pytest.importorskip("larvatus.interfaces.spacy_component")

TEXT = " Mt. Sanitas  is high, isn't it?\n"
READ = Coverage(tokens=9, read=9, windows=1)


def words(*tags: str) -> tuple[TaggedWord, ...]:
    at, result = 0, []
    for text, tag in zip(["Mt", ".", "Sanitas", "is", "high", ",", "isn", "'", "t", "it", "?"], tags, strict=True):
        at = TEXT.index(text, at)
        result.append(TaggedWord(text=text, tag=tag, start=at, end=at + len(text), probability=0.9))
        at += len(text)
    return tuple(result)


UPOS = words("PROPN", "PUNCT", "PROPN", "AUX", "ADJ", "PUNCT", "AUX", "PUNCT", "PART", "PRON", "PUNCT")
OUTER = Entity(text="Mt. Sanitas", label="PLACE", start=1, end=12, score=0.9)
INNER = Entity(text="Sanitas", label="NAME", start=5, end=12, score=0.8)


def test_tags_spans_and_classes_of_one_text_are_in_one_doc() -> None:
    tagged = Tagged(text=TEXT, entities=(), words=UPOS, coverage=READ)
    spanned = Spanned(text=TEXT, entities=(OUTER, INNER), relations=(), coverage=READ)
    classified = Classified(text=TEXT, label="yes", probabilities={"yes": 0.75, "no": 0.25}, coverage=READ)
    doc = component.to_spacy(TaskPredictions(by_task={"tag": tagged, "spans": spanned, "classify": classified}))
    assert doc.text == TEXT
    assert [(token.text, token.pos_) for token in doc if token.pos_] == [(word.text, word.tag) for word in UPOS]
    assert {(span.text, span.label_) for span in doc.spans["sc"]} == {("Mt. Sanitas", "PLACE"), ("Sanitas", "NAME")}
    assert [(entity.text, entity.label_) for entity in doc.ents] == [("Mt. Sanitas", "PLACE")]
    assert doc.cats == {"yes": 0.75, "no": 0.25}


@dataclass
class Word:
    id: int
    text: str
    head: int
    relation: str
    lemma: str
    upos: str
    start: int
    end: int


@dataclass
class Sentence:
    words: list[Word]


@dataclass
class Trees:
    text: str
    sentences: list[Sentence] = field(default_factory=list)


def test_trees_are_heads_relations_and_sentences() -> None:
    """As the task of dependency trees gives them: heads are numbers of words in the sentence, 0 the root."""
    text = "Ann  ran. It rained."
    rows = [
        [("Ann", 2, "nsubj"), ("ran", 0, "root"), (".", 2, "punct")],
        [("It", 2, "nsubj"), ("rained", 0, "root"), (".", 2, "punct")],
    ]
    trees, at = Trees(text), 0
    for row in rows:
        trees.sentences.append(Sentence([]))
        for number, (form, head, relation) in enumerate(row, start=1):
            at = text.index(form, at)
            word = Word(number, form, head, relation, form.lower(), "X", at, at + len(form))
            trees.sentences[-1].words.append(word)
            at = word.end
    doc = component.to_spacy(trees)
    assert doc.text == text
    shown = [(token.text, token.head.text, token.dep_, token.lemma_) for token in doc if not token.is_space]
    assert shown == [
        ("Ann", "ran", "nsubj", "ann"),
        ("ran", "ran", "ROOT", "ran"),
        (".", "ran", "punct", "."),
        ("It", "rained", "nsubj", "it"),
        ("rained", "rained", "ROOT", "rained"),
        (".", "rained", "punct", "."),
    ]
    assert [sentence.text for sentence in doc.sents] == ["Ann  ran.", "It rained."]


def test_the_component_keeps_the_tokens_of_the_pipeline(tiny_directory: Path, tmp_path: Path) -> None:
    train = made.tags(tmp_path / "tags.conll", 20)
    out = tmp_path / "tagger"
    tagger = lv.finetune(
        "tag", tiny_directory, train=train, out=out, epochs=1, device="cpu", quiet=True, hold_out=False
    )
    nlp: Any = spacy.blank("en")
    nlp.add_pipe("larvatus", config={"model": str(out), "device": "cpu"})
    texts = ["the river was wide", "", "river bank of the river, don't turn"]
    docs = list(nlp.pipe(texts))
    assert [[token.text for token in doc] for doc in docs] == [[token.text for token in nlp.make_doc(t)] for t in texts]
    for doc in docs:
        expected = tagger.predict(doc.text).entities if doc.text else ()  # type: ignore[attr-defined]
        assert [entity.label_ for entity in doc.ents] == [entity.label for entity in expected]
    nlp.to_disk(tmp_path / "pipeline")
    again = spacy.load(tmp_path / "pipeline")
    assert [entity.text for entity in again(texts[0]).ents] == [entity.text for entity in docs[0].ents]


def test_a_prediction_without_a_text_is_refused() -> None:
    with pytest.raises(UsageError, match="int is no prediction about a text"):
        component.to_spacy(7)
