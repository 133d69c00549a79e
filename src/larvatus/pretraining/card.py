"""The facts of a run for its model card: what was trained, on what, for how long, how well."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import torch

from larvatus.bundle.card import Card, Datasheet, Source
from larvatus.bundle.directory import GENERATOR
from larvatus.corpus import Corpus
from larvatus.corpus.report import chosen_out, hygiene_lines
from larvatus.engine.settings import Runtime
from larvatus.network import Network
from larvatus.pretraining.checkpoint import Progress
from larvatus.pretraining.evaluation import HeldOut, perplexity
from larvatus.recipes import Recipe

Fact = str | int | float


def card_of(
    name: str,
    *,
    recipe: Recipe,
    model: Network,
    corpus: Corpus,
    training: dict[str, Fact],
    results: Mapping[str, Fact],
    transformers: bool,
    parent: str | None = None,
) -> Card:
    """All that the card says of a pretraining run."""
    settings = recipe.model
    sizes = {n: getattr(settings, n) for n in ("layers", "hidden", "heads", "max_positions") if hasattr(settings, n)}
    return Card(
        name=name,
        recipe=recipe.name,
        about=recipe.about,
        parameters=sum(p.numel() for p in model.parameters()),
        vocabulary=corpus.tokenizer.size,
        architecture=sizes,
        training=training,
        results=results,
        corpus=datasheet_of(corpus),
        kind="left-to-right language model" if "causal-lm" in model.heads else "bidirectional encoder",
        fills=model.filler is not None,
        generator=GENERATOR if model.generator is not None else None,
        mask=corpus.tokenizer.special.mask,
        transformers=transformers,
        parent=parent,
    )


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


def results_of(results: Mapping[int, HeldOut]) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for length, result in results.items():
        at = f"length {length}:"
        facts[f"{at} held-out tokens"] = result.tokens
        for name, score in result.scores.items():
            facts[f"{at} {name} loss"] = score.loss
            if name == "masked-lm":
                facts[f"{at} masked-lm perplexity"] = perplexity(score.loss)
            facts[f"{at} {name} accuracy"] = score.accuracy
            if score.guess_accuracy is not None and score.guess_loss is not None:
                facts[f"{at} {name} accuracy of a constant guess"] = score.guess_accuracy
                facts[f"{at} {name} loss of a constant guess"] = score.guess_loss
        if result.guess_accuracy is not None and result.guess_loss is not None:
            facts[f"{at} accuracy of the unigram guess"] = result.guess_accuracy
            facts[f"{at} loss of the unigram guess"] = result.guess_loss
        for language, part in result.languages.items():
            if masked := part.scores.get("masked-lm"):
                facts[f"{at} {language}: masked-lm loss"] = masked.loss
                facts[f"{at} {language}: masked-lm accuracy"] = masked.accuracy
    return facts


def datasheet_of(corpus: Corpus) -> Datasheet:
    manifest = corpus.manifest
    licences = sorted({source.licence for source in manifest.sources if source.licence})
    return Datasheet(
        documents=manifest.counts.documents,
        sentences=manifest.counts.sentences,
        words=manifest.counts.words,
        tokens=manifest.counts.tokens,
        languages={name: counts.documents for name, counts in manifest.languages.items()},
        sources=[Source(name=s.name, bytes=s.bytes or None, license=s.licence or None) for s in manifest.sources],
        sha256=corpus.fingerprint,
        license="; ".join(licences) or None,
        skipped=sum(manifest.skipped.values()) - chosen_out(manifest),
        treatment=hygiene_lines(manifest),
    )
