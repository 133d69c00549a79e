"""Multiple choice: choose the right of several endings of a context.

larvatus finetune choose --text passage --label gold …
larvatus predict runs/next "She opened the umbrella." --ending "It was raining." --ending "The bread was stale."
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import DropoutRate
from larvatus.core.settings import Flag, Settings
from larvatus.data.labelled.file_options import Column, Paths, TableFiles
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, Row
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import BadCell, TextFormat, cell_text
from larvatus.metrics.calibration import softmax
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import default_head_settings
from larvatus.models.heads.head import Dense
from larvatus.models.heads.pooling import resolve_pool
from larvatus.models.heads.sequence_score import MultipleChoiceConfig
from larvatus.tasks.arguments import TaskArguments, head_settings, with_layer_mix
from larvatus.tasks.choose.encode import (
    METRICS,
    ChoiceEvaluation,
    ChoiceValidation,
    Chosen,
    chooser_of,
    encode_choices,
    ending_scores,
    evaluate_choices,
)
from larvatus.tasks.choose.reader import (
    ChoiceExample,
    choice_of,
    choice_of_row,
    has_endings,
    read_choices,
    read_unlabelled_choices,
)
from larvatus.tasks.evaluation.evaluation import EvaluationOptions
from larvatus.tasks.inputs import Input, PlainTexts, PredictOptions
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.task import CardTerms, Task, TaskData
from larvatus.tasks.validation import check_metric


class ChooseOptions(Settings):
    """Options of a multiple-choice head; None uses the model's default."""

    pool: Literal["cls", "mean"] | None = None
    """Vector of a context with an ending: cls, or the mean of its tokens; default: as its family has it."""
    dense: Dense | None = None
    """Layer before the score; none: one linear layer only; default: as the model's family has it."""
    dropout: DropoutRate | None = None
    """Dropout before the score; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


def choosing_head(options: ChooseOptions, *, natural: Mapping[str, Any]) -> MultipleChoiceConfig:
    """`natural` is what the model's family has: its layer before the score and its way of pooling."""
    return MultipleChoiceConfig(mix=bool(options.mix), **head_settings(options, natural))


class ChoiceFiles(TableFiles):
    """Tables of contexts with endings."""

    things: ClassVar[str] = "choices"
    refusal: ClassVar[str] = "{flags} are for {things}; choices have --text (the context), --pair and --label"

    text: Column = None
    """Column of the context, by name or number; default: guessed."""
    pair: Column = None
    """Column of what every ending begins with; default: guessed, or none."""
    label: Column = None
    """Column of the right ending: its number from 0, letter or text; default: guessed."""


class ContextAndEndings(PlainTexts):
    ending: Annotated[tuple[str, ...], Flag(metavar="TEXT")] = ()
    """An ending to choose from, for one TEXT; give two or more."""

    def inputs(self, texts: Sequence[str], *, files: bool) -> list[Input]:
        if not self.ending:
            return list(texts)
        if files or len(texts) != 1:
            raise UsageError("--ending goes with one TEXT, the context; the choices of a file have theirs in it")
        return [(texts[0], list(self.ending))]


class ChooseTask(Task[ChoiceExample, Chosen, ChooseOptions]):
    name, title, models = "choose", "Choose the right of several endings.", "models that choose"
    Options, Head, Reading, Inputs = ChooseOptions, MultipleChoiceConfig, ChoiceFiles, ContextAndEndings
    card = CardTerms(
        "chooses the right of several endings",
        "multiple-choice",
        "AutoModelForMultipleChoice",
        '("A context.", ["One ending.", "Another ending."])',
        '"A context." --ending "One ending." --ending "Another ending."',
    )
    shows = frozenset({"top"})
    as_tuples = (("context", "endings", "label"),)

    def read_files(
        self, source: Paths, files: ChoiceFiles, kind: Kind | None, problems: Problems | None
    ) -> Dataset[ChoiceExample]:
        return read_choices(source, files.columns, options=files.table, problems=problems)

    def recognises(self, columns: Sequence[str], sample: Sequence[Row]) -> bool:
        return has_endings(columns, sample)

    def prepare(
        self, bundle: Bundle, train: Dataset[ChoiceExample], dev: Dataset[ChoiceExample] | None, args: TaskArguments
    ) -> TaskData:
        config = choosing_head(
            with_layer_mix(self.options(args), bundle), natural=default_head_settings(bundle, "choosing")
        )
        head = msgspec.structs.replace(config, pool=resolve_pool(bundle.tokenizer.template, config.pool))
        windows = args.windows(bundle)
        encoded, validation = encode_choices(bundle, train.examples, windows), None
        if dev:
            data = encode_choices(bundle, dev.examples, windows)
            validation = ChoiceValidation(data, check_metric(args.metric, METRICS))
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
        windows = options.windows(bundle)
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

    def evaluate(self, bundle: Bundle, data: Dataset[ChoiceExample], options: EvaluationOptions) -> ChoiceEvaluation:
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
