"""Answers for files of any size, block by block, in this process or on a Ray cluster; to a file that can be resumed.

answering = BulkPredictor(model, PredictOptions(), OnRay("10.0.0.4:6379"))
for block in answering(blocks(examples)):
    block.answers, block.faults
totals = write_prediction_lines(job, answering, blocks(examples), lambda answer: [json.dumps(answer.found.to_dict())])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial

from larvatus.data.bulk.executor import Executor
from larvatus.data.bulk.lines import BlockLines, LineJob
from larvatus.data.bulk.skipped import skips_bad_rows
from larvatus.data.labelled.records import LabelledExample
from larvatus.tasks.predict import (
    ExamplePrediction,
    Loaded,
    PredictionBlock,
    PredictOptions,
    PredictWorker,
    ReadTotals,
    predict_block,
)


@dataclass(frozen=True)
class BulkPredictor:
    """Blocks of examples to blocks of answers, in order."""

    model: Loaded
    options: PredictOptions
    executor: Executor

    def __call__(self, examples: Iterable[list[LabelledExample]]) -> Iterator[PredictionBlock]:
        state = partial(PredictWorker.of, self.model, self.options, aside=skips_bad_rows())
        fix = "run the same command again; with --resume what was written stands"
        with self.executor.pool(state, predict_block, what="a predicting worker", fix=fix) as pool:
            yield from pool.map(examples)


def write_prediction_lines(
    job: LineJob,
    answering: BulkPredictor,
    examples: Iterable[list[LabelledExample]],
    lines: Callable[[ExamplePrediction], list[str]],
    progress: Callable[[int], None] = lambda texts: None,
) -> ReadTotals:
    """Lines of JSON for each answer, in the file of the job (`data/bulk/row_files.py`)."""

    def answered(todo: Iterator[list[LabelledExample]]) -> Iterator[BlockLines]:
        for block in answering(todo):
            totals = ReadTotals()
            for answer in block.answers:
                totals.add(answer.found)
            held = [line for answer in block.answers for line in lines(answer)]
            yield BlockLines(held, block.faults, asdict(totals))

    def counted(counts: Mapping[str, float]) -> None:
        progress(int(counts["texts"]))

    counts = job.write(examples, answered, counted)
    return ReadTotals(**{name: int(count) for name, count in counts.items()})
