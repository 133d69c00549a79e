"""A plan of a pretraining run: settings and reasons, expected loss, minutes here and on a GPU, and more text.

    plan = make_plan(scan, PlanRequest(minutes=30), runtime=Runtime.here())
    plan.command("my_texts/")            # larvatus pretrain modern --size tiny --set tokenizer.size=4000 …
    plan.outlooks[1].expected.loss       # with twice the text

Settings follow from the number of different words by fixed rules (`SIZES`, `VOCABULARIES`, `EPOCHS`), each with its
reason. The expected loss is `LossFit`'s. Minutes on this machine are measured in seconds: some steps of the recommended
model on rows of the text. Minutes on a GPU are computed from the speeds of docs/speed.md.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from larvatus.core import notebook
from larvatus.core.errors import DataError
from larvatus.core.ranges import Count
from larvatus.core.settings import Settings
from larvatus.core.tables import Column, ReportPart, Row, Table, Tabular, render_text
from larvatus.data.text.languages import LanguagePath, LanguageSource
from larvatus.evaluation.planning.loss import Amount, ExpectedLoss, LossFit
from larvatus.evaluation.planning.measure import (
    VocabularySample,
    empty_network,
    operations_per_token,
    training_speed,
)
from larvatus.evaluation.planning.scan import TextScan
from larvatus.models.recipes import Recipe, read_recipe
from larvatus.training.engine.settings import BUDGETS, Runtime
from larvatus.training.pretraining.plan import tokens_per_step

RECIPE = "modern"
SIZES = ((1_000_000, "tiny"), (10_000_000, "mini"), (math.inf, "small"))
"""Most words for each size; how it was chosen is in docs/planning.md."""
VOCABULARIES = (
    (10_000, 1_000), (100_000, 2_000), (1_000_000, 4_000), (5_000_000, 8_192), (100_000_000, 12_288),
    (math.inf, 32_768),
)  # fmt: skip
EPOCHS = ((1_000_000, 20), (10_000_000, 10), (100_000_000, 4), (math.inf, 2))
BATCHES, FEWEST_STEPS = (512, 256, 128, 64, 32, 16, 8), 1_000
"""Sequences of a step: the largest with which a run has enough steps, at most the recipe's."""
MANY_EPOCHS, DROPOUT = 10, 0.1
TIMES = (1, 2, 10)
"""How much text the outlooks have."""
GPU, GPU_TOKENS, GPU_FLOPS = "one H200", 2_970_000, 297e12
"""Tokens and operations a second of the fastest run in docs/speed.md: `modern` of 19M parameters, bf16, compiled."""
FEWEST_WORDS = 3_000
"""Words of a text below which nothing is planned."""


class PlanRequest(Settings):
    """What a plan is to keep to."""

    recipe: str = RECIPE
    """Recipe, or a TOML file."""
    size: str | None = None
    """tiny, mini, small, medium, base or large; default: by the number of words."""
    vocabulary: Count | None = None
    """Tokens of the vocabulary; default: by the number of words."""
    epochs: Annotated[float, BUDGETS["epochs"]] | None = None
    """Epochs; default: by the number of words, or as many as fit into the minutes."""
    minutes: Annotated[float, BUDGETS["minutes"]] | None = None
    """Minutes on this machine, into which the epochs have to fit."""
    measure: bool = True
    """Time some steps on this machine, which takes seconds."""


@dataclass(frozen=True, kw_only=True)
class PlannedSetting:
    """A recommended setting and its reason."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The same run with some times the text."""

    times: int
    words: int
    epochs: float
    expected: ExpectedLoss
    minutes: float | None
    """On this machine; None if no step was timed."""


@dataclass(frozen=True, kw_only=True)
class PretrainingPlan(Tabular):
    """Settings of a run for a text, and what to expect from it."""

    scan: TextScan
    request: PlanRequest
    size: str
    vocabulary: int
    tokens_per_word: float
    batch: int
    epochs: float
    dropout: float
    parameters: int
    steps: int
    tokens: int
    """Tokens to train on, in all epochs."""
    unigram: float
    """Nats per word from token frequencies only."""
    tokens_per_second: float | None
    """Measured on this machine; None if no step was timed."""
    gpu_minutes: float
    """Minutes on the GPU of `GPU` at its fastest measured speed: steps of a few thousand tokens take longer."""
    machine: str
    choices: tuple[PlannedSetting, ...]
    outlooks: tuple[Outlook, ...]

    @property
    def expected(self) -> ExpectedLoss:
        """Expected validation loss of the plan."""
        return self.outlooks[0].expected

    @property
    def minutes(self) -> float | None:
        """Minutes of training on this machine."""
        return self.outlooks[0].minutes

    @property
    def warnings(self) -> list[str]:
        """What to look at in the text before training."""
        return self.scan.warnings()

    def command(self, *texts: LanguageSource, out: str = "runs/mine") -> str:
        """The command of the run."""
        words = ["larvatus", "pretrain", self.request.recipe, "--size", self.size, *_flags(self._settings())]
        named = [
            word
            for text in texts
            for word in ("--language" if isinstance(text, LanguagePath) else "--corpus", str(text))
        ]
        return shlex.join([*words, *named, "--out", out, "--epochs", f"{self.epochs:g}"])

    def _settings(self) -> dict[str, Any]:
        return plan_settings(self.vocabulary, self.batch, self.dropout)

    def to_dicts(self) -> list[Row]:
        """A row for each amount of text."""
        return [
            {
                "times": each.times,
                "words": each.words,
                "epochs": each.epochs,
                "loss": each.expected.loss,
                "low": each.expected.low,
                "high": each.expected.high,
                "minutes": each.minutes,
                "outside": "; ".join(each.expected.outside),
            }
            for each in self.outlooks
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        sample = ("training", "held_out")
        scan = {name: value for name, value in plain["scan"].items() if name not in sample}
        return plain | {"scan": scan, "warnings": self.warnings}

    def report(self) -> list[ReportPart]:
        """The plan for people."""
        scan = self.scan
        shares = ", ".join(f"{name} {share:.0%}" for name, share in list(scan.scripts.items())[:4])
        near = "" if scan.near_words is None else f", {scan.near_words:,} in near repeats"
        codes = ", ".join(f"{code} {share:.0%}" for code, share in list((scan.languages or {}).items())[:4])
        known = codes or ("too short to tell" if scan.languages is not None else "pip install larvatus[hygiene]")
        lines = [
            f"{scan.documents:,} documents · {scan.words:,} words · {shares}",
            f"words in repeated documents: {scan.exact_words:,} in exact repeats{near}",
            f"languages of documents: {known}",
            *(f"warning: {line}" for line in self.warnings),
        ]
        chosen = Table(
            ("", "recommended", Column("why", right=False)),
            [(choice.name, choice.value, choice.why) for choice in self.choices],
            left=2,
            blank_before=True,
        )
        return [*lines, chosen, self._outlook_table()]

    def _outlook_table(self) -> Table:
        rows = [
            (
                "this text" if each.times == 1 else f"{each.times} times the text",
                f"{each.words:,}",
                f"{each.epochs:g}",
                f"{each.expected.loss:.2f} ({each.expected.low:.2f} to {each.expected.high:.2f})",
                "not measured" if each.minutes is None else _minutes(each.minutes),
                "; ".join(each.expected.outside) or "no",
            )
            for each in self.outlooks
        ]
        columns = ("", "words", "epochs", "nats a word", self.machine, Column("outside the fit", right=False))
        notes = (
            f"token frequencies only: {self.unigram:.2f} nats a word",
            f"{self.parameters:,} parameters · {self.steps:,} steps · {self.tokens:,} tokens",
            f"on {GPU}: {_minutes(self.gpu_minutes)} at the speed of docs/speed.md; small steps take longer",
        )
        return Table(columns, rows, notes=notes, blank_before=True)

    def __str__(self) -> str:
        return render_text(self.report())

    def _repr_html_(self) -> str:
        table = self._outlook_table()
        return notebook.table(
            [column.name for column in table.heads], [[cell.text for cell in row] for row in table.cells]
        )


def plan_settings(vocabulary: int, batch: int, dropout: float) -> dict[str, Any]:
    """Settings of a recipe that a plan changes."""
    settings: dict[str, Any] = {"tokenizer.size": vocabulary, "batch": batch}
    return settings | ({"model.dropout": dropout} if dropout else {})


def _flags(settings: dict[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def _minutes(minutes: float) -> str:
    """
    >>> _minutes(0.2), _minutes(7.4), _minutes(600)
    ('under a minute', '7 minutes', '10.0 hours')
    """
    if minutes < 1:
        return "under a minute"
    if minutes < 120:
        return f"{minutes:,.0f} minute{'s' if round(minutes) != 1 else ''}"
    return f"{minutes / 60:,.1f} hours"


def by_words(table: tuple[tuple[float, Any], ...], words: int) -> Any:
    """The first entry whose limit is not below the number of words.

    >>> by_words(SIZES, 180_000), by_words(SIZES, 50_000_000)
    ('tiny', 'small')
    """
    return next(value for most, value in table if words <= most)


def make_plan(
    scan: TextScan, request: PlanRequest, *, runtime: Runtime, say: Callable[[str], None] = lambda line: None
) -> PretrainingPlan:
    """Choose settings for a text, measure what they cost, and predict the loss."""
    words = scan.unique_words
    if words < FEWEST_WORDS:
        repeated = f" ({scan.words - words:,} more are in documents that repeat others)" if words < scan.words else ""
        raise DataError(f"{words:,} words are too few to plan with{repeated}; give {FEWEST_WORDS:,} or more")
    size = request.size or by_words(SIZES, words)
    wanted = request.vocabulary or by_words(VOCABULARIES, words)
    say("learning a vocabulary from a sample …")
    sample = VocabularySample.of(scan, read_recipe(request.recipe, size=size, settings=[f"tokenizer.size={wanted}"]))
    text = round(words * sample.tokens_per_word)
    epochs = request.epochs or float(by_words(EPOCHS, words))
    recipe, parameters = _recipe(request, size, wanted, text * epochs, epochs)
    speed = None
    if request.measure:
        say("timing some steps …")
        speed = training_speed(scan, recipe, sample.tokenizer, runtime)
    if request.minutes is not None and speed is not None and request.epochs is None:
        epochs = min(epochs, max(0.1, round(60 * request.minutes * speed / text, 1)))
        recipe, parameters = _recipe(request, size, wanted, text * epochs, epochs)
    dropout = DROPOUT if epochs >= MANY_EPOCHS else 0.0
    fit, tokens = LossFit.packaged(), round(text * epochs)
    outlooks = []
    for times in TIMES:
        amount = Amount(words=times * words, text=times * text, seen=times * tokens, parameters=parameters)
        minutes = None if speed is None else times * tokens / speed / 60
        expected = fit.predict(amount, unigram=sample.unigram)
        if request.recipe != RECIPE:
            reason = f"recipe {request.recipe}, runs are of {RECIPE}"
            expected = msgspec.structs.replace(expected, outside=(*expected.outside, reason))
        outlooks.append(Outlook(times=times, words=amount.words, epochs=epochs, expected=expected, minutes=minutes))
    return PretrainingPlan(
        scan=scan,
        request=request,
        size=size,
        vocabulary=wanted,
        tokens_per_word=sample.tokens_per_word,
        batch=recipe.batch,
        epochs=epochs,
        dropout=dropout,
        parameters=parameters,
        steps=max(1, round(tokens / tokens_per_step(recipe, recipe.batch))),
        tokens=tokens,
        unigram=sample.unigram,
        tokens_per_second=speed,
        gpu_minutes=tokens / min(GPU_TOKENS, GPU_FLOPS / operations_per_token(recipe, wanted)) / 60,
        machine=f"{runtime.device} here",
        choices=_choices(request, size=size, recipe=recipe, epochs=epochs, dropout=dropout, words=words),
        outlooks=tuple(outlooks),
    )


def _recipe(request: PlanRequest, size: str, vocabulary: int, tokens: float, epochs: float) -> tuple[Recipe, int]:
    """The recipe with the recommended settings, and its number of parameters."""
    recipe = read_recipe(request.recipe, size=size, settings=[f"tokenizer.size={vocabulary}"])
    batches = [batch for batch in BATCHES if batch <= recipe.batch]
    enough = [batch for batch in batches if tokens >= FEWEST_STEPS * tokens_per_step(recipe, batch)]
    batch = enough[0] if enough else min([*batches, recipe.batch])
    settings = plan_settings(vocabulary, batch, DROPOUT if epochs >= MANY_EPOCHS else 0.0)
    recipe = read_recipe(request.recipe, size=size, settings=[f"{name}={value}" for name, value in settings.items()])
    return recipe, sum(weights.numel() for weights in empty_network(recipe, vocabulary).parameters())


def _choices(
    request: PlanRequest, *, size: str, recipe: Recipe, epochs: float, dropout: float, words: int
) -> tuple[PlannedSetting, ...]:
    """Each setting with its reason."""
    given = "as you set it"
    masking = recipe.corruption
    rate = f"{getattr(masking, 'rate', 0):.0%}"
    first = getattr(masking, "first_rate", None)
    if first is not None and first != getattr(masking, "rate", None):
        rate = f"{first:.0%} falling to {rate}"
    budget = "as many as fit into the minutes" if request.minutes is not None else ""
    return (
        PlannedSetting(
            name="recipe",
            value=request.recipe,
            why=given if request.recipe != RECIPE else "keeps case and every character; the fit is of its runs",
        ),
        PlannedSetting(
            name="size", value=size, why=given if request.size else f"for {words:,} words without repeated documents"
        ),
        PlannedSetting(
            name="vocabulary",
            value=f"{recipe.tokenizer.size:,}",
            why=given if request.vocabulary else "so that rare tokens are still seen often enough to be learned",
        ),
        PlannedSetting(name="masking", value=rate, why="the recipe's at this size"),
        PlannedSetting(
            name="epochs",
            value=f"{epochs:g}",
            why=given if request.epochs else budget or "further epochs of the same text teach less and less",
        ),
        PlannedSetting(
            name="sequences a step", value=f"{recipe.batch}", why=f"some {FEWEST_STEPS:,} steps or more where possible"
        ),
        PlannedSetting(
            name="dropout",
            value=f"{dropout:g}",
            why=f"the text is read {MANY_EPOCHS} times or more" if dropout else "few epochs do not overfit",
        ),
    )
