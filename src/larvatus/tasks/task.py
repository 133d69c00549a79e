"""A task: one class that implements the methods below, in a folder of its own. `registry.py` lists all tasks.

    class TagTask(Task[TaggedExample, Tagged, TagOptions]):
        name, title, models = "tag", "Tag words.", "taggers"
        Options, Head, Reading = TagOptions, TaggingConfig, WordFiles
        def read_files(self, source, files, kind, problems): …   # files → labelled examples
        def prepare(self, bundle, train, dev, args): …           # examples → head, training data, validation data
        def predict(self, bundle, examples, options, scoring): …
        def evaluate(self, bundle, data, options): …             # metrics with intervals

Fine-tuning, evaluation and prediction encode text by one function of the folder. Fine-tuning runs the same way for all
tasks (`tasks/trainer/finetune.py`); a task does not import it, so a model is loaded without the code that trains it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from msgspec import Struct

from larvatus.core.drawing import Element
from larvatus.core.errors import UsageError
from larvatus.data.labelled.file_options import FileOptions, Paths, as_file_options
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, LabelledExample, Place, Row
from larvatus.data.labelled.tables import Columns
from larvatus.data.labelled.texts import TextFormat, read_unlabelled
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads.head import HeadConfig
from larvatus.models.network import Network
from larvatus.tasks.arguments import Defaults, TaskArguments
from larvatus.tasks.evaluation.evaluation import Evaluation, EvaluationOptions
from larvatus.tasks.features import EncodedExamples
from larvatus.tasks.inputs import Input, PlainTexts, PredictOptions, text_or_pair, text_or_words
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice
from larvatus.tasks.results import Prediction
from larvatus.tasks.scoring import ScoringOptions
from larvatus.tasks.validation import Scores, ValidationSet

AnExample = TypeVar("AnExample", bound=LabelledExample)
AResult = TypeVar("AResult", bound=Prediction)
AnOptions = TypeVar("AnOptions", bound=Struct)


class CardTerms(NamedTuple):
    """Words for a task in the card of a fine-tuned model."""

    what: str
    """What the model does: ``tags words``."""
    pipeline: str
    """The `pipeline_tag` of Hugging Face's hub."""
    auto: str | None
    """The class of `transformers` that loads it; None: there is none."""
    example: str = '"Some text."'
    """What `predict` is given, in Python."""
    command: str = '"Some text."'
    """What `larvatus predict DIR` is given."""
    also: str = ""
    """Another library that loads it, in a sentence; `{name}` is the directory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskData:
    """Examples of a task, ready for training."""

    head: Any
    """Config of the head to train."""
    encoded: EncodedExamples
    validation: ValidationSet | None
    """Examples that the model is scored on while it is trained."""
    train: Dataset[Any]
    dev: Dataset[Any] | None
    """The data sets, with normalised labels."""


class Task(ABC, Generic[AnExample, AResult, AnOptions]):
    """A task. It has no state: there is one object of each kind."""

    name: ClassVar[str]
    """As in ``larvatus finetune tag``."""
    title: ClassVar[str]
    """What it does, one line of help."""
    Options: ClassVar[type[Struct]]
    """Options of its head and input; the docstrings of the fields are the help texts."""
    Head: ClassVar[type[HeadConfig]]
    """The settings of its head, by which the task of a model is known."""
    OtherHeads: ClassVar[tuple[type[HeadConfig], ...]] = ()
    """Settings of other heads that it trains too."""
    defaults: ClassVar[Defaults] = Defaults(5e-5, 1.0, 1_500)
    """Default rates and number of updates."""
    card: ClassVar[CardTerms]
    reads_words: ClassVar[bool] = False
    """Whether plain files may hold words already cut."""
    Reading: ClassVar[type[FileOptions]] = FileOptions
    """Options of its files of labelled examples, such as columns."""
    Inputs: ClassVar[type[PlainTexts]] = PlainTexts
    """Options of `larvatus predict` that complete a TEXT to an input."""
    models: ClassVar[str] = "models of other tasks"
    """Name of models fine-tuned for it: taggers."""
    shows: ClassVar[frozenset[str]] = frozenset()
    """Output options of `larvatus predict` that it supports: top, probabilities, beams."""
    as_tuples: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Columns of examples that are tuples in memory, one row of names for each length."""
    of_glue: ClassVar[bool] = False
    """Whether the tasks of GLUE are of this kind."""
    joins: ClassVar[bool] = True
    """Whether its head can share an encoder with heads of other tasks, and be trained with them (`multitask/`)."""
    joint_weight: ClassVar[float] = 1.0
    """Weight of its mean loss next to the losses of other tasks, where none is given."""
    served: ClassVar[bool] = True
    """Whether the server makes an operation of its predictions; vectors and reranking have special routes."""
    keeps_lm_loss: ClassVar[bool] = True
    """Whether the language-model loss of a left-to-right model is added to its loss."""
    begins_with_adapter: ClassVar[bool] = False
    """Whether training may begin with the sentence adapter of a model (`initial_model`)."""
    answers_by_id: ClassVar[bool] = False
    """Whether official scorers read its answers as a file of texts by id."""
    line_formats: ClassVar[frozenset[str]] = frozenset()
    """Endings of files that its predictions are written to as lines (`lines`), such as ``.conll``."""

    # ---- labelled examples

    def read(
        self,
        source: Paths,
        columns: FileOptions = FileOptions(),
        *,
        kind: Kind | None = None,
        problems: Problems | None = None,
    ) -> Dataset[AnExample]:
        """Labelled examples from files; `kind` is that of labels, where the task knows several."""
        return self.read_files(source, as_file_options(columns, self.Reading), kind, problems)

    def read_files(self, source: Paths, files: Any, kind: Kind | None, problems: Problems | None) -> Dataset[AnExample]:
        """Read labelled examples; `files` are options of the kind `Reading`."""
        raise NotImplementedError

    # ---- fine-tuning

    def recognises(self, columns: Sequence[str], sample: Sequence[Row]) -> bool:
        """Whether a table with these columns and first rows is of this task, and can hardly be of another."""
        return False

    def check_examples(
        self, train: Dataset[AnExample], dev: Dataset[AnExample] | None, args: TaskArguments
    ) -> tuple[Dataset[AnExample], Dataset[AnExample] | None]:
        """Check the examples, or reduce their labels, before some are held out for validation."""
        return train, dev

    def initial_model(self, bundle: Bundle, train: Dataset[AnExample], args: TaskArguments) -> Bundle:
        """The model that training begins from."""
        return bundle

    @abstractmethod
    def prepare(
        self, bundle: Bundle, train: Dataset[AnExample], dev: Dataset[AnExample] | None, args: TaskArguments
    ) -> TaskData:
        """Normalise the labels, choose the head that they and the options need, and encode all examples."""

    def head_in(self, bundle: Bundle) -> Any | None:
        """The settings of the head that a model has for this task already."""
        return next((config for config in bundle.objectives if type(config) in (self.Head, *self.OtherHeads)), None)

    def is_linear(self, config: Any) -> bool:
        """Whether the head is a single linear layer over one vector per text, which trains faster by itself."""
        return False

    def fit_threshold(self, model: Network, validation: Any, args: TaskArguments) -> Scores | None:
        """Fit a threshold to the validation examples after training, and set it in the head.

        Returns the scores with it; None where the task has none.
        """
        return None

    def options(self, args: TaskArguments) -> AnOptions:
        """The task's options, or its defaults; those of another task are refused."""
        chosen = self.Options() if args.options is None else args.options
        if not isinstance(chosen, self.Options):
            raise UsageError(f"finetune {self.name} takes {self.Options.__name__}, not {type(chosen).__name__}")
        return chosen  # type: ignore[return-value]

    # ---- prediction

    def example(self, given: Input, place: Place) -> Any:
        """An input of `predict` as an example; one that cannot be read is refused with its place."""
        return text_or_words(given, place) if self.reads_words else text_or_pair(given, place)

    def read_plain(
        self, name: str, columns: Columns, format: TextFormat | None, say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Examples without labels from a file, or from standard input for ``-``, one at a time."""
        return read_unlabelled(name, words=self.reads_words, columns=columns, format=format, say=say)

    @abstractmethod
    def predict(
        self, bundle: Bundle, examples: Sequence[Any], options: PredictOptions, scoring: ScoringOptions
    ) -> Sequence[AResult]:
        """A result for each example."""

    def lines(self, ending: str, example: LabelledExample, prediction: AResult, *, number: int = 1) -> Iterable[str]:
        """A prediction, the `number`-th of a file, as lines in one of the `line_formats`."""
        raise NotImplementedError

    def draw(self, record: Mapping[str, Any]) -> Element | None:
        """The picture of a prediction from its `to_dict`, for the studio; None of tasks that it draws itself."""
        return None

    def outcome(self, bundle: Bundle, example: Any, choice: OutcomeChoice) -> ExplainedOutcome:
        """A prediction of an example as a number to explain (`outcome.py`); refused where no words can be credited."""
        raise UsageError(
            f"{bundle.path} {self.card.what}, which cannot be explained; explain reads classifiers, taggers, models "
            "that answer questions, and blanks of masked language models"
        )

    # ---- evaluation

    @abstractmethod
    def evaluate(self, bundle: Bundle, data: Dataset[AnExample], options: EvaluationOptions) -> Evaluation:
        """Metrics with intervals, and details; `Evaluation.shown` is for people."""

    def label_kind(self, config: Any) -> Kind | None:
        """Kind of the labels of test data; None if the head does not determine it."""
        return None

    def tells_classes_apart(self, config: Any) -> bool:
        """Whether there is a confusion matrix to draw."""
        return False
