"""What `transformers` saved answers as in its own pipelines, from strings on both sides: classes, tags, answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import larvatus
from larvatus.inference.model import load
from larvatus.tasks.results import Answer, Classified, Tagged
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.their_tokenizers import their_model
from tests.models.bundle.theirs import transformers

TEXTS = ["The debugger prints a list of arguments.", 'It doesn\'t "return", does it?', "a", "Set a breakpoint, please!"]
PAIRS = [("What does it print?", "It prints the list."), ("Really?!", "No, it doesn't."), ("a", "the file " * 20)]
LONGEST = 30  # tokens of an answer
CLOSE = {"abs": 1e-4}
SCHEMES = {
    "BIO": ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"),
    "IOB1": ("I-PER", "I-LOC", "B-LOC", "O", "B-PER"),
    "BIOES": ("O", *(f"{letter}-{name}" for letter in "BIES" for name in ("PER", "LOC"))),
    "BILOU": ("O", *(f"{letter}-{name}" for letter in "BILU" for name in ("PER", "LOC"))),
    "parts of speech": ("ADJ", "DET", "NOUN", "PUNCT", "VERB"),
}


def pipeline(task: str, directory: Path, **settings: Any) -> Any:
    return transformers.pipeline(task, model=str(directory), tokenizer=str(directory), device="cpu", **settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_is_judged_as_transformers_judges_the_same_two_strings(family: str, tmp_path: Path) -> None:
    directory = their_model(tmp_path, family, "ForSequenceClassification", ("bad", "fair", "good"))
    theirs = pipeline("text-classification", directory, top_k=None)
    # its tokenizer for ALBERT has segments, and hands them on only where it is told to
    told = {"return_token_type_ids": True} if family == "albert" else {}
    model = load(directory, device="cpu")
    for given in [*TEXTS, *PAIRS]:
        found = model.predict(given)
        assert isinstance(found, Classified)
        asked = given if isinstance(given, str) else {"text": given[0], "text_pair": given[1]}
        wanted = theirs(asked, **told)
        wanted = wanted[0] if isinstance(wanted[0], list) else wanted
        assert found.probabilities == pytest.approx({one["label"]: one["score"] for one in wanted}, **CLOSE)
        assert found.label == wanted[0]["label"]
    probabilities = [tuple(model.predict(given).to_dict()["probabilities"].values()) for given in PAIRS]
    assert len(set(probabilities)) == len(PAIRS)  # not equal for being always the same


@pytest.mark.parametrize(
    ("family", "scheme"), [*((family, "BIO") for family in FAMILIES), *(("bert", name) for name in list(SCHEMES)[1:])]
)
def test_words_are_tagged_as_transformers_tags_their_first_tokens(family: str, scheme: str, tmp_path: Path) -> None:
    directory = their_model(tmp_path, family, "ForTokenClassification", SCHEMES[scheme])
    theirs = pipeline("token-classification", directory, aggregation_strategy="none", ignore_labels=[])
    model = load(directory, device="cpu")
    seen: list[float] = []
    for text in TEXTS:
        found = model.predict(text)
        assert isinstance(found, Tagged)
        tokens = [one for one in theirs(text) if one["end"] > one["start"]]
        for word in found.words:
            assert text[word.start : word.end] == word.text
            first = next(one for one in tokens if one["end"] > word.start and text[one["start"] : one["end"]].strip())
            assert first["start"] <= word.start  # in characters of the string
            assert (word.tag, word.probability) == (first["entity"], pytest.approx(float(first["score"]), **CLOSE))
            seen.append(word.probability)
    assert len(set(seen)) > len(seen) // 2  # not equal for being always the same


@pytest.mark.parametrize("family", ["bert", "electra", "distilbert"])
def test_entities_are_those_of_the_pipeline_that_groups_first_tokens(family: str, tmp_path: Path) -> None:
    """Where words are those of the tokenizer (WordPiece), the strategy "first" groups them as conlleval would."""
    directory = their_model(tmp_path, family, "ForTokenClassification", SCHEMES["BIO"])
    theirs = pipeline("token-classification", directory, aggregation_strategy="first")
    model = load(directory, device="cpu")
    counted = 0
    for text in TEXTS:
        found = model.predict(text)
        assert isinstance(found, Tagged)
        wanted = [(one["entity_group"], one["start"], one["end"]) for one in theirs(text)]
        assert [(one.label, one.start, one.end) for one in found.entities] == wanted
        counted += len(wanted)
    assert counted


def whole_words(passage: str, start: int, end: int) -> tuple[int, int]:
    """The same widened to words, as their pipeline had it (`align_to_words`): an answer is never cut inside one."""
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", passage)]
    held = [(first, last) for first, last in words if first < end and last > start]
    return held[0][0], held[-1][1]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_scored_as_transformers_scores_the_same_two_strings(family: str, tmp_path: Path) -> None:
    """Their version 5 has no pipeline for answers: starts and ends are scored by their model, from strings."""
    directory = their_model(tmp_path, family, "ForQuestionAnswering")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(directory).eval()
    model = larvatus.load(directory, device="cpu")
    for question, passage in PAIRS:
        found = model.predict((question, passage))
        assert isinstance(found, Answer)
        named = {"return_token_type_ids": True} if family in ("bert", "electra", "albert") else {}
        encoded = tokenizer(question, passage, return_tensors="pt", return_offsets_mapping=True, **named)
        owners, offsets = encoded.sequence_ids(0), encoded.pop("offset_mapping")[0].tolist()
        if family in ("distilbert", "modernbert"):
            encoded.pop("token_type_ids", None)
        with torch.no_grad():
            scores = theirs(**encoded)
        starts, ends = scores.start_logits[0], scores.end_logits[0]
        inside = [at for at, owner in enumerate(owners) if owner == 1 and passage[slice(*offsets[at])].strip()]
        spans = {(a, b): (starts[a] + ends[b]).item() for a in inside for b in inside if a <= b < a + LONGEST}
        best = max(spans, key=lambda span: spans[span])
        start, end = offsets[best[0]][0], offsets[best[1]][1]
        start += len(passage[start:end]) - len(passage[start:end].lstrip())  # byte-level tokens begin with their space
        assert (found.start, found.end) == whole_words(passage, start, end)
        chances = torch.softmax(torch.tensor([spans[best], *(spans[other] for other in spans if other != best)]), 0)
        assert found.score == pytest.approx(chances[0].item(), **CLOSE)
