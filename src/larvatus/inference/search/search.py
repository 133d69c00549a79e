"""Search by meaning: the instances of a word that are nearest to a marked one.

    source = open_source(["texts/"])                      # text, an index directory, or a file of `embed --unit word`
    neighbours = search(lv.load("runs/mine"), query, source, SearchOptions(top=10))

Layers, pooling and standardisation come from the index or the file; the model must be the one it was computed with. A
file of vectors (Parquet or Arrow) is read in blocks, and the context of a word comes from the neighbouring rows, so
that the corpus itself is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.ranges import Count
from larvatus.core.regular_files import is_there
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Skipped
from larvatus.inference.search.concordance import (
    CONTEXT,
    Concordance,
    ConcordanceRow,
    DocumentFilter,
    VectorBlock,
    WordFilter,
    instances_in_text,
    nearest,
)
from larvatus.inference.search.index import NAME, InstanceIndex
from larvatus.inference.vectors.layers import Layers, Pool, layers_name
from larvatus.inference.vectors.parts import schema as row_schema
from larvatus.inference.vectors.passages import PassageOptions, passages
from larvatus.inference.vectors.pooling import EmbedOptions, word_layers
from larvatus.inference.vectors.similarity import WordInstance, instance_vectors
from larvatus.inference.vectors.standardise import Standardiser, standardiser_for
from larvatus.models.loaded import LoadedModel

SUFFIXES = (".parquet", ".arrow")
AGAIN = "write it again with larvatus embed"
_AT_ONCE = 8_192


class _Standardised(msgspec.Struct):
    name: str
    sha256: str


class _Settings(msgspec.Struct):
    """The settings of `embed` that a search needs."""

    unit: str
    model: str
    layers: Layers
    pool: Pool
    standardise: _Standardised | None = None


@dataclass(frozen=True, eq=False)
class VectorFile:
    path: Path
    settings: dict[str, Any]
    """Settings of the vectors, as `embed` wrote them."""

    @classmethod
    def find(cls, path: Path) -> VectorFile | None:
        """Open a vector file; None for a file that `embed` did not write: a Parquet file may be a corpus."""
        if path.suffix not in SUFFIXES or not path.is_file():
            return None
        with _saying_what_is_damaged(path):
            if path.suffix == ".parquet":
                with path.open("rb") as file:  # pyarrow does not open names that are not UTF-8
                    schema = pq.read_schema(file)
            else:
                schema = _arrow(path).schema
        metadata = (schema.metadata or {}).get(b"larvatus")
        if metadata is None or "vector" not in schema.names:
            return None
        try:
            settings = msgspec.json.decode(metadata)
            msgspec.convert(settings, _Settings)
        except (ValueError, RecursionError) as fault:
            raise ArtefactError(f"{path} does not describe its vectors ({fault}); {AGAIN}") from fault
        for number in ("float32", "float16"):
            wanted = row_schema(schema.field("vector").type.list_size, number) if _is_list(schema) else None
            if wanted is not None and wanted.equals(schema):
                break
        else:
            raise ArtefactError(f"{path} has other columns than larvatus embed writes; {AGAIN}")
        if settings.get("unit") != "word":
            raise UsageError(
                f"{path} holds vectors of {settings.get('unit')}s, and a search needs words; "
                "write one with larvatus embed --unit word"
            )
        return cls(path, settings)

    def blocks(self, wanted: WordFilter) -> Iterator[VectorBlock]:
        before: Any = None
        batches = self._batches()
        current = next(batches, None)
        while current is not None:
            after = next(batches, None)
            yield _block([before, current, after], wanted)
            before, current = current, after

    def _batches(self) -> Iterator[Any]:
        with _saying_what_is_damaged(self.path):
            if self.path.suffix == ".parquet":
                with self.path.open("rb") as file:
                    yield from pq.ParquetFile(file).iter_batches(_AT_ONCE)
                return
            reader = _arrow(self.path)
            for number in range(reader.num_record_batches):
                yield _whole(reader.get_batch(number))


@contextmanager
def _saying_what_is_damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
        raise ArtefactError(f"{path} cannot be read ({fault}); {AGAIN}") from fault


def _is_list(schema: Any) -> bool:
    return schema.names.count("vector") == 1 and bool(pa.types.is_fixed_size_list(schema.field("vector").type))


def _whole(batch: Any) -> Any:
    """A batch with valid lengths and offsets, which Arrow does not check in a mapped file."""
    batch.validate(full=True)
    return batch


def _arrow(path: Path) -> Any:
    return pa.ipc.open_file(pa.memory_map(os.fsencode(path)))


def _block(batches: Sequence[Any], wanted: WordFilter) -> VectorBlock:
    """The selected words of the middle batch; its neighbours give context."""
    before, current, after = batches
    texts = current.column("text").to_pylist()
    chosen = [n for n, text in enumerate(texts) if text in wanted]
    column = current.column("vector").take(pa.array(chosen, pa.int64()))
    sound = np.asarray(column.is_valid())
    x: Floats = np.asarray(column.drop_null().flatten(), dtype=np.float32).reshape(-1, column.type.list_size)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    kept = [n for n, finite in zip(chosen, sound.tolist(), strict=True) if finite]
    nonzero = lengths[:, 0] > 0
    numbers = [n for n, long in zip(kept, nonzero.tolist(), strict=True) if long]
    return VectorBlock((x[nonzero] / lengths[nonzero]).astype(np.float32), _rows(before, current, after, numbers))


def _rows(
    before: Any, current: Any, after: Any, numbers: Sequence[int]
) -> Callable[[Sequence[int]], list[ConcordanceRow]]:
    def rows(places: Sequence[int]) -> list[ConcordanceRow]:
        shown = [batch.drop_columns(["vector"]) for batch in (before, current, after) if batch is not None]
        skip = 0 if before is None else before.num_rows
        table = pa.Table.from_batches(shown)
        columns = {name: table[name].to_pylist() for name in ("document", "start", "end", "text", "source", "line")}
        return [_row(columns, skip + numbers[place]) for place in places]

    return rows


def _row(columns: dict[str, list[Any]], at: int) -> ConcordanceRow:
    start, end = columns["start"][at], columns["end"][at]
    return ConcordanceRow(
        word=columns["text"][at],
        left=_context(columns, at, -1, start - CONTEXT),
        right=_context(columns, at, 1, end + CONTEXT),
        source=columns["source"][at],
        line=columns["line"][at],
        start=start,
    )


def _context(columns: dict[str, list[Any]], at: int, step: int, until: int) -> str:
    """Words of the same document on one side, with a space where there was a gap."""
    words: list[str] = []
    here = at + step
    while 0 <= here < len(columns["text"]) and columns["document"][here] == columns["document"][at]:
        if (columns["start"][here] < until) if step < 0 else (columns["end"][here] > until):
            break
        gap = columns["start"][max(here, here - step)] > columns["end"][min(here, here - step)]
        words += [" " if gap else "", columns["text"][here]]
        here += step
    return "".join(words[::-1] if step < 0 else words).strip()


# The search.

SearchSource = InstanceIndex | VectorFile | list[str]
"""What to search: an index, a file of vectors, or paths of text."""


class SearchOptions(Settings):
    top: Count = 10
    word: str | None = None
    """Word whose instances are searched; None for the word that the query marks."""
    any_word: bool = False
    """Search the instances of all words."""
    layers: Layers | None = None
    """None for the layers of the index, or the last layer for text."""
    pool: Pool | None = None
    standardise: Standardiser | None = None
    passages: PassageOptions = PassageOptions()

    def with_text(self, column: str | None) -> SearchOptions:
        """The same options with another text column; None leaves them unchanged."""
        passages = msgspec.structs.replace(self.passages, reading=self.passages.reading.named(column))
        return msgspec.structs.replace(self, passages=passages)


def open_source(paths: Sequence[str]) -> SearchSource:
    if len(paths) == 1:
        only = Path(paths[0])
        if is_there(only / NAME):
            return InstanceIndex.open(only)
        file = VectorFile.find(only)
        if file is not None:
            return file
    return list(paths)


def search(
    model: LoadedModel,
    query: WordInstance,
    source: SearchSource,
    options: SearchOptions,
    *,
    progress: Callable[[int], None] = lambda _: None,
    skipped: Skipped | None = None,
) -> Concordance:
    """The nearest instances."""
    encoder, tokenizer = model.encoder, model.tokenizer
    embed = embed_options(source, options, model)
    word = None if options.any_word else options.word or query.word
    vector = instance_vectors(encoder, tokenizer, [query], embed)[0]
    chosen = DocumentFilter(WordFilter.of(None if word is None else [word]))
    if isinstance(source, InstanceIndex):
        blocks = source.blocks(word)
    elif isinstance(source, VectorFile):
        blocks = source.blocks(chosen.wanted)
    else:
        pieces = passages(source, options.passages, Skipped() if skipped is None else skipped, chosen)
        blocks = instances_in_text(encoder, tokenizer, pieces, chosen.wanted, embed, progress=progress)
    neighbours = nearest(vector, blocks, options.top)
    if not neighbours.searched:
        if isinstance(source, list) and not chosen.read:
            raise DataError(f"no text in {', '.join(source[:3])}; name files with text")
        where = source.path if not isinstance(source, list) else ", ".join(source[:3])
        raise DataError(f"{word!r} does not occur in {where}; check the spelling, or name more text")
    return replace(neighbours, layers=layers_name(embed.layers))


def embed_options(source: SearchSource, options: SearchOptions, model: LoadedModel) -> EmbedOptions:
    """Options of the query's vector, so that it is comparable with the searched ones."""
    if isinstance(source, list):
        return EmbedOptions(
            unit="span",
            layers=word_layers(model, options.layers),
            pool=options.pool or "mean",
            standardise=options.standardise,
        )
    if isinstance(source, InstanceIndex):
        model_of_source, layers, pool = source.described.model, source.described.layers, source.described.pool
        standardiser = source.standardiser
    else:
        model_of_source, layers, pool = source.settings["model"], source.settings["layers"], source.settings["pool"]
        standardiser = _standardiser_of(source, model)
    if model_of_source != model.fingerprint:
        raise ArtefactError(
            f"{source.path} was computed with another model; name that model with --model, or build it again"
        )
    if isinstance(layers, list):
        layers = [float(weight) for weight in layers]
    given, stored = options.standardise, standardiser
    for name, wanted, has in (
        ("layers", options.layers, layers),
        ("pool", options.pool, pool),
        ("standardise", given and given.checksum, (stored and stored.checksum) if given else None),
    ):
        if wanted is not None and str(wanted) != str(has):
            raise UsageError(f"{source.path} was computed with another --{name}; leave it out, or build it again")
    return EmbedOptions(unit="span", layers=layers, pool=pool, standardise=standardiser)


def _standardiser_of(file: VectorFile, model: LoadedModel) -> Standardiser | None:
    used = file.settings.get("standardise")
    if used is None:
        return None
    standardiser = standardiser_for(model, used["name"])
    if standardiser is None or standardiser.checksum != used["sha256"]:
        raise ArtefactError(f"the standardiser {used['name']} is not that of {file.path}; embed the corpus again")
    return standardiser
