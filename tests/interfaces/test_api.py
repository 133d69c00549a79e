"""Python first: whatever a command does is one call, on files or on what is in memory."""

import json
import sys

import numpy as np
import pandas
import pyarrow
import pytest

import larvatus as lv
from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.in_memory import rows_of
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import TASKS
from tests import warm

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
        "import sys, larvatus.inference.model; "
        "rooms = ('training', 'data.corpus', 'tasks.trainer', 'interfaces', 'evaluation'); "
        "print([m for m in sys.modules for room in rooms if (m + '.').startswith(f'larvatus.{room}.')])"
    )
    assert warm.run_bare([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_functions_are_not_hidden_by_the_rooms_of_their_names():
    import larvatus.evaluation.compare.compare
    import larvatus.training.pretraining.job  # noqa: F401

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


def frame(**columns):
    return pandas.DataFrame(
        {"body": [text for text, _ in EXAMPLES], "topic": [label for _, label in EXAMPLES], **columns}
    )


def test_finetune_without_a_model_takes_the_packaged_one(tiny_directory, monkeypatch, capsys):
    monkeypatch.setattr("larvatus.models.bundle.model_names.packaged_model", lambda: tiny_directory)
    model = lv.finetune("classify", train=EXAMPLES, epochs=1, device="cpu", quiet=True)
    assert model.bundle.lineage == lv.load(tiny_directory).bundle.lineage
    assert capsys.readouterr().out == ""


def test_finetune_shows_what_it_read_and_writes_metrics_and_prints_as_a_table(tiny_directory, tmp_path, capsys):
    chosen = {"epochs": 2, "device": "cpu", "out": tmp_path / "run"}
    model = lv.finetune("classify", tiny_directory, train=frame(), dev=EXAMPLES, **chosen)
    said = capsys.readouterr().out
    assert "DataFrame in memory: 16 examples · read as: text = body, label = topic (2 classes: neg, pos)" in said
    assert "seed 0, epoch" in said
    assert "\x1b" not in said  # no terminal, no colours
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {record["kind"] for record in records} == {"valid"}
    lines = str(model).splitlines()
    assert lines[1:4] == ["fine-tuned on 16 examples, scored on 16", "held out", lines[3]]
    assert lines[3].split() == ["metric", "kept"]
    assert f"accuracy *  {model.scores['accuracy']:.4f}" in str(model)
    assert "accuracy" in model._repr_html_()
    quiet = {**chosen, "out": tmp_path / "quiet", "quiet": True}
    lv.finetune("classify", tiny_directory, train=frame(), dev=EXAMPLES, **quiet)
    assert capsys.readouterr().out == ""
    assert (tmp_path / "quiet" / "metrics.jsonl").read_text().count("\n") == len(records)


def test_evaluations_print_as_tables(tiny_directory):
    classifier = lv.finetune("classify", tiny_directory, train=EXAMPLES, epochs=1, device="cpu", quiet=True)
    evaluation = lv.evaluate(classifier, data=EXAMPLES, samples=20)
    score = evaluation.metrics["accuracy"]
    row = f"accuracy  {score.value:.4f}  {score.low:.4f} to {score.high:.4f}"
    lines = str(evaluation).splitlines()
    assert "on list in memory: 16 examples · read as: text = text, label = label (2 classes" in lines[0]
    assert [line.split() for line in lines[1:3]] == [["metric", "score", "95%", "interval"], row.split()]
    both = str(lv.evaluate(classifier, data=EXAMPLES, against=classifier, samples=20))
    assert both.splitlines()[1].split() == ["metric", "other", "this", "difference", "95%", "interval", "p"]


BAD_ROWS = {3: (None, "pos"), 5: (float("nan"), "neg"), 8: ("good", None), 9: ("  ", "neg")}


def test_bad_rows_of_a_frame_are_all_named_by_index_and_column(tiny_directory):
    table = frame()
    table.index = [f"t{number}" for number in range(len(table))]
    for number, (text, label) in BAD_ROWS.items():
        table.iloc[number] = [text, label]
    with pytest.raises(DataError) as caught:
        lv.finetune("classify", tiny_directory, train=table, device="cpu")
    assert str(caught.value) == (
        "4 rows cannot be used: DataFrame index 't3', 't5', 't9': body is empty; drop the row, or give it a text · "
        "DataFrame index 't8': the label is empty (column topic); "
        'to skip such rows: --errors skip, in Python errors="skip"'
    )
    assert caught.value.__cause__ is None  # which would name a temporary file
    model = lv.finetune("classify", tiny_directory, train=table, device="cpu", epochs=1, errors="skip", quiet=True)
    scores = lv.evaluate(model, data=table, errors="skip", samples=20)
    assert len(scores.data) == 12
    assert "4 rows skipped (3 × empty text · 1 × no label)" in str(scores)
    with pytest.raises(DataError, match="4 rows cannot be used"):
        lv.evaluate(model, data=table, samples=20)
    with pytest.raises(UsageError, match="errors is refuse or skip, not 'ignore'"):
        lv.evaluate(model, data=table, errors="ignore")


def test_a_long_list_of_bad_rows_is_cut_with_a_count(tiny_directory):
    with pytest.raises(DataError, match=r"index 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 30 more: text is empty"):
        read_examples("classify", pandas.DataFrame({"text": [""] * 40 + ["a"], "label": ["x"] * 41}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("a river", "x"), ("b", None)], r"^list\[1\]: the label is empty \(column label\)$"),
        (pyarrow.table({"text": ["a river", None], "label": ["x", "y"]}), r"^Table\[1\]: text is empty"),
        ({"text": ["a river", ""], "label": ["x", "y"]}, r"^dict\[1\]: text is empty"),
        ({"text": ["a river"], "label": ["x", "y"]}, "lists of one length"),
        ([("a river", "x"), "b"], r"^list\[1\] is no example"),
        ([{"text": "a river", "label": "x"}, {"text": "b", "label": b"y"}], r"^list\[1\]: the label is bytes"),
        (pandas.DataFrame([["a", "b"]], columns=["text", "text"]), "DataFrame: two columns are named 'text'"),
        (pandas.DataFrame({"n": [1, 2]}), "^DataFrame: no column holds text"),
        (pandas.Series(["a", "b"]), r"^Series\[0\] is no example"),
        (None, "NoneType holds no examples"),
    ],
)
def test_bad_examples_in_memory_are_named_as_the_user_knows_them(given, said):
    with pytest.raises(DataError, match=said) as caught:
        read_examples("classify", given)
    assert "/" not in str(caught.value)


def test_arrays_dicts_and_pairs_of_columns_are_examples():
    texts, labels = ["a river", "a bank"], ["x", "y"]
    wanted = [(text, label) for text, label in zip(texts, labels, strict=True)]
    scalars = [(pyarrow.scalar(text), np.str_(label)) for text, label in wanted]
    for given in (np.array(wanted), {"text": texts, "label": labels}, zip(texts, labels, strict=True), scalars):
        assert [(each.text, each.label) for each in read_examples("classify", given)] == wanted
    grouped = read_examples("classify", frame(author=[str(number % 3) for number in range(16)]), group="author")
    assert [grouped.groups[each.place] for each in grouped][:4] == ["0", "1", "2", "0"]
