"""Evaluation of fine-tuned models equals scikit-learn and seqeval; two models are compared by name of label."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import chain
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from seqeval.metrics import classification_report as entity_report
from seqeval.metrics import f1_score as entity_f1_score
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES
from sklearn import metrics as theirs

from larvatus.core.errors import DataError, UsageError
from larvatus.data.text.tag_schemes import find_illegal
from larvatus.metrics.entities import tag_f1
from larvatus.models.heads import ClassificationConfig, TaggingConfig
from larvatus.tasks.classify.evaluation import evaluate_texts
from larvatus.tasks.classify.task import class_metrics
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.predict import TaskPredictor
from larvatus.tasks.results import Tagged
from larvatus.tasks.tag.evaluation import evaluate_tags
from larvatus.tasks.tag.tag import convert_scheme
from larvatus.tasks.tag.task import tag_metrics
from tests.tasks.conftest import TAGS, draw, random_truths, sentences, texts

CLASSES = ("maybe", "no", "yes")
FEW = EvaluationOptions(samples=60)
STRICT = dataclasses.replace(FEW, strict=True)


def classes(*labels: str, **settings: Any) -> ClassificationConfig:
    """Over the mean of all tokens, so that random weights give different texts different answers."""
    return ClassificationConfig(labels=labels or CLASSES, **{"pool": "mean", "dense": "none", **settings})


def tags(**settings: Any) -> TaggingConfig:
    return TaggingConfig(**{"labels": TAGS, "scheme": "BIO", **settings})


# — texts —


def test_classes_equal_scikit_learn(tuned: Any) -> None:
    data = texts(draw(CLASSES, 90), pairs=True, longest=40)
    found = evaluate_texts(tuned(classes(temperature=1.7)), data, FEW)
    gold = [example.label for example in data]
    answers = [found.labels[number] for number in found.found]
    assert len(set(answers)) > 1
    values = {name: one.value for name, one in found.metrics.items()}
    assert values["accuracy"] == pytest.approx(theirs.accuracy_score(gold, answers))
    assert values["macro-f1"] == pytest.approx(theirs.f1_score(gold, answers, average="macro", zero_division=0))
    assert values["matthews"] == pytest.approx(theirs.matthews_corrcoef(gold, answers))
    assert "f1" not in values
    assert found.confusion is not None
    assert found.confusion.tolist() == theirs.confusion_matrix(gold, answers, labels=CLASSES).tolist()
    precision, recall, f1, support = theirs.precision_recall_fscore_support(
        gold, answers, labels=CLASSES, zero_division=0
    )
    rows = [(one.precision, one.recall, one.f1, one.support) for one in found.by_class.values()]
    np.testing.assert_allclose(rows, np.stack([precision, recall, f1, support], 1))
    assert found.calibration is not None
    assert found.calibration.temperature == 1.7
    assert found.calibration.nll == pytest.approx(theirs.log_loss(gold, found.probabilities, labels=CLASSES), rel=1e-5)
    assert found.calibration.brier == pytest.approx(
        theirs.brier_score_loss(gold, found.probabilities, labels=CLASSES, scale_by_half=False), rel=1e-5
    )
    confidence, right = found.probabilities.max(1), np.array(gold) == np.array(answers)
    assert found.calibration.ece == pytest.approx(naive_ece(confidence, right), abs=1e-6)
    assert all(one.low <= one.value <= one.high for one in found.metrics.values())
    assert found.reading.long > 0
    assert found.reading.read == found.reading.tokens


def naive_ece(confidence: Any, right: Any, bins: int = 15) -> float:
    total = 0.0
    for number in range(bins):
        inside = (confidence > number / bins) & (confidence <= (number + 1) / bins)
        if inside.any():
            total += inside.sum() * abs(right[inside].mean() - confidence[inside].mean())
    return float(total / len(right))


@pytest.mark.parametrize("kind", ["multi-class", "multi-label", "regression"])
def test_metrics_are_those_that_training_is_judged_by(tuned: Any, kind: str) -> None:
    config = classes("no", "yes", kind=kind) if kind != "regression" else classes("value", kind=kind)
    labels = {
        "multi-class": draw(("no", "yes"), 40),
        "multi-label": random_truths(40, ("no", "yes")),
        "regression": draw((0.5, 1.0, 3.25, 5.0), 40),
    }[kind]
    found = evaluate_texts(tuned(config), texts(labels, kind=kind), FEW)
    scores = np.log(found.probabilities / (1 - found.probabilities)) if kind == "multi-label" else found.probabilities
    wanted = class_metrics(found.gold, scores.astype(np.float32), config)
    assert {name: one.value for name, one in found.metrics.items()} == pytest.approx(wanted, rel=1e-5)


def test_labels_equal_scikit_learn(tuned: Any) -> None:
    names = ("a", "b", "c")
    found = evaluate_texts(
        tuned(classes(*names, kind="multi-label")), texts(random_truths(50, names), kind="multi-label"), FEW
    )
    values = {name: one.value for name, one in found.metrics.items()}
    for how in ("micro", "macro"):
        assert values[f"{how}-f1"] == pytest.approx(
            theirs.f1_score(found.gold, found.found, average=how, zero_division=0)
        )
    assert values["exact-match"] == pytest.approx(theirs.accuracy_score(found.gold, found.found))
    assert values["hamming"] == pytest.approx(theirs.hamming_loss(found.gold, found.found))
    assert found.confusion is None
    assert found.calibration is not None


def test_numbers_equal_scipy(tuned: Any) -> None:
    data = texts(draw((0.5, 1.25, 3.0, 4.75), 60), pairs=True, kind="regression")
    found = evaluate_texts(tuned(classes("value", kind="regression")), data, FEW)
    values = {name: one.value for name, one in found.metrics.items()}
    assert values["spearman"] == pytest.approx(scipy.stats.spearmanr(found.gold, found.found).statistic, abs=1e-6)
    assert values["pearson"] == pytest.approx(scipy.stats.pearsonr(found.gold, found.found).statistic, abs=1e-5)
    assert values["rmse"] == pytest.approx(theirs.root_mean_squared_error(found.gold, found.found), rel=1e-5)
    assert (found.by_class, found.confusion, found.calibration) == ({}, None, None)


def test_a_model_that_always_says_the_same_number_has_no_correlation_and_still_is_json(tuned: Any) -> None:
    bundle = tuned(classes("value", kind="regression"))
    with torch.no_grad():
        bundle.network.heads["classification"].classifier.weight.zero_()
    found = evaluate_texts(bundle, texts(draw((0.5, 1.5), 20), kind="regression"), FEW)
    assert math.isnan(found.metrics["spearman"].value)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["metrics"]["spearman"]["value"] is None
    both = compare_evaluations(found, found, samples=20)
    assert math.isnan(both.metrics["spearman"].p)
    assert json.dumps(both.to_dict(), allow_nan=False)


def test_a_cut_text_is_read_in_part_and_windows_may_answer_by_their_highest(tuned: Any) -> None:
    data, bundle = texts(draw(CLASSES, 30), longest=120), tuned(classes())
    whole = evaluate_texts(bundle, data, FEW)
    highest = evaluate_texts(bundle, data, dataclasses.replace(FEW, merge="max"))
    cut = evaluate_texts(bundle, data, dataclasses.replace(FEW, truncate=True))
    assert whole.reading.windows > cut.reading.windows == 30
    assert cut.reading.read < cut.reading.tokens == whole.reading.read
    assert cut.reading.long == whole.reading.long > 0
    assert not np.array_equal(whole.probabilities, highest.probabilities)


# — tags —


@pytest.mark.parametrize("crf", [False, True])
def test_entities_equal_seqeval(tuned: Any, crf: bool) -> None:
    data = sentences(60, longest=50)
    found = evaluate_tags(tuned(tags(crf=crf, temperature=1.0 if crf else 0.6)), data, FEW)
    gold = [list(example.tags or ()) for example in data]
    report = entity_report(gold, found.tags, mode="strict", scheme=IOB2, output_dict=True, zero_division=0)
    micro = report["micro avg"]
    values = {name: one.value for name, one in found.metrics.items()}
    strict = entity_f1_score(gold, found.tags, mode="strict", scheme=IOB2)
    assert values["entity-f1"] == values["entity-f1-strict"] == pytest.approx(strict)  # only legal tags are decoded
    assert (values["precision"], values["recall"]) == pytest.approx((micro["precision"], micro["recall"]))
    assert values["macro-f1"] == pytest.approx(report["macro avg"]["f1-score"])
    for label, one in found.by_type.items():
        assert one.f1 == pytest.approx(report[label]["f1-score"])
        assert one.support == report[label]["support"]
    flat, answers = list(chain(*gold)), list(chain(*found.tags))
    assert values["accuracy"] == pytest.approx(theirs.accuracy_score(flat, answers))
    assert found.confusion.tolist() == theirs.confusion_matrix(flat, answers, labels=TAGS).tolist()
    numbers = [np.array([TAGS.index(tag) for tag in one]) for one in (flat, answers)]
    counts = np.array([len(one) for one in gold])
    assert values == pytest.approx(tag_metrics(*numbers, counts, tags()))
    errors = found.errors
    assert errors is not None
    wrong = sum(len(set(a) - set(b)) for a, b in zip(found.gold_entities, found.found_entities, strict=True))
    assert errors.boundary + errors.type + errors.both + errors.missed == wrong
    assert found.calibration is not None
    assert 0 <= found.calibration.ece <= 1
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["read"]["words_read"] == len(flat)


def test_a_tagger_that_does_not_name_its_scheme_is_scored_by_what_its_tags_spell(tuned: Any) -> None:
    """As directories that `transformers` saved; nothing keeps their tags in order."""
    data = sentences(60)
    gold = [list(example.tags or ()) for example in data]
    found = evaluate_tags(tuned(tags(scheme="none", labels=tuple(sorted(TAGS)))), data, FEW)
    assert found.scheme == "BIO"
    assert any(find_illegal(one, "BIO") for one in found.tags)
    strict, lenient = (
        entity_f1_score(gold, found.tags, **how) for how in ({"mode": "strict", "scheme": IOB2}, {"mode": None})
    )
    assert strict != pytest.approx(lenient)
    assert found.metrics["entity-f1"].value == pytest.approx(lenient)
    assert found.metrics["entity-f1-strict"].value == pytest.approx(strict)
    report = entity_report(gold, found.tags, output_dict=True, zero_division=0)
    assert {label: one.f1 for label, one in found.by_type.items()} == pytest.approx(
        {label: report[label]["f1-score"] for label in found.by_type}
    )


SCHEMES = {"BIO": IOB2, "IOB1": IOB1, "BIOES": IOBES, "BILOU": BILOU}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_that_predict_gives_are_those_that_evaluate_counts(tuned: Any, scheme: Any) -> None:
    """A tagger of others, whose tags come in any order; from tags to scores by seqeval in its two modes."""
    data = convert_scheme(sentences(60), scheme)
    letters = {"BILOU": "BILU", "BIOES": "BIES"}.get(scheme, "BI")
    labels = ("O", *(f"{letter}-{name}" for name in ("LOC", "PER") for letter in letters))
    bundle = tuned(tags(scheme="none", labels=labels))
    found = evaluate_tags(bundle, data, FEW)
    assert found.scheme == scheme
    assert any(find_illegal(one, scheme) for one in found.tags)
    predicted = list(TaskPredictor(bundle).predict([example.words for example in data]))
    for answer, own, example in zip(predicted, found.found_entities, data, strict=True):
        assert isinstance(answer, Tagged)
        starts, ends = ([getattr(word, side) for word in answer.words] for side in ("start", "end"))
        given = [(starts.index(one.start), ends.index(one.end) + 1, one.label) for one in answer.entities]
        assert given == own
        assert len(answer.words) == len(example.words)
    gold = [list(example.tags or ()) for example in data]
    strict = entity_f1_score(gold, found.tags, mode="strict", scheme=SCHEMES[scheme])
    assert found.metrics["entity-f1-strict"].value == pytest.approx(strict)
    if scheme != "BILOU":  # whose letters seqeval's default mode does not know
        assert found.metrics["entity-f1"].value == pytest.approx(entity_f1_score(gold, found.tags))


def test_two_inside_tags_without_a_beginning_are_a_person_leniently_and_none_strictly() -> None:
    """I-PER I-PER, as taggers of others say it: conlleval counts a person, the strict reading none."""
    gold, said = ["B-PER", "I-PER", "O"], ["I-PER", "I-PER", "O"]
    lenient, strict = (tag_f1([gold], [said], "BIO", reading=how).micro.f1 for how in ("lenient", "strict"))
    assert (lenient, strict) == (entity_f1_score([gold], [said]), 0.0)
    assert entity_f1_score([gold], [said], mode="strict", scheme=IOB2) == 0.0
    assert lenient == 1.0


def test_words_that_were_not_read_are_wrong_and_their_entities_missed(tuned: Any) -> None:
    data, bundle = sentences(40, longest=90), tuned(tags())
    found = evaluate_tags(bundle, data, dataclasses.replace(FEW, truncate=True))
    gold = [list(example.tags or ()) for example in data]
    padded = [[*one, *["O"] * (len(all_of) - len(one))] for one, all_of in zip(found.tags, gold, strict=True)]
    assert found.reading.words_read == sum(map(len, found.tags)) < found.reading.words == sum(map(len, gold))
    assert found.metrics["entity-f1"].value == pytest.approx(entity_f1_score(gold, padded, mode="strict", scheme=IOB2))
    right = sum(a == b for one, all_of in zip(found.tags, gold, strict=True) for a, b in zip(one, all_of, strict=False))
    assert found.metrics["accuracy"].value == pytest.approx(right / found.reading.words)


def test_parts_of_speech_say_what_is_taken_for_what(tuned: Any) -> None:
    plain = sentences(50)
    names = dict(zip(TAGS, ("NOUN", "VERB", "ADJ", "ADV", "X"), strict=True))
    data = dataclasses.replace(
        plain,
        examples=tuple(
            dataclasses.replace(one, tags=tuple(names[tag] for tag in one.tags or ())) for one in plain.examples
        ),
    )
    found = evaluate_tags(tuned(tags(labels=("ADJ", "ADV", "NOUN", "VERB", "X"), scheme="none")), data, FEW)
    assert list(found.metrics) == ["accuracy"]
    assert (found.by_type, found.errors) == ({}, None)
    counts = [one.count for one in found.confused]
    assert counts == sorted(counts, reverse=True)
    gold, answers = list(chain(*(one.tags or () for one in data))), list(chain(*found.tags))
    first = found.confused[0]
    pairs = list(zip(gold, answers, strict=True))
    assert first.count == pairs.count((first.gold, first.found))
    assert first.share == pytest.approx(first.count / gold.count(first.gold))
    assert sum(counts) == sum(a != b for a, b in pairs)


def test_gold_tags_in_another_scheme_are_converted(tuned: Any) -> None:
    data, bundle = sentences(30), tuned(tags())
    spelt = convert_scheme(data, "BIOES")
    assert spelt.examples != data.examples
    one, other = evaluate_tags(bundle, data, FEW), evaluate_tags(bundle, spelt, FEW)
    assert one.metrics == other.metrics
    assert one.confusion.tolist() == other.confusion.tolist()


# — what cannot be —


def test_what_the_model_does_not_know_is_named(tuned: Any) -> None:
    with pytest.raises(DataError, match=r"test.tsv:1 is labelled 'yess', which the model does not know; did you mean"):
        evaluate_texts(tuned(classes()), texts(["yes", "yess"]), STRICT)
    plain = sentences(3)
    odd = dataclasses.replace(plain.examples[1], tags=("B-ORG",) * len(plain.examples[1].words))
    with pytest.raises(DataError, match=r"test.conll:1: word 1 \(.*\) is tagged 'B-ORG', which the model does not"):
        evaluate_tags(tuned(tags()), dataclasses.replace(plain, examples=(plain.examples[0], odd)), STRICT)
    bare = dataclasses.replace(plain.examples[2], tags=None)
    with pytest.raises(DataError, match=r"test.conll:2: its words have no tags"):
        evaluate_tags(tuned(tags()), dataclasses.replace(plain, examples=(bare,)), FEW)


def test_a_task_that_the_head_does_not_do_is_refused(tuned: Any, tiny_model: Any) -> None:
    with pytest.raises(UsageError, match="does not classify texts; give it"):
        evaluate_texts(tuned(tags()), texts(["yes"]), FEW)
    with pytest.raises(UsageError, match="does not tag words; give it"):
        evaluate_tags(tuned(classes()), sentences(2), FEW)


# — comparisons —


def test_a_model_does_not_differ_from_itself(tuned: Any) -> None:
    one = evaluate_texts(tuned(classes()), texts(draw(CLASSES, 40)), FEW)
    other = evaluate_tags(tuned(tags()), sentences(20), FEW)
    for found in (one, other):
        both = compare_evaluations(found, found, samples=50)
        assert list(both.metrics) == list(found.metrics)
        for score in both.metrics.values():
            assert (score.difference, score.low, score.high, score.p, score.p_bootstrap) == (0, 0, 0, 1, 1)
    outcomes = compare_evaluations(one, one, samples=5).mcnemar
    assert outcomes is not None
    assert (outcomes.p, outcomes.only_first, outcomes.only_second) == (1, 0, 0)
    assert outcomes.both + outcomes.neither == 40


def test_classes_in_another_order_compare_by_name(tuned: Any) -> None:
    """A head whose rows are shuffled with its labels is the same model."""
    data = texts(draw(CLASSES, 40))
    first = tuned(classes())
    turned = tuned(classes("yes", "maybe", "no"))
    head = turned.network.heads["classification"].classifier
    own = first.network.heads["classification"].classifier
    order = [CLASSES.index(label) for label in ("yes", "maybe", "no")]
    with torch.no_grad():
        head.weight.copy_(own.weight[order])
        head.bias.copy_(own.bias[order])
    a, b = evaluate_texts(first, data, FEW), evaluate_texts(turned, data, FEW)
    assert not np.array_equal(a.found, b.found)
    both = compare_evaluations(a, b, samples=20)
    assert all(score.difference == 0 and score.p == 1 for score in both.metrics.values())


def test_a_better_model_is_told_from_a_worse_one(tuned: Any) -> None:
    data = texts(draw(CLASSES, 80))
    worse = evaluate_texts(tuned(classes()), data, FEW)
    assert len(set(worse.found.tolist())) > 1
    answers = [worse.labels[number] for number in worse.found]  # what another model says is made the truth
    easy = dataclasses.replace(
        data, examples=tuple(dataclasses.replace(one, label=own) for one, own in zip(data, answers, strict=True))
    )
    perfect, other = evaluate_texts(tuned(classes()), easy, FEW), evaluate_texts(tuned(classes(), seed=5), easy, FEW)
    both = compare_evaluations(other, perfect, samples=200)
    accuracy = both.metrics["accuracy"]
    assert accuracy.second == 1.0
    assert accuracy.difference == pytest.approx(1 - accuracy.first)
    assert accuracy.low > 0
    assert accuracy.p == pytest.approx(1 / 201)
    assert both.mcnemar is not None
    assert both.mcnemar.p < 0.001
    with pytest.raises(DataError, match="compared on the same examples"):
        compare_evaluations(worse, perfect)


def test_taggers_of_different_schemes_compare_by_entities(tuned: Any) -> None:
    data = sentences(30)
    spelt = tuned(
        tags(labels=("O", *(f"{letter}-{name}" for name in ("LOC", "PER") for letter in "BIES")), scheme="BIOES")
    )
    one, other = evaluate_tags(tuned(tags()), data, FEW), evaluate_tags(spelt, data, FEW)
    both = compare_evaluations(one, other, samples=30)
    assert set(both.metrics) == {"entity-f1", "precision", "recall", "macro-f1", "entity-f1-strict"}
    assert both.mcnemar is None
    for name, score in both.metrics.items():
        assert score.first == pytest.approx(one.metrics[name].value)
        assert score.second == pytest.approx(other.metrics[name].value)
    text = evaluate_texts(tuned(classes()), texts(draw(CLASSES, 4)), FEW)
    with pytest.raises((UsageError, DataError)):
        compare_evaluations(text, one)
