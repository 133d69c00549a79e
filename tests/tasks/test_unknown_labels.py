"""Labels that training lacks are counted as scikit-learn and seqeval count them, said once, and refused if asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import classification_report as entity_report
from seqeval.scheme import IOB2
from sklearn import metrics as theirs
from sklearn.preprocessing import MultiLabelBinarizer

from larvatus.core.errors import DataError
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.data.labelled.span_records import SpannedWords, SpanRelation
from larvatus.data.text.tag_schemes import EntitySpan
from larvatus.metrics.intervals import Interval
from larvatus.models.heads import ClassificationConfig, SpansConfig, TaggingConfig
from larvatus.models.heads.spans import RelationsConfig
from larvatus.models.nn.compiling import IGNORE
from larvatus.tasks.classify.classify import labelled_texts
from larvatus.tasks.classify.evaluation import evaluate_texts
from larvatus.tasks.classify.task import TextValidation
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.evaluation.comparison import compare_evaluations
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.spans.evaluation import SpanValidation, evaluate_spans
from larvatus.tasks.spans.spans import label_spans
from larvatus.tasks.tag.evaluation import evaluate_tags
from larvatus.tasks.tag.tag import tagged_words
from larvatus.tasks.tag.task import TagValidation
from tests import made_up as made
from tests.made_up import QUICK, Call
from tests.tasks.conftest import TAGS, draw, random_truths, sentences, texts

FEW = EvaluationOptions(samples=20)
STRICT = dataclasses.replace(FEW, strict=True)


def values(metrics: dict[str, Interval]) -> dict[str, float]:
    return {name: one.value for name, one in metrics.items()}


@pytest.mark.parametrize("known", [("no", "yes"), ("maybe", "no", "yes")])
def test_an_unknown_class_is_a_wrong_answer_as_scikit_learn_counts_it(tuned: Any, known: tuple[str, ...]) -> None:
    config = ClassificationConfig(labels=known, pool="mean", dense="none")
    bundle, data = tuned(config), texts(draw((*known, "damp", "odd"), 80))
    found = evaluate_texts(bundle, data, FEW)
    gold = [one.label for one in data]
    answers = [known[number] for number in found.found]
    assert len(set(answers)) > 1
    ours = values(found.metrics)
    assert ours["accuracy"] == pytest.approx(theirs.accuracy_score(gold, answers))
    assert ours["macro-f1"] == pytest.approx(theirs.f1_score(gold, answers, average="macro", zero_division=0))
    assert ours["matthews"] == pytest.approx(theirs.matthews_corrcoef(gold, answers))
    f1 = theirs.f1_score(gold, answers, labels=["yes"], average="macro", zero_division=0)
    assert ours.get("f1", f1) == pytest.approx(f1)
    assert ("f1" in ours) == (len(known) == 2)
    assert found.confusion is not None
    assert found.confusion.tolist() == theirs.confusion_matrix(gold, answers, labels=[*known, "damp", "odd"]).tolist()
    assert found.by_class["damp"].support == gold.count("damp")
    count = gold.count("damp") + gold.count("odd")
    assert f"{count} of 80 texts are labelled with classes that the model does not know (" in found.notes[0]
    assert "they count as wrong" in found.notes[0]
    assert found.calibration is not None
    assert found.calibration.reliability.count.sum() == 80 - count  # a probability is asked of what can have one
    held = TextValidation(labelled_texts(bundle, data.examples, config, WindowOptions.of(bundle)), config, "accuracy")
    assert held.scores(bundle.network, ScoringOptions()).values == pytest.approx(ours)  # as evaluations while it learns
    assert np.isfinite(held.calibration(bundle.network, ScoringOptions()).temperature)


def test_an_unknown_name_of_a_set_is_missed_as_scikit_learn_counts_it(tuned: Any) -> None:
    known, names = ("a", "b", "c"), ("a", "b", "c", "d")
    config = ClassificationConfig(labels=known, kind="multi-label", pool="mean", dense="none")
    bundle, data = tuned(config), texts(random_truths(60, names), kind="multi-label")
    found = evaluate_texts(bundle, data, FEW)
    table = MultiLabelBinarizer(classes=names)
    gold = table.fit_transform([one.label for one in data])
    answers = np.asarray(found.found, int)
    assert answers[:, :3].any()
    assert not answers[:, 3].any()
    ours = values(found.metrics)
    assert ours["micro-f1"] == pytest.approx(theirs.f1_score(gold, answers, average="micro"))
    assert ours["macro-f1"] == pytest.approx(theirs.f1_score(gold, answers, average="macro", zero_division=0))
    assert ours["exact-match"] == pytest.approx(theirs.accuracy_score(gold, answers))
    assert ours["hamming"] == pytest.approx(theirs.hamming_loss(gold, answers))
    held = TextValidation(labelled_texts(bundle, data.examples, config, WindowOptions.of(bundle)), config, "micro-f1")
    assert held.scores(bundle.network, ScoringOptions()).values == pytest.approx(ours)


def renamed(data: Dataset[Any], old: str, new: str) -> Dataset[Any]:
    """The same tags but for a type."""
    rows = [dataclasses.replace(one, tags=tuple(tag.replace(old, new) for tag in one.tags)) for one in data]
    return dataclasses.replace(data, examples=tuple(rows))


@pytest.mark.parametrize("crf", [False, True])
def test_entities_of_an_unknown_type_are_missed_as_seqeval_counts_them(tuned: Any, crf: bool) -> None:
    config = TaggingConfig(labels=TAGS, scheme="BIO", crf=crf)
    both = sentences(50)
    other = renamed(both, "PER", "MISC")
    data = dataclasses.replace(both, examples=both.examples[:25] + other.examples[25:])
    bundle = tuned(config)
    found = evaluate_tags(bundle, data, FEW)
    gold, answers = [list(one.tags or ()) for one in data], found.tags
    report = entity_report(gold, answers, mode="strict", scheme=IOB2, output_dict=True, zero_division=0)
    ours = values(found.metrics)
    assert (ours["precision"], ours["recall"], ours["entity-f1"]) == pytest.approx(
        [report["micro avg"][name] for name in ("precision", "recall", "f1-score")]
    )
    assert ours["macro-f1"] == pytest.approx(report["macro avg"]["f1-score"])
    assert found.by_type["MISC"].support == report["MISC"]["support"] > 0
    words = [(a, b) for one, other in zip(gold, answers, strict=True) for a, b in zip(one, other, strict=True)]
    assert ours["accuracy"] == pytest.approx(np.mean([a == b for a, b in words]))
    count = sum("MISC" in a for a, _ in words)
    assert f"{count} of {len(words)} words are tagged with tags that the model does not know" in found.notes[0]
    encoded = tagged_words(bundle, data.examples, config, WindowOptions.of(bundle))
    assert (encoded.tags == IGNORE).sum() == count  # no loss is learnt or told of them
    held = TagValidation(encoded, config, "entity-f1").scores(bundle.network, ScoringOptions())
    assert held.values == pytest.approx(ours)


SPANS = SpansConfig(
    labels=("LOC", "WATER"),
    longest=3,
    hidden=8,
    dropout=0.0,
    relations=RelationsConfig(labels=("in",), hidden=8, reach=4),
)


def spanned(line: int, *spans: tuple[int, int, str], relations: tuple[SpanRelation, ...] = ()) -> SpannedWords:
    words = ("the", "river", "bank", "was", "wide")
    return SpannedWords(words, tuple(EntitySpan(*one) for one in spans), Place("dev", line), relations=relations)


MIXED = Dataset(
    (
        spanned(1, (0, 3, "LOC"), (1, 2, "WATER"), relations=(SpanRelation(1, 0, "in"), SpanRelation(0, 1, "near"))),
        spanned(2, (0, 2, "animal"), (0, 5, "plant"), (2, 3, "LOC"), relations=(SpanRelation(0, 2, "in"),)),
    ),
    "dev",
)


def test_spans_and_relations_of_unknown_types_are_missed(tuned: Any) -> None:
    bundle = tuned(SPANS)
    found = evaluate_spans(bundle, MIXED, FEW)
    gold = [{tuple(span) for span in one.spans or ()} for one in MIXED]
    right = sum(len(own & set(other)) for own, other in zip(gold, found.found_spans, strict=True))
    guessed = sum(map(len, found.found_spans))
    assert values(found.metrics)["span-f1"] == pytest.approx(2 * right / (guessed + 5))
    assert values(found.metrics)["recall"] == pytest.approx(right / 5)
    assert found.by_type["animal"].support == found.by_type["plant"].support == 1
    assert any(line.startswith("2 of 5 spans are of types that the model does not know (") for line in found.notes)
    data = label_spans(bundle.tokenizer, MIXED.examples, SPANS, limit=32)
    held = SpanValidation(data, SPANS)
    model = bundle.network
    assert held.scores(model, ScoringOptions()).values["span-f1"] == pytest.approx(values(found.metrics)["span-f1"])
    assert held.relations(model, ScoringOptions(), given=True).micro.support == 3
    assert data.unknown_relations.names == ("near",)
    assert np.isfinite(held.threshold(model, ScoringOptions()).threshold)
    assert np.isfinite(held.relation_threshold(model, ScoringOptions()).threshold)
    assert np.isfinite(held.calibration(model, ScoringOptions()).temperature)


def test_strict_refuses_and_so_does_data_of_which_nothing_is_known(tuned: Any) -> None:
    with pytest.raises(DataError, match=r"dev:2: 'the river' is of the type 'animal', which the model does not know"):
        evaluate_spans(tuned(SPANS), MIXED, STRICT)
    classifier = tuned(ClassificationConfig(labels=("no", "yes"), pool="mean"))
    other = texts(["left", "right", "left"])
    with pytest.raises(DataError, match=r"test.tsv:0 is labelled 'left'.* nor any other of these 3 labels; give data"):
        evaluate_texts(classifier, other, FEW)
    bare = Dataset((TextExample("the river", None, None, Place("test.tsv", 9)),), "test.tsv", kind="multi-class")
    with pytest.raises(DataError, match=r"test.tsv:9 has no label"):
        evaluate_texts(classifier, bare, FEW)


def test_two_models_that_know_different_classes_are_compared_by_name(tuned: Any) -> None:
    data = texts(draw(("a", "b", "c"), 60))
    configs = (ClassificationConfig(labels=own, pool="mean", dense="none") for own in (("a", "b"), ("b", "c")))
    first, second = (evaluate_texts(tuned(one, seed=n), data, FEW) for n, one in enumerate(configs))
    both = compare_evaluations(first, second, samples=20)
    for name, one in both.metrics.items():
        assert (one.first, one.second) == pytest.approx((first.metrics[name].value, second.metrics[name].value)), name


@pytest.mark.parametrize("task", ["classify", "tag", "spans"])
def test_a_rare_type_of_dev_does_not_stop_a_training_and_is_said_once(
    finetune: Call, larvatus: Call, tmp_path: Path, task: str
) -> None:
    if task == "classify":
        train, dev = made.classes(tmp_path / "train.jsonl"), made.classes(tmp_path / "dev.jsonl", seed=1)
        dev.write_text(dev.read_text() + '{"text": "a bank", "label": "damp"}\n')
    elif task == "tag":
        train, dev = made.tags(tmp_path / "train.conll"), made.tags(tmp_path / "dev.conll", seed=1)
        dev.write_text(dev.read_text() + "the\tO\nriver\tB-PER\n\n")
    else:
        train, dev = made.nested(tmp_path / "train.jsonl"), made.nested(tmp_path / "dev.jsonl", seed=1)
        dev.write_text(dev.read_text() + '{"text": "a bank", "spans": [{"start": 2, "end": 6, "label": "ORG"}]}\n')
    out = tmp_path / "out"
    code, said, err = finetune(task, "--train", train, "--dev", dev, "--out", out, *QUICK)
    assert code == 0, err
    assert said.count("that the model does not know") == 1, said
    code, said, err = larvatus("evaluate", out, "--data", dev, "--samples", 5)
    assert code == 0, err
    assert said.count("that the model does not know") == 1, said
    code, _, err = larvatus("evaluate", out, "--data", dev, "--strict")
    assert code == 4
    assert "which the model does not know" in err


def test_words_for_a_note_name_the_commonest(tuned: Any) -> None:
    labels = [*"aabbbcccc", "yes"]
    found = evaluate_texts(tuned(ClassificationConfig(labels=("no", "yes"), pool="mean")), texts(labels), FEW)
    assert "(c 4, b 3, a 2)" in found.notes[0]
