"""Queries with passages from tables of every form, and what cannot be read of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import larvatus as lv
from larvatus.core.errors import DataError
from larvatus.tasks.rerank.reader import by_query, read_relevance
from tests.made_up import Call, write_rows

PAIRS = [("a river", "the bank", 1.0), ("a river", "homework", 0.0), ("please", "turn in", 0.0), ("please", "run", 1.0)]


def triples(path: Path) -> list[tuple[str, str, float | None]]:
    return [(row.query, row.passage, row.grade) for row in read_relevance(str(path))]


def rows_of(name: str) -> list[dict[str, Any]]:
    if name == "pairs":
        return [{"query": q, "passage": p, "label": int(y)} for q, p, y in PAIRS]
    if name == "other names":
        return [{"id": n, "question": q, "answer": p, "relevance": str(y)} for n, (q, p, y) in enumerate(PAIRS)]
    if name == "truths":
        return [{"query": q, "document": p, "relevant": bool(y)} for q, p, y in PAIRS]
    return [
        {"query": q, "docs": [p for a, p, _ in PAIRS if a == q], "labels": [y for a, _, y in PAIRS if a == q]}
        for q in dict.fromkeys(q for q, _, _ in PAIRS)
    ]


@pytest.mark.parametrize("name", ["pairs", "other names", "truths", "lists"])
def test_every_form_gives_the_same_pairs(tmp_path: Path, name: str) -> None:
    path = write_rows(tmp_path / "rows.jsonl", rows_of(name))
    assert triples(path) == PAIRS


@pytest.mark.parametrize(
    "row",
    [
        {"query": "a river", "positives": ["the bank", "deep"], "negatives": ["homework"]},
        {"query": "a river", "pos": ["the bank", "deep"], "neg": "homework"},
        {"question": "a river", "positive": "the bank", "positive_2": "deep", "hard_negative_1": "homework"},
    ],
)
def test_positives_come_before_negatives(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row])
    assert triples(path) == [("a river", "the bank", 1.0), ("a river", "deep", 1.0), ("a river", "homework", 0.0)]


def test_a_table_without_a_header_is_known_by_its_values(tmp_path: Path) -> None:
    path = tmp_path / "wiki.tsv"
    path.write_text("7\ta river\tthe bank .\t1\n7\ta river\tturn in .\t0\n8\twhere is\tthe wide bank .\t0\n")
    data = read_relevance(str(path))
    assert [(row.query, row.passage, row.grade) for row in data][:2] == [
        ("a river", "the bank .", 1.0),
        ("a river", "turn in .", 0.0),
    ]
    assert [*by_query(data)] == ["a river", "where is"]
    assert "(2 queries)" in data.describe()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "", "passage": "a", "label": 1}, "query is empty"),
        ({"query": "a", "passage": " ", "label": 1}, "passage is empty"),
        ({"query": "a", "passage": "b", "label": "NaN"}, "label is .*not a number of 0"),
        ({"query": "a", "passage": "b", "label": None}, "label is .*not a number of 0"),
        ({"query": "a", "passage": "b", "label": -1}, "label is '-1'"),
        ({"query": "a", "passage": "b", "label": "yes"}, "label is 'yes'"),
        ({"query": "a", "pos": [], "neg": ["b"]}, "pos is empty; drop the row, or give a positive"),
        ({"query": "a", "pos": ["b", ""], "neg": ["b"]}, r"pos\[1\] is empty"),
        ({"query": "a", "docs": ["b", "c"], "labels": [1]}, "docs has 2 passages, but labels has 1 labels"),
        ({"passage": "b", "label": 1}, "no column is a query .*--text"),
        ({"query": "b", "label": 1}, "no column is a passage .*--pair"),
        ({"query": "b", "passage": "a"}, "no column has the relevance .*--label"),
    ],
)
def test_bad_rows_are_named_with_the_fix(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=message) as caught:
        read_relevance(str(path))
    assert "bad.jsonl" in str(caught.value)


def in_memory(kind: str) -> Any:
    if kind == "list":
        return PAIRS
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(rows_of("pairs"))
    return pytest.importorskip("datasets").Dataset.from_list(rows_of("lists"))


@pytest.mark.parametrize("kind", ["list", "pandas", "datasets"])
def test_tables_in_memory_are_read_as_files_are(tiny_directory: Path, kind: str) -> None:
    train = in_memory(kind)
    tuned = lv.finetune("rerank", tiny_directory, train=train, hold_out=False, epochs=1, device="cpu", quiet=True)
    assert [row.passage for row in tuned.rerank("a river", ["the bank"])] == ["the bank"]
    evaluation = lv.evaluate(tuned, data=train, samples=20)
    assert (evaluation.queries, len(evaluation.data)) == (2, 4)


def test_labels_that_teach_nothing_are_refused(tiny_directory: Path) -> None:
    settings: dict[str, Any] = {"epochs": 1, "device": "cpu", "hold_out": False}
    positives = [(f"a {word}", "the bank", 1) for word in ("river", "bank", "run")]
    with pytest.raises(DataError, match=r"all labels are 1, .* give some that are not relevant"):
        lv.finetune("rerank", tiny_directory, train=positives, **settings)
    with pytest.raises(DataError, match=r"all labels are 0, .* give some passages that are relevant"):
        lv.finetune("rerank", tiny_directory, train=[(q, p, 0) for q, p, _ in positives], **settings)
    single = [(q, p, n % 2) for n, (q, p, _) in enumerate(positives)]
    with pytest.raises(DataError, match="no query has both a relevant passage and another one"):
        lv.finetune("rerank", tiny_directory, train=single, loss="softmax", **settings)
    with pytest.raises(DataError, match=r"list\[0\].*not a number of 0"):
        lv.finetune("rerank", tiny_directory, train=[("a", "b", float("nan")), ("a", "c", 1)], **settings)
    graded = [("a river", "the bank", 3), ("a river", "run", 0)]
    with pytest.raises(lv.LarvatusError, match="binary-cross-entropy learns labels between 0 and 1"):
        lv.finetune("rerank", tiny_directory, train=graded, loss="binary-cross-entropy", **settings)
    with pytest.raises(DataError, match="none of 1 queries has a relevant passage"):
        lv.finetune("rerank", tiny_directory, train=graded, dev=[("a river", "run", 0)], epochs=1, device="cpu")


def test_a_check_lists_queries_that_say_nothing_about_order(larvatus: Call, tmp_path: Path) -> None:
    rows = [*rows_of("pairs"), {"query": "in", "passage": "run", "label": 0}]
    code, out, _ = larvatus("data", "check", write_rows(tmp_path / "rows.jsonl", rows), "--for", "rerank")
    assert code == 0
    assert "1 of 3 queries of train have no relevant passage" in out
    assert "1 of 3 queries of train have one passage only" in out
