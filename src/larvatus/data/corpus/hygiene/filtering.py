"""What a build filters from its text and plants in it: decided in a first pass, kept with the shards, then applied.

    corpus/filter.json      settings, counts, checksums of the text that was judged and of the verdicts
    corpus/verdicts.bin     a byte for each document: 0 stays, n is left out for reason n − 1
    corpus/filter.parts/    a first pass under way
    corpus/sketch.bloom     which runs of words the corpus holds (`shingles.py`)
    corpus/canaries.json    what was planted (`data/corpus/canaries.py`)

The second pass, which encodes, reads the same text and applies the verdicts; text that changed meanwhile is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from larvatus.core.arrays import Bytes
from larvatus.core.checksummed import check_file, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError
from larvatus.core.files import new_file, sha256
from larvatus.core.regular_files import is_there, read_bytes
from larvatus.core.settings import Settings
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.corpus.canaries import Canaries, Planting, write_canaries
from larvatus.data.corpus.hygiene.first_pass import (
    BLOCK_CHARACTERS,
    MeasuringPass,
    PassProgress,
    TextChecksum,
    judge_documents,
)
from larvatus.data.corpus.hygiene.measure import DocumentMeasures
from larvatus.data.corpus.hygiene.personal import KINDS, Handling, handle_personal
from larvatus.data.corpus.hygiene.settings import REASONS, HygieneSettings
from larvatus.data.corpus.hygiene.shingles import SKETCH, Sketch
from larvatus.data.text.documents import Document

FILTER, VERDICTS, PARTS = "filter.json", "verdicts.bin", "filter.parts"
REASON_TEXTS = {
    "exact": "exact duplicates",
    "near": "near duplicates",
    "overlap": "that share words with an evaluation set",
    "language": "in another language than stated",
    "words": "with too many listed words",
    "length": "too short or too long",
    "characters": "with too few letters",
    "encoding": "with damaged characters",
}
"""Descriptions of skipped documents, shown after their number."""


@dataclass(frozen=True)
class Hygiene:
    """What a build filters and plants."""

    settings: HygieneSettings = field(default_factory=HygieneSettings)
    canaries: Canaries | None = None

    @property
    def asked(self) -> bool:
        """Whether there is anything to do."""
        settings = self.settings
        return bool(settings.filter or settings.personal or settings.sketch or self.canaries)

    def identity(self, language: str) -> dict[str, Any]:
        """All that decides the result, apart from the text."""
        all_of_it = {"settings": self.settings.identity(), "canaries": self.canaries, "language": language}
        identity: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(all_of_it))  # as a file gives it back
        return identity


class FilterRecord(Settings):
    """What `filter.json` holds."""

    identity: dict[str, Any]
    text_sha256: str
    """Checksum of all documents, before any was filtered."""
    verdicts_sha256: str
    documents: int
    left_out: dict[str, int]
    """By reason."""
    personal: dict[str, int]
    """In the documents that stay, by kind; empty where nobody looked."""
    grams: int
    """Runs of words in the documents that stay, for the sketch."""

    @property
    def kept(self) -> int:
        return self.documents - sum(self.left_out.values())


@dataclass(frozen=True)
class FilterPlan:
    """Decision for each document."""

    noted: FilterRecord
    verdicts: Bytes
    hygiene: Hygiene
    lines: bool
    """Whether each line is a sentence."""
    out: Path

    def documents(self, documents: Iterable[Document]) -> Iterable[Document]:
        """Those that stay, without personal data where requested, some with canaries."""
        kept = self._kept(documents)
        canaries = self.hygiene.canaries
        return kept if canaries is None else Planting(canaries, self.noted.kept, lines=self.lines).plant(kept)

    def _kept(self, documents: Iterable[Document]) -> Iterator[Document]:
        stream, number = TextChecksum(), -1
        handling = self.hygiene.settings.personal or "count"
        for number, document in enumerate(documents):
            stream.add(document)
            if number >= len(self.verdicts):
                break
            if not self.verdicts[number]:
                yield document if handling == "count" else self._handled(document, handling)
        if number + 1 != len(self.verdicts) or stream.hexdigest() != self.noted.text_sha256:
            raise ArtefactError(f"{self.out} was begun with other text than there is now; remove it to start again")

    def _handled(self, document: Document, handling: Handling) -> Document:
        return replace(document, text=handle_personal(document.text, handling, self.hygiene.settings.regions))

    def sketched(self, documents: Iterable[Document], sketch: Sketch) -> Iterator[Document]:
        """The same documents; their words go into the sketch as they pass."""
        waiting: list[str] = []
        characters = 0
        for document in documents:
            waiting.append(document.text)
            characters += len(document.text)
            if characters >= BLOCK_CHARACTERS:
                sketch.add(waiting)
                waiting, characters = [], 0
            yield document
        sketch.add(waiting)

    def begin_sketch(self) -> Sketch | None:
        """For as many runs as there can be, canaries included."""
        if not self.hygiene.settings.sketch:
            return None
        planted = 0 if self.hygiene.canaries is None else 32 * self.hygiene.canaries.planted
        return Sketch.begin(self.out / SKETCH, self.noted.grams + planted)

    def identity(self) -> dict[str, Any]:
        """For the settings of the corpus."""
        return {**self.noted.identity, "verdicts_sha256": self.noted.verdicts_sha256}

    def skipped(self) -> dict[str, int]:
        """Documents that were left out, by the reason in words."""
        return {REASON_TEXTS[reason]: count for reason, count in self.noted.left_out.items()}

    def finish(self, sketch: Sketch | None) -> dict[str, Any]:
        """Write the files next to the shards, and return the entry of the manifest."""
        handling, canaries = self.hygiene.settings.personal, self.hygiene.canaries
        if canaries is not None:
            write_canaries(self.out, canaries)
        said: dict[str, Any] = {"documents": self.noted.documents, "left_out": self.noted.left_out}
        if handling is not None:
            said["personal"] = {"handling": handling, "counts": self.noted.personal}
        if canaries is not None:
            said["canaries"] = {"drawn": len(canaries.canaries), "planted": canaries.planted}
        return said | ({} if sketch is None else {"sketch_sha256": sketch.finish()})


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """How the first pass of a build is carried out."""

    language: str
    lines: bool
    workers: int
    block_characters: int = BLOCK_CHARACTERS
    executor: Executor | None = None
    progress: Callable[[int, int], None] = lambda documents, size: None

    def plan(self, documents: Callable[[], Iterable[Document]], hygiene: Hygiene, out: Path) -> FilterPlan:
        """Decision for each document: from an earlier call, or computed now. A killed pass resumes."""
        identity = hygiene.identity(self.language)
        if is_there(out / FILTER):
            noted = _read(out)
            if noted.identity != identity:
                raise ArtefactError(f"{out} holds a corpus filtered otherwise; choose another --out, or remove it")
        else:
            noted = self._judged(documents(), hygiene, out)
        verdicts = np.frombuffer(read_bytes(out / VERDICTS, most=noted.documents), np.uint8)
        return FilterPlan(noted, verdicts, hygiene, self.lines, out)

    def _judged(self, documents: Iterable[Document], hygiene: Hygiene, out: Path) -> FilterRecord:
        identity, settings = hygiene.identity(self.language), hygiene.settings
        measures = DocumentMeasures.of(settings, language=self.language, everything=False)
        folder = PartsFolder(out / PARTS, {"identity": identity}, kind=PassProgress, suffix=".npy")
        (out / PARTS).mkdir(exist_ok=True)
        run = MeasuringPass(
            measures,
            folder,
            executor=self.executor,
            workers=self.workers,
            block_characters=self.block_characters,
            progress=self.progress,
        )
        measured = run.run(documents, resume=True)
        judged = judge_documents(measured, settings, measures)
        stays = judged.verdicts == 0
        counts = np.bincount(judged.verdicts, minlength=len(REASONS) + 1).tolist()[1:]
        personal = measured.column("personal")[stays].sum(axis=0).tolist() if measures.personal else []
        with new_file(out / VERDICTS, len(judged.verdicts)) as aside:
            aside.write_bytes(judged.verdicts.tobytes())
        noted = FilterRecord(
            identity=identity,
            text_sha256=measured.text_sha256,
            verdicts_sha256=sha256(out / VERDICTS),
            documents=len(measured),
            left_out={reason: count for reason, count in zip(REASONS, counts, strict=True) if count},
            personal={kind: count for kind, count in zip(KINDS, personal, strict=False) if count},
            grams=int(measured.column("grams")[stays].sum()),
        )
        write_checksummed(out / FILTER, msgspec.to_builtins(noted))
        folder.remove()
        return noted


def _read(out: Path) -> FilterRecord:
    way = f"remove {out} to start again"
    try:
        noted = msgspec.convert(read_checksummed(out / FILTER, way=way), FilterRecord)
    except msgspec.ValidationError as fault:
        raise ArtefactError(f"{out / FILTER} is of another version ({fault}); {way}") from fault
    check_file(out / VERDICTS, noted.verdicts_sha256, way=way)
    return noted
