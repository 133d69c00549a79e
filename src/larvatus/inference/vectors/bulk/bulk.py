"""Vectors of a corpus that need not fit into memory: files of text in, one file of vectors out.

    embed_files(lv.load("runs/mine"), ["texts/"], Path("vectors.parquet"), BulkOptions(…))

Text streams through the model in blocks of some hundred thousand characters, cut by the text alone, so a run that was
killed and goes on computes the same batches and ends with the same file, and so does one on a Ray cluster. Memory holds
one block for each worker (or one document, where its words or tokens are wanted and it is longer).
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
from larvatus.data.bulk.skipped import compute_good_rows, skip_row, skips_bad_rows
from larvatus.data.corpus.sources import fingerprint, skip_reasons
from larvatus.data.text.other_language import warn_of_other_language
from larvatus.data.text.readers import ReadOptions, Skipped, read_documents
from larvatus.data.text.sentences import Mode, sentence_spans
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.search.marks import read_marks
from larvatus.inference.vectors.bulk.parts import Number, Parts, Piece, Stand, rows, schema
from larvatus.inference.vectors.bulk.tables import assemble, check_format
from larvatus.inference.vectors.embedder import Embedder
from larvatus.inference.vectors.fingerprints import settings_hash
from larvatus.inference.vectors.layers import LayerMix
from larvatus.inference.vectors.options import EmbedOptions
from larvatus.inference.vectors.passages import breaks_lines
from larvatus.inference.vectors.results import Vectors
from larvatus.inference.vectors.vectors import embed_texts
from larvatus.models.nn.device import explain_out_of_memory

CHARACTERS = 1 << 18
"""Of a block, and so of a part: about 50,000 words."""


class BulkOptions(Settings):
    embed: EmbedOptions = EmbedOptions()
    reading: ReadOptions = ReadOptions()
    sentences: Mode = "library"
    """How documents are cut for unit "sentence"; each sentence is read by itself."""
    language: str = "en"
    """Language of text that names none, for cutting sentences."""
    number: Number = "float32"
    """Type of the numbers in the file."""


@dataclass(frozen=True)
class Carrying:
    """How a run is carried out; what it writes does not depend on it."""

    resume: bool = False
    overwrite: bool = False
    progress: Callable[[Stand], None] = lambda _: None
    executor: Executor = field(default_factory=LocalExecutor)


class BulkSummary(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    stand: Stand
    size: int
    """Numbers of a vector."""
    resumed: int
    """Units that stood before, of an interrupted run."""
    skipped: dict[str, int]


def embed_files(
    model: Embedder, paths: Sequence[str], out: Path, options: BulkOptions, carrying: Carrying = Carrying()
) -> BulkSummary:
    """Write the vectors of all units of all files."""
    encoder, tokenizer = model.encoder, model.tokenizer
    check_format(out)
    if LayerMix.read(options.embed.layers, layers=encoder.depth).stacked:
        raise UsageError("a file holds one vector a unit, and layers = all gives several; name one layer or a mix")
    directory = out.with_name(out.name + ".parts")
    resume, overwrite = carrying.resume, carrying.overwrite
    ended = resume and not overwrite and directory.exists() and out.exists()  # killed after its last step but one
    check_outputs(out, overwrite=overwrite or ended)
    inputs = fingerprint(paths)
    if inputs is None and resume:
        raise UsageError("only local files can be gone on with, and addresses: standard input cannot be read again")
    parts = Parts(directory, _settings(options, model.fingerprint, inputs) | {"tokenizer": settings_hash(tokenizer)})
    with files.locked(directory), parts.removed_when_empty():
        if ended:
            stand = parts.removed()
            return BulkSummary(path=str(out), stand=stand, size=encoder.width, resumed=stand.units, skipped={})
        begun, skipped = parts.open(resume=resume), Skipped()
        blocks = _blocks(islice(_pieces(paths, options, skipped), begun.pieces, None))
        stand = _write_parts(parts, model, _warned(blocks, tokenizer), options, carrying)
        for line in parts.faults():
            skip_row(line)
        if not stand.pieces:
            raise DataError(f"no text to embed in {', '.join(paths[:3])} ({skipped}); name files with text")
        assemble(parts, out, schema(encoder.width, options.number), stand.units)
        parts.remove()
    return BulkSummary(
        path=str(out), stand=stand, size=encoder.width, resumed=begun.units, skipped=skip_reasons(skipped)
    )


def _write_parts(
    parts: Parts, model: Embedder, blocks: Iterator[list[Piece]], options: BulkOptions, carrying: Carrying
) -> Stand:
    """Have the blocks embedded, and keep each; how far the run has come."""
    stand = parts.stand()
    state = partial(_Embedding, model, options.embed, options.number, aside=skips_bad_rows())
    fix = "run the same command with --resume: it goes on from what was written"
    with carrying.executor.pool(state, embed_block, what="an embedding worker", fix=fix) as pool:
        for block in pool.map(blocks):
            stand = _after(stand, block.added)
            parts.add(block.rows, stand, block.faults)
            carrying.progress(stand)
    return stand


@dataclass(frozen=True)
class _Embedding:
    """What a worker must have."""

    model: Embedder
    options: EmbedOptions
    number: Number
    aside: bool
    """Whether texts that cannot be embedded are set aside."""


@dataclass(frozen=True)
class EmbeddedBlock:
    """The vectors of a block, and what it adds to how far the run has come."""

    rows: Any
    added: Stand
    faults: list[str]


def embed_block(work: _Embedding, block: list[Piece]) -> EmbeddedBlock:
    """What is done with a block, wherever that is."""
    encoder, tokenizer = work.model.encoder, work.model.tokenizer

    def embed(pieces: list[Piece]) -> list[Vectors]:
        with explain_out_of_memory("take a smaller --model or one layer; --resume goes on from here"):
            return list(embed_texts(encoder, tokenizer, [piece.text for piece in pieces], work.options))

    good, faults = block, list[str]()
    if work.aside:
        good, embedded, faults = compute_good_rows(embed, block, lambda piece: f"{piece.source}:{piece.line}")
    else:
        embedded = embed(block)
    added = Stand(
        pieces=len(block),
        documents=block[-1].document + 1,
        units=sum(map(len, embedded)),
        missing=sum(len(vectors.missing) for vectors in embedded),
        tokens=sum(vectors.tokens for vectors in embedded),
        windows=sum(vectors.windows for vectors in embedded),
    )
    kind = schema(encoder.width, work.number)
    return EmbeddedBlock(
        rows(good, embedded, kind) if good else pa.RecordBatch.from_pylist([], schema=kind), added, faults
    )


def _settings(options: BulkOptions, model: str, inputs: str | None) -> dict[str, Any]:
    """All that a vector or its place depends on."""
    standardise = options.embed.standardise
    plain = msgspec.structs.replace(options.embed, standardise=None)
    asked: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(options, embed=plain))
    embed = asked.pop("embed")
    if standardise is not None:
        embed["standardise"] = {"name": standardise.name, "sha256": standardise.checksum}
    return {**embed, **asked.pop("reading"), **asked, "model": model, "inputs": inputs, "characters": CHARACTERS}


def _pieces(paths: Sequence[str], options: BulkOptions, skipped: Skipped) -> Iterator[Piece]:
    """Documents, or their sentences."""
    for number, document in enumerate(read_documents(paths, options=options.reading, skipped=skipped)):
        text, source, line = document.text, document.source, document.line
        lines = breaks_lines(document)
        if options.embed.unit == "sentence":
            language = document.language or options.language
            for unit, (start, end) in enumerate(sentence_spans(text, language=language, mode=options.sentences)):
                first = line + text.count("\n", 0, start) if lines else line
                yield Piece(text[start:end], number, source, first, unit, start, lines)
            continue
        if options.embed.unit == "span":
            try:
                read_marks(text)
            except UsageError as fault:
                if skip_row(f"{source}:{line}: {fault}"):
                    continue
                raise DataError(f"{source}:{line}: {fault}") from fault
        yield Piece(text, number, source, line, lines=lines)


def _blocks(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    block: list[Piece] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece.text)
        if size >= CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _warned(blocks: Iterator[list[Piece]], tokenizer: Tokenizer) -> Iterator[list[Piece]]:
    """The same blocks; where the first is in another language than the model's, that is said."""
    for number, block in enumerate(blocks):
        if not number:
            warn_of_other_language([piece.text for piece in block], tokenizer)
        yield block


def _after(stand: Stand, added: Stand) -> Stand:
    sums = {name: getattr(stand, name) + getattr(added, name) for name in Stand.__struct_fields__}
    return Stand(**{**sums, "documents": added.documents})
