"""Pairs of a stereotyped sentence and another: `stereotyped<TAB>other` a line, or the CSV file of CrowS-Pairs.

read_stereotypes("crows_pairs.csv.xz")[0].good              # the stereotyped one: a `Pair` has `good` and `bad`
"""

from __future__ import annotations

from pathlib import Path

from larvatus.errors import DataError
from larvatus.evaluation.pair_files import Pair, pair_of, read_pairs
from larvatus.labelled.tables import TableOptions, open_table

COLUMNS = ("sent_more", "sent_less")


def read_stereotypes(path: str | Path) -> list[Pair]:
    """At least two; which kind a file is, its name tells."""
    name = str(path)
    pairs = _of_table(name) if ".csv" in Path(name).suffixes else read_pairs([name])
    for pair in pairs:
        if pair.good == pair.bad:
            raise DataError(f"{pair.where}: the two sentences are the same; a pair must differ in the group")
    if len(pairs) < 2:
        raise DataError(f"{name} has {len(pairs)} pairs, which have no interval; give two or more")
    return pairs


def _of_table(name: str) -> list[Pair]:
    table = open_table(name, TableOptions(header=True))
    if missing := [column for column in COLUMNS if column not in table.columns]:
        raise DataError(f"{table.name}: no column {missing[0]!r}; give sent_more and sent_less, as CrowS-Pairs does")
    return [pair_of(tuple(str(row.get(column) or "") for column in COLUMNS), str(place)) for place, row in table.rows]
