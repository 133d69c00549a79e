"""A model on several languages: masked-LM loss by language, and zero-shot transfer of a fine-tuned model.

    corpus = open_text([LanguagePath("sw", "held_out/")], bundle.tokenizer, Path("shards"))
    result = evaluate_text(bundle, corpus, runtime=Runtime(), tokens=1_048_576)
    result.languages["sw"].scores["masked-lm"].loss

    table = TransferResult.of({language: evaluate(…) for language in files_by_language(["xnli/dev-*.tsv.xz"])}, "en")
    table.scores["de"].value, table.zero_shot, table.gap

**Loss, perplexity and accuracy** on held-out text are compared with the unigram baseline: the token frequencies of the
evaluated text in each language, the best guess without context. A model of many languages does worse on each of them
than a model of few (the curse of multilinguality, Conneau et al. 2020, §5.2). All held-out evaluations use the same
masks, so results of two models with one vocabulary compare. Perplexities of two languages do not: a language with more
subwords per word has easier subwords.

**Transfer**, as in XTREME (Hu et al. 2020): a model is fine-tuned on one language and scored on many. The zero-shot
mean is over languages other than the source, with equal weights. The gap is the source's score minus that mean. Each
set has its own interval. The mean has none, because sets that are translations of each other share their hard examples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from larvatus.core import notebook
from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.pretraining_targets import MaskedTokens, PairLabels, text_target_kinds
from larvatus.core.tables import ReportPart, Table, Tabular, flatten
from larvatus.data.corpus import BuildOptions, Corpus, build_corpus, is_corpus
from larvatus.data.corpus.packing import ContiguousConfig, FullSentencesConfig, PackingConfig, SentencePairsConfig
from larvatus.data.corruption import CorruptionConfig, MaskingConfig
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.text.languages import LanguageSource, language_of, languages_in, path_of
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import is_language
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval
from larvatus.models.bundle.directory import Bundle
from larvatus.models.recipes import parse_recipe
from larvatus.tasks.evaluation.evaluation import Evaluation, plain, plain_metrics
from larvatus.tasks.validation import check_metric
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.evaluation import (
    HeldOutScores,
    evaluate,
    held_out_batches,
    measurable_network,
    merge_languages,
    packing_for,
)

LONGEST = 512
"""Sequence length for model directories without a recipe."""


class TextSetup(NamedTuple):
    """Packing, masking and sequence length of evaluated text."""

    packing: PackingConfig
    corruption: CorruptionConfig | None
    length: int
    """Tokens of a sequence."""


def open_text(
    text: Sequence[LanguageSource], tokenizer: Tokenizer, folder: Path, options: BuildOptions | None = None
) -> Corpus:
    """The text as shards in the model's vocabulary: a built corpus, or shards built in `folder`."""
    if len(text) == 1 and is_corpus(path := Path(path_of(text[0]))):
        corpus = Corpus.open(path)
        if corpus.tokenizer.tokens != tokenizer.tokens:
            raise UsageError(f"{path} was built with another vocabulary than the model's; give the text itself")
        return corpus
    build_corpus(text, tokenizer, folder, options)
    return Corpus.open(folder)


def evaluate_text(
    bundle: Bundle,
    corpus: Corpus,
    *,
    runtime: Runtime,
    tokens: int,
    how: TextSetup | None = None,
    only_masked: bool = False,
) -> HeldOutScores:
    """Scores of the model's objectives on up to `tokens` tokens, shared equally between languages.

    `how` defaults to packing and masking of the recipe. The generator predicts the masked tokens of an ELECTRA model.
    `only_masked` scores positions that show `[MASK]`, but not those that show another token (80/10/10).
    """
    if bundle.network.filler is None and not text_target_kinds(bundle.objectives):
        raise ArtefactError(
            f"{bundle.path} has no masked-lm head to evaluate, nor a generator/ in it that has one; "
            "use a model pretrained with masked-lm"
        )
    bundle.network.to(runtime.device)
    names, how = corpus.languages, how or _settings(bundle)

    def of(language: str | None, tokens: int) -> HeldOutScores:
        return _evaluate(bundle, corpus, language, runtime=runtime, tokens=tokens, how=how, only_masked=only_masked)

    if len(names) < 2:
        return of(None, tokens)
    return merge_languages({name: of(name, max(1, tokens // len(names))) for name in names})


def _evaluate(
    bundle: Bundle,
    corpus: Corpus,
    language: str | None,
    *,
    runtime: Runtime,
    tokens: int,
    how: TextSetup,
    only_masked: bool,
) -> HeldOutScores:
    packing, corruption, length = how
    batches = _batches(bundle, corpus, how, tokens=tokens, microbatch=runtime.microbatch, language=language)
    if only_masked:
        mask = corpus.tokenizer.id(corpus.tokenizer.special.mask)
        batches = (_only_shown(batch, mask) for batch in batches)
    return evaluate(
        measurable_network(bundle.network, packing_for(corpus, packing, language), corruption),
        batches,
        runtime=runtime,
        limit=length,
        counts=_frequencies(corpus, language),
        smoothing=0,
    )


def _only_shown(batch: TrainingBatch[Ints], token: int | None) -> TrainingBatch[Ints]:
    """The batch with only those targets that show the given token."""
    targets: MaskedTokens[Ints] = batch.targets[MaskedTokens]
    kept = batch.tokens.ids[targets.places] == token
    fewer = MaskedTokens(places=targets.places[kept], ids=targets.ids[kept])
    return TrainingBatch(tokens=batch.tokens, targets={**batch.targets, MaskedTokens: fewer})


def copy_baseline(corpus: Corpus, how: TextSetup, *, tokens: int, microbatch: int) -> float:
    """Accuracy of a rule without a model: copy the shown token, or predict the most frequent one for `[MASK]`."""
    mask, commonest = corpus.tokenizer.id(corpus.tokenizer.special.mask), int(np.argmax(_frequencies(corpus, None)))
    right = total = 0
    for batch in held_out_batches(
        corpus, how.packing, how.corruption, length=how.length, tokens=tokens, microbatch=microbatch
    ):
        targets = batch.targets[MaskedTokens]
        shown = batch.tokens.ids[targets.places]
        right += int((np.where(shown == mask, commonest, shown) == targets.ids).sum())
        total += len(targets.ids)
    return right / max(total, 1)


def _settings(bundle: Bundle) -> TextSetup:
    """Setup of the model's recipe; for a directory without a recipe, what its heads need."""
    if bundle.recipe is not None:
        recipe = parse_recipe(bundle.recipe, where=str(bundle.path))
        return TextSetup(recipe.packing, recipe.corruption, recipe.phases[-1].length)
    if text_target_kinds(bundle.objectives):
        return TextSetup(ContiguousConfig(), None, min(LONGEST, bundle.model.max_positions))
    pairs = any(config.needs is PairLabels for config in bundle.objectives)
    counted = bundle.tokenizer.counts is not None
    return TextSetup(
        SentencePairsConfig() if pairs else FullSentencesConfig(),
        MaskingConfig(replacement="unigram" if counted else "uniform"),
        min(LONGEST, bundle.model.max_positions),
    )


def _frequencies(corpus: Corpus, language: str | None) -> Ints:
    """[V] counts of tokens in the text of a language."""
    counts = np.zeros(corpus.tokenizer.size, np.int64)
    for number, chunk in enumerate(corpus.chunks):
        if language is None or chunk.language == language:
            counts += np.bincount(corpus.block([number]).ids, minlength=len(counts))
    return counts


def held_out_text(bundle: Bundle, corpus: Corpus, *, tokens: int, batch: int = 2_048) -> list[TrainingBatch[Ints]]:
    """The text that `evaluate_text` reads, as small batches in memory, for several passes."""
    return list(_batches(bundle, corpus, _settings(bundle), tokens=tokens, microbatch=batch))


def _batches(
    bundle: Bundle, corpus: Corpus, how: TextSetup, *, tokens: int, microbatch: int, language: str | None = None
) -> Iterator[TrainingBatch[Ints]]:
    return held_out_batches(
        corpus,
        how.packing,
        how.corruption,
        length=how.length,
        tokens=tokens,
        microbatch=microbatch,
        language=language,
        from_text=text_target_kinds(bundle.objectives),
    )


# Transfer.

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
