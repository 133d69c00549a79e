"""Zero-shot transfer, as in XTREME: a model fine-tuned on one language and scored on many.

    files = files_by_language(["xnli/dev-*.tsv.xz", "sw=swahili.tsv"])         # {"de": "xnli/dev-de.tsv.xz", …}
    table = TransferResult.of({language: evaluate(…) for language in files}, source="en")
    table.scores["de"].value, table.zero_shot, table.gap

The zero-shot mean is over languages other than the source, with equal weights. The gap is the source's score minus that
mean (Hu et al. 2020). Each set has its own interval. The mean has none, because sets that are translations of each
other share their hard examples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from larvatus.core import notebook
from larvatus.core.errors import DataError, UsageError
from larvatus.core.tables import ReportPart, Table
from larvatus.core.tabular import Tabular, flatten
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.text.languages import language_of, languages_in
from larvatus.data.text.sentences import is_language
from larvatus.metrics.bootstrap import Interval
from larvatus.metrics.figures import Figure
from larvatus.tasks.evaluation.evaluation import Evaluation, plain, plain_metrics
from larvatus.tasks.validation import check_metric

ByLanguage = str | Path | Sequence[str | Path] | Mapping[str, Examples]
"""Files with languages in their names, patterns of such files, ``xx=PATH``; or examples by language."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TransferResult(Tabular):
    """Scores of a model on one task in several languages."""

    model: str
    metric: str
    """Metric of the table."""
    source: str | None
    """Language of fine-tuning; None if unknown."""
    evaluations: Mapping[str, Evaluation]
    """Evaluation of each language."""

    @classmethod
    def of(
        cls, evaluations: Mapping[str, Evaluation], *, source: str | None = None, metric: str | None = None
    ) -> TransferResult:
        """Combine evaluations of one model; the source comes first, others keep their order."""
        first = next(iter(evaluations.values()))
        chosen = first.headline if metric is None else check_metric(metric, list(first.metrics))
        order = sorted(evaluations, key=lambda language: language != source)
        return cls(
            model=first.model,
            metric=chosen,
            source=source,
            evaluations={language: evaluations[language] for language in order},
        )

    @property
    def scores(self) -> dict[str, Interval]:
        """Score of each language with its 95% interval."""
        return {language: evaluation.metrics[self.metric] for language, evaluation in self.evaluations.items()}

    @property
    def zero_shot(self) -> float | None:
        """Mean over languages other than the source; None if there are none."""
        others = [score.value for language, score in self.scores.items() if language != self.source]
        return statistics.fmean(others) if others and self.source is not None else None

    @property
    def mean(self) -> float:
        """Mean over all languages, including the source."""
        return statistics.fmean(score.value for score in self.scores.values())

    @property
    def gap(self) -> float | None:
        """The source's score minus the zero-shot mean; None if either is missing."""
        if self.zero_shot is None or self.source not in self.scores:
            return None
        return self.scores[self.source].value - self.zero_shot

    def majority(self, language: str) -> float | None:
        """Accuracy of always predicting the most frequent label of the set; None for other metrics."""
        counts = self.evaluations[language].data.labels()
        return max(counts.values()) / counts.total() if self.metric == "accuracy" and counts else None

    def figures(self) -> Iterator[Figure]:
        for language, score in self.scores.items():
            yield Figure.of(self.metric, score, language=language)

    def to_dict(self) -> dict[str, Any]:
        """The output of `--json`."""
        rows = [
            {
                "language": language,
                "source": language == self.source,
                "data": evaluation.data.source,
                "examples": len(evaluation.data),
                "metrics": plain_metrics(evaluation.metrics),
                "majority": self.majority(language),
                "notes": [*evaluation.data.notes, *evaluation.notes],
            }
            for language, evaluation in self.evaluations.items()
        ]
        summary = {"zero_shot": self.zero_shot, "gap": self.gap, "mean": self.mean}
        return {
            "model": self.model, "metric": self.metric, "source": self.source, **plain(summary), "languages": rows
        }  # fmt: skip

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each language; metrics are columns, such as `metrics.accuracy.value`."""
        rows = self.to_dict()["languages"]
        return [flatten({name: value for name, value in row.items() if name != "notes"}) for row in rows]

    def shown(self) -> Iterator[ReportPart]:
        """Lines and tables of the printed report."""
        yield self._table()
        yield f"\n{self._summary()}"
        for language, evaluation in self.evaluations.items():
            for note in (*evaluation.data.notes, *evaluation.notes):
                yield f"{language}: {note}"

    def _repr_html_(self) -> str:
        table = self._table()
        return notebook.table([head.name for head in table.heads], table.rows, title=self.model, note=self._summary())

    def _table(self) -> Table:
        guesses = {language: self.majority(language) for language in self.evaluations}
        guessed = any(guess is not None for guess in guesses.values())
        reference = self.scores.get(self.source or "")
        columns = ("language", "examples", self.metric, "95% interval", "less the source")
        rows = []
        for language, score in self.scores.items():
            away = "" if reference is None else f"{score.value - reference.value:+.4f}"
            cells = (
                f"{language} (source)" if language == self.source else language,
                f"{len(self.evaluations[language].data):,}",
                _number(score.value),
                f"{_number(score.low)} to {_number(score.high)}",
                "" if language == self.source else away,
            )
            guess = guesses[language]
            rows.append((*cells, "–" if guess is None else _number(guess)) if guessed else cells)
        return Table((*columns, "majority") if guessed else columns, tuple(rows))

    def _summary(self) -> str:
        if self.source is None:
            return f"mean {_number(self.mean)} · the source is not known, so no gap; name it: --source xx"
        if self.zero_shot is None:
            return f"no language but the source {self.source}; name files of others"
        count = len(self.evaluations) - (self.source in self.evaluations)
        said = f"zero-shot mean {_number(self.zero_shot)} (of {count}, without {self.source})"
        if self.gap is None:
            return f"{said} · no file of {self.source}, so no gap"
        return f"{said} · gap {_number(self.gap)} · mean of all {_number(self.mean)}"


def files_by_language(given: ByLanguage) -> dict[str, Examples]:
    """Examples or files by language, in order. A file is refused if its name does not reveal one language."""
    if isinstance(given, Mapping):
        pairs: list[tuple[str, Examples]] = list(given.items())
    else:
        names = [given] if isinstance(given, str | Path) else list(given)
        pairs = [pair for name in names for pair in _named(str(name))]
    files: dict[str, Examples] = {}
    for language, examples in pairs:
        if not is_language(language):
            raise UsageError(f"{language!r} is no language code; use one such as en, sw or zh-Hant")
        if language in files:
            raise UsageError(f"{language} has two files, {files[language]} and {examples}; give one for each language")
        files[language] = examples
    if not files:
        raise UsageError("no file was named; give one for each language: --transfer dev-de.tsv, or --transfer de=PATH")
    return files


def _named(name: str) -> Iterator[tuple[str, str]]:
    """Languages and files of a path, a pattern, or ``xx=PATH``."""
    language, equals, path = name.partition("=")
    if equals and is_language(language):
        if not path:
            raise UsageError(f"{name} names no file; give its path: {language}=PATH")
        yield language, path
        return
    if not has_magic(name) or Path(name).exists():
        yield _language(name), name
        return
    files = sorted(glob(name, recursive=True))
    if not files:
        raise DataError(f"no file is called {name}; check the pattern")
    yield from ((_language(file), file) for file in files)


def _language(file: str) -> str:
    language = language_of(file)
    if language is None:
        several = languages_in(Path(file).name) or languages_in(Path(file).parent.name)
        why = f"could be in {' or '.join(several)}" if several else "does not have a language in its name"
        raise UsageError(f"{file} {why}; give it before the path, such as {(several or ['de'])[-1]}={file}")
    return language


def source_language(lineage: Mapping[str, Any]) -> str | None:
    """The language of the training files, if their names agree on one."""
    train = lineage.get("train")
    names = train.get("source") if isinstance(train, Mapping) else None
    if not isinstance(names, str):
        return None
    languages = {language_of(name) for name in names.split(", ")}
    return languages.pop() if len(languages) == 1 else None


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
