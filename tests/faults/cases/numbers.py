"""Numbers in options, settings and configs: not finite, out of range, absurd."""

from __future__ import annotations

from tests.faults.cases import Case

CASES: list[Case] = [
    Case(
        "a rate that is a word",
        lambda place: ["pretrain", "bert", "--corpus", place.text, "--out", "run", "--set", "optimizer.rate=fast"],
        3,
        ("rate",),
    ),
]
