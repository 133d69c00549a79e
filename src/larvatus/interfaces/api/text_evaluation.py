"""Evaluation without a task: of masked words of text, of vectors, and of minimal pairs.

    scores = score_text(bundle, {"sw": "held_out/sw.txt"}, TextSettings(), device="cpu", tokens=1_048_576)
    scores.rows(each=True)          # a row for each language, then one for all
    evaluate("runs/faq", data="sts.tsv", vectors="sts", baselines=True).metrics["spearman"]
    evaluate("runs/faq", data="test.tsv", train="train.tsv", vectors="classification", shots=10, draws=10)
    score_pairs("runs/mine", "blimp/adjunct_island.jsonl").overall.share

A minimal pair is two sentences, of which a model should expect the first more.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.ranges import Count
from larvatus.core.settings import Flag, Settings
from larvatus.core.signals import resumable
from larvatus.core.tables import Table, Tabular, data_frame, render_text
from larvatus.core.text_inputs import checked_inputs, described
from larvatus.data.corpus import BuildOptions
from larvatus.data.corpus import Corpus as Shards
from larvatus.data.corpus.mixture import language_rows
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.problems import Errors
from larvatus.evaluation.compare.languages import evaluate_text, open_text
from larvatus.evaluation.compare.minimal_pairs import MinimalPair, Normalise, PairRun, minimal_pair, read_pairs
from larvatus.evaluation.vectors.evaluate import VectorEvaluation, VectorKind, VectorRequest, evaluate_vectors
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.model import Model
from larvatus.interfaces.api.evaluation_claims import changed_reading, text_claims
from larvatus.interfaces.api.task_settings import SAMPLES, SEEDS
from larvatus.interfaces.settings import Corpus, TextSettings, loaded_model, read_settings, text_given
from larvatus.metrics.accuracy import PairAccuracies
from larvatus.models.bundle.claims import Claim, claim_dicts
from larvatus.models.bundle.directory import Bundle
from larvatus.models.loaded import model_fingerprint, settings_hash
from larvatus.tasks.registry import parse_file_options
from larvatus.training.engine.settings import BUDGETS, Runtime
from larvatus.training.pretraining.evaluation import HeldOutScores, perplexity

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import ScorePairsKeywords


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


# Vectors.


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


# Minimal pairs.


class PairSettings(Settings):
    """How sentences are scored."""

    method: Method = "original"
    """Mask each token by itself, or with the rest of its word (Kauf & Ivanova 2023)."""
    normalise: Normalise = "none"
    """Divide each sentence's score by its tokens or words."""


def score_pairs(
    model: str | Path | Model,
    pairs: str | Path | Sequence[str | Path] | Sequence[tuple[str, str]],
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **settings: Unpack[ScorePairsKeywords],
) -> PairAccuracies:
    """How often a model gives the good sentence of a minimal pair the higher pseudo-log-likelihood, by phenomenon.

    Args:
        model: A model directory, a hub name, or a loaded model.
        pairs: Files, of BLiMP's JSONL or of good<TAB>bad[<TAB>phenomenon] lines; or pairs of good and bad sentences.
        out: A file for the scores of all pairs: .jsonl, .csv, .tsv or .parquet.
        overwrite: Replace it if it exists.
        resume: Resume an interrupted run to `out`.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with the number of pairs are done, first those of an interrupted run, and of how many.
        **settings: `method` (`original`, `word-l2r`), `normalise` (`none`, `token`, `word`).

    Returns:
        Accuracy with its interval, overall and by group, and the number of ties, which count as wrong.

    Example:
        >>> score_pairs(model, [("The boat lay there.", "The boat there lay.")]).overall.total
        1
    """
    (chosen,) = read_settings(settings, PairSettings, function="score_pairs")
    if resume and out is None:
        raise UsageError("--resume needs --out, the file of the run that was interrupted")
    files, sentences = files_or_sentences(pairs)
    path = None if out is None else Path(out)
    inputs = [model.bundle.path if isinstance(model, Model) else model, *files]
    check_outputs(path, overwrite=overwrite, inputs=inputs)
    loaded = loaded_model(model, device)
    read = sentences or read_pairs(files)
    name, total = str(loaded.bundle.path), len(read)
    run = PairRun(
        loaded.network,
        loaded.tokenizer,
        read,
        chosen.method,
        chosen.normalise,
        name,
        lambda done: progress(done, total),
    )
    if path is None:
        return run.finish()
    identity = {
        "method": chosen.method,
        "normalise": chosen.normalise,
        "model": model_fingerprint(loaded.bundle.path, loaded.tokenizer),
        "tokenizer": settings_hash(loaded.tokenizer),
    }
    with resumable("the same command with --resume continues from what was written"):
        return run.to_file(path, identity, resume=resume, overwrite=overwrite)


def files_or_sentences(given: Any) -> tuple[list[str], list[MinimalPair]]:
    """Names of files, or pairs of sentences in memory."""
    several = [given] if isinstance(given, str | Path) else given
    if isinstance(several, list | tuple) and any(isinstance(each, str | Path) for each in several):
        for at, each in enumerate(several):
            if not isinstance(each, str | Path):
                raise UsageError(f"pairs[{at}] is {described(each)}, not the name of a file as the others are")
        return [str(each) for each in several], []
    listed = checked_inputs(list(several) if isinstance(several, tuple) else several, "pairs").inputs
    return [], [minimal_pair(each, f"pair {number} of {len(listed)}") for number, each in enumerate(listed, 1)]
