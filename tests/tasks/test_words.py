"""Words are read alike in training, evaluation and prediction: "do" + "n't" in text, in CoNLL-U and in CoNLL."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.batch import edges
from larvatus.data.labelled.records import Dataset, Place, TaggedExample, TextExample
from larvatus.data.labelled.tagged import read_tagged
from larvatus.data.labelled.texts import read_unlabelled
from larvatus.data.text.words import segment_words
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.encoding.words import Spacing, align_examples
from larvatus.tasks.predict import TaskPredictor
from larvatus.tasks.results import Tagged
from larvatus.tasks.scoring import head_of
from larvatus.tasks.tag.evaluation import evaluate_tags
from larvatus.tasks.tag.tag import TagOptions, tagged_words, tagging_head
from tests.made_up import Call
from tests.models.bundle.their_tokenizers import their_model
from tests.tiny import save_model

TAGS = ("ADV", "AUX", "NOUN", "PART", "PRON", "PUNCT", "VERB")
KINDS = ("bert", "roberta", "xlm-roberta")  # WordPiece, byte-level BPE, Unigram
SENTENCES = {
    "I don't know, really (it's odd).": "I do n't know , really ( it 's odd ) .",
    'She cannot say "no."': 'She can not say " no . "',
    "The class wasn't defined...": "The class was n't defined ...",
}
HERE = Place("here", 1)


def conllu(path: Path, sentences: dict[str, str] = SENTENCES) -> Path:
    """Sentences and their words, with made-up tags."""
    rows = []
    for text, joined in sentences.items():
        rows.append(f"# text = {text}")
        at = 0
        for number, word in enumerate(joined.split(), start=1):
            at = text.index(word, at) + len(word)
            space = "_" if at == len(text) or text[at] == " " else "SpaceAfter=No"
            rows.append("\t".join([str(number), word, "_", TAGS[number % 7], "_", "_", "0", "root", "_", space]))
        rows.append("")
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return path


def conll(path: Path, sentences: dict[str, str] = SENTENCES) -> Path:
    rows = [[f"{word}\t{TAGS[n % 7]}" for n, word in enumerate(joined.split())] + [""] for joined in sentences.values()]
    path.write_text("\n".join(line for lines in rows for line in [*lines, ""]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def taggers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    folder = tmp_path_factory.mktemp("taggers")
    return {
        family: load_bundle(their_model(folder / family, family, "ForTokenClassification", TAGS)) for family in KINDS
    }


def learnt(bundle: Bundle, spacing: Spacing) -> Bundle:
    """The same as if it had learnt from words in running text, or from words alone."""
    head = head_of(bundle.network)
    head.config = msgspec.structs.replace(head.config, spacing=spacing)
    return dataclasses.replace(bundle, objectives=(head.config,))


def predicted(bundle: Bundle, examples: Any) -> list[Tagged]:
    found = [answer.found for answer in TaskPredictor(bundle).answers(examples)]
    assert all(isinstance(one, Tagged) for one in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("spacing", ["written", "apart", "spaced"])
@pytest.mark.parametrize("write", [conllu, conll])
@pytest.mark.parametrize("family", KINDS)
def test_predictions_for_a_file_are_those_that_are_evaluated(
    taggers: dict[str, Bundle], tmp_path: Path, family: str, write: Any, spacing: Spacing
) -> None:
    bundle, path = learnt(taggers[family], spacing), str(write(tmp_path / f"dev.{write.__name__}"))
    evaluated = evaluate_tags(bundle, read_tagged(path))
    answers = predicted(bundle, read_unlabelled(path, words=True))
    assert [list(one.tags) for one in answers] == evaluated.tags
    for one, (text, joined) in zip(answers, SENTENCES.items(), strict=True):
        assert one.text == (text if write is conllu else joined)
        assert [one.text[word.start : word.end] for word in one.words] == joined.split()


@pytest.mark.parametrize("spacing", ["apart", "spaced"])
@pytest.mark.parametrize("write", [conllu, conll])
@pytest.mark.parametrize("family", KINDS)
def test_predictions_for_the_text_of_a_file_are_those_that_are_evaluated(
    taggers: dict[str, Bundle], tmp_path: Path, family: str, write: Any, spacing: Spacing
) -> None:
    """Where the words of the file are those that plain text is cut into."""
    bundle = learnt(taggers[family], spacing)
    texts = [*SENTENCES] if write is conllu else [" ".join(words(text)) for text in SENTENCES]
    path = str(write(tmp_path / f"dev.{write.__name__}", {text: " ".join(words(text)) for text in texts}))
    evaluated = evaluate_tags(bundle, read_tagged(path))
    answers = predicted(bundle, (TextExample(text, None, None, HERE) for text in texts))
    assert [list(one.tags) for one in answers] == evaluated.tags
    assert [[word.text for word in one.words] for one in answers] == [words(text) for text in texts]


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in segment_words(text).tolist()]


@pytest.mark.parametrize("family", KINDS)
def test_training_reads_what_prediction_reads(taggers: dict[str, Bundle], tmp_path: Path, family: str) -> None:
    """From a file to ids: those of training, and those that plain text with the same words gives."""
    for write in (conllu, conll):
        texts = [*SENTENCES] if write is conllu else [" ".join(words(text)) for text in SENTENCES]
        data = read_tagged(str(write(tmp_path / "train", {text: " ".join(words(text)) for text in texts})))
        config = tagging_head(data, TagOptions(), scheme="none", natural={})
        assert config.spacing == ("apart" if write is conllu else "spaced")
        config = msgspec.structs.replace(config, labels=TAGS)
        trained = tagged_words(taggers[family], data.examples, config, WindowOptions.of(taggers[family])).sequences
        rows = np.split(trained.ids, edges(trained.lengths)[1:-1])
        plain = [TextExample(text, None, None, HERE) for text in SENTENCES]
        found = align_examples(taggers[family].tokenizer, plain, spacing=config.spacing)
        assert [row[1:-1].tolist() for row in rows] == [one.ids.tolist() for one in found]


@pytest.mark.parametrize("family", KINDS)
def test_a_space_parts_words_that_share_a_token_and_nothing_else(taggers: dict[str, Bundle], family: str) -> None:
    tokenizer = taggers[family].tokenizer
    (example,) = read_tagged_text("I don't know, really.", "I do n't know , really .")
    (found,) = align_examples(tokenizer, [example])
    written, parted = (tokenizer.encode(text) for text in ("I don't know, really.", "I do n't know, really."))
    shares = written.tokens_of_chars(3, 4) == written.tokens_of_chars(4, 5)  # the o and the n of don't
    assert found.ids.tolist() == (parted if shares else written).ids.tolist()
    assert shares or family != "bert"
    ranges = found.word_tokens.tolist()
    assert all(before[1] <= after[0] < after[1] for before, after in pairwise(ranges))
    assert found.text == example.text


def read_tagged_text(text: str, joined: str) -> Dataset[TaggedExample]:
    spans, at = [], 0
    for word in joined.split():
        at = text.index(word, at)
        spans.append((at, at + len(word)))
        at += len(word)
    own = TaggedExample(tuple(joined.split()), None, HERE, text, tuple(spans))
    return Dataset((own,), "here")


@given(st.lists(st.text("ab.'\" \n", min_size=1, max_size=8), min_size=1, max_size=3), st.sampled_from(KINDS))
def test_tokens_keep_to_the_characters_of_the_text_as_written(
    taggers: dict[str, Bundle], texts: list[str], family: str
) -> None:
    tokenizer = taggers[family].tokenizer
    examples = [TextExample(text, None, None, HERE) for text in texts]
    for spacing in ("apart", "spaced"):
        for text, one in zip(texts, align_examples(tokenizer, examples, spacing=spacing), strict=True):
            assert one.text == text
            assert one.word_spans.tolist() == segment_words(text).tolist()
            assert ((one.spans >= 0) & (one.spans <= len(text))).all()
            assert (np.diff(one.spans, axis=0) >= 0).all()
            assert (one.spans[:, 0] <= one.spans[:, 1]).all()
            for word, (low, high) in enumerate(one.word_tokens.tolist()):
                assert low < high
                covered = {place for a, b in one.spans[low:high].tolist() for place in range(a, b)}
                assert covered >= set(range(*one.word_spans[word].tolist()))


def test_the_commands_agree(taggers: dict[str, Bundle], tmp_path: Path, larvatus: Call) -> None:
    """`larvatus predict --file` and `larvatus evaluate --data`, on a model that remembers how it learnt."""
    bundle = learnt(taggers["roberta"], "apart")
    save_model(tmp_path / "model", bundle.network, bundle.tokenizer, bundle.objectives, family=bundle.family)
    assert load_bundle(tmp_path / "model").objectives == bundle.objectives
    path = conllu(tmp_path / "dev.conllu")
    out = tmp_path / "tags.jsonl"
    assert larvatus("predict", tmp_path / "model", "--file", path, "--out", out, "--device", "cpu")[0] == 0
    answers = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    code, printed, _ = larvatus("evaluate", tmp_path / "model", "--data", path, "--json", "--device", "cpu")
    assert code == 0
    scores = json.loads(printed)
    gold = [tag for example in read_tagged(str(path)) for tag in example.tags or ()]
    tags = [word["tag"] for answer in answers for word in answer["words"]]
    right = np.mean([one == other for one, other in zip(gold, tags, strict=True)])
    assert scores["metrics"]["accuracy"]["value"] == pytest.approx(right)
    table = np.zeros((7, 7), int)
    for one, other in zip(gold, tags, strict=True):
        table[TAGS.index(one), TAGS.index(other)] += 1
    assert scores["confusion"] == table.tolist()
