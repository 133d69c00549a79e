"""Vectors of a corpus that need not fit into memory: from files of text to one file of vectors.

    embed_files(lv.load("runs/mine"), ["texts/"], Path("vectors.parquet"), BulkOptions(…))

Text streams through the model in blocks of some hundred thousand characters. Blocks depend only on the text, so a run
that was killed and resumed computes the same batches and ends with the same file, and so does a run on a Ray cluster.
Memory holds one block for each worker (or one document, if its words or tokens are embedded and it is longer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from larvatus.core import files
from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Settings
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.bulk.parts import compute_good_rows, skip_row, skips_bad_rows
from larvatus.data.corpus.sources import fingerprint, skip_reasons
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.data.text.readers import ReadOptions, Skipped, read_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import Mode, sentence_spans
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.inference.vectors.parts import BulkProgress, Number, VectorParts, assemble, check_format, rows, schema
from larvatus.inference.vectors.passages import LocatedText, blocks, breaks_lines
from larvatus.inference.vectors.plan import read_marks
from larvatus.inference.vectors.pooling import EmbedOptions, vector_encoder, vector_head, vector_identity, vector_size
from larvatus.inference.vectors.vectors import Vectors, embed_texts
from larvatus.models.loaded import LoadedModel, settings_hash
from larvatus.models.nn.device import explain_out_of_memory

CHARACTERS = 1 << 18
"""Characters of a block, and so of a part: about 50,000 words."""


class BulkOptions(Settings):
    embed: EmbedOptions = EmbedOptions()
    reading: ReadOptions = ReadOptions()
    sentences: Mode = "library"
    """Sentence splitter for unit "sentence"; each sentence is read by itself."""
    language: str = "en"
    """Language of texts that do not name theirs, for sentence splitting."""
    number: Number = "float32"
    """Type of the numbers in the file."""


@dataclass(frozen=True)
class BulkRun:
    """How a run is executed; its output does not depend on it."""

    resume: bool = False
    overwrite: bool = False
    progress: Callable[[BulkProgress], None] = lambda _: None
    executor: Executor = field(default_factory=LocalExecutor)


class BulkSummary(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    counts: BulkProgress = msgspec.field(name="stand")
    size: int
    """Size of a vector."""
    resumed: int
    """Units that an interrupted run had already written."""
    skipped: dict[str, int]


def embed_files(
    model: LoadedModel, paths: Sequence[str], out: Path, options: BulkOptions, run: BulkRun = BulkRun()
) -> BulkSummary:
    """Write the vectors of all units of all files."""
    encoder, tokenizer, size = model.encoder, model.tokenizer, vector_size(model, options.embed)
    check_format(out)
    if LayerWeights.read(options.embed.layers, layers=encoder.depth).stacked:
        raise UsageError("a file holds one vector per unit, and layers = all gives several; name one layer or a mix")
    directory = out.with_name(out.name + ".parts")
    resume, overwrite = run.resume, run.overwrite
    ended = resume and not overwrite and directory.exists() and out.exists()  # killed between its last two steps
    check_outputs(out, overwrite=overwrite or ended)
    inputs = fingerprint(paths)
    if inputs is None and resume:
        raise UsageError("only local files and addresses can be resumed: standard input cannot be read again")
    parts = VectorParts(
        directory,
        _settings(options, vector_identity(model, options.embed), inputs) | {"tokenizer": settings_hash(tokenizer)},
    )
    with files.locked(directory), parts.removed_when_empty():
        if ended:
            counts = parts.removed()
            return BulkSummary(path=str(out), counts=counts, size=size, resumed=counts.units, skipped={})
        begun, skipped = parts.open(resume=resume), Skipped()
        pieces = islice(_pieces(paths, options, skipped), begun.pieces, None)
        counts = _write_parts(parts, model, _warned(blocks(pieces, CHARACTERS), tokenizer), options, run)
        for line in parts.faults():
            skip_row(line)
        if not counts.pieces:
            raise DataError(f"no text to embed in {', '.join(paths[:3])} ({skipped}); name files with text")
        assemble(parts, out, schema(size, options.number), counts.units)
        parts.remove()
    return BulkSummary(path=str(out), counts=counts, size=size, resumed=begun.units, skipped=skip_reasons(skipped))


def _write_parts(
    parts: VectorParts, model: LoadedModel, blocks: Iterator[list[LocatedText]], options: BulkOptions, run: BulkRun
) -> BulkProgress:
    """Embed the blocks and write each as a part; returns the totals."""
    counts = parts.progress()
    state = partial(_Embedding, model, options.embed, options.number, aside=skips_bad_rows())
    fix = "run the same command with --resume: it continues from what was written"
    with run.executor.pool(state, embed_block, what="an embedding worker", fix=fix) as pool:
        for block in pool.map(blocks):
            counts = _after(counts, block.added)
            parts.add(block.rows, counts, block.faults)
            run.progress(counts)
    return counts


@dataclass(frozen=True)
class _Embedding:
    """State of a worker."""

    model: LoadedModel
    options: EmbedOptions
    number: Number
    aside: bool
    """Whether texts that cannot be embedded are skipped."""


@dataclass(frozen=True)
class EmbeddedBlock:
    """The vectors of a block, and what it adds to the totals."""

    rows: Any
    added: BulkProgress
    faults: list[str]


def embed_block(work: _Embedding, block: list[LocatedText]) -> EmbeddedBlock:
    """Embed a block; runs in a worker."""
    encoder, head = vector_encoder(work.model, work.options), vector_head(work.model, work.options)

    def embed(pieces: list[LocatedText]) -> list[Vectors]:
        with explain_out_of_memory("use a smaller --model or one layer; --resume continues from here"):
            texts = [piece.text for piece in pieces]
            return list(embed_texts(encoder, work.model.tokenizer, texts, work.options, head=head))

    good, faults = block, list[str]()
    if work.aside:
        good, embedded, faults = compute_good_rows(embed, block, lambda piece: f"{piece.source}:{piece.line}")
    else:
        embedded = embed(block)
    added = BulkProgress(
        pieces=len(block),
        documents=block[-1].document + 1,
        units=sum(map(len, embedded)),
        missing=sum(len(vectors.missing) for vectors in embedded),
        tokens=sum(vectors.tokens for vectors in embedded),
        windows=sum(vectors.windows for vectors in embedded),
    )
    kind = schema(vector_size(work.model, work.options), work.number)
    return EmbeddedBlock(
        rows(good, embedded, kind) if good else pa.RecordBatch.from_pylist([], schema=kind), added, faults
    )


def _settings(options: BulkOptions, model: str, inputs: str | None) -> dict[str, Any]:
    """All settings that the vectors and their order depend on."""
    standardise = options.embed.standardise
    plain = msgspec.structs.replace(options.embed, standardise=None)
    settings: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(options, embed=plain))
    embed = settings.pop("embed")
    if standardise is not None:
        embed["standardise"] = {"name": standardise.name, "sha256": standardise.checksum}
    return {**embed, **settings.pop("reading"), **settings, "model": model, "inputs": inputs, "characters": CHARACTERS}


def _pieces(paths: Sequence[str], options: BulkOptions, skipped: Skipped) -> Iterator[LocatedText]:
    """Documents, or their sentences."""
    for number, document in enumerate(read_documents(paths, options=options.reading, skipped=skipped)):
        text, source, line = document.text, document.source, document.line
        lines = breaks_lines(document)
        if options.embed.unit == "sentence":
            language = document.language or options.language
            for unit, (start, end) in enumerate(sentence_spans(text, language=language, mode=options.sentences)):
                first = line + text.count("\n", 0, start) if lines else line
                yield LocatedText(text[start:end], number, source, first, unit, start, lines)
            continue
        if options.embed.unit == "span":
            try:
                read_marks(text)
            except UsageError as fault:
                if skip_row(f"{source}:{line}: {fault}"):
                    continue
                raise DataError(f"{source}:{line}: {fault}") from fault
        yield LocatedText(text, number, source, line, lines=lines)


def _warned(blocks: Iterator[list[LocatedText]], tokenizer: Tokenizer) -> Iterator[list[LocatedText]]:
    """The same blocks, with a warning if the first is in another language than the model's."""
    for number, block in enumerate(blocks):
        if not number:
            warn_of_other_language([piece.text for piece in block], tokenizer)
        yield block


def _after(counts: BulkProgress, added: BulkProgress) -> BulkProgress:
    sums = {name: getattr(counts, name) + getattr(added, name) for name in BulkProgress.__struct_fields__}
    return BulkProgress(**{**sums, "documents": added.documents})
