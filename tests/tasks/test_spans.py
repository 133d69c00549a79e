"""Spans from examples to answers: windows, gold, the chapter's example nested, saving, what is said of bad input."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import msgspec
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.targets import WordSpans
from larvatus.data.labelled.records import Dataset, Place
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.tag_schemes import EntitySpan
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.heads import SpansConfig
from larvatus.models.nn import on_device
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.spans.evaluation import SpanValidation
from larvatus.tasks.spans.sequences import span_sequences
from larvatus.tasks.spans.spans import encode_words, given_spans, label_spans, predict_spans, scored_spans
from larvatus.tasks.spans.task import SpansOptions, conflicts, natural_longest, spans_config
from larvatus.tasks.tag.tag import TagOptions
from larvatus.tasks.trainer.trainable import TrainableConfig
from tests.tasks.aligned import align_texts
from tests.tasks.conftest import spans_job, tiny_bert
from tests.tasks.tuning import finetune_spans
from tests.tiny import WORDS, save_model

CONFIG = SpansConfig(labels=("ORG", "PER"), longest=3, hidden=8, dropout=0.0)


def example(text: str, *found: tuple[int, int, str], line: int = 1) -> SpannedWords:
    return SpannedWords(
        tuple(text.split()), tuple(sorted(EntitySpan(*one) for one in found)), Place("train.conllu", line)
    )


# the chapter's example (§11.5.2), which tags of words cannot spell
NESTED = example("Jane Villanueva of United Airlines Holding discussed .", (0, 2, "PER"), (3, 5, "ORG"), (3, 6, "ORG"))
OTHERS = (
    example("please turn in Jane .", (3, 4, "PER")),
    example("the bank was deep .", (1, 2, "ORG")),
    example("a river was wide ."),
)
TRAIN = Dataset((NESTED, *OTHERS), "train.conllu")
OFTEN = Dataset(TRAIN.examples * 8, "train.conllu")  # more steps to an evaluation


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Bundle:
    """A tiny BERT of random weights whose vocabulary has the words of the examples."""
    more = ["jane", "villanueva", "united", "airlines", "holding", "discussed"]
    return tiny_bert(tmp_path_factory.mktemp("spans") / "tiny", [*WORDS.split(), *more])


job = functools.partial(spans_job, epochs=7, batch=4)


@pytest.mark.parametrize("longest", [1, 3, 40])
@pytest.mark.parametrize("limit", [9, 14, 32])
def test_every_span_of_a_long_text_stands_in_one_window(bundle, limit, longest) -> None:
    texts = ["turning rivers of a bank was deep and wide . please turn your homework in the river", "a", ""]
    found = align_texts(bundle.tokenizer, texts)
    encoded = span_sequences(bundle.tokenizer, found, limit=limit, longest=longest)
    owners = encoded.sequences.owners
    seen: Counter[tuple[int, int, int]] = Counter()
    for number, (begin, count, start) in enumerate(
        zip(encoded.begins, encoded.words.counts, encoded.words.starts, strict=True)
    ):
        for i in range(start):
            for j in range(i, min(count, i + longest)):
                seen[int(owners[number]), int(begin + i), int(begin + j)] += 1
    assert set(seen.values()) <= {1}
    for text, one in enumerate(found):
        words = len(one.word_spans)
        singles = {(text, i, i) for i in range(words)}
        assert singles <= set(seen)
        if limit == 32 or longest == 1:
            assert {s for s in seen if s[0] == text} == {
                (text, i, j) for i in range(words) for j in range(i, min(words, i + longest))
            }
        if limit == 14 and longest > 1:  # windows overlap, so that spans of two words are in one
            assert {(text, i, i + 1) for i in range(words - 1)} <= set(seen)


def test_scores_of_windows_and_batches_are_those_of_each_text_alone(bundle) -> None:
    tuned = finetune_spans(bundle, TRAIN, None, dataclasses.replace(job(epochs=1), hold_out=False)).bundle
    model, head = tuned.network, tuned.network.heads["spans"]
    data = label_spans(bundle.tokenizer, TRAIN.examples, head.config, limit=32)
    for part in scored_spans(model, data.encoded, ScoringOptions(tokens=12), data.learnt):
        for n in range(0, len(part.first), 5):
            text = part.owners[n]
            alone = on_device(data.batch(np.array([text])), "cpu")
            with torch.inference_mode():
                scores = head.scores(model.encoder(alone.tokens), alone)
                index = head.index(alone)
            place = index.number(torch.tensor([part.first[n]]), torch.tensor([part.end[n] - 1]))
            assert_close(torch.from_numpy(part.scores[n]), scores[place[0]], rtol=1e-4, atol=1e-4)
            wanted = next((1 + t for i, e, t in data.gold[text] if (i, e) == (part.first[n], part.end[n])), 0)
            assert part.gold[n] == wanted


@pytest.mark.parametrize("representation", ["mean", "boundaries", "attention", "self-attention"])
def test_united_airlines_comes_out_inside_united_airlines_holding(bundle, representation, tmp_path) -> None:
    said: list[str] = []
    options = SpansOptions(representation=representation, hidden=32)
    tuned = finetune_spans(bundle, OFTEN, TRAIN, job(said), options)
    assert tuned.scores is not None
    assert tuned.scores.main == 1.0
    assert tuned.scores.values["inner-f1"] == 1.0
    assert said[-1].startswith("threshold 0.")
    words = [" ".join(NESTED.words)]
    found = align_texts(bundle.tokenizer, words)
    config = tuned.bundle.objectives[0]
    assert config.decoding == "nested"
    encoded = span_sequences(bundle.tokenizer, found, limit=32, longest=config.longest)
    (answer,) = predict_spans(tuned.bundle.network, found, encoded, scoring=ScoringOptions())
    jane, outer, inner = answer.entities
    assert (jane.text, jane.label) == ("Jane Villanueva", "PER")
    assert (outer.text, outer.label) == ("United Airlines Holding", "ORG")
    assert (inner.text, inner.label, inner.start, inner.end) == ("United Airlines", "ORG", 19, 34)
    assert answer.inside(outer) == (inner,)
    assert answer.coverage.share == 1.0
    assert str(answer) == "Jane Villanueva [PER], United Airlines Holding [ORG], United Airlines [ORG]"
    saved = tmp_path / "tuned"
    save_model(saved, tuned.bundle.network, bundle.tokenizer, tuned.bundle.objectives)
    again = load_bundle(saved)
    assert again.objectives == (config,)
    assert predict_spans(again.network, found, encoded, scoring=ScoringOptions()) == [answer]


def test_frozen_features_give_the_loss_of_the_encoder_and_learn(bundle) -> None:
    frozen = job(trained=TrainableConfig.read("head"), rate=0.02)
    tuned = finetune_spans(bundle, OFTEN, TRAIN, frozen, SpansOptions(hidden=32))
    assert tuned.scores is not None
    assert tuned.scores.main > 0.6
    model, head = tuned.bundle.network, tuned.bundle.network.heads["spans"]
    data = label_spans(bundle.tokenizer, TRAIN.examples, head.config, limit=32)
    chosen = np.array([2, 0])
    batch = on_device(data.batch(chosen), "cpu")
    with torch.inference_mode():
        cached = Features.build(model, data, ScoringOptions()).loss(head_of(model), chosen, batch)
        assert_close(cached.total, model.eval()(batch)["spans"].total, rtol=1e-5, atol=1e-5)


def test_binary_identification_has_one_type_and_a_wished_precision_is_kept(bundle) -> None:
    said: list[str] = []
    tuned = finetune_spans(bundle, OFTEN, TRAIN, job(said), SpansOptions(hidden=32, binary=True, least_precision=0.9))
    assert tuned.bundle.objectives[0].labels == ("SPAN",)
    assert tuned.scores is not None
    assert tuned.scores.values["precision"] >= 0.9


def test_given_spans_are_classified_and_those_that_cannot_be_are_none(bundle) -> None:
    tuned = finetune_spans(bundle, OFTEN, TRAIN, job(epochs=1), SpansOptions(hidden=8)).bundle
    model, head = tuned.network, tuned.network.heads["spans"]
    data = label_spans(bundle.tokenizer, TRAIN.examples, head.config, limit=32)
    given = [[(0, 2), (3, 6), (0, 5), (0, 2)], [], [(1, 2)], [(4, 5), (9, 10)]]
    found = given_spans(model, data.encoded, given, ScoringOptions(tokens=20))
    wanted = {
        (int(text), int(first), int(end)): torch.softmax(
            torch.from_numpy(row[1:]).double() / head.config.temperature, 0
        )
        for part in scored_spans(model, data.encoded, ScoringOptions())
        for text, first, end, row in zip(part.owners, part.first, part.end, part.scores, strict=True)
    }
    for text, (own, answers) in enumerate(zip(given, found, strict=True)):
        for (first, end), answer in zip(own, answers, strict=True):
            if (first, end) in ((0, 5), (9, 10)):  # longer than any span that is looked at; outside the text
                assert answer is None
            else:
                assert answer is not None
                assert list(answer) == ["ORG", "PER"]
                assert_close(
                    torch.tensor(list(answer.values())).double(), wanted[text, first, end], rtol=1e-5, atol=1e-5
                )


def test_what_cannot_be_learnt_is_counted_and_still_counts_as_missed(bundle) -> None:
    texts = [NESTED, example("the bank .", (1, 2, "ORG"), (1, 2, "PER"))]
    data = label_spans(bundle.tokenizer, texts, msgspec.structs.replace(CONFIG, longest=2), limit=32)
    assert (data.longer, data.cut, data.doubled) == (1, 0, 1)
    assert [len(own) for own in data.gold] == [3, 2]
    assert data.learnt.counts.tolist() == [2, 1]
    assert data.notes(2)[0].startswith("1 of 5 spans are longer than 2 words")
    narrow = label_spans(bundle.tokenizer, [NESTED], CONFIG, limit=8, truncate=True)
    assert narrow.sequences.read.tolist() == [6]


def test_the_longest_span_and_the_decoding_are_those_of_the_data() -> None:
    assert natural_longest(TRAIN) == 3
    config = spans_config(TRAIN, SpansOptions())
    assert (config.labels, config.longest, config.decoding) == (("ORG", "PER"), 3, "nested")
    flat = Dataset(OTHERS, "x")
    assert spans_config(flat, SpansOptions()).decoding == "flat"
    huge = Dataset((example(" ".join("a" * 90), (0, 80, "X")),), "x")
    assert natural_longest(huge) == 32


def test_gold_spans_that_the_decoding_excludes_are_said_with_their_place() -> None:
    crossing = Dataset((NESTED, example("a river bank was", (0, 2, "ORG"), (1, 3, "ORG"), line=9)), "train.conllu")
    said = "train.conllu:9: 'a river' and 'river bank' cross, and nested decoding keeps one of two (1 pairs in all)"
    assert conflicts(crossing, "nested") == [f"{said}; --set decoding=free keeps both"]
    assert "(2 pairs in all); --set decoding=nested" in conflicts(crossing, "flat")[0]
    assert conflicts(crossing, "free") == []


def test_bad_input_is_one_line(bundle) -> None:
    unknown = Dataset((example("the bank", (1, 2, "ORGs"), line=7),), "dev.conllu")
    with pytest.raises(DataError, match=r"train.conllu:7: 'bank' is of the type 'ORGs', .*did you mean ORG"):
        finetune_spans(bundle, TRAIN, unknown, dataclasses.replace(job(), strict=True))
    with pytest.raises(DataError, match="no span is labelled"):
        finetune_spans(bundle, Dataset((OTHERS[2],) * 3, "x"), TRAIN, job())
    with pytest.raises(UsageError, match="takes SpansOptions, not TagOptions"):
        finetune_spans(bundle, TRAIN, TRAIN, dataclasses.replace(job(), options=TagOptions(crf=True)))
    with pytest.raises(UsageError, match="does not score spans"):
        finetune_spans(bundle, TRAIN, TRAIN, dataclasses.replace(job(), metric="accuracy"))
    with pytest.raises(ArtefactError, match="no head"):
        data = label_spans(bundle.tokenizer, TRAIN.examples, CONFIG, limit=32)
        SpanValidation(data, CONFIG).scores(bundle.network, ScoringOptions())


def test_texts_of_nothing_and_of_a_hundred_thousand_characters_are_answered(bundle) -> None:
    tuned = finetune_spans(bundle, TRAIN, TRAIN, job(epochs=2), SpansOptions(longest=8)).bundle
    found = align_texts(bundle.tokenizer, ["", " ", "bank", "the river bank . " * 5900])
    encoded = span_sequences(bundle.tokenizer, found, limit=32, longest=8)
    answers = predict_spans(tuned.network, found, encoded, scoring=ScoringOptions())
    assert [answer.coverage.share for answer in answers] == [1.0] * 4
    assert answers[3].coverage.windows > 900
    for entity in answers[3].entities[:50]:
        assert answers[3].text[entity.start : entity.end] == entity.text


def test_words_that_align_nowhere_do_not_break_a_batch(bundle) -> None:
    odd = example("́ bank \ue000 deep", (0, 2, "ORG"))
    data = label_spans(bundle.tokenizer, [odd], CONFIG, limit=32)
    assert encode_words(bundle.tokenizer, [odd], CONFIG, limit=32).texts[0].uncovered
    assert data.batch(np.array([0])).targets[WordSpans].counts.tolist() == [4]
