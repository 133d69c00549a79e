"""Predictions as spaCy's `Doc`, and the component of a pipeline; skipped where spaCy is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import UsageError
from larvatus.tasks.coref.results import Mention, MentionCluster, ResolvedDocument
from larvatus.tasks.multitask.results import TaskPredictions
from larvatus.tasks.parse.results import Parsed, ParsedSentence, ParsedWord
from larvatus.tasks.results import Classified, Coverage, Entity, Spanned, Tagged, TaggedWord
from larvatus.tasks.roles.results import ArgumentSpan, PredicateSpan, PredictedFrame, TextFrames
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


def parsed_words(text: str, rows: list[tuple[str, int, str]], at: int) -> tuple[ParsedWord, ...]:
    words = []
    for number, (form, head, relation) in enumerate(rows, start=1):
        at = text.index(form, at)
        more = {"lemma": form.lower(), "upos": "X", "feats": {"Case": "Nom", "Number": "Sing"}, "probability": 1.0}
        word = {"id": number, "text": form, "head": head, "relation": relation, "start": at, "end": at + len(form)}
        words.append(ParsedWord(**{**word, **more}))  # type: ignore[arg-type]
    return tuple(words)


def test_trees_are_heads_relations_and_sentences() -> None:
    """Heads are numbers of words in the sentence, 0 the root."""
    text = "Ann  ran. It rained."
    rows = [
        [("Ann", 2, "nsubj"), ("ran", 0, "root"), (".", 2, "punct")],
        [("It", 2, "nsubj"), ("rained", 0, "root"), (".", 2, "punct")],
    ]
    sentences = tuple(
        ParsedSentence(text=text[at:end], start=at, end=end, words=parsed_words(text, row, at), tokens=())
        for row, (at, end) in zip(rows, [(0, 9), (10, 20)], strict=True)
    )
    doc = component.to_spacy(Parsed(text=text, sentences=sentences, coverage=READ))
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
    assert doc[0].morph.to_dict() == {"Case": "Nom", "Number": "Sing"}
    assert [sentence.text for sentence in doc.sents] == ["Ann  ran.", "It rained."]


def test_clusters_and_roles_are_groups_of_spans() -> None:
    text = "Ann said she left."
    mentions = tuple(
        Mention(text=text[start:end], start=start, end=end, first=word, last=word, score=1.0)
        for start, end, word in [(0, 3, 0), (9, 12, 2)]
    )
    document = ResolvedDocument(text=text, words=(), clusters=(MentionCluster(mentions=mentions),), coverage=READ)
    predicate = PredicateSpan(text="left", start=13, end=17, score=1.0)
    argument = ArgumentSpan(role="ARG0", text="she", start=9, end=12, score=1.0)
    frame = PredictedFrame(predicate=predicate, roleset="leave.01", roleset_score=1.0, arguments=(argument,))
    framed = TextFrames(text=text, frames=(frame,), sentences=(), coverage=READ)
    doc = component.to_spacy(TaskPredictions(by_task={"coref": document, "roles": framed}))
    assert [span.text for span in doc.spans["coref_clusters_1"]] == ["Ann", "she"]
    assert [(span.text, span.label_) for span in doc.spans["roles_1"]] == [("left", "leave.01"), ("she", "ARG0")]


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
