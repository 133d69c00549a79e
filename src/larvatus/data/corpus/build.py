"""Build a corpus: documents → checksummed Arrow shards of token ids, on all cores, in bounded memory, resumable.

    build_corpus(["judgments/"], tokenizer, Path("corpus"))   # larvatus corpus build judgments/ --tokenizer …

The parent reads documents, cuts them into units of work (`sources.py`), has workers encode them (`encode.py`) and
writes the results in order, so the same text gives the same bytes whatever the number of workers. Killed, it resumes
after its last finished shard. A finished corpus of the same text and settings is left as it is; a directory that
holds anything else is refused, never overwritten.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import msgspec

from larvatus.core import files
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.regular_files import is_there, only_regular
from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.parts import ignoring_bad_rows
from larvatus.data.corpus.encode import EncodedUnit, UnitEncoder, encode_unit
from larvatus.data.corpus.format import (
    FORMAT,
    JOURNAL,
    MANIFEST,
    TOKENIZER,
    CorpusCounts,
    CorpusManifest,
    CorpusSettings,
    Journal,
    JournalEntry,
    ShardWriter,
    check_shards,
    check_tokenizer,
    read_manifest,
    schema,
    shard_fault,
    write_manifest,
)
from larvatus.data.corpus.hygiene.filtering import FILTER, FilterPlan, FirstPass, Hygiene
from larvatus.data.corpus.hygiene.shingles import Sketch
from larvatus.data.corpus.processes import Processes, check_count
from larvatus.data.corpus.sources import UNIT_CHARACTERS, SourceText, TextPiece, Unit, skip_reasons, units
from larvatus.data.text.languages import LanguageSource
from larvatus.data.text.readers import Document, ReadOptions
from larvatus.data.text.tokenizer import Tokenizer

OTHER_OUT = "choose another --out, or remove it"


def check_only_corpus_files(out: Path) -> None:
    """Never write among files that are not a corpus."""
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    if names and not names & {MANIFEST, JOURNAL, TOKENIZER}:
        raise ArtefactError(f"{out} holds other files ({sorted(names)[0]} …); choose another --out")


def keep_tokenizer(tokenizer: Tokenizer, out: Path, *, replace: bool) -> dict[str, str]:
    """Save the tokenizer with the shards, unless one is kept there; the checksums of the files of the given one."""
    kept, aside = out / TOKENIZER, out / f".{TOKENIZER}.tmp-{os.getpid()}"
    with files.saying_what_is_full(out):
        shutil.rmtree(aside, ignore_errors=True)
        tokenizer.save(aside)
        sums = {path.name: files.sha256(path) for path in sorted(aside.iterdir())}
        if replace:
            shutil.rmtree(kept, ignore_errors=True)
        if kept.exists():
            shutil.rmtree(aside)
        else:
            for path in (*aside.rglob("*"), aside):
                files.fsync(path)
            os.rename(aside, kept)
            files.fsync(out)
    return sums


def check_finished(
    out: Path, settings: CorpusSettings, text: SourceText, units: Callable[[], Iterator[Unit]]
) -> CorpusManifest:
    """The manifest of a corpus that holds just what would be built; any other is refused.

    The text is read again for that: an edit need not change the size of a file, nor its time.
    """
    manifest = read_manifest(out)
    refuse_other_settings(out, manifest.settings, settings, "holds a corpus built")
    *_, last = units()
    if last.text_sha256 != manifest.text_sha256:
        raise ArtefactError(f"{out} holds a corpus of other text than {text.names}; {OTHER_OUT}")
    check_tokenizer(out, manifest.settings)
    check_shards(out, manifest.shards)
    return manifest


def refuse_other_settings(out: Path, there: CorpusSettings, now: CorpusSettings, verb: str) -> None:
    for name in there.__struct_fields__:
        was, given = getattr(there, name), getattr(now, name)
        if was != given:
            said = "another tokenizer" if name in ("tokenizer", "vocabulary") else f"{name} {was!r}, now {given!r}"
            said = "other filters or canaries" if name == "hygiene" else said
            raise ArtefactError(f"{out} {verb} with other settings ({said}); {OTHER_OUT}")


def resume_shards(out: Path, journal: Journal, settings: CorpusSettings, notice: Callable[[str], None]) -> None:
    """Keep the undamaged shards of an interrupted build; a damaged one and what follows are built again."""
    if journal.header is not None and journal.entries:
        refuse_other_settings(out, journal.header.settings, settings, "holds an unfinished corpus begun")
        check_tokenizer(out, settings)
    for i, entry in enumerate(journal.entries):
        if (fault := shard_fault(out, entry.shard)) is not None:
            del journal.entries[i:]
            notice(f"{fault.split(';')[0]}; it and what follows are built again")
            break
    if journal.entries:
        notice(f"{out}: continuing after {len(journal.entries)} finished shards")


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    language: str = "en"
    """Language of documents for which none is given."""
    sentences: Literal["library", "newline"] = "library"
    """Split sentences by rule, or take each line as one."""
    reading: ReadOptions = field(default_factory=ReadOptions)
    sources: Sequence[LanguageSource] = ()
    """For the datasheet: where the documents come from, when they are not given as paths."""
    licence: str = ""
    """Licence of the text, as given; it goes into the datasheet."""
    workers: int | None = None
    """Processes that encode; all cores by default. The result does not depend on it."""
    executor: Executor | None = None
    """Who encodes, where it is not processes of this machine: a Ray cluster. The result does not depend on it."""
    hygiene: Hygiene = field(default_factory=Hygiene)
    """Filters, handling of personal data, and canaries; by default all text is used unchanged."""
    unit_characters: int = UNIT_CHARACTERS
    shard_bytes: int = 64 << 20
    checked: Callable[[int, int], None] = lambda documents, size: None
    """Called with documents and bytes that the first pass has seen, where there is one."""
    progress: Callable[[CorpusCounts], None] = lambda counts: None
    """Called with the counts so far, after every unit."""
    notice: Callable[[str], None] = lambda sentence: None
    """Callback for a sentence about what was found in the directory, if anything."""


@dataclass(frozen=True)
class CorpusSummary:
    path: Path
    counts: CorpusCounts
    languages: dict[str, CorpusCounts]
    skipped: dict[str, int]
    shards: int
    resumed: int  # shards that an earlier, interrupted build had finished
    unchanged: bool  # the corpus was there already, of the same text and settings


def build_corpus(
    documents: LanguageSource | Sequence[LanguageSource] | Iterable[Document],
    tokenizer: Tokenizer,
    out: Path,
    options: BuildOptions | None = None,
) -> CorpusSummary:
    """Build a corpus of paths, or of documents that the caller gives, in the directory `out`."""
    options = options or BuildOptions()
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"{options.workers} workers cannot build a corpus; give --workers 1 or more")
    check_count(options.workers or 0)
    text = SourceText.of(documents, options.reading, licence=options.licence, sources=options.sources)
    with files.locked(out):
        check_only_corpus_files(out)
        only_regular(out)
        files.sweep(out)
        journal = Journal(out)
        there = (out / MANIFEST).exists()
        nothing_stands = not there and not journal.entries
        kept = keep_tokenizer(tokenizer, out, replace=nothing_stands)
        plan = _plan(documents, out, options, nothing_stands=nothing_stands)

        def stream(sketch: Sketch | None = None) -> Iterator[Unit]:
            given = text.read() if plan is None else plan.documents(text.read())
            given = given if plan is None or sketch is None else plan.sketched(given, sketch)
            return units(given, language=options.language, size=options.unit_characters)

        settings = CorpusSettings(
            tokenizer=kept,
            vocabulary=tokenizer.size,
            language=options.language,
            sentences=options.sentences,
            reading=msgspec.to_builtins(options.reading),
            unit_characters=options.unit_characters,
            shard_bytes=options.shard_bytes,
            hygiene=msgspec.UNSET if plan is None else plan.identity(),
        )
        if there:
            manifest = check_finished(out, settings, text, stream)
            return _summary(out, manifest, resumed=len(manifest.shards), unchanged=True)
        resume_shards(out, journal, settings, options.notice)
        journal.begin(settings)
        resumed = len(journal.entries)
        sketch = plan.begin_sketch() if plan is not None else None
        try:
            build = _Build(out, settings, journal, options)
            build.run(stream(sketch), text, tokenizer)
            manifest = build.finish(text, plan, sketch)
        finally:
            if sketch is not None:
                sketch.abandon()
        return _summary(out, manifest, resumed=resumed, unchanged=False)


def _plan(
    documents: LanguageSource | Sequence[LanguageSource] | Iterable[Document],
    out: Path,
    options: BuildOptions,
    *,
    nothing_stands: bool,
) -> FilterPlan | None:
    """Decision for each document, if anything is filtered or planted; reads the text once."""
    if not options.hygiene.asked:
        return None
    if isinstance(documents, Iterator) or "-" in ([documents] if isinstance(documents, LanguageSource) else documents):
        raise UsageError("filters and canaries read the text twice; give files in place of a stream")
    if not (nothing_stands or is_there(out / FILTER)):  # before the first pass, not after it
        raise ArtefactError(f"{out} holds a corpus built with other settings (no filters or canaries); {OTHER_OUT}")
    text = SourceText.of(documents, options.reading)  # by itself: what it skips is counted when it is read again
    first = FirstPass(
        language=options.language,
        lines=options.sentences == "newline",
        workers=options.workers or len(os.sched_getaffinity(0)),
        block_characters=options.unit_characters,
        executor=options.executor,
        progress=options.checked,
    )
    with ignoring_bad_rows():
        return first.plan(text.read, options.hygiene, out)


def _summary(out: Path, manifest: CorpusManifest, *, resumed: int, unchanged: bool) -> CorpusSummary:
    m = manifest
    return CorpusSummary(out, m.counts, m.languages, m.skipped, len(m.shards), resumed=resumed, unchanged=unchanged)


class _Build:
    """A build under way: its state changes as units come back from the workers."""

    def __init__(self, out: Path, settings: CorpusSettings, journal: Journal, options: BuildOptions) -> None:
        self._out, self._settings, self._journal, self._options = out, settings, journal, options
        self._schema = schema(settings.vocabulary)
        last = journal.entries[-1] if journal.entries else None
        self._languages: dict[str, CorpusCounts] = dict(last.languages) if last else {}
        self._last_document = last.last_document if last else -1
        self._sent: deque[tuple[int, str]] = deque()  # number of each unit under way, checksum of the stream after it
        self._done = (-1, "")  # the same of the last unit taken
        self._end = Unit(-1, [], 0, 0, "")  # the last unit read
        self._writer: ShardWriter | None = None

    def run(self, stream: Iterator[Unit], text: SourceText, tokenizer: Tokenizer) -> None:
        self._skip_what_stands(stream, text)
        head = list(islice(stream, 2))
        given = self._options.workers or len(os.sched_getaffinity(0))
        cores = Processes(given if len(head) == 2 else 0)  # one unit needs no process
        executor = self._options.executor or cores

        def prepared() -> UnitEncoder:
            return UnitEncoder.of(tokenizer, self._options.sentences)

        what, fix = "a corpus worker", "run the same command again: it continues after the last finished shard"
        try:
            with executor.pool(prepared, encode_unit, what=what, fix=fix) as pool:
                for encoded in pool.map(self._tasks(chain(head, stream))):
                    self._take(encoded)
            self._finish_shard()
        finally:
            if self._writer is not None:
                self._writer.abandon()

    def _skip_what_stands(self, stream: Iterator[Unit], text: SourceText) -> None:
        """Read past the text of the finished shards, and make sure that it is still the same."""
        if not self._journal.entries:
            return
        entry = self._journal.entries[-1]
        for unit in islice(stream, entry.units):
            self._end = unit
        if (self._end.number, self._end.text_sha256) != (entry.units - 1, entry.text_sha256):
            raise ArtefactError(f"{self._out} holds an unfinished corpus of other text than {text.names}; {OTHER_OUT}")

    def _tasks(self, stream: Iterable[Unit]) -> Iterator[list[TextPiece]]:
        for unit in stream:
            self._end = unit
            self._sent.append((unit.number, unit.text_sha256))
            yield unit.pieces

    def _take(self, encoded: EncodedUnit) -> None:
        """Count and write what came back for the oldest unit under way, and close the shard when it is full."""
        for language, counts in encoded.languages.items():
            self._languages[language] = self._languages.get(language, CorpusCounts()).plus(counts)
        if encoded.first is not None and encoded.last is not None:
            number, language = encoded.first
            if number == self._last_document:  # it began in the unit before, and was counted there
                counted = self._languages[language]
                self._languages[language] = msgspec.structs.replace(counted, documents=counted.documents - 1)
            self._last_document = encoded.last
        if encoded.batches:
            if self._writer is None:
                self._writer = ShardWriter(self._out, len(self._journal.entries), self._schema)
            self._writer.write(encoded.batches, encoded.chunks)
        self._done = self._sent.popleft()
        if self._writer is not None and self._writer.size >= self._options.shard_bytes:
            self._finish_shard()
        self._options.progress(_total(self._languages))

    def _finish_shard(self) -> None:
        if self._writer is None:
            return
        shard, self._writer = self._writer.finish(), None
        number, checksum = self._done
        entry = JournalEntry(
            shard=shard,
            units=number + 1,
            languages=dict(self._languages),
            last_document=self._last_document,
            text_sha256=checksum,
        )
        self._journal.append(entry)

    def finish(self, text: SourceText, plan: FilterPlan | None, sketch: Sketch | None) -> CorpusManifest:
        total = _total(self._languages)
        skipped = skip_reasons(text.skipped) | (plan.skipped() if plan is not None else {})
        for reason, count in (("blank", self._end.blank), ("no tokens", self._end.documents - total.documents)):
            if count:
                skipped[reason] = skipped.get(reason, 0) + count
        if not total.tokens:
            why = ", ".join(f"{n:,} {reason}" for reason, n in skipped.items()) or "no documents"
            raise DataError(f"no text in {text.names} ({why}); give files that hold some")
        manifest = CorpusManifest(
            format=FORMAT,
            counts=total,
            languages=dict(sorted(self._languages.items())),
            skipped=dict(sorted(skipped.items())),
            sources=text.sources,
            settings=self._settings,
            text_sha256=self._end.text_sha256,
            shards=tuple(entry.shard for entry in self._journal.entries),
            hygiene=msgspec.UNSET if plan is None else plan.finish(sketch),
        )
        names = {shard.file for shard in manifest.shards}
        for path in self._out.glob("*.arrow"):
            if path.name not in names:
                path.unlink()  # finished by a killed build that could not note it
        write_manifest(self._out, manifest)
        return manifest


def _total(languages: dict[str, CorpusCounts]) -> CorpusCounts:
    total = CorpusCounts()
    for counts in languages.values():
        total = total.plus(counts)
    return total
