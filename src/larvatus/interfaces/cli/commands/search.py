"""`larvatus search`: the passages of your documents that answer a question.

larvatus search build docs/ --out index
larvatus search "who may appeal?" --index index --top 10 --hybrid
larvatus search evaluate CISI.ALL --queries CISI.QRY --judgements CISI.REL
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from larvatus.core.errors import printable
from larvatus.core.outputs import check_outputs
from larvatus.core.regular_files import is_there
from larvatus.data.bulk.row_files import check_row_file, row_file
from larvatus.data.labelled.retrieval_sets import read_collection
from larvatus.evaluation.retrieval import evaluate_retrieval, index_collection
from larvatus.inference.search.build import BuildRun, BuildSummary, IndexContents
from larvatus.inference.search.generation import NAME, read_manifest
from larvatus.inference.search.passage_index import Index
from larvatus.inference.search.results import SearchResults
from larvatus.inference.search.sources import PassageSettings
from larvatus.interfaces.api.searching import DocumentSettings, SearchSettings, run_document_indexing, run_search
from larvatus.interfaces.cli.from_struct import Panel, from_structs
from larvatus.interfaces.cli.options import MODEL_HELP, READING, Bulk, Json, Machine, Overwrite
from larvatus.interfaces.cli.output import ProgressReporter, Quiet, hint, reading_text, show_part
from larvatus.models.bundle.model_names import model_or_packaged

DEFAULT = "ask"


class _Group(typer.core.TyperGroup):
    """What names no other command is the question: `larvatus search QUESTION`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [DEFAULT, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


app = typer.Typer(
    cls=_Group,
    help="Find the passages of documents that answer a question. With a QUESTION, the command is `ask`.",
    no_args_is_help=True,
)
IndexModel = Annotated[
    str | None, typer.Option("--model", show_default="that of the index, or the packaged one", help=MODEL_HELP)
]


@app.command("build")
@from_structs
def build(
    documents: Annotated[list[str], typer.Argument(metavar="FILES...", help="Files, directories or globs of text.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The index; one that is there is brought up to date.")],
    machine: Machine,
    passages: Annotated[PassageSettings, Panel()],
    vectors: Annotated[IndexContents, Panel()],
    reading: Annotated[DocumentSettings, Panel(READING, without=("language_field", "licence"), first=("metadata",))],
    bulk: Bulk,
    model: IndexModel = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Index the passages of documents. Again with the same --out, only new and changed text is read."""
    options = reading.build_options(passages, vectors)
    loaded = machine.load(model or _model_of(out, overwrite=overwrite))
    with reading_text("vectors") as (progress, skipped):
        run = BuildRun(overwrite=overwrite, progress=progress, skipped=skipped)
        summary = run_document_indexing(loaded, documents, options, bulk, out=out, run=run)
    if as_json:
        print(json.dumps(msgspec.to_builtins(summary), ensure_ascii=False, indent=2))
    else:
        print(_sentence(summary))
        hint(f'next: larvatus search "a question" --index {printable(str(out))}')


def _model_of(out: Path, *, overwrite: bool) -> str:
    """The model of the index that is there, otherwise the packaged one."""
    return read_manifest(out).model if not overwrite and is_there(out / NAME) else model_or_packaged()


def _sentence(summary: BuildSummary) -> str:
    counted = f"{summary.passages:,} passages of {summary.documents:,} documents · {summary.size} dimensions"
    files = ", ".join(
        f"{getattr(summary, name):,} {name}"
        for name in ("added", "changed", "removed", "unchanged")
        if getattr(summary, name)
    )
    return f"{printable(summary.path)}: {counted} · files: {files} · {summary.embedded:,} vectors computed"


@app.command(DEFAULT)
@from_structs
def ask(
    questions: Annotated[list[str], typer.Argument(metavar="QUESTION...", help="A question, or any text.")],
    index: Annotated[Path, typer.Option(metavar="DIR", help="An index of larvatus search build.")],
    chosen: Annotated[SearchSettings, Panel()],
    machine: Machine,
    model: IndexModel = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare the index with its checksums.")] = True,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the passages here: .jsonl, .csv, .tsv or .parquet.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Passages of an index that answer a question best: by meaning, by words, or by both (--hybrid)."""
    check_outputs(out, overwrite=overwrite, inputs=[*([model] if model else []), index])
    check_row_file(out)
    loaded = machine.load(model or read_manifest(index).model)
    opened = Index.open(index, model=loaded, verify=verify)
    results = run_search(opened, questions, chosen)
    for line in dict.fromkeys(line for each in results for line in each.changed):
        print(f"note: {printable(line)} since it was indexed; search build updates the index", file=sys.stderr)
    if out is not None:
        _write(out, results)
    elif as_json:
        records = [each.to_dict() for each in results]
        print(json.dumps(records[0] if len(records) == 1 else records, ensure_ascii=False, indent=2))
    else:
        for each in results:
            _show(each, several=len(results) > 1)


def _write(out: Path, results: Sequence[SearchResults]) -> None:
    with row_file(out) as write:
        for each in results:
            write(each.to_dict(), [{"query": each.query, **row} for row in each.to_dicts()])
    print(f"{printable(str(out))}: {sum(map(len, results)):,} rows")


def _show(results: SearchResults, *, several: bool) -> None:
    if several:
        print(f"{printable(results.query)}\n")
    for hit in results:
        place = f"{printable(hit.document)}:{hit.line} [{hit.start}:{hit.end}]"
        metadata = "".join(f" · {printable(f'{name}={value}')}" for name, value in hit.metadata.items())
        print(f"{hit.rank:>3}  {hit.score:.4f}  {place}{metadata}")
        print(f"     {printable(' '.join(hit.text.split()))}\n")


@app.command("evaluate")
@from_structs
def evaluate(
    collection: Annotated[str, typer.Argument(metavar="DOCUMENTS", help="A BEIR folder, or documents (JSONL, SMART).")],
    machine: Machine,
    chosen: Annotated[SearchSettings, Panel(without=("top", "where", "path"))],
    passages: Annotated[PassageSettings, Panel("How documents are indexed")],
    vectors: Annotated[IndexContents, Panel("How documents are indexed", without=("bm25",))],
    queries: Annotated[str | None, typer.Option(metavar="FILE", help="Queries (JSONL, SMART).")] = None,
    judgements: Annotated[str | None, typer.Option(metavar="FILE", help="Judgements (TREC, BEIR, SMART).")] = None,
    index: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the index here, for the next time.")] = None,
    model: IndexModel = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure nDCG@10, MRR, recall and MAP on a collection with judgements, with intervals over queries."""
    loaded_collection = read_collection(collection, queries=queries, judgements=judgements)
    named = model or (_model_of(index, overwrite=False) if index is not None else model_or_packaged())
    loaded = machine.load(named)
    with TemporaryDirectory() as folder, ProgressReporter("vectors") as progress:
        out = index or Path(folder) / "index"
        run = BuildRun(progress=progress)
        made = index_collection(loaded, loaded_collection, out, passages=passages, vectors=vectors, run=run)
        settings = {name: getattr(chosen, name) for name in ("hybrid", "bm25", "rerank", "exact", "candidates")}
        result = evaluate_retrieval(made, loaded_collection, **settings)
    if as_json:
        print(json.dumps(result.to_dict(), ensure_ascii=False, indent=2))
    else:
        show_part(Console(soft_wrap=True), result.table())
