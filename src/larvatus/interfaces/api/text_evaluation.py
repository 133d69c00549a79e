"""Masked words of validation text: the scores of a language model, overall and by language.

scores = score_text(bundle, {"sw": "held_out/sw.txt"}, TextSettings(), device="cpu", tokens=1_048_576)
scores.rows(each=True)          # a row for each language, then one for all
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from larvatus.core.settings import Settings
from larvatus.core.tables import Table, Tabular, data_frame, render_text
from larvatus.data.corpus import BuildOptions
from larvatus.data.corpus import Corpus as Shards
from larvatus.data.corpus.mixture import language_rows
from larvatus.evaluation.compare.languages import evaluate_text, open_text
from larvatus.interfaces.api.evaluation_claims import changed_reading, text_claims
from larvatus.interfaces.settings import Corpus, TextSettings, text_given
from larvatus.models.bundle.claims import Claim, claim_dicts
from larvatus.models.bundle.directory import Bundle
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
