"""Minimal pairs by phenomenon: how often the good sentence has the higher pseudo-log-likelihood.

MinimalPairsPart(name="blimp", title="BLiMP", pairs="blimp.jsonl").measure(work)
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from larvatus.evaluation.compare.minimal_pairs import PairRun
from larvatus.evaluation.compare.pair_files import MinimalPair, read_pairs
from larvatus.evaluation.suite.figures import SuiteFigure
from larvatus.evaluation.suite.part import PartResult, PartRun, SuitePart
from larvatus.inference.vectors.fingerprints import settings_hash
from larvatus.metrics.accuracy import Accuracy

FIRST = 100
"""Pairs per set in a quick run."""
SET, PHENOMENON = "UID", "linguistics_term"


@dataclass(frozen=True, kw_only=True)
class MinimalPairsPart(SuitePart):
    minds: ClassVar = ("quick",)
    again: ClassVar = True
    pairs: str

    @property
    def files(self) -> tuple[str, ...]:
        return (self.pairs,)

    def measure(self, work: PartRun) -> PartResult:
        work.need_masked_head()
        pairs = read_pairs([str(work.data.path(self.pairs))])
        if work.settings.quick:
            pairs = first_of_each_set(pairs)
        total = len(pairs)
        out = work.folder / "scores.jsonl"
        parts = out.with_name(out.name + ".parts")
        with work.reporter.bar(words="scoring pairs", total=total, every_s=30, goes=True) as bar:
            run = PairRun(
                work.bundle.network,
                work.bundle.tokenizer,
                pairs,
                name=work.subject.label,
                progress=lambda done: bar.show(done, f"{done:,} of {total:,} pairs"),
            )
            identity = {"model": work.subject.contents, "tokenizer": settings_hash(work.bundle.tokenizer)}
            result = run.to_file(out, identity, resume=True, overwrite=not parts.exists())
        subset = f"first {FIRST} pairs of each set" if work.settings.quick else "all pairs"
        figures = [self._figure("", self.title, result.overall, subset)]
        figures += [
            self._figure(name, name.replace("_", " "), share, subset)
            for name, share in sorted(result.by.get(PHENOMENON, {}).items())
        ]
        by_set = {name: dataclasses.asdict(share) for name, share in result.by.get(SET, {}).items()}
        return PartResult(figures=figures, details={"ties": result.ties, "by_set": by_set})

    def _figure(self, phenomenon: str, name: str, share: Accuracy, subset: str) -> SuiteFigure:
        return SuiteFigure(
            id=f"{self.name}/{phenomenon}" if phenomenon else self.name,
            name=name,
            measure="accuracy",
            by="good sentence more likely than bad; pseudo-log-likelihood, ties wrong",
            value=share.share,
            low=share.low,
            high=share.high,
            examples=share.total,
            baselines={} if phenomenon else {"chance": 0.5},
            detail=bool(phenomenon),
            conditions=subset,
        )


def first_of_each_set(pairs: Sequence[MinimalPair], first: int = FIRST) -> list[MinimalPair]:
    """The first pairs of each set, in the order of the file."""
    seen: Counter[str] = Counter()
    chosen = []
    for pair in pairs:
        name = pair.groups.get(SET, "")
        seen[name] += 1
        if seen[name] <= first:
            chosen.append(pair)
    return chosen
