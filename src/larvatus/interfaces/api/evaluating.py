"""Evaluate a model: its task on labelled examples, GLUE, several languages, or masked words of validation text.

evaluate("runs/ner", data="test.conll").metrics["f1"]
evaluate("runs/ner", data="test.conll", against="runs/other").metrics["f1"].p
evaluate("runs/faq", data="sts.tsv", vectors="sts", baselines=True).metrics["spearman"]
evaluate("runs/mine", corpus={"sw": "held_out/sw.txt", "en": "held_out/en.txt"}).rows(each=True)
transfer("runs/xnli-en", "xnli/dev-*.tsv.xz", source="en").zero_shot
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack, overload

from larvatus.core.errors import UsageError
from larvatus.core.tables import ResultList, Tabular
from larvatus.data.labelled.glue import TASKS, GlueTask, glue_task, read_glue
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.problems import Errors
from larvatus.data.labelled.records import Dataset
from larvatus.data.text.words import is_language
from larvatus.evaluation.compare.languages import ByLanguage, TransferResult, files_by_language, source_language
from larvatus.evaluation.vectors.evaluate import VectorEvaluation, VectorKind
from larvatus.inference.model import Model
from larvatus.interfaces.api.evaluation_claims import task_claims
from larvatus.interfaces.api.task_settings import EvaluationSettings, split_columns
from larvatus.interfaces.api.text_evaluation import HeldOutSettings, TextScores, evaluate_model_vectors, score_text
from larvatus.interfaces.settings import Corpus, TextSettings, loaded_model, read_settings
from larvatus.models.bundle.claims import claim_dicts
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import sentence_bundle
from larvatus.models.nn.layer_mix import LearnedMix
from larvatus.tasks.evaluation.comparison import ModelComparison, compare_evaluations
from larvatus.tasks.evaluation.evaluation import Evaluation, EvaluationOptions
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import AnyTask, get_task, parse_file_options, task_of, tasks_of, with_task
from larvatus.tasks.scoring import head_of
from larvatus.tasks.validation import check_metric

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import EvaluateKeywords, EvaluateTextKeywords, EvaluateVectorsKeywords


@dataclass(frozen=True, kw_only=True)
class TaskScores(Tabular):
    """Scores of a model on one set of examples, optionally compared with another model."""

    evaluation: Evaluation
    comparison: ModelComparison | None = None
    name: str = ""
    """Name of the GLUE task, with its own for the mismatched set of MNLI, or of one of several tasks of a model."""
    task: GlueTask | None = None
    mix: LearnedMix | None = None
    """How much its head reads of each layer, where it mixes them."""

    def __str__(self) -> str:
        parts = [str(each) for each in (self.evaluation, self.comparison) if each is not None]
        return "\n\n".join([self.name, *parts] if self.name else parts)

    def to_dict(self) -> dict[str, Any]:
        record: dict[str, Any] = {"task": self.name} if self.name else {}
        if self.task is not None:
            record["decides"] = self.task.metrics[0]
        record |= self.evaluation.to_dict() | ({} if self.mix is None else {"mix": self.mix.to_dict()})
        if self.evaluation.claims:
            record["claims"] = claim_dicts(self.evaluation.claims)
        return record if self.comparison is None else {**record, "comparison": self.comparison.to_dict()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each metric; next to another model, with its score, the difference and p."""
        rows = self.evaluation.to_dicts() if self.comparison is None else self.comparison.to_dicts()
        return [{"task": self.name, **row} for row in rows] if self.name else rows


@overload
def evaluate(
    model: str | Path | Model,
    *,
    data: Examples,
    against: str | Path | Model,
    errors: Errors = "refuse",
    device: str = "auto",
    **settings: Unpack[EvaluateKeywords],
) -> ModelComparison: ...


@overload
def evaluate(
    model: str | Path | Model,
    *,
    data: Examples,
    errors: Errors = "refuse",
    device: str = "auto",
    **settings: Unpack[EvaluateKeywords],
) -> Evaluation: ...


@overload
def evaluate(
    model: str | Path | Model, *, corpus: Corpus, device: str = "auto", **settings: Unpack[EvaluateTextKeywords]
) -> TextScores: ...


@overload
def evaluate(
    model: str | Path | Model,
    *,
    data: Examples,
    vectors: VectorKind,
    errors: Errors = "refuse",
    device: str = "auto",
    **settings: Unpack[EvaluateVectorsKeywords],
) -> VectorEvaluation: ...


@overload
def evaluate(
    model: str | Path | Model,
    *,
    glue: str | Path,
    task: str | None = None,
    against: str | Path | Model | None = None,
    device: str = "auto",
    **settings: Unpack[EvaluateKeywords],
) -> list[TaskScores]: ...


def evaluate(
    model: str | Path | Model,
    *,
    data: Examples | None = None,
    against: str | Path | Model | None = None,
    corpus: Corpus | None = None,
    glue: str | Path | None = None,
    task: str | None = None,
    errors: Errors = "refuse",
    device: str = "auto",
    **settings: object,
) -> Evaluation | ModelComparison | TextScores | VectorEvaluation | list[TaskScores]:
    """How well a model does its task on labelled examples, with 95% intervals; or predicts words of held-out text.

    Args:
        model: A directory of a model, or the model.
        data: Labelled examples, in any of the ways that `finetune` takes them, for a fine-tuned model.
        against: Another model to compare with, on the same examples, by paired tests.
        corpus: Held-out text, for a masked language model: fixed tokens are hidden, so that models compare.
        glue: The directory of GLUE's files, with the name of its `task`.
        task: The task of GLUE; or one of a model that has several.
        errors: What to do about rows of `data` that cannot be used, such as those without text or label: `refuse` names
            them all in one error, `skip` leaves them out and reports how many.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        **settings: `merge`, `length`, `truncate`, `repair`, `strict`, `samples`, `seed`; names of columns; of
            held-out text `tokens`, and how it is read. `vectors` measures the vectors of any encoder: `retrieval` (with
            `queries` and `judgements`, or a BEIR folder), `sts`, `pairs`, `classification` (with `train`, `shots`,
            `draws`) or `clustering` (`draws`); `baselines` adds TF-IDF and BM25.

    Returns:
        The evaluation: `.metrics["accuracy"].value`, `.low`, `.high`, a table if printed. With `against` the
            comparison, with `corpus` scores of text, with `glue`, or of several tasks (`data` by task), a list.

    Example:
        >>> accuracy = evaluate(classifier, data=[("good", "pos"), ("bad", "neg")], samples=50).metrics["accuracy"]
        >>> 0 <= accuracy.low <= accuracy.value <= accuracy.high <= 1
        True
    """
    if sum(given is not None for given in (data, corpus, glue)) != 1:
        raise UsageError("evaluate takes one of data, corpus and glue")
    loaded = loaded_model(model, device)
    device = str(loaded.device)
    if corpus is not None:
        reading, text = read_settings(settings, TextSettings, HeldOutSettings, function="evaluate")
        return score_text(loaded.bundle, corpus, reading, device=device, tokens=text.tokens)
    columns, others = split_columns(settings)
    if settings.get("vectors") is not None:
        if data is None or against is not None:
            raise UsageError("vectors are measured on data, one model at a time; leave out glue and against")
        return evaluate_model_vectors(loaded, data, columns, others, errors=errors)
    (chosen,) = read_settings(others, EvaluationSettings, function="evaluate")
    other = against.bundle if isinstance(against, Model) else None if against is None else load_bundle(against)
    other = None if other is None else sentence_bundle(other)
    if glue is not None:
        named = glue_task(task) if task is not None else named_after(Path(loaded.bundle.path))
        return ResultList(score_glue(loaded.bundle, named, glue, chosen.options(device), against=other))
    bundle = sentence_bundle(loaded.bundle)
    source = LabelledSource(data, columns, errors)
    each = score_tasks(bundle, source, chosen.options(device), against=other, task=task)
    return each if task is None and len(tasks_of(bundle)) > 1 else each[0].comparison or each[0].evaluation


@dataclass(frozen=True)
class LabelledSource:
    """Labelled examples, and how they are read."""

    data: Examples | Mapping[str, Examples] | None
    """Examples; of a model of several tasks, those for all of them, or a mapping by task."""
    columns: Mapping[str, Any]
    errors: Errors | None = None

    def of_tasks(self, tasks: Collection[str], task: str | None) -> dict[str, Any]:
        """The examples of each task that is evaluated."""
        if isinstance(self.data, Mapping) and self.data.keys() <= set(tasks):
            return {name: given for name, given in self.data.items() if task in (None, name)}
        return dict.fromkeys(tasks if task is None else (task,), self.data)


def score_tasks(
    bundle: Bundle,
    source: LabelledSource,
    options: EvaluationOptions,
    *,
    against: Bundle | None = None,
    task: str | None = None,
) -> ResultList[TaskScores]:
    """A model on examples of its task, or of each of its tasks, or of the one that is named."""
    task_of(bundle)  # refuses a model without a task
    tasks, scores = tasks_of(bundle), ResultList[TaskScores]()
    several = len(tasks) > 1
    task = task if several else next(iter(tasks))
    for name, data in source.of_tasks(tasks, task).items():
        view = with_task(bundle, name)
        other = with_task(against, name) if against is not None and len(tasks_of(against)) > 1 else against
        examples = read_for(view, data, source.columns, errors=source.errors)
        mark = name if several else ""
        each = score_examples(view, examples, options, against=other, columns=source.columns, named=mark)
        scores.append(dataclasses.replace(each, name=mark))
    return scores


def read_for(
    bundle: Bundle, data: Examples, columns: Mapping[str, Any], *, errors: Errors | None = None
) -> Dataset[Any]:
    """Read labelled examples for the task of a fine-tuned model."""
    task, head = task_of(bundle), head_of(bundle.network, str(bundle.path))
    kind = task.label_kind(head.config)
    return read_examples(task.name, data, parse_file_options(task.name, columns), kind=kind, errors=errors)


def score_examples(
    bundle: Bundle,
    data: Dataset[Any],
    options: EvaluationOptions,
    *,
    against: Bundle | None = None,
    task: AnyTask | None = None,
    columns: Mapping[str, Any] = MappingProxyType({}),
    named: str = "",
) -> TaskScores:
    """A model on examples of its task (or of a task that it must have), optionally compared with another.

    `columns` of their files, and the task of GLUE or of a model of several tasks by name, are recorded in the claims.
    """
    task = task or task_of(bundle)
    if options.beams is not None and "beams" not in task.shows:
        raise UsageError(f"{bundle.path} {task.card.what}; --beams is for models that write")
    evaluation = task.evaluate(bundle, data, options)
    claims = task_claims(bundle, evaluation, options, columns, task=named)
    evaluation = dataclasses.replace(evaluation, claims=claims)
    comparison = None
    if against is not None:
        other = task.evaluate(against, data, options)
        comparison = compare_evaluations(other, evaluation, samples=options.samples, seed=options.seed)
    return TaskScores(evaluation=evaluation, comparison=comparison, mix=head_of(bundle.network).learnt_mix)


def score_glue(
    bundle: Bundle, task: GlueTask, glue: str | Path, options: EvaluationOptions, *, against: Bundle | None = None
) -> Iterator[TaskScores]:
    """A model on the development sets of a task of GLUE."""
    for dev, examples in read_glue(task.name, glue, splits=("dev",)).dev.items():
        name = task.name if dev == task.dev[0] else f"{task.name}-mm"
        classify = get_task("classify")
        scores = score_examples(bundle, examples, options, against=against, task=classify, named=name)
        yield dataclasses.replace(scores, name=name, task=task)


def named_after(model: Path) -> GlueTask:
    """The task of GLUE that a directory has its name from."""
    try:
        return glue_task(model.absolute().name)
    except UsageError as unknown:
        raise UsageError(
            f"{model} is not named after a task of GLUE ({', '.join(TASKS)}); name its task: --task NAME"
        ) from unknown


def transfer(
    model: str | Path | Model,
    data: ByLanguage,
    *,
    source: str | None = None,
    metric: str | None = None,
    device: str = "auto",
    **settings: Unpack[EvaluateKeywords],
) -> TransferResult:
    """Score a model that was fine-tuned on one language on examples of many, in one table.

    Args:
        model: A directory of a fine-tuned model, or the model.
        data: Files whose names, or whose folders' names, tell their languages (`dev-de.tsv`, `de/test.conll`), patterns
            of such files, `"de=PATH"`; or a mapping from languages to what `evaluate` takes as `data`.
        source: The language that the model was fine-tuned on; default: from the names of its training files.
        metric: What the table is of; else the first of the task, of entities their F1.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        **settings: As in `evaluate`: `merge`, `length`, `truncate`, `repair`, `strict`, `samples`, `seed`; names of
            columns.

    Returns:
        The table: `.scores["de"].value`, `.low`, `.high`; `.zero_shot` (the mean without the source), `.gap` (the
            source less that mean), `.evaluations["de"]`, which is what `evaluate` gives. It shows as a table in a
            notebook.

    Example:
        >>> both = {"en": [("good", "pos"), ("bad", "neg")], "de": [("gut", "pos"), ("bad", "neg")]}
        >>> table = transfer(classifier, both, source="en", samples=50)
        >>> table.gap == table.scores["en"].value - table.zero_shot
        True
    """
    loaded = loaded_model(model, device)
    columns, others = split_columns(settings)
    (chosen,) = read_settings(others, EvaluationSettings, function="transfer")
    options = chosen.options(str(loaded.device))
    return score_languages(loaded.bundle, data, columns, options, source=source, metric=metric)


def score_languages(
    bundle: Bundle,
    data: ByLanguage,
    columns: Mapping[str, Any],
    options: EvaluationOptions,
    *,
    source: str | None = None,
    metric: str | None = None,
) -> TransferResult:
    """The same of a model and options at hand. All files are read before the first is scored."""
    if source is not None and not is_language(source):
        raise UsageError(f"--source {source} is no language code; use one such as en, sw or zh-Hant")
    files = files_by_language(data)
    examples = {language: read_for(bundle, given, columns) for language, given in files.items()}
    evaluations: dict[str, Evaluation] = {}
    for language, dataset in examples.items():
        evaluations[language] = score_examples(bundle, dataset, options).evaluation
        if metric is not None:
            check_metric(metric, list(evaluations[language].metrics))  # refused before the others are scored
    return TransferResult.of(evaluations, source=source or source_language(bundle.lineage), metric=metric)
