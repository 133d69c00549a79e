"""A finished run as a model directory, with its model card: what was trained, on what, for how long, how well.

    FinishedRun(job=job, corpus=corpus, valid=valid, microbatch=8_192, processes=1).save(model, progress, results, rows)

The figures of the card are claims (`models/bundle/claims.py`).
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from larvatus.data.corpus import Corpus
from larvatus.data.corpus.mixture import filtered_count, hygiene_lines
from larvatus.models.bundle.card import Card, Datasheet, DatasheetSource, model_card
from larvatus.models.bundle.claims import (
    PERPLEXITY,
    CardText,
    Claim,
    Data,
    PowerDraw,
    claim_dicts,
    device_power,
    energy_claims,
    make_claim,
    size_claims,
)
from larvatus.models.bundle.directory import GENERATOR, architecture_of, save_bundle
from larvatus.models.bundle.huggingface import Native, layout_for
from larvatus.models.network import Network
from larvatus.models.recipes import Recipe, recipe_table
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.adapt import parent_lineage
from larvatus.training.pretraining.checkpoint import Progress
from larvatus.training.pretraining.domains import DomainChange, card_facts
from larvatus.training.pretraining.evaluation import HeldOutScores, perplexity
from larvatus.training.pretraining.job import PretrainingJob

TRAINING_FACTS = ("steps", "tokens", "seed", "hardware", "runtime", "training seconds")
"""Figures of a run that only training gives (`training_facts`)."""
LARGEST = 1e9
"""Largest figure that a card states."""

Fact = str | int | float


def build_card(
    name: str,
    *,
    recipe: Recipe,
    model: Network,
    corpus: Corpus,
    claims: Sequence[Claim],
    transformers: bool,
    parent: str | None = None,
) -> Card:
    """Text and figures of a pretraining run for the card."""
    return Card(
        name=name,
        recipe=recipe.name,
        about=recipe.about,
        claims=claims,
        corpus=build_datasheet(corpus),
        kind="left-to-right language model" if "causal-lm" in model.heads else "bidirectional encoder",
        fills=model.filler is not None,
        generator=GENERATOR if model.generator is not None else None,
        mask=corpus.tokenizer.special.mask,
        transformers=transformers,
        parent=parent,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFigures:
    """What a run came to, for its claims."""

    out: Path
    model: Network
    corpus: Corpus
    valid: Corpus | None
    training: Mapping[str, Fact]
    """Result of `training_facts`."""
    results: Mapping[int, HeldOutScores]
    tokens: int
    """Read of held-out text at most."""
    domains: Mapping[str, float]
    """Before and after, of a run that went on from a model."""
    runtime: Runtime
    processes: int

    def claims(self) -> list[Claim]:
        """The figures of the card: sizes, training, energy, held-out results, the corpus."""
        machine, seed = hardware(self.runtime), self.training["seed"]
        known = {"machine": machine}
        training = [make_claim(name, fact, command="pretrain", **known) for name, fact in self.training.items()]
        domains = [make_claim(name, value, command="before and after", **known) for name, value in self.domains.items()]
        return [
            *size_claims(self.model, vocabulary=self.corpus.tokenizer.size),
            *training,
            *domains,
            *energy_claims(self._draw(), **known),
            *self._held_out(seed=seed, **known),
            *corpus_claims(self.corpus, self._name(self.corpus)),
        ]

    def _draw(self) -> PowerDraw:
        device = hardware(self.runtime) if self.runtime.cuda else ""
        watts, source = device_power(device, threads=torch.get_num_threads())
        seconds = float(self.training["training seconds"])
        return PowerDraw(watts=watts, devices=self.processes, seconds=seconds, source=source)

    def _held_out(self, **known: Any) -> Iterator[Claim]:
        if self.valid is None:
            return
        data = Data(name=self._name(self.valid), sha256=self.valid.fingerprint, kind="corpus")
        for length, result in self.results.items():
            settings = {"length": length, "tokens": self.tokens, "microbatch": self.runtime.microbatch}
            yield from held_out_claims(result, settings, data=data, precision=self.runtime.precision, **known)

    def _name(self, corpus: Corpus) -> str:
        """A corpus of the run by its relative path."""
        return str(corpus.path.relative_to(self.out) if corpus.path.is_relative_to(self.out) else corpus.path)


def training_facts(progress: Progress, *, seed: int, runtime: Runtime) -> dict[str, Fact]:
    return {
        "steps": progress.step,
        "tokens": progress.tokens,
        "seed": seed,
        "hardware": hardware(runtime),
        "runtime": str(runtime),
        "training seconds": round(progress.seconds, 1),
    }


def hardware(runtime: Runtime) -> str:
    if runtime.cuda:
        return torch.cuda.get_device_name(runtime.device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def held_out_claims(
    result: HeldOutScores, settings: Mapping[str, Any], *, data: Data, precision: str = "fp32", **known: Any
) -> Iterator[Claim]:
    """Scores of all objectives, of the unigram guess, and of each language; `settings` are those of the measurement.

    What is not finite, or next to it, is no figure: the loss of a token that the vocabulary's text never had, or of a
    run that went astray.
    """
    for name, value, language in _figures(result):
        if not abs(value) < LARGEST:
            continue
        where = settings if language is None else {**settings, "language": language}
        yield make_claim(
            name,
            value,
            command="held-out text",
            settings={**where, "precision": precision},
            data=(data,),
            **known,
        )


def _figures(result: HeldOutScores) -> Iterator[tuple[str, int | float, str | None]]:
    """Name, value, and the language where it is of one."""
    yield "held-out tokens", result.tokens, None
    for name, score in result.scores.items():
        yield f"{name} loss", score.loss, None
        if name == "masked-lm":
            yield PERPLEXITY, perplexity(score.loss), None
        yield f"{name} accuracy", score.accuracy, None
        if score.guess_accuracy is not None and score.guess_loss is not None:
            yield f"{name} accuracy of a constant guess", score.guess_accuracy, None
            yield f"{name} loss of a constant guess", score.guess_loss, None
    if result.guess_accuracy is not None and result.guess_loss is not None:
        yield "accuracy of the unigram guess", result.guess_accuracy, None
        yield "loss of the unigram guess", result.guess_loss, None
    for language, part in result.languages.items():
        if masked := part.scores.get("masked-lm"):
            yield "masked-lm loss", masked.loss, language
            yield "masked-lm accuracy", masked.accuracy, language


def corpus_claims(corpus: Corpus, name: str) -> list[Claim]:
    """How much text the shards hold, which their manifest counts."""
    counts = corpus.manifest.counts
    data = Data(name=name, sha256=corpus.fingerprint, kind="corpus")
    sizes = {size: getattr(counts, size) for size in ("documents", "sentences", "words", "tokens")}
    return [make_claim(size, count, command="corpus", data=(data,)) for size, count in sizes.items()]


def build_datasheet(corpus: Corpus) -> Datasheet:
    manifest = corpus.manifest
    licences = sorted({source.licence for source in manifest.sources if source.licence})
    return Datasheet(
        documents=manifest.counts.documents,
        sentences=manifest.counts.sentences,
        words=manifest.counts.words,
        tokens=manifest.counts.tokens,
        languages={name: counts.documents for name, counts in manifest.languages.items()},
        sources=[
            DatasheetSource(name=s.name, bytes=s.bytes or None, license=s.licence or None) for s in manifest.sources
        ],
        sha256=corpus.fingerprint,
        license="; ".join(licences) or None,
        skipped=sum(manifest.skipped.values()) - filtered_count(manifest),
        treatment=hygiene_lines(manifest),
    )


FINAL_TOKENS = 1_048_576
"""Validation tokens read at the end."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedRun:
    """What the run was."""

    job: PretrainingJob
    corpus: Corpus
    valid: Corpus | None
    microbatch: int
    """Tokens of one pass, as they were in the end."""
    evaluated: int
    """Held-out tokens read at the end, at most."""
    processes: int

    def save(
        self, model: Network, progress: Progress, results: Mapping[int, HeldOutScores], rows: Sequence[DomainChange]
    ) -> None:
        """Write the model, its card and its manifest."""
        job, recipe, tokenizer = self.job, self.job.recipe, self.corpus.tokenizer
        facts = training_facts(progress, seed=job.seed, runtime=job.runtime)
        architecture = architecture_of(model, recipe.objectives)
        claims = RunFigures(
            out=job.out,
            model=model,
            corpus=self.corpus,
            valid=self.valid,
            training=facts,
            results=results,
            tokens=self.evaluated,
            domains=card_facts(rows),
            runtime=dataclasses.replace(job.runtime, microbatch=self.microbatch),
            processes=self.processes,
        ).claims()
        card = build_card(
            job.out.name,
            recipe=recipe,
            model=model,
            corpus=self.corpus,
            claims=claims,
            transformers=layout_for(architecture, pad=tokenizer.padding_id).model_type != Native.model_type,
            parent=str(job.origin.path) if job.origin else None,
        )
        save_bundle(
            job.out,
            network=model,
            objective_configs=recipe.objectives,
            tokenizer=tokenizer,
            recipe=recipe_table(recipe),
            lineage={**facts, "corpus": self.corpus.fingerprint, **parent_lineage(job.origin, job.out)},
            card=CardText(model_card(card), claim_dicts(claims)),
        )
