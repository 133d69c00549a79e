"""Precision and recall of personal data on marked lines: the table of docs/hygiene.md.

python benchmarks/personal_data.py                       # the development lines, then the held-out ones
python benchmarks/personal_data.py mine.txt --misses     # your own lines, with each error
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from larvatus.data.corpus.hygiene.personal import KINDS, find_personal

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "corpus" / "personal"
_MARK = re.compile(r"⟦(\w+)\|(.*?)⟧")


class MarkedLine(NamedTuple):
    text: str
    gold: frozenset[tuple[str, int, int]]
    """Kind, start and end of each place."""


class Scores(NamedTuple):
    """Places by kind: right, found wrongly, and missed."""

    right: Counter[str]
    wrong: Counter[str]
    missed: Counter[str]
    lines: int
    negative: int
    errors: list[str]

    def precision(self, kind: str) -> float:
        return self.right[kind] / max(1, self.right[kind] + self.wrong[kind])

    def recall(self, kind: str) -> float:
        return self.right[kind] / max(1, self.right[kind] + self.missed[kind])


def read_marked(path: Path) -> list[MarkedLine]:
    """Lines with ⟦kind|text⟧ around what is personal; lines that begin with # are comments."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("# ")]
    return [_unmarked(line) for line in lines]


def _unmarked(line: str) -> MarkedLine:
    text, gold, at = "", set(), 0
    for match in _MARK.finditer(line):
        text += line[at : match.start()]
        gold.add((match[1], len(text), len(text) + len(match[2])))
        text += match[2]
        at = match.end()
    return MarkedLine(text + line[at:], frozenset(gold))


def score(lines: list[MarkedLine]) -> Scores:
    """A place is right where kind, start and end are those of the mark, brackets around it aside."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    errors = []
    for text, gold in lines:
        wanted = {_bare(text, place) for place in gold}
        found = {_bare(text, tuple(place)) for place in find_personal(text)}  # type: ignore[arg-type]
        for counter, places in ((right, wanted & found), (wrong, found - wanted), (missed, wanted - found)):
            counter.update(kind for kind, _, _ in places)
        errors += [f"wrong  {kind:9}{text[a:b]!r} in {text!r}" for kind, a, b in found - wanted]
        errors += [f"missed {kind:9}{text[a:b]!r} in {text!r}" for kind, a, b in wanted - found]
    return Scores(right, wrong, missed, len(lines), sum(not line.gold for line in lines), errors)


def _bare(text: str, place: tuple[str, int, int]) -> tuple[str, int, int]:
    kind, start, end = place
    while text[start] in "(+":
        start += 1
    return kind, start, end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[FOLDER / "development.txt", FOLDER / "held_out.txt"])
    parser.add_argument("--misses", action="store_true", help="show each error")
    given = parser.parse_args()
    for path in given.files:
        scores = score(read_marked(path))
        print(f"{path.stem}: {scores.lines} lines, {scores.negative} of them without personal data")
        print("| kind | places | precision | recall |\n| --- | --- | --- | --- |")
        for kind in KINDS:
            places = scores.right[kind] + scores.missed[kind]
            print(f"| {kind} | {places} | {scores.precision(kind):.3f} | {scores.recall(kind):.3f} |")
        if given.misses:
            print("\n".join(scores.errors))


if __name__ == "__main__":
    main()
