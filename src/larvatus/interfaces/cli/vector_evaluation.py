"""`larvatus evaluate --vectors`: measures the vectors of an encoder, next to baselines.

larvatus evaluate runs/faq --vectors sts --data sts.tsv --baselines
larvatus evaluate runs/faq --vectors classification --train train.tsv --data test.tsv --shots 10
larvatus evaluate runs/faq --vectors retrieval --data CISI.ALL --queries CISI.QRY --judgements CISI.REL
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Protocol

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag
from larvatus.data.bulk.row_files import row_file
from larvatus.inference.model.loading import LoadOptions
from larvatus.interfaces.api.task_settings import EvaluationSettings
from larvatus.interfaces.api.vector_evaluation import VectorEvaluationSettings, run_vector_evaluation
from larvatus.interfaces.cli.progress import ProgressReporter
from larvatus.interfaces.cli.tables import print_json, show_part, wide_console


class VectorFlags(VectorEvaluationSettings):
    """What vectors are measured by, and the training examples."""

    train: Annotated[tuple[str, ...], Flag(metavar="FILE")] = ()
    """Training examples of classification, to sample from; repeatable."""

    def refuse_alone(self) -> None:
        """Refuse options of vectors without --vectors."""
        for name in self.__struct_fields__:
            if getattr(self, name) != getattr(VectorFlags(), name):
                raise UsageError(f"--{name} is for vectors; name the measurement: --vectors sts --data FILE")


class _Work(Protocol):
    """What the command was given: `ExampleEvaluation`."""

    @property
    def request(self) -> Any: ...
    @property
    def machine(self) -> LoadOptions: ...
    @property
    def chosen(self) -> EvaluationSettings: ...
    @property
    def columns(self) -> Mapping[str, Any]: ...
    @property
    def out(self) -> Path | None: ...


def measure_vectors(work: _Work, flags: VectorFlags) -> None:
    """Measure, then write the rows, or print a table or JSON."""
    request = work.request
    if len(request.models) != 1 or not request.data:
        raise UsageError("vectors of one model are measured on files: name one directory, and --data FILE")
    fields = {name: getattr(flags, name) for name in VectorEvaluationSettings.__struct_fields__}
    chosen = VectorEvaluationSettings(**{**fields, "samples": work.chosen.samples})
    loaded = work.machine.load(str(request.models[0]))
    with ProgressReporter("vectors") as progress:
        result = run_vector_evaluation(
            loaded,
            list(request.data),
            chosen,
            train=list(flags.train) or None,
            columns=work.columns,
            errors=request.errors,
            progress=progress,
        )
    if work.out is not None:
        with row_file(work.out) as write:
            write(result.to_dict(), result.to_dicts())
    if request.as_json:
        print_json(result.to_dict())
    else:
        show_part(wide_console(), result.table())
