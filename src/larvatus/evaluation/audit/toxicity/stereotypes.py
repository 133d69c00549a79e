"""Pairs of a stereotyped sentence and another one: lines `stereotyped<TAB>other`, or the CSV file of CrowS-Pairs.

read_stereotypes("crows_pairs.csv.xz")[0].more              # the stereotyped sentence; the other is `less`
"""

from __future__ import annotations

from pathlib import Path

from larvatus.core.errors import DataError
from larvatus.evaluation.audit.bias.pairs import CrowsPair, read_crows
from larvatus.evaluation.compare.pair_files import read_pairs


def read_stereotypes(path: str | Path) -> list[CrowsPair]:
    """Read at least two pairs; the file name determines the format."""
    name = str(path)
    if ".csv" in Path(name).suffixes:
        pairs = read_crows(name)
    else:
        pairs = [CrowsPair(pair.good, pair.bad, "stereo", "all", pair.where) for pair in read_pairs([name])]
    for pair in pairs:
        if pair.more == pair.less:
            raise DataError(f"{pair.where}: the two sentences are the same; a pair must differ in the group")
    if len(pairs) < 2:
        raise DataError(f"{name} has {len(pairs)} pairs, which have no interval; give two or more")
    return pairs
