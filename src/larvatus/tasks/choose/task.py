"""Choosing the right of several endings, as a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.file_options import FileOptions, Paths, as_file_options
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, Row
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import BadCell, TextFormat, cell_text
from larvatus.metrics.calibration import softmax
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads.multiple_choice import MultipleChoiceConfig
from larvatus.models.heads.pooling import resolve_pool
from larvatus.tasks.arguments import Defaults, TaskArguments, with_layer_mix
from larvatus.tasks.choose.columns import has_endings
from larvatus.tasks.choose.encode import chooser_of, encode_choices, ending_scores
from larvatus.tasks.choose.evaluation import ChoiceEvaluation, evaluate_choices
from larvatus.tasks.choose.inputs import ChoiceFiles, ContextAndEndings
from larvatus.tasks.choose.options import ChooseOptions, choosing_head
from larvatus.tasks.choose.reader import ChoiceExample, choice_of, choice_of_row, read_choices, read_unlabelled_choices
from larvatus.tasks.choose.results import Chosen
from larvatus.tasks.choose.validation import METRICS, ChoiceValidation
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import PredictOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric


class ChooseTask(Task[ChoiceExample, Chosen, ChooseOptions]):
    name = "choose"
    title = "Choose the right of several endings."
    Options = ChooseOptions
    Head = MultipleChoiceConfig
    defaults = Defaults(5e-5, 1.0, 1_500)
    card = CardTerms(
        "chooses the right of several endings",
        "multiple-choice",
        "AutoModelForMultipleChoice",
        '("A context.", ["One ending.", "Another ending."])',
        '"A context." --ending "One ending." --ending "Another ending."',
    )
    Reading = ChoiceFiles
    Inputs = ContextAndEndings
    models = "models that choose"
    shows = frozenset({"top"})
    as_tuples = (("context", "endings", "label"),)

    def read(
        self,
        source: Paths,
        columns: FileOptions = FileOptions(),
        *,
        kind: Kind | None = None,
        problems: Problems | None = None,
    ) -> Dataset[ChoiceExample]:
        files = as_file_options(columns, ChoiceFiles)
        return read_choices(source, files.columns, options=files.table, problems=problems)

    def recognises(self, columns: Sequence[str], sample: Sequence[Row]) -> bool:
        return has_endings(columns, sample)

    def prepare(
        self, bundle: Bundle, train: Dataset[ChoiceExample], dev: Dataset[ChoiceExample] | None, args: TaskArguments
    ) -> TaskData:
        config = choosing_head(
            with_layer_mix(self.options(args), bundle), natural=default_head_settings(bundle, "choosing")
        )
        head, windows = (
            msgspec.structs.replace(config, pool=resolve_pool(bundle.tokenizer.template, config.pool)),
            args.windows(bundle),
        )
        encoded, validation = encode_choices(bundle, train.examples, windows), None
        if dev:
            metric = METRICS[0] if args.metric is None else check_metric(args.metric, METRICS)
            validation = ChoiceValidation(encode_choices(bundle, dev.examples, windows), metric)
        return TaskData(head=head, encoded=encoded, validation=validation, train=train, dev=dev)

    def is_linear(self, config: MultipleChoiceConfig) -> bool:
        return config.dense == "none" and not config.mix

    def example(self, given: Any, place: Place) -> ChoiceExample:
        """``(context, [ending, …])``, a row with `context` and `endings`, or such a row as JSON."""
        if isinstance(given, str):
            given = _row(given, place)
        if isinstance(given, Mapping):
            return choice_of_row(dict(given), place)
        if isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[1], list | tuple):
            row = {"context": given[0], **{f"ending {number}": ending for number, ending in enumerate(given[1])}}
            try:
                context, *endings = (cell_text(row, name) for name in row)
                return choice_of(context, endings, None, place)
            except BadCell as bad:
                raise DataError(f"{place}: {bad}") from bad
        raise UsageError(f"{place} is {type(given).__name__}, no context with its endings: (context, [ending, …])")

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[ChoiceExample]:
        return read_unlabelled_choices(name, columns, format, say)

    def predict(
        self, bundle: Bundle, examples: Sequence[ChoiceExample], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[Chosen]:
        windows = WindowOptions.of(bundle, length=options.length, truncate=options.truncate, overlap=options.overlap)
        data = encode_choices(bundle, examples, windows)
        config = chooser_of(bundle.network).config
        logits = ending_scores(bundle.network, data, scoring, options.merge)
        probabilities = softmax(logits / config.temperature)
        rows = zip(examples, logits.argmax(-1).tolist(), probabilities.tolist(), data.coverage, strict=True)
        return [
            Chosen(
                context=example.context,
                choice=choice,
                probabilities=dict(zip(example.endings, shares, strict=False)),
                coverage=coverage,
            )
            for example, choice, shares, coverage in rows
        ]

    def evaluate(
        self, bundle: Bundle, data: Dataset[ChoiceExample], options: EvaluationOptions = EvaluationOptions()
    ) -> ChoiceEvaluation:
        return evaluate_choices(bundle, data, options)


def _row(given: str, place: Place) -> Mapping[str, Any]:
    """A row that was given as JSON."""
    try:
        row = msgspec.json.decode(given)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise DataError(f'{place} is no context with its endings: give {{"context": "…", "endings": ["…", "…"]}}')
    return row
