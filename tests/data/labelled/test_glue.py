"""GLUE by name: files found, columns and labels as published, MRPC's missing dev, faults."""

import lzma

import pytest

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.glue import PUBLISHED, TASKS, glue_task, read_glue

PAIRS = "index\tsentence1\tsentence2\tlabel\n"


@pytest.fixture
def put(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(text.encode()) if name.endswith(".xz") else text.encode())
        return tmp_path

    return write


def test_cola_has_no_header_and_four_columns_even_when_tiny(put):
    put("CoLA/train.tsv.xz", "gj04\t1\t\tA fine sentence.\ngj04\t0\t*\tA sentence fine.\n")
    found = read_glue("cola", put("CoLA/dev.tsv", "cj99\t1\t\tAnother.\n"))
    assert [(e.text, e.label) for e in found.train] == [("A fine sentence.", "1"), ("A sentence fine.", "0")]
    assert [e.label for e in found.dev["dev"]] == ["1"]
    assert found.task.metrics == ("matthews",)


def test_sst2_in_either_order_and_quotation_marks_are_characters(put):
    put("SST-2/train.tsv", 'sentence\tlabel\nhe said " no\t0\nfine "\t1\n')
    found = read_glue("SST-2", put("SST-2/dev.tsv", "label\tcontent\n0\tone long string of cliches .\n"))
    assert [e.text for e in found.train] == ['he said " no', 'fine "']
    assert found.dev["dev"].examples[0].text == "one long string of cliches ."


def test_mrpc_without_dev_takes_the_last_408_rows_and_says_so(put):
    rows = "".join(f"{n % 2}\t{n}\t{n}\tOne {n}.\tTwo {n}.\n" for n in range(500))
    found = read_glue("mrpc", put("MRPC/train.tsv", "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + rows))
    assert (len(found.train), len(found.dev["dev"])) == (92, 408)
    assert found.dev["dev"].examples[0].text == "One 92."
    assert "the last 408 training rows are dev" in found.train.describe()
    only = read_glue("mrpc", put("x", ""), splits=("dev",))
    assert (only.train, len(only.dev["dev"])) == (None, 408)


def test_mnli_has_two_dev_files_and_pairs_without_agreement_are_left_out(put):
    head = "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label\n"
    put("MNLI/train.tsv", head + "0\t1\tA b c.\tD e f.\tneutral\tentailment\n1\t1\tA b.\tD.\tneutral\t-\n")
    put("MNLI/dev_matched.tsv", head + "0\t1\tA b c.\tD e f.\tneutral\tneutral\n")
    found = read_glue("mnli", put("MNLI/dev_mismatched.tsv", head + "0\t1\tA b c.\tD e f.\tneutral\tcontradiction\n"))
    assert [e.label for e in found.train] == ["entailment"]
    assert found.train.notes == ("1 pairs without agreement skipped",)
    assert {name: part.examples[0].label for name, part in found.dev.items()} == {
        "dev_matched": "neutral",
        "dev_mismatched": "contradiction",
    }


def test_classes_by_number_get_their_names(put):
    root = put("rte/train.jsonl", '{"sentence1": "A b.", "sentence2": "C d.", "label": 1}\n' * 2)
    found = read_glue("rte", root, splits=("train",)).train
    assert [e.label for e in found] == ["not_entailment"] * 2
    assert "0 = entailment, 1 = not_entailment" in found.describe()


def test_stsb_is_regression_even_with_whole_numbers(put):
    root = put("STS-B/train.tsv", "index\tsentence1\tsentence2\tscore\n0\tA b.\tC d.\t5\n1\tA c.\tC e.\t0\n")
    assert [e.label for e in read_glue("stsb", root, splits=("train",)).train] == [5.0, 0.0]


def test_faults_name_what_is_missing(put, tmp_path):
    root = put("QNLI/dev.tsv", "index\tquestion\tsentence\tlabel\n0\tWho a b?\tHe c d.\tentailment\n")
    with pytest.raises(DataError, match=r"QNLI has no train file of QNLI \(it has dev\.tsv\)"):
        read_glue("qnli", root)
    with pytest.raises(DataError, match=r"has no files of RTE; it needs train\.tsv or dev\.tsv"):
        read_glue("rte", root)
    with pytest.raises(UsageError, match="'sst' is no task of GLUE; did you mean sst2"):
        glue_task("sst")
    with pytest.raises(DataError, match="is no directory"):
        read_glue("rte", tmp_path / "absent")
    put("RTE/train.tsv", PAIRS + "0\tA b.\tC d.\tperhaps\n1\tA b.\tC d.\tentailment\n")
    with pytest.raises(DataError, match=r"train\.tsv:2: RTE has no label 'perhaps'; it has entailment, not_entailment"):
        read_glue("rte", root, splits=("train",))
    put("SST-2/train.tsv", PAIRS + "0\tA b.\tC d.\t1\n")
    with pytest.raises(
        DataError, match="SST-2 has single texts, but the file is read as: text = sentence1, pair = sent"
    ):
        read_glue("sst2", root, splits=("train",))


def test_the_published_averages_are_those_of_the_nine_columns():
    """So a slip in copying the table would show."""
    for system, scores in PUBLISHED.items():
        columns = [score for name, score in scores.items() if name != "average"]
        assert abs(sum(columns) / 9 - scores["average"]) < 0.07, system
        assert {*scores} == {*TASKS, "mnli-mm", "average"} - {"wnli"}
