"""Evaluation without a task: of masked words of text, and of vectors.

Masked words of validation text: the scores of a language model, overall and by language.

scores = score_text(bundle, {"sw": "held_out/sw.txt"}, TextSettings(), device="cpu", tokens=1_048_576)
scores.rows(each=True)          # a row for each language, then one for all

Measure the vectors of a model: settings of `lv.evaluate(model, data=…, vectors=…)` and of `evaluate --vectors`.

evaluate("runs/faq", data="sts.tsv", vectors="sts", baselines=True).metrics["spearman"]
evaluate("runs/faq", data="test.tsv", train="train.tsv", vectors="classification", shots=10, draws=10)
evaluate("runs/faq", data="scifact/", vectors="retrieval")
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from larvatus.core.ranges import Count
from larvatus.core.settings import Flag, Settings
from larvatus.core.tables import Table, Tabular, data_frame, render_text
from larvatus.data.corpus import BuildOptions
from larvatus.data.corpus import Corpus as Shards
from larvatus.data.corpus.mixture import language_rows
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.problems import Errors
from larvatus.evaluation.compare.languages import evaluate_text, open_text
from larvatus.evaluation.vectors.evaluate import VectorEvaluation, VectorKind, VectorRequest, evaluate_vectors
from larvatus.inference.model import Model
from larvatus.interfaces.api.evaluation_claims import changed_reading, text_claims
from larvatus.interfaces.api.task_settings import SAMPLES, SEEDS
from larvatus.interfaces.settings import Corpus, TextSettings, read_settings, text_given
from larvatus.models.bundle.claims import Claim, claim_dicts
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.registry import parse_file_options
from larvatus.training.engine.settings import BUDGETS, Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores, perplexity


class HeldOutSettings(Settings):
    """How much validation text is read."""

    tokens: Annotated[int, BUDGETS["tokens"]] = 1_048_576
    """Most tokens to read in all, shared equally between languages."""


COLUMNS = {
    "language": "{}",
    "tokens": "{:,}",
    "hidden": "{:,}",
    "loss": "{:.3f}",
    "perplexity": "{:,.1f}",
    "accuracy": "{:.1%}",
    "unigram_loss": "{:.3f}",
    "unigram_accuracy": "{:.1%}",
    "fertility": "{:.2f}",
}
"""Scores of held-out text, and how they are written."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TextScores(Tabular):
    """A model on held-out text."""

    held_out: HeldOutScores
    by_language: Mapping[str, HeldOutScores]
    fertility: Mapping[str, float]
    """Tokens of a word, by language; of all under ``all``."""
    skipped: Mapping[str, int]
    """What could not be read, by reason."""
    claims: tuple[Claim, ...] = ()
    """The scores as a model card takes them over: with data, settings and versions."""

    def __str__(self) -> str:
        rows = self.rows(each=len(self.by_language) > 1)
        cells = tuple(tuple(form.format(row[name]) for name, form in COLUMNS.items()) for row in rows)
        return render_text([Table(tuple(name.replace("_", " ") for name in COLUMNS), cells)])

    def rows(self, *, each: bool = False) -> list[dict[str, Any]]:
        """A row for each language where `each`, then one for all."""
        parts = self.by_language if each else {}
        rows = [*parts.items(), ("all", self.held_out)]
        return [_row(name, part, self.fertility[name]) for name, part in rows]

    def to_dicts(self, *, each: bool = False) -> list[dict[str, Any]]:
        """What `--json` prints: the rows, and the claims in the one for all."""
        *parts, whole = self.rows(each=each)
        return [*parts, {**whole, "claims": claim_dicts(self.claims)} if self.claims else whole]

    def to_pandas(self, *, each: bool = False) -> Any:
        """The rows as a `pandas.DataFrame`, without claims; pandas must be installed."""
        return data_frame(self.rows(each=each))


def score_text(bundle: Bundle, corpus: Corpus, reading: TextSettings, *, device: str, tokens: int) -> TextScores:
    """Score a model on validation text: up to `tokens` tokens in all, shared equally between languages."""
    runtime = Runtime.here(device=device, compile=False)
    options = BuildOptions(language=reading.language, sentences=reading.sentences, reading=reading.reading())
    text = text_given(corpus)
    with tempfile.TemporaryDirectory() as folder:
        shards = open_text(text, bundle.tokenizer, Path(folder) / "corpus", options)
        held_out = evaluate_text(bundle, shards, runtime=runtime, tokens=tokens)
        how = {"tokens": tokens, "reading": changed_reading(reading)}
        claims = text_claims(bundle, text, shards, held_out, how=how, runtime=runtime)
        return dataclasses.replace(_text_scores(held_out, shards), claims=claims)


def _text_scores(held_out: HeldOutScores, shards: Shards) -> TextScores:
    manifest = shards.manifest
    fertility = {row.language: row.fertility for row in language_rows(manifest.languages, 1.0)}
    alone: Sequence[str] = list(manifest.languages) if len(shards.languages) == 1 else ()
    return TextScores(
        held_out=held_out,
        by_language=held_out.languages or dict.fromkeys(alone, held_out),
        fertility={**fertility, "all": manifest.counts.tokens / max(1, manifest.counts.words)},
        skipped=manifest.skipped,
    )


def _row(language: str, result: HeldOutScores, fertility: float) -> dict[str, Any]:
    score = result.scores[result.words]
    return {
        "language": language,
        "tokens": result.tokens,
        "hidden": score.count,
        "loss": score.loss,
        "perplexity": perplexity(score.loss),
        "accuracy": score.accuracy,
        "unigram_loss": result.guess_loss,
        "unigram_accuracy": result.guess_accuracy,
        "fertility": fertility,
    }


class VectorEvaluationSettings(Settings):
    """What vectors are measured by."""

    vectors: VectorKind | None = None
    """Measure the vectors of any encoder on --data: retrieval, sts, pairs, classification or clustering."""
    queries: Annotated[str | None, Flag(metavar="FILE")] = None
    """Queries of retrieval (JSONL, SMART), where --data is a file of documents."""
    judgements: Annotated[str | None, Flag(metavar="FILE")] = None
    """Judgements of retrieval (TREC, BEIR, SMART)."""
    shots: Count = 10
    """Classification: training examples of each class in a sample."""
    draws: Annotated[int, SEEDS] = 10
    """Number of samples of training examples, or of k-means seeds, from 0."""
    baselines: bool = False
    """Also score TF-IDF, and BM25 where texts are ranked."""
    samples: Annotated[int, SAMPLES] = 1000
    """Samples of the bootstrap."""


def evaluate_model_vectors(
    model: Model, data: Examples, columns: Mapping[str, Any], settings: Mapping[str, object], *, errors: Errors
) -> VectorEvaluation:
    """Measure vectors from the keywords of `evaluate`; `train` may be anything that holds examples."""
    others = {name: value for name, value in settings.items() if name != "train"}
    (chosen,) = read_settings(others, VectorEvaluationSettings, function="evaluate")
    return run_vector_evaluation(model, data, chosen, train=settings.get("train"), columns=columns, errors=errors)


def run_vector_evaluation(
    model: Model,
    data: Examples,
    chosen: VectorEvaluationSettings,
    *,
    train: Examples | None,
    columns: Mapping[str, Any],
    errors: Errors,
    progress: Callable[[int], None] = lambda done: None,
) -> VectorEvaluation:
    """Measure vectors from a struct."""
    assert chosen.vectors is not None
    request = VectorRequest(
        kind=chosen.vectors,
        data=data,
        train=train,
        queries=chosen.queries,
        judgements=chosen.judgements,
        columns=parse_file_options("classify", columns),
        errors=errors,
        shots=chosen.shots,
        draws=chosen.draws,
        samples=chosen.samples,
        baselines=chosen.baselines,
    )
    return evaluate_vectors(model, request, name=str(model.bundle.path), progress=progress)
