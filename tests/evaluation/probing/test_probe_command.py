"""`larvatus probe` and `lv.probe` on files of each kind, and one line for what cannot be."""

import dataclasses
import json

import numpy as np
import pytest

import larvatus as lv
from larvatus.core.errors import LarvatusError
from larvatus.evaluation.probing.examples import read_probe_data
from tests.made_up import nested, sentences, tags

FAST = {"probe": "linear", "samples": 20, "random_weights": False, "description_length": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_model, save_tiny):
    return save_tiny(tmp_path_factory.mktemp("probe") / "model", tiny_model())


def chain(words):
    """A sentence of CoNLL-U: each word depends on the one before it."""
    lines = []
    for n, word in enumerate(words, start=1):
        upos, feature = "PUNCT" if word in ".,?!" else "NOUN", f"Length={len(word) % 2}" if len(word) > 1 else "_"
        lines.append(f"{n}\t{word}\t_\t{upos}\t_\t{feature}\t{n - 1}\t{'root' if n == 1 else 'after'}\t_\t_\n")
    return "".join(lines)


def framed(words):
    """The second word is a predicate, the first one and the rest are its arguments."""
    rest = [["ARG1", 2, len(words) - 1]] if len(words) > 2 else []
    return {
        "words": words,
        "frames": [{"pred": 1, "roleset": "run.01", "args": [["ARG0", 0, 0], ["V", 1, 1], *rest]}],
    }


def twice(words):
    """A text that is said twice, with two words that are mentioned both times."""
    return {"words": words * 2, "clusters": [[[n, n], [len(words) + n, len(words) + n]] for n in (0, 1)]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes")
    tags(folder / "tags.conll")
    nested(folder / "spans.conllu")
    (folder / "trees.conllu").write_text("\n".join(map(chain, sentences(40))) + "\n")
    (folder / "roles.jsonl").write_text("\n".join(json.dumps(framed(words)) for words in sentences(40)))
    (folder / "coref.jsonl").write_text("\n".join(json.dumps(twice(words)) for words in sentences(40)))
    spans = [{"start": 4, "end": 9, "label": "A"}, {"start": 10, "end": 13, "label": "B"}]
    related = [
        {
            "text": "the river ran " + "wide " * n,
            "spans": spans,
            "relations": [{"head": 0, "tail": 1, "label": "xy"[n % 2]}],
        }
        for n in range(1, 31)
    ]
    (folder / "related.jsonl").write_text("\n".join(map(json.dumps, related)))
    return folder


@pytest.mark.parametrize(
    ("task", "file", "pair"),
    [
        ("tag", "tags.conll", False),
        ("spans", "spans.conllu", False),
        ("arcs", "trees.conllu", True),
        ("roles", "roles.jsonl", True),
        ("coref", "coref.jsonl", True),
        ("relations", "related.jsonl", True),
    ],
)
def test_any_labelled_file_is_a_probe(model, folder, task, file, pair):
    if task == "arcs":
        (folder / "two.conllu").write_text(
            (folder / "trees.conllu").read_text().replace("\tafter\t_\t_\n3", "\tsecond\t_\t_\n3")
        )
        file = "two.conllu"
    data = read_probe_data(task, str(folder / file))
    assert data.units.shape[1] == 1 + pair
    report = lv.probe(model, str(folder / file), task=task, **FAST)
    assert [row.layer for row in report.layers] == [0, 1, 2]
    assert report.metric == "accuracy"
    assert {figure.metric for figure in report.figures()} >= {"accuracy", "control", "selectivity", "expected layer"}
    assert all(0 <= row["accuracy"].value <= 1 for row in report.layers)
    assert 0 <= report.centre_of_gravity <= 2


def test_texts_of_a_part_are_in_no_other_and_word_types_are_last_words(folder):
    data = read_probe_data("spans", str(folder / "spans.conllu"))
    assert {data.texts[n] for n in np.flatnonzero(data.parts == 2)}.isdisjoint(
        data.texts[n] for n in np.flatnonzero(data.parts != 2)
    )
    words = [data.texts[owner][slice(*unit)] for owner, units in enumerate(data.spans) for unit in units]
    assert all(data.types[n] == words[data.units[n, 0]].split()[-1] for n in range(len(data.types)))
    again = read_probe_data("spans", str(folder / "spans.conllu"), seed=1)
    held_out = [{each.texts[n] for n in np.flatnonzero(each.parts == 2)} for each in (data, again)]
    assert held_out[0] != held_out[1]


def test_a_page_json_and_a_table(larvatus, model, folder, tmp_path):
    words = (
        "probe",
        folder / "trees.conllu",
        "--task",
        "structure",
        "--model",
        model,
        "--samples",
        20,
        "--layers",
        "2",
    )
    code, out, err = larvatus(*words, "--out", tmp_path / "p.html", "--json")
    assert code == 0, err
    record = json.loads(out)
    assert record["layers"][0].keys() >= {"uuas", "control", "random", "spearman", "uuas_low"}
    assert record["baselines"]["neighbours joined"]["value"] == 1  # every word depends on the one before it
    page = (tmp_path / "p.html").read_text()
    assert "<svg" in page
    assert "<script" not in page
    code, out, err = larvatus(
        "probe", folder / "tags.conll", "--model", model, "--samples", 20, "--layers", "0,2", "--hidden", 4
    )
    assert code == 0, err
    assert "selectivity" in out
    assert "compression" in out
    assert "majority of the word type" in out
    assert "mlp" in out


def test_amnesic_probing_of_a_model_prints_its_control(larvatus, model, folder):
    code, out, err = larvatus("probe", folder / "tags.conll", "--model", model, "--amnesic", "--samples", 20)
    assert code == 0, err
    assert "erased less random" in out
    report = lv.amnesic_probe(model, str(folder / "tags.conll"), samples=20)
    assert {figure.label for figure in report.figures()} >= {
        "tag: erased: masked accuracy",
        "tag: random: probe accuracy",
    }


def test_a_feature_is_probed_where_words_have_it_and_identity_is_reported(model, folder):
    data = read_probe_data("tag", str(folder / "trees.conllu"), columns=lv_columns(tag="Length"))
    assert data.names == ("0", "1")
    assert all(len(word) > 1 for word in data.types)
    report = lv.probe(model, str(folder / "trees.conllu"), tag="form", labels=10, **FAST)
    assert "word identity" in " ".join(report.notes)
    assert "10 most frequent labels" in " ".join(report.notes)


def test_labels_that_the_word_determines_are_reported_and_others_are_not(model):
    """The label is the word's first letter in one file, and the place of the word in the other."""
    texts = [words for words in sentences(80) if len(words) > 2]
    leaking = [{"tokens": words, "tags": ["early" if word < "o" else "late" for word in words]} for words in texts]
    placed = [{"tokens": words, "tags": ["ab"[at % 2] for at in range(len(words))]} for words in texts]
    said = [" ".join(lv.probe(model, rows, **FAST, layers=(0,)).notes) for rows in (leaking, placed)]
    assert "the word determines the label: 100% of the " in said[0]
    assert "the word determines" not in said[1]


def test_layers_that_add_nothing_have_no_expected_layer(model):
    rows = [{"tokens": ["river", "bank", *["wide"] * n], "tags": ["a", "b", *["c"] * n]} for n in range(20)]
    report = lv.probe(model, rows, **FAST)
    assert np.isnan(report.expected_layer.value)
    assert "no expected layer: those above 0 add nothing to the accuracy of the mix" in str(report)
    assert "nan" not in str(report)


def lv_columns(**columns):
    from larvatus.data.labelled.file_options import WordFiles

    return WordFiles(**columns)


def test_long_texts_are_windowed_and_counted(model):
    rows = [{"tokens": ["river", "bank"] * 40, "tags": ["a", "b"] * 40, "id": n} for n in range(11)]
    for n, row in enumerate(rows):
        row["tokens"] = [*row["tokens"], *["wide"] * n]
        row["tags"] = [*row["tags"], *["c"] * n]
    report = lv.probe(model, rows, **FAST)
    assert "11 texts are longer than the model's window" in " ".join(report.notes)


def same(count, label):
    return [
        {"tokens": ["the", "river", *["wide"] * n], "tags": [label(n, at) for at in range(n + 2)]} for n in range(count)
    ]


@pytest.mark.parametrize(
    ("rows", "settings", "says"),
    [
        (same(20, lambda n, at: "x"), {}, "a probe needs two labels or more"),
        (same(5, lambda n, at: str(at % 2)), {}, "5 texts are too few to probe"),
        (same(12, lambda n, at: str(at % 2)), {"limit": 5}, "5 texts are too few to probe; raise --limit 5 to 10 or"),
        (same(12, lambda n, at: str(at % 2)), {"layers": (7,)}, "there is no layer 7: the model has 1 to 2"),
        (same(12, lambda n, at: str(at % 2)), {"memory": 1e-9}, "over the bound of 1e-09"),
        (same(12, lambda n, at: str(at % 2)), {"task": "tags"}, "Invalid enum value 'tags'"),
        ([], {}, "no file was named"),
        ([same(3, lambda n, at: str(at % 2))[0]] * 12, {}, "all texts are equal"),
        (same(12, lambda n, at: str(at % 2)), {"hidden": 0}, "hidden = 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_probed_is_one_line(model, rows, settings, says):
    with pytest.raises(LarvatusError) as refused:
        lv.probe(model, rows, **{**FAST, **settings})
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_more_classes_than_examples_and_an_empty_file_are_one_line(larvatus, model, tmp_path):
    rows = same(20, lambda n, at: f"label {n} {at}")
    with pytest.raises(LarvatusError, match=r"training examples for [\d,]+ labels; give more texts"):
        lv.probe(model, rows, **{**FAST, "labels": 1000})
    (tmp_path / "empty.conll").write_text("")
    code, _, err = larvatus("probe", tmp_path / "empty.conll", "--model", model)
    assert code == 4
    assert "\n" not in err.strip()
    code, _, err = larvatus("probe", tmp_path / "empty.conll", "--model", model, "--out", tmp_path / "page.txt")
    assert code == 2
    assert "must end in .html" in err
    (tmp_path / "pairs.tsv").write_text("the river\ta\nthe bank\tb\n")
    code, _, err = larvatus("probe", tmp_path / "pairs.tsv", "--model", model)
    assert code == 2
    assert err.startswith(f"larvatus: the task of {tmp_path / 'pairs.tsv'} is not clear; name it: --task tag, spans")


def test_vectors_that_are_not_finite_are_refused(model, folder):
    loaded = lv.load(model)
    weight = next(p for name, p in loaded.network.named_parameters() if "block" in name or "layers" in name)
    weight.data.fill_(float("nan"))
    with pytest.raises(LarvatusError, match="not finite"):
        lv.probe(loaded, str(folder / "tags.conll"), **FAST)


def test_pairs_have_no_amnesic_probe_and_examples_keep_their_numbers(model, folder):
    with pytest.raises(LarvatusError, match="single words or spans"):
        lv.amnesic_probe(model, str(folder / "roles.jsonl"), task="roles")
    data = read_probe_data("tag", str(folder / "tags.conll"))
    missing = np.zeros(sum(map(len, data.spans)), bool)
    missing[data.units[0, 0]] = True
    fewer = data.without(missing)
    assert len(fewer.labels) == len(data.labels) - 1 == len(fewer.types)
    assert "without a token" in fewer.notes[-1]
    assert dataclasses.replace(fewer, notes=data.notes).without(np.zeros_like(missing)).notes == data.notes
