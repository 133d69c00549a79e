"""Search in documents: an index of passages, made once and brought up to date, and questions to it.

index = lv.index_documents("docs/", out="index")
lv.search("who may appeal?", index="index", top=5).to_pandas()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

import msgspec

from larvatus.core.ranges import Count
from larvatus.core.settings import Flag, PathName, Settings
from larvatus.core.signals import resumable
from larvatus.data.bulk.executor import BulkSettings
from larvatus.data.bulk.parts import write_errors_to
from larvatus.data.text.readers import Skipped
from larvatus.inference.model import Model, load
from larvatus.inference.search.build import (
    BuildRun,
    BuildSummary,
    IndexBuildOptions,
    IndexContents,
    build_passage_index,
)
from larvatus.inference.search.filters import read_conditions
from larvatus.inference.search.passage_index import Index, RankingOptions
from larvatus.inference.search.results import SearchResults
from larvatus.inference.search.sources import PassageSettings
from larvatus.interfaces.settings import TextSettings, read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import IndexDocumentsKeywords, SearchKeywords


class DocumentSettings(TextSettings):
    """How documents are read."""

    split: Literal["blank-line", "file"] = "file"
    """What ends a document in plain text: the end of its file, or a blank line."""
    metadata: Annotated[tuple[str, ...], Flag(metavar="COLUMN")] = ()
    """Column of tables that is kept with each passage, shown, and searched with --where; repeatable."""

    def build_options(self, passages: PassageSettings, vectors: IndexContents) -> IndexBuildOptions:
        reading = self.reading()
        if self.metadata:
            reading = msgspec.structs.replace(reading, metadata_fields=tuple(dict.fromkeys(self.metadata)))
        return IndexBuildOptions(
            reading=reading, sentences=self.sentences, language=self.language, passages=passages, vectors=vectors
        )


class SearchSettings(Settings):
    """Which passages are returned."""

    top: Count = 10
    """Passages to return."""
    hybrid: bool = False
    """Fuse the ranking by meaning with that by words (BM25)."""
    bm25: Annotated[bool, Flag("--bm25")] = False
    """Rank by words only."""
    rerank: Annotated[PathName | None, Flag(metavar="DIR")] = None
    """Order the candidates with a model of finetune rerank."""
    where: Annotated[tuple[str, ...], Flag(metavar="COLUMN=VALUE")] = ()
    """Only passages with this metadata; repeatable, values of one column are alternatives."""
    path: Annotated[tuple[str, ...], Flag(metavar="PATTERN")] = ()
    """Only files whose path matches, such as '*/2024/*.md'; repeatable."""
    exact: bool = False
    """Compare all vectors, even if the index has a graph."""
    candidates: Count | None = None
    """Passages that are rescored, fused or reranked; default: ten times --top, at least 100."""


def index_documents(
    documents: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    model: str | Path | Model | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
    **settings: Unpack[IndexDocumentsKeywords],
) -> Index:
    """Make an index of the passages of documents, or bring one up to date: only new and changed text is read.

    Args:
        documents: Files, directories or globs of plain text, tables and JSON lines; the index holds no others.
        out: The index, a directory. One that is there is updated; a failure leaves it as it was.
        model: A model directory, a hub name, or a loaded model; the packaged English model by default.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        overwrite: Replace an index of another model.
        progress: Called with how many vectors are computed.
        skipped: Counts what could not be read.
        **settings: `passage` and `overlap` (characters), `dtype` and `rescore` (of the vectors), `bm25` and `hnsw`
            (what is written next to them), `metadata` (columns to keep); how text is read: `language`, `sentences`,
            `split`, `on_bad`, `encoding`, `text` (column of tables); where it runs: `ray`, and `errors`, a file for
            bad rows.

    Returns:
        The index, open.

    Example:
        >>> index = lv.index_documents("my_texts/", out=folder / "documents", model=model, passage=200, overlap=50)
        >>> index.search("the river", top=1)[0].document
        'my_texts/rivers.txt'
    """
    text, passages, vectors, bulk = read_settings(
        settings, DocumentSettings, PassageSettings, IndexContents, BulkSettings, function="index_documents"
    )
    loaded = model if isinstance(model, Model) else load(model, device=device)
    options = text.build_options(passages, vectors)
    run = BuildRun(overwrite=overwrite, progress=progress, skipped=skipped if skipped is not None else Skipped())
    run_document_indexing(loaded, documents, options, bulk, out=out, run=run)
    return Index.open(out, model=loaded, verify=False)


def run_document_indexing(
    model: Model,
    documents: str | Path | Sequence[str | Path],
    options: IndexBuildOptions,
    bulk: BulkSettings,
    *,
    out: str | Path,
    run: BuildRun,
) -> BuildSummary:
    """Run `index_documents` from structs."""
    paths = [str(documents)] if isinstance(documents, str | Path) else [str(path) for path in documents]
    if bulk.errors is not None:
        reading = msgspec.structs.replace(options.reading, on_bad="skip")
        options = msgspec.structs.replace(options, reading=reading)
    executing = BuildRun(run.overwrite, run.progress, bulk.executor(device=model.requested_device), run.skipped)
    with write_errors_to(bulk.errors), resumable("the same command resumes"):
        return build_passage_index(model, paths, Path(out), options, executing)


def search(
    query: str,
    *,
    index: str | Path | Index,
    model: str | Path | Model | None = None,
    device: str = "auto",
    **settings: Unpack[SearchKeywords],
) -> SearchResults:
    """The passages of an index that answer a question best.

    Args:
        query: A question, or any text.
        index: An index of `index_documents` or `larvatus search build`, or its directory.
        model: The model that it was built with, if that has moved.
        device: Where the model is loaded: `auto`, `cpu` or `cuda`.
        **settings: `top` (10), `hybrid` (fuse with BM25), `bm25` (words only), `rerank` (a model directory), `where`
            (`["year=1999"]`), `path` (patterns of paths), `exact`, `candidates`.

    Returns:
        The passages, best first; `.to_pandas()` gives a table. `Index.search` takes several queries at once.

    Example:
        >>> index = lv.index_documents("my_texts/", out=folder / "asked", model=model)
        >>> [hit.rank for hit in lv.search("the river", index=index, top=2)]
        [1, 2]
    """
    (chosen,) = read_settings(settings, SearchSettings, function="search")
    opened = index if isinstance(index, Index) else Index.open(index, model=model, device=device)
    return run_search(opened, [query], chosen)[0]


def run_search(index: Index, queries: list[str], chosen: SearchSettings) -> list[SearchResults]:
    """Run `search` from a struct, for several queries."""
    return index.search(
        queries,
        where=read_conditions(chosen.where),
        paths=chosen.path,
        rerank=chosen.rerank,
        **{name: getattr(chosen, name) for name in RankingOptions.__struct_fields__},
    )
