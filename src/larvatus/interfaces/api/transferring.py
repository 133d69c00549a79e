"""A model fine-tuned on one language, scored on many: one table.

table = transfer("runs/xnli-en", "xnli/dev-*.tsv.xz", source="en")
table.zero_shot, table.gap, table.scores["sw"].low
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from larvatus.core.errors import UsageError
from larvatus.data.text.sentences import is_language
from larvatus.evaluation.compare.transfer import ByLanguage, TransferResult, files_by_language, source_language
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.evaluating import read_for, score_examples
from larvatus.interfaces.api.task_settings import EvaluationSettings, split_columns
from larvatus.interfaces.settings import read_settings
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.evaluation.evaluation import Evaluation, EvaluationOptions
from larvatus.tasks.validation import check_metric

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import EvaluateKeywords


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
    loaded = model if isinstance(model, Model) else load(model, device=device)
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
