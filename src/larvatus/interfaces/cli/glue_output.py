"""Predictions of a test set as a file for GLUE's server.

write_for_server(test, predictor, answering, file="test.tsv", columns=Columns(), out=Path("glue"), say=print)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from larvatus.core.errors import UsageError
from larvatus.core.files import saying_what_is_full
from larvatus.data.labelled.glue import FILES, GlueTestSet, check_labels, prediction, read_test_rows, write_submission
from larvatus.data.labelled.tables import Columns
from larvatus.interfaces.cli.progress import ProgressReporter
from larvatus.tasks.predict import BulkPredictor, TaskPredictor, blocks


def write_for_server(
    test: GlueTestSet,
    predictor: TaskPredictor,
    answering: BulkPredictor,
    *,
    file: str,
    columns: Columns,
    out: Path,
    say: Callable[[str], None],
) -> None:
    """Predict a test set and write its file into `out`; report which files the server still lacks."""
    config, model = predictor.head.config, str(answering.model.bundle.path)
    if not predictor.task.of_glue:
        raise UsageError(f"{model} {predictor.task.card.what}; GLUE's tasks are classification and regression")
    check_labels(test, config.labels, numbers=predictor.task.label_kind(config) == "regression", model=model)
    examples = read_test_rows(test, file, columns, say)

    def answered() -> Iterator[tuple[str, str]]:
        for block in answering(blocks(examples)):
            for answer in block.answers:
                record = answer.found.to_dict()
                yield str(answer.example.id), prediction(test, record.get("label"), record.get("value"))

    with saying_what_is_full(out):
        out.mkdir(parents=True, exist_ok=True)
    with ProgressReporter("rows") as bar:
        rows = write_submission(out / test.file, _counted(answered(), bar))
    missing = [name for name in FILES if not (out / name).is_file()]
    way = f"still missing for the server: {', '.join(missing)}" if missing else f"all files are there: zip {out}/*.tsv"
    print(f"{out / test.file}: {rows:,} predictions · {way}")


def _counted(rows: Iterator[tuple[str, str]], bar: Callable[[int], None]) -> Iterator[tuple[str, str]]:
    done = 0
    while some := list(islice(rows, 256)):
        done += len(some)
        bar(done)
        yield from some
