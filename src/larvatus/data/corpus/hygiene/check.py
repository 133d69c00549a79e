"""Checks a corpus before it is built: duplicates, personal data and other faults, with examples; and contamination.

check = CorpusChecker(settings=settings, language="en", workers=2)(read)
check.reasons["near"].documents, check.personal["email"].places, check.sets[0].share

for shared in contamination(Path("corpus"), ["test.jsonl"], words=13):     # of a built corpus, by its sketch
    print(shared.name, shared.shared, shared.judged)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from larvatus.core.arrays import Bools, Ints
from larvatus.core.checksummed import check_file
from larvatus.core.errors import DataError, UsageError
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.corpus.format import read_manifest
from larvatus.data.corpus.hygiene.filtering import REASON_TEXTS
from larvatus.data.corpus.hygiene.first_pass import (
    DocumentMeasurements,
    FilterVerdicts,
    MeasuringPass,
    PassProgress,
    judge_documents,
)
from larvatus.data.corpus.hygiene.measure import DocumentMeasures
from larvatus.data.corpus.hygiene.overlap import EvaluationSet, EvaluationSets
from larvatus.data.corpus.hygiene.personal import KINDS, find_personal, tag_personal
from larvatus.data.corpus.hygiene.settings import HygieneSettings
from larvatus.data.corpus.hygiene.shingles import SKETCH, WORDS, Sketch
from larvatus.data.text.documents import Document

SIMILARITIES = (0.9, 0.7, 0.5)
"""Similarities at which near duplicates are counted, in addition to the one that was set."""
EXAMPLES = 5
"""Example documents for each reason."""
SHOWN = 200
"""Characters of an example."""


@dataclass(frozen=True)
class Example:
    place: str
    text: str
    repeats: str = ""
    """Place of the document that it repeats."""


@dataclass(frozen=True)
class Reason:
    """Documents that a reason holds for."""

    documents: int
    words: int
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class PersonalCount:
    places: int
    documents: int
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class SharedSet:
    """What an evaluation set shares with a corpus."""

    name: str
    examples: int
    judged: int
    """Examples with enough words to be judged."""
    shared: int
    """Examples that have a run of words in common with the corpus."""
    mostly: int
    """Examples of which at least half of the runs are in the corpus."""
    words: int
    """Words of a run."""
    texts: tuple[str, ...] = ()
    """The beginning of some of those."""

    @property
    def share(self) -> float:
        return self.shared / max(1, self.judged)

    @classmethod
    def of(cls, data: EvaluationSet, hits: Ints, counts: Ints, words: int) -> SharedSet:
        """`hits` and `counts`: runs that are in the corpus, and all runs, of each example."""
        chosen = np.flatnonzero(hits)[:EXAMPLES].tolist()
        return cls(
            name=data.name,
            examples=data.examples,
            judged=int((counts > 0).sum()),
            shared=int((hits > 0).sum()),
            mostly=int(((hits > 0) & (2 * hits >= counts)).sum()),
            words=words,
            texts=tuple(data.texts[number] for number in chosen),
        )


@dataclass(frozen=True, kw_only=True)
class CorpusCheck:
    documents: int
    words: int
    bytes: int
    reasons: dict[str, Reason]
    near: dict[str, int]
    """Near duplicates with at least so much in common with the document that they repeat."""
    left_out: int
    """Documents that a filter with these settings would leave out."""
    languages: dict[str, int]
    """Documents by the language that was identified; "not judged" are too short, or in a language unknown to it."""
    personal: dict[str, PersonalCount]
    lengths: dict[str, float]
    """Words of a document: quantiles, and how many are outliers (Tukey's fences of their logarithm)."""
    letters: dict[str, float]
    """The same of the share of letters and digits among the visible characters."""
    sets: tuple[SharedSet, ...]

    def to_dict(self) -> dict[str, Any]:
        shared = [{**asdict(each), "share": each.share} for each in self.sets]
        return {**asdict(self), "sets": shared}


@dataclass(frozen=True, kw_only=True)
class CorpusChecker:
    """How a check is carried out."""

    settings: HygieneSettings
    language: str
    workers: int = 1
    executor: Executor | None = None
    progress: Callable[[int, int], None] = lambda documents, size: None

    def __call__(self, read: Callable[[], Iterable[Document]]) -> CorpusCheck:
        """The text is read twice: to measure it, and to fetch examples."""
        measures = DocumentMeasures.of(self.settings, language=self.language, everything=True)
        with tempfile.TemporaryDirectory(prefix="larvatus-") as folder:
            parts = PartsFolder(Path(folder), {}, kind=PassProgress, suffix=".npy")
            run = MeasuringPass(measures, parts, executor=self.executor, workers=self.workers, progress=self.progress)
            measured = run.run(read(), resume=False)
            if not len(measured):
                raise DataError("there is no text to check; give files that hold some")
            judged = judge_documents(measured, self.settings, measures)
            return self._told(measured, judged, measures, read)

    def _told(
        self,
        measured: DocumentMeasurements,
        judged: FilterVerdicts,
        measures: DocumentMeasures,
        read: Callable[[], Iterable[Document]],
    ) -> CorpusCheck:
        words, personal = measured.column("words"), measured.column("personal")
        flags = {f"reason {name}": flag for name, flag in judged.flags.items()}
        flags |= {f"personal {kind}": personal[:, number] > 0 for number, kind in enumerate(KINDS)}
        examples = _examples(flags, judged.first, read(), self.settings.regions)
        identified, counts = np.unique(measured.column("language"), return_counts=True)
        codes = [code.decode() or "not judged" for code in identified.tolist()]
        order = np.argsort(-counts, kind="stable").tolist()
        return CorpusCheck(
            documents=len(measured),
            words=int(words.sum()),
            bytes=int(measured.column("bytes").sum()),
            reasons={
                name: Reason(int(flag.sum()), int(words[flag].sum()), examples[f"reason {name}"])
                for name, flag in judged.flags.items()
            },
            near=_by_similarity(measured, judged, self.settings.near),
            left_out=int((judged.verdicts > 0).sum()) if self.settings.filter else _any(judged),
            languages={codes[number]: int(counts[number]) for number in order},
            personal={
                kind: PersonalCount(int(column.sum()), int((column > 0).sum()), examples[f"personal {kind}"])
                for kind, column in zip(KINDS, personal.T, strict=True)
            },
            lengths=_quantiles(words, logarithm=True),
            letters=_quantiles(measured.column("letters"), logarithm=False),
            sets=tuple(_shared(measures.sets, measured.hits, self.settings.overlap_words)),
        )


def _any(judged: FilterVerdicts) -> int:
    return int(np.logical_or.reduce(list(judged.flags.values())).sum())


def _by_similarity(measured: DocumentMeasurements, judged: FilterVerdicts, threshold: float) -> dict[str, int]:
    later = np.flatnonzero(judged.flags["near"])
    alike = (measured.rows(later) == measured.rows(judged.first[later])).mean(axis=1) if len(later) else np.empty(0)
    levels = [level for level in SIMILARITIES if level > threshold] + [threshold]
    return {f"{level:g}": int((alike >= level).sum()) for level in levels}


def _quantiles(values: Any, *, logarithm: bool) -> dict[str, float]:
    """Least, 5%, half, 95%, most; outliers lie 1.5 times the middle half's width beyond it (Tukey 1977)."""
    points = {"least": 0.0, "5%": 0.05, "half": 0.5, "95%": 0.95, "most": 1.0}
    told = {name: float(np.quantile(values, share)) for name, share in points.items()}
    scale = np.log1p(values) if logarithm else np.asarray(values, np.float64)
    low, high = np.quantile(scale, [0.25, 0.75])
    reach = 1.5 * (high - low)
    return {**told, "outliers": float(((scale < low - reach) | (scale > high + reach)).sum())}


def _shared(sets: EvaluationSets, hits: Bools, words: int) -> Iterator[SharedSet]:
    for data in sets.sets:
        is_hit = hits[np.searchsorted(sets.grams, data.grams)]
        yield SharedSet.of(data, data.hits(is_hit), data.counts, words)


def _examples(
    flags: dict[str, Bools], first: Ints, documents: Iterable[Document], regions: Sequence[str]
) -> dict[str, tuple[Example, ...]]:
    """The first documents of each kind, with what they repeat; the text is read up to the last of them."""
    chosen = {name: np.flatnonzero(flag)[:EXAMPLES].tolist() for name, flag in flags.items()}
    repeated = {number: int(first[number]) for numbers in chosen.values() for number in numbers if first[number] >= 0}
    wanted = {number for numbers in chosen.values() for number in numbers} | set(repeated.values())
    fetched: dict[int, Document] = {}
    for number, document in enumerate(documents if wanted else ()):
        if number in wanted:
            fetched[number] = document
            if len(fetched) == len(wanted):
                break

    def example(name: str, number: int) -> Example:
        document = fetched[number]
        kind = name.removeprefix("personal ") if name.startswith("personal ") else None
        text = (
            tag_personal(document.text[: 2 * SHOWN], regions) if kind is None else _around(document.text, kind, regions)
        )
        earlier = fetched.get(repeated.get(number, -1)) if name in ("reason exact", "reason near") else None
        return Example(_place(document), text[:SHOWN], "" if earlier is None else _place(earlier))

    return {name: tuple(example(name, number) for number in numbers) for name, numbers in chosen.items()}


def _around(text: str, kind: str, regions: Sequence[str]) -> str:
    """Text around the first place of a kind; the personal data itself is never shown."""
    place = next(place for place in find_personal(text, regions) if place.kind == kind)
    before, after = text[max(0, place.start - 80) : place.start], text[place.end : place.end + 80]
    return f"{tag_personal(before, regions)}<{kind}>{tag_personal(after, regions)}"


def _place(document: Document) -> str:
    return f"{document.source}:{document.line}"


def describe_reason(reason: str) -> str:
    return f"documents {REASON_TEXTS[reason]}" if reason not in ("exact", "near") else REASON_TEXTS[reason]


def contamination(corpus: Path, paths: Sequence[str], *, words: int) -> list[SharedSet]:
    """Count, for each set, the examples that share a run of `words` words with the corpus."""
    if not paths:
        raise UsageError("no evaluation set was named; give its file")
    if words < WORDS:
        raise UsageError(f"the sketch of a corpus has runs of {WORDS} words; ask for {WORDS} or more, not {words}")
    hygiene = read_manifest(corpus).hygiene
    sketch = Sketch.open(corpus / SKETCH)
    said = None if hygiene is msgspec.UNSET else hygiene.get("sketch_sha256")
    if not isinstance(said, str):
        raise DataError(f"{corpus / SKETCH} is not of this corpus; build it again with --sketch")
    check_file(corpus / SKETCH, said, DataError, way="build the corpus again")
    shared = []
    for path in paths:
        data = EvaluationSet.read(path, n=WORDS)
        known, counts = sketch.holds_runs(data.grams, data.counts_of_texts, words)
        runs = replace(data, counts_of_texts=counts)
        if not counts.sum():
            raise DataError(f"{path}: no text of it has {words} words; give its texts, or ask for fewer words")
        shared.append(SharedSet.of(runs, runs.hits(known), runs.counts, words))
    return shared
