"""Python first: whatever a command does is one call, on files or on what is in memory."""

import subprocess
import sys

import numpy as np
import pyarrow
import pytest

import larvatus as lv
from larvatus.errors import UsageError
from larvatus.labelled.in_memory import rows_of
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import TASKS

EXAMPLES = [("good fine good", "pos"), ("bad poor bad", "neg")] * 8


@pytest.mark.parametrize("kind", ["pandas", "arrow", "datasets", "rows"])
def test_tables_in_memory_are_read_as_files_are(kind, tiny_directory):
    columns = {"text": [text for text, _ in EXAMPLES], "label": [label for _, label in EXAMPLES]}
    if kind == "datasets":
        datasets = pytest.importorskip("datasets")
        names = datasets.ClassLabel(names=["neg", "pos"])
        numbers = {**columns, "label": [names.str2int(label) for label in columns["label"]]}
        features = datasets.Features({"text": datasets.Value("string"), "label": names})
        table = datasets.Dataset.from_dict(numbers, features=features)
    else:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        table = pyarrow.table(columns) if kind == "arrow" else rows
        if kind == "pandas":
            table = pytest.importorskip("pandas").DataFrame(columns)
    rows = rows_of(table, TASKS["classify"].as_tuples, of="classify")
    assert list(rows) == [{"text": text, "label": label} for text, label in EXAMPLES]
    model = lv.finetune("classify", tiny_directory, train=table, epochs=1, device="cpu")
    assert model.network.heads["classification"].config.labels == ("neg", "pos")


def test_pairs_tags_and_what_is_missing(tiny_directory):
    classify, tag = TASKS["classify"].as_tuples, TASKS["tag"].as_tuples
    assert next(rows_of([("a", "b", "yes")], classify, of="classify")) == {"text": "a", "pair": "b", "label": "yes"}
    assert read_examples("classify", [("a", "b", "yes"), ("c", "d", "no")]).examples[1].pair == "d"
    assert next(rows_of([(["a"], ["O"])], tag, of="tag")) == {"tokens": ["a"], "tags": ["O"]}
    with pytest.raises(lv.LarvatusError, match="an example of tag is a row of columns or"):
        next(rows_of(["a"], tag, of="tag"))
    with pytest.raises(lv.LarvatusError, match="no examples"):
        lv.finetune("classify", tiny_directory, train=pyarrow.table({}))


def test_a_setting_that_is_none_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="pretrain has no setting 'stepz'; did you mean steps"):
        lv.pretrain("bert", corpus="texts", out=tmp_path, stepz=3)
    with pytest.raises(UsageError, match="steps = 0 must lie between"):
        lv.pretrain("bert", corpus="texts", out=tmp_path, steps=0)


def test_one_text_or_many(tiny_directory):
    model = lv.load(tiny_directory)
    matrix = model.embed(["the river", "a town"])
    assert isinstance(matrix, np.ndarray)
    assert matrix.shape == (2, 16)
    assert np.array_equal(model.embed("the river"), model.embed(["the river"])[0])
    assert model.score("the river").words == model.score(["the river"])[0].words
    assert model.embed([]).shape == (0, 16)
    assert model.embed(["the river", "a town"], layers="all").shape == (2, 3, 16)
    assert model.embed([], layers="all").shape == (0, 3, 16)
    assert np.array_equal(model.embed(np.array(["the river", "a town"])), matrix)
    assert np.array_equal(model.embed(text for text in ("the river", "a town")), matrix)
    both = model.attention(["the river", "a bank"])
    assert np.array_equal(model.attention("a bank").weights, both[1].weights)
    marked, plain = model.embed("the *bank*", unit="span"), model.embed("the bank", unit="span", spans=[(4, 8)])
    assert np.array_equal(marked, plain)
    with pytest.raises(UsageError, match="1 was given, give 2 or more"):
        model.similarities("the *river*")
    with pytest.raises(UsageError, match="embed has no setting 'normalize'; did you mean normalise"):
        model.embed("the river", normalize=True)


def test_a_loaded_model_imports_no_training():
    code = (
        "import sys, larvatus.model; "
        "rooms = ('engine', 'pretraining', 'corpus', 'tasks.fit', 'api', 'evaluation'); "
        "print([m for m in sys.modules for room in rooms if (m + '.').startswith(f'larvatus.{room}.')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_functions_are_not_hidden_by_the_rooms_of_their_names():
    import larvatus.evaluation.compare
    import larvatus.pretraining.job  # noqa: F401

    assert callable(lv.pretrain)
    assert callable(lv.evaluate)
    with pytest.raises(UsageError, match="name a recipe"):
        lv.pretrain(corpus="x", out="y")


def test_a_model_is_evaluated_against_another_and_settings_are_checked(tiny_directory):
    classifier = lv.finetune("classify", tiny_directory, train=EXAMPLES, epochs=1, device="cpu")
    both = lv.evaluate(classifier, data=EXAMPLES, against=classifier, samples=20)
    assert both.metrics["accuracy"].difference == 0
    with pytest.raises(UsageError, match="one of data, corpus and glue"):
        lv.evaluate(classifier)
    with pytest.raises(UsageError, match="evaluate has no setting 'sample'; did you mean samples"):
        lv.evaluate(classifier, data=EXAMPLES, sample=20)
    with pytest.raises(UsageError, match="--word name columns of words"):
        lv.evaluate(classifier, data=EXAMPLES, word="1")


def test_examples_in_memory_are_called_so(tiny_directory):
    classifier = lv.finetune("classify", tiny_directory, train=EXAMPLES, epochs=1, device="cpu")
    assert lv.evaluate(classifier, data=EXAMPLES, samples=20).data.source == "list in memory"


def test_a_series_with_an_index_of_its_own_is_texts(tiny_directory):
    pandas = pytest.importorskip("pandas")
    model = lv.load(tiny_directory, device="cpu")
    series = pandas.Series(["the river", "a town"], index=[7, 8])
    assert np.array_equal(model.embed(series), model.embed(["the river", "a town"]))
