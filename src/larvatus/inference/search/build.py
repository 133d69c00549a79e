"""Build an index of passages, or bring one up to date: only new and changed text goes through the model.

    summary = build_passage_index(lv.load(), ["docs/"], Path("index"), IndexBuildOptions())
    summary.passages, summary.embedded, summary.reused

Text streams: a file is read, cut into passages and written to the new generation, and blocks of texts without a vector
go through the model and to the disk (`write.py`). Then the vectors are copied into the order of the passages,
and the manifest is replaced (`generation.py`). After a kill, or when the disk is full, the old index is whole, and the
same command resumes. Memory holds a block of text for each worker, and 24 bytes for each vector of the old index.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from larvatus.core import files
from larvatus.core.arrays import Bytes
from larvatus.core.checksummed import write_checksummed
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.regular_files import is_there
from larvatus.core.settings import Settings
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.corpus.sources import skip_reasons
from larvatus.data.text.documents import Document, ReadOptions, Skipped
from larvatus.data.text.readers import has_columns, read_documents
from larvatus.data.text.words import Mode
from larvatus.inference.model.encoder import EncoderModel
from larvatus.inference.search.generation import NAME, FileSum, Generation, IndexManifest, map_vectors, passage_texts
from larvatus.inference.search.lexical import WORDS, write_lexical
from larvatus.inference.search.nearest import NAME as GRAPH
from larvatus.inference.search.nearest import check_graph, write_graph
from larvatus.inference.search.sources import (
    PassageSettings,
    PlannedSource,
    SourcePlan,
    passage_spans,
    plan_sources,
    state_of,
)
from larvatus.inference.search.sparse_index import write_postings
from larvatus.inference.search.storage import Kind, RaggedRecords, VectorFormat, record_type, stored_kinds
from larvatus.inference.search.text_vectors import (
    StoredTexts,
    check_model,
    encode_passages,
    index_kind,
    index_size,
    model_name,
)
from larvatus.inference.search.write import (
    ComputedParts,
    PassageRow,
    PassageWriter,
    VectorCache,
    write_all_records,
    write_sources,
    write_vectors,
)
from larvatus.models.loaded import settings_hash
from larvatus.models.nn.device import explain_out_of_memory

CHARACTERS = 1 << 18
"""Characters of a block: what is lost at most by a kill, for each worker."""
COPIED = 4_096
"""Passages of an unchanged file that are looked up at once."""


class IndexContents(VectorFormat):
    """How vectors are stored, and what is written next to them."""

    bm25: bool = True
    """Also index words, for --hybrid and --bm25."""
    hnsw: bool = False
    """Also build a graph, for approximate search of millions of vectors; not the same each time (larvatus[index])."""

    @property
    def format(self) -> VectorFormat:
        return VectorFormat(dtype=self.dtype, rescore=self.rescore)


class IndexBuildOptions(Settings):
    """Settings that the index depends on, in addition to the model and the text."""

    reading: ReadOptions = ReadOptions(split="file")
    sentences: Mode = "library"
    language: str = "en"
    """Language of texts that do not name theirs, for sentence splitting."""
    passages: PassageSettings = PassageSettings()
    vectors: IndexContents = IndexContents()

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that decide which passages a file has."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # as a manifest gives it back
        del plain["vectors"]
        return plain


@dataclass(frozen=True)
class BuildRun:
    """How a build is executed; its result does not depend on it."""

    overwrite: bool = False
    """Replace an index of another model."""
    progress: Callable[[int], None] = lambda _: None
    """Called with the number of vectors that were computed."""
    executor: Executor = field(default_factory=LocalExecutor)
    skipped: Skipped = field(default_factory=Skipped)


class BuildSummary(Settings):
    """What a build found and did."""

    path: str
    model: str
    documents: int
    passages: int
    size: int
    """Dimensions of a vector."""
    embedded: int
    """Passages that the model read; equal ones are read once."""
    added: int
    """Files that are new …"""
    changed: int
    """… that have changed …"""
    removed: int
    """… that are gone or no longer named …"""
    unchanged: int
    """… and whose passages were copied."""
    skipped: dict[str, int]


def build_passage_index(
    model: EncoderModel, paths: Sequence[str], out: Path, options: IndexBuildOptions, run: BuildRun | None = None
) -> BuildSummary:
    """Write the index of all passages of all files, or the next generation of one that is there."""
    began, run = time.time_ns(), run or BuildRun()
    kind, size = index_kind(model), index_size(model)
    kinds = stored_kinds(kind, options.vectors.kinds)
    if options.vectors.hnsw and kind == "sparse":
        raise UsageError("an index of sparse vectors has postings and needs no graph; leave out --hnsw")
    if options.vectors.hnsw:
        check_graph(options.vectors.kinds)
    old = _old_generation(model, out, overwrite=run.overwrite)
    same_text = old is not None and old.manifest.reading == options.identity
    plan = plan_sources(paths, old, run.skipped)
    if old is not None and same_text and _has_same_files(old, options) and _is_current(plan, old):
        return _summary(old.manifest, out, plan, embedded=0, skipped=run.skipped)
    if not same_text:
        plan = replace(plan, sources=tuple(PlannedSource(source.file) for source in plan.sources))
    directory = out.with_name(out.name + ".parts")
    identity = {"model": model.vector_fingerprint, "tokenizer": settings_hash(model.tokenizer), "vectors": list(kinds)}
    parts = ComputedParts(directory, identity)
    with files.locked(directory), parts.removed_when_empty():
        before = parts.open(resume=True).vectors
        cache = VectorCache(old, parts, kinds, size)
        manifest = IndexManifest(
            model=model_name(model),
            fingerprint=model.vector_fingerprint,
            size=size,
            kind=kind,
            vectors=options.vectors.format,
            columns=options.reading.further_fields,
            reading=options.identity,
            base=os.getcwd(),
            generation=f"{1 + (int(old.manifest.generation) if old is not None else 0):05d}",
            built_ns=began,
            documents=0,
            passages=0,
            files={},
        )
        with _new_generation(out, manifest.generation) as aside:
            manifest = _write(aside, _Build(model, options, run, parts, cache, old), plan, manifest)
        write_checksummed(out / NAME, msgspec.to_builtins(manifest))
        embedded = parts.progress().vectors - before
        parts.remove()
    _remove_others(out, manifest.generation)
    return _summary(manifest, out, plan, embedded=embedded, skipped=run.skipped)


def _old_generation(model: EncoderModel, out: Path, *, overwrite: bool) -> Generation | None:
    """The index that is there; that of another model is refused."""
    if not os.path.lexists(out):
        return None
    if not is_there(out / NAME):
        left = [path.name for path in out.iterdir()] if out.is_dir() else [out.name]
        if not out.is_dir() or any(not name.isdigit() and not name.startswith(".") for name in left):
            raise ArtefactError(f"{out} is there already and is no index; choose another --out")
        return None
    if overwrite:
        return None
    old = Generation.open(out)
    check_model(old.manifest, model, out, way="name that model, choose another --out, or replace it with --overwrite")
    return old


def _is_current(plan: SourcePlan, old: Generation) -> bool:
    """Whether nothing is left to do: the same files in the same order."""
    if plan.added or plan.changed or plan.removed or len(plan.sources) != len(old.sources):
        return False
    return all(source.old == known for source, known in zip(plan.sources, old.sources, strict=True))


def _has_same_files(old: Generation, options: IndexBuildOptions) -> bool:
    """Whether the old generation has the vectors and structures that are requested."""
    wanted, files_there = options.vectors, old.manifest.files
    structures = (WORDS in files_there, GRAPH in files_there)
    return old.manifest.vectors == wanted.format and structures == (wanted.bm25, wanted.hnsw)


class _new_generation:
    """A folder of an index that appears whole; a first build that fails leaves no empty index behind."""

    def __init__(self, out: Path, name: str) -> None:
        self._out, self._folder = out, out / name

    def __enter__(self) -> Path:
        with files.saying_what_is_full(self._out):
            self._out.mkdir(parents=True, exist_ok=True)
        files.sweep(self._out)
        files.remove(self._folder)  # of a build that was killed before it could replace the manifest
        self._context = files.new_directory(self._folder)
        return self._context.__enter__()

    def __exit__(self, *fault: Any) -> bool | None:
        try:
            return self._context.__exit__(*fault)
        finally:
            if fault[0] is not None:
                with suppress(OSError):
                    self._out.rmdir()  # only where nothing is in it


def _remove_others(out: Path, generation: str) -> None:
    for path in out.iterdir():
        if path.name.isdigit() and path.name != generation:
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class _Build:
    """The parts of one build."""

    model: EncoderModel
    options: IndexBuildOptions
    run: BuildRun
    parts: ComputedParts
    cache: VectorCache
    old: Generation | None


def _write(aside: Path, build: _Build, plan: SourcePlan, manifest: IndexManifest) -> IndexManifest:
    """Write all files of a generation; returns the complete manifest."""
    with PassageWriter(aside, manifest.columns) as writer:
        _embed(build, _blocks(_write_passages(build, plan, writer), build.cache))
    if not writer.count:
        raise DataError(f"the files hold no text to index ({build.run.skipped}); name files with text")
    write_vectors(aside, build.cache, writer.count, manifest.stored, manifest.size)
    if (record := record_type(manifest.kind, manifest.size)) is not None:
        write_all_records(aside, build.cache, record.itemsize)
        if manifest.kind == "sparse":
            write_postings(aside, RaggedRecords.open(aside, record, writer.count), manifest.size)
    write_sources(aside, writer.sources)
    if build.options.vectors.bm25:
        write_lexical(aside, passage_texts(aside, manifest.columns))
    if build.options.vectors.hnsw:
        write_graph(aside, map_vectors(aside, manifest, writer.count))
    sums = {path.name: FileSum(bytes=path.stat().st_size, sha256=files.sha256(path)) for path in aside.iterdir()}
    documents = sum(source.documents for source in writer.sources)
    return msgspec.structs.replace(manifest, documents=documents, passages=writer.count, files=sums)


Keyed = tuple[Bytes, Callable[[int], str]]
"""Keys of some passages, and a function that gives the text of each by its place among them."""


def _write_passages(build: _Build, plan: SourcePlan, writer: PassageWriter) -> Iterator[Keyed]:
    """Write the passages of all sources in order, copied or cut; yields their keys and texts."""
    for source in plan.sources:
        if source.old is not None and build.old is not None:
            writer.copy(source.file, source.old, build.old)
            last = source.old.first + source.old.count
            for low in range(source.old.first, last, COPIED):
                yield build.old.keys[low : min(low + COPIED, last)], partial(_old_text, build.old, low)
            continue
        writer.begin(source.file)
        for number, document in enumerate(_documents(source, build)):
            rows = list(_passages(document, number, build.options))
            yield writer.add(rows), partial(_new_text, rows)


def _old_text(old: Generation, low: int, place: int) -> str:
    return str(old.passages["text"][low + place].as_py())


def _new_text(rows: Sequence[PassageRow], place: int) -> str:
    return rows[place].text


def _blocks(passages: Iterator[Keyed], cache: VectorCache) -> Iterator[_Block]:
    """Blocks of the texts that have no vector yet."""
    keys: list[Bytes] = []
    texts: list[str] = []
    size = 0
    for keys_NK, text_at in passages:
        for place in np.flatnonzero(cache.missing(keys_NK)).tolist():
            keys.append(keys_NK[place : place + 1])
            texts.append(text_at(place))
            size += len(texts[-1])
            if size >= CHARACTERS:
                yield _Block(np.concatenate(keys), texts)
                keys, texts, size = [], [], 0
    if texts:
        yield _Block(np.concatenate(keys), texts)


def _documents(source: PlannedSource, build: _Build) -> Iterator[Document]:
    """Documents of a file; one that changes meanwhile is refused, since its checksum would not be that of its text."""
    path, reading = source.file.path, build.options.reading
    if not has_columns(path):  # the column that was named is that of the tables next to it
        reading = msgspec.structs.replace(reading, text_field="text", exact=msgspec.UNSET)
    yield from read_documents([path], options=reading, skipped=build.run.skipped)
    if state_of(path) != (source.file.size, source.file.mtime_ns):
        raise DataError(f"{files.as_text(path)} changed while it was read; run the same command again")


def _passages(document: Document, number: int, options: IndexBuildOptions) -> Iterator[PassageRow]:
    text, line = document.text, document.line
    language = document.language or options.language
    breaks = not has_columns(document.source)  # line breaks of a record or a cell are not those of its file
    counted = 0
    for start, end in passage_spans(text, options.passages, language=language, mode=options.sentences):
        if breaks:
            line += text.count("\n", counted, start)
            counted = start
        first = document.start + start
        yield PassageRow(number, line, first, document.start + end, text[start:end], document.metadata)


@dataclass(frozen=True, eq=False)
class _Block:
    """Texts that a worker embeds."""

    keys: Bytes
    texts: list[str]


def _embed(build: _Build, blocks: Iterator[_Block]) -> None:
    """Compute the vectors of all blocks, each a part on the disk before the next result is taken."""
    state = partial(_Embedding, build.model, build.options.vectors.kinds)
    fix = "run the same command again: it continues from what was written"
    with build.run.executor.pool(state, _embed_block, what="an embedding worker", fix=fix) as pool:
        for keys, texts in pool.map(blocks):
            build.parts.add(keys, texts)
            build.run.progress(build.parts.progress().vectors)


@dataclass(frozen=True)
class _Embedding:
    """State of a worker."""

    model: EncoderModel
    kinds: tuple[Kind, ...]


def _embed_block(work: _Embedding, block: _Block) -> tuple[Bytes, StoredTexts]:
    with explain_out_of_memory("use a smaller --model; the same command resumes"):
        return block.keys, encode_passages(work.model, block.texts, work.kinds)


def _summary(manifest: IndexManifest, out: Path, plan: SourcePlan, *, embedded: int, skipped: Skipped) -> BuildSummary:
    return BuildSummary(
        path=str(out),
        model=manifest.model,
        documents=manifest.documents,
        passages=manifest.passages,
        size=manifest.size,
        embedded=embedded,
        added=plan.added,
        changed=plan.changed,
        removed=plan.removed,
        unchanged=plan.unchanged,
        skipped=skip_reasons(skipped),
    )
