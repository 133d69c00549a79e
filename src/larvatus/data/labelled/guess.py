"""Whether a file holds labelled texts or tagged words, told by its name and its first lines."""

from __future__ import annotations

from itertools import islice
from typing import Literal

from larvatus.core.errors import UsageError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.standoff import span_key
from larvatus.data.labelled.tables import TableOptions, ending, open_table
from larvatus.data.labelled.tagged import format_of
from larvatus.data.text.columns import WORDS, first_of
from larvatus.data.text.streams import numbered_lines

Task = Literal["classify", "tag"]


def guess_task(name: str) -> Task:
    """classify for texts with labels, tag for words with tags or texts with spans."""
    if name == "-":
        raise UsageError(
            "standard input is read once; say what it holds: --for classify, tag or spans, or another task"
        )
    if ending(name) in (".csv", ".tab"):
        return "classify"
    format = format_of(name)
    if format in ("conllu", "brat"):
        return "tag"
    if format in ("jsonl", "parquet"):
        table = open_table(name, TableOptions(format="parquet" if format == "parquet" else "jsonl"), Problems())
        return "tag" if first_of(WORDS, table.columns) or span_key(table.columns, table.sample) else "classify"
    if format == "conll" and ending(name) != ".tsv":
        return "tag"
    return "tag" if _words_a_line(name) else "classify"


def _words_a_line(name: str) -> bool:
    """Whether blank lines part rows of a few cells, the first a single word."""
    lines = [line for _, line in islice(numbered_lines(name), 2_000)]
    while lines and not lines[-1].strip():
        lines.pop()
    rows = [line.split("\t") if "\t" in line else line.split(" ") for line in lines if line.strip()]
    short = sum(len(row) > 1 and len(row[0]) < 40 for row in rows)
    return len(rows) < len(lines) and short > 0.9 * len(rows)
