"""Files for GLUE's test server: predictions for its unlabelled test sets, as it wants them.

    test = glue_test_set("mnli-mm")                     # file MNLI-mm.tsv, labels entailment, neutral, contradiction
    examples = list(read_test_rows(test, "MNLI/test_mismatched.tsv"))
    write_submission(Path("submission") / test.file, test, zip(examples, answers))

A file has the columns ``index`` and ``prediction``, a row for each row of the test set in its order. Every row needs a
prediction, so one with an empty text is kept. The server takes a zip of all files of `FILES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.outputs import new_output
from larvatus.data.labelled.columns import Columns, find_columns
from larvatus.data.labelled.glue import TASKS, GlueTask
from larvatus.data.labelled.records import Place, TextExample
from larvatus.data.labelled.tables import TableOptions, ending, open_table

LARGEST = 5.0
"""Largest of STS-B's scores, which begin at 0."""
EMPTY = "."
"""What is read for an empty text: the row needs a prediction all the same."""


@dataclass(frozen=True)
class GlueTestSet:
    """One of GLUE's test sets, and the file that holds predictions for it."""

    name: str
    task: GlueTask
    title: str
    rows: int
    """Rows of the official test set."""

    @property
    def file(self) -> str:
        return f"{self.title}.tsv"


_MNLI = TASKS["mnli"]
TEST_SETS = {
    each.name: each
    for each in (
        GlueTestSet("cola", TASKS["cola"], "CoLA", 1_063),
        GlueTestSet("sst2", TASKS["sst2"], "SST-2", 1_821),
        GlueTestSet("mrpc", TASKS["mrpc"], "MRPC", 1_725),
        GlueTestSet("stsb", TASKS["stsb"], "STS-B", 1_379),
        GlueTestSet("qqp", TASKS["qqp"], "QQP", 390_965),
        GlueTestSet("mnlim", _MNLI, "MNLI-m", 9_796),
        GlueTestSet("mnlimm", _MNLI, "MNLI-mm", 9_847),
        GlueTestSet("qnli", TASKS["qnli"], "QNLI", 5_463),
        GlueTestSet("rte", TASKS["rte"], "RTE", 3_000),
        GlueTestSet("wnli", TASKS["wnli"], "WNLI", 146),
        GlueTestSet("ax", _MNLI, "AX", 1_104),
    )
}
FILES = tuple(each.file for each in TEST_SETS.values())


def glue_test_set(name: str) -> GlueTestSet:
    """A test set by its name: mnli-mm, MNLI-mm and mnli_mm are one.

    >>> glue_test_set("SST-2").file
    'SST-2.tsv'
    """
    plain = name.lower().replace("-", "").replace("_", "")
    if plain == "mnli":
        raise UsageError("MNLI has several test sets; name one: mnli-m (test_matched), mnli-mm (test_mismatched) or ax")
    if plain not in TEST_SETS:
        names = [each.title.lower() for each in TEST_SETS.values()]
        raise UsageError(f"{name!r:.60} is no test set of GLUE{did_you_mean(name.lower(), names)}")
    return TEST_SETS[plain]


def check_labels(test: GlueTestSet, labels: Sequence[str], *, numbers: bool, model: str) -> None:
    """Refuse a model whose answers are not those of the task. `numbers`: it predicts a number."""
    if numbers != (not test.task.labels):
        wanted = f"one of {', '.join(test.task.labels)}" if test.task.labels else "a number from 0 to 5"
        raise UsageError(f"{test.title} wants {wanted} for each row, which {model} does not predict; name its model")
    if test.task.labels and set(labels) != set(test.task.labels):
        raise UsageError(
            f"{model} has the labels {', '.join(labels[:8])}, and {test.title} wants {', '.join(test.task.labels)}; "
            "fine-tune it on GLUE's own files"
        )


def read_test_rows(
    test: GlueTestSet, name: str, columns: Columns = Columns(), say: Callable[[str], None] = lambda line: None
) -> Iterator[TextExample]:
    """The rows of a test file, in their order; `id` is the index that the server knows a row by."""
    table = open_table(name, TableOptions(format="tsv") if ending(name) in ("", ".txt") else TableOptions())
    chosen = find_columns(table, columns, labelled=False)
    if (chosen.pair is not None) != test.task.pairs:
        what = "pairs of texts" if test.task.pairs else "single texts"
        raise DataError(f"{table.name}: {test.title} has {what}, but the file is {chosen.describe(table)}")
    say(f"{table.name}: read as: {chosen.describe(table)}")
    empty, seen = 0, set[str]()
    for number, (place, row) in enumerate(table.rows):
        texts = [str(row.get(column) or "").strip() for column in (chosen.text, chosen.pair) if column is not None]
        empty += not all(texts)
        index = _index(place, row.get(chosen.id)) if chosen.id is not None else str(number)
        if index in seen:
            raise DataError(f"{place}: the index {index} occurs twice; the server wants each once")
        seen.add(index)
        first, *second = [text or EMPTY for text in texts]
        yield TextExample(first, second[0] if second else None, None, place, index)
    if empty:
        say(f"{table.name}: {empty:,} rows have an empty text, read as {EMPTY!r}: every row needs a prediction")
    if len(seen) != test.rows:
        say(f"warning: {table.name} has {len(seen):,} rows, and GLUE's test set of {test.title} {test.rows:,}")


def _index(place: Place, value: object) -> str:
    shown = str(value).strip()
    if not shown.isascii() or not shown.isdigit():
        raise DataError(f"{place}: the index {shown[:40]!r} is no whole number; give GLUE's own test file")
    return str(int(shown)) if len(shown) < 20 else shown


def prediction(test: GlueTestSet, label: str | None, value: float | None) -> str:
    """A cell of the file: a label, or for STS-B a number, cut to its range.

    >>> prediction(glue_test_set("stsb"), None, 5.3), prediction(glue_test_set("rte"), "entailment", None)
    ('5.00000', 'entailment')
    """
    if test.task.labels:
        assert label is not None
        return label
    if value is None or not math.isfinite(value):
        raise DataError(f"{test.title} wants a number for each row, and the model predicts {value}")
    return f"{min(LARGEST, max(0.0, value)):.5f}"


def write_submission(out: Path, rows: Iterable[tuple[str, str]]) -> int:
    """Write indices and predictions; how many."""
    count = 0
    with new_output(out) as aside, aside.open("w", encoding="utf-8", newline="") as stream:
        stream.write("index\tprediction\n")
        for index, answer in rows:
            stream.write(f"{index}\t{answer}\n")
            count += 1
    return count
