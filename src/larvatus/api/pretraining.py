"""Pretrain, compare, ablate and convert, as one call each.

model = pretrain("bert", corpus="judgments/", out="runs/law", size="small", minutes=30)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from larvatus.bundle.convert import Converted, convert_bundle
from larvatus.bundle.convert import Precision as Number
from larvatus.engine.settings import Budget
from larvatus.engine.watch import Watcher
from larvatus.errors import UsageError
from larvatus.evaluation import compare as comparing
from larvatus.evaluation.ablations import read_ablation
from larvatus.evaluation.results import Results
from larvatus.model import Model, load
from larvatus.pretraining.adapt import AdaptedTexts, ModelsVocabulary
from larvatus.pretraining.adapted_recipe import EPOCHS, adapted_recipe
from larvatus.pretraining.evaluation import HeldOut
from larvatus.pretraining.job import Job
from larvatus.pretraining.origin import Origin
from larvatus.pretraining.prepare import prepare
from larvatus.pretraining.run import train as train_encoder
from larvatus.recipes import Recipe, read_recipe
from larvatus.settings import (
    BudgetSettings,
    CompareSettings,
    Corpus,
    MachineSettings,
    PretrainSettings,
    TextSettings,
    structs_of,
    text_given,
)


def pretrain(
    recipe: str | Path | None = None, *, corpus: Corpus, out: str | Path, quiet: bool = False, **settings: Any
) -> Model:
    """Pretrain an encoder on text; vocabulary and shards are built beside the run, a built corpus is taken as it is.

    Args:
        recipe: A recipe's name (`larvatus recipes` lists them) or a TOML file; with `start`, that model's own.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: The run's directory; it becomes the model's.
        quiet: Show no progress.
        **settings: Those of `larvatus pretrain`. What is trained: `size`, `settings` (`{"model.layers": 6}`), `start`
            (a model to go on from), `add_words`, `old`, `seed`. How long, one of `steps`, `minutes`, `epochs`,
            `tokens`. The run: `valid`, `resume`, `overwrite`, `fork`, `evaluate_every`, `save_every`, `tensorboard`.
            The machine: `device`, `precision`, `compile`, `microbatch`, `workers`, `deterministic`. The text:
            `language`, `sentences`, `split`, `on_bad`, `encoding`, `text_field`, `language_field`, `licence`.

    Returns:
        The model, loaded from `out`.

    Example:
        >>> model = pretrain("bert", corpus=texts, out=folder / "run", size="tiny", steps=2, quiet=True, **small)
        >>> model.encoder.config.hidden
        32
    """
    run_pretraining(recipe, corpus=corpus, out=out, quiet=quiet, **settings)
    return load(out, device=settings.get("device", "auto"))


def run_pretraining(
    recipe: str | Path | None = None, *, corpus: Corpus, out: str | Path, quiet: bool = False, **settings: Any
) -> Mapping[int, HeldOut]:
    """As `pretrain`; what was reached on held-out text, by the length of sequences. The model stays on disk."""
    kinds = (PretrainSettings, BudgetSettings, MachineSettings, TextSettings)
    chosen, time, machine, text = structs_of(settings, *kinds, of="pretrain")
    watcher = Watcher.on_stream(quiet=quiet or os.environ.get("RANK", "0") != "0")
    where = Path(out)
    origin = _origin(chosen, where)
    read, budget = _recipe(recipe, origin, chosen, watcher), time.budget
    job = Job(
        recipe=read,
        out=where,
        runtime=machine.runtime,
        budget=Budget(epochs=EPOCHS) if origin and budget == Budget() else budget,
        seed=chosen.seed,
        resume=chosen.resume,
        overwrite=chosen.overwrite,
        fork=chosen.fork,
        evaluate_every=chosen.evaluate_every,
        save_every=chosen.save_every,
        tensorboard=chosen.tensorboard,
        origin=origin,
    )
    given = text_given(corpus)
    texts = partial(prepare, read, given, out=where, valid=chosen.valid, options=text.options, watcher=watcher)
    if origin is None:
        return train_encoder(job, texts, watcher)
    words = list(chosen.add_words)
    return train_encoder(job, AdaptedTexts(ModelsVocabulary(origin, words), texts, chosen.old), watcher)


def _origin(chosen: PretrainSettings, out: Path) -> Origin | None:
    if chosen.start is not None:
        return Origin.load(chosen.start, out=out)
    for flag, given in (("--add-words", chosen.add_words), ("--old", chosen.old)):
        if given:
            raise UsageError(f"{flag} goes with --from DIR: there is no model whose words or domain could be old")
    return None


def _recipe(name: str | Path | None, origin: Origin | None, chosen: PretrainSettings, watcher: Watcher) -> Recipe:
    named = None if name is None else str(name)
    if origin is not None:
        adapted = adapted_recipe(origin.bundle, named, size=chosen.size, settings=list(chosen.settings))
        watcher.say(f"going on from {origin.path}, {adapted.why}")
        return adapted.recipe
    if named is None:
        raise UsageError("name a recipe (larvatus recipes lists them), or a model to go on from with --from DIR")
    return read_recipe(named, size=chosen.size, settings=list(chosen.settings))


def compare(
    recipes: str | Sequence[str], *, corpus: Corpus, out: str | Path, quiet: bool = False, **settings: Any
) -> Results:
    """Train several recipes on the same text under the same budget.

    Args:
        recipes: Names or TOML files, as a list or with commas between.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: Where the runs and their results go.
        quiet: Show no progress.
        **settings: Those of `larvatus compare`: `size`, `settings`, `valid`, `seed`, `seeds`, `resume`; the budget, one
            of `steps`, `minutes`, `tokens`; the machine and the text as in `pretrain`; `to_stderr`: progress goes to
            standard error.

    Returns:
        Every run with what it reached; it shows as a table in a notebook.

    Example:
        >>> results = compare(
        ...     ["bert", "spanbert"], corpus=texts, out=folder / "two", size="tiny", steps=1, quiet=True, **small
        ... )
        >>> len(results.runs)
        2
    """
    watcher = Watcher.on_stream(quiet=quiet, stderr=settings.pop("to_stderr", False))
    chosen, *rest = structs_of(settings, CompareSettings, *_OF_RUNS, of="compare")
    names = recipes if isinstance(recipes, str) else ",".join(recipes)
    contestants = comparing.contestants_of(names, size=chosen.size, settings=list(chosen.settings))
    return _compare(contestants, chosen, *rest, corpus=corpus, out=out, watcher=watcher)


def ablate(name: str, *, corpus: Corpus, out: str | Path, recipe: str | None = None, **settings: Any) -> Results:
    """Repeat a published ablation on your own text: variants of one recipe, everything else equal.

    Args:
        name: Which one; `larvatus ablate` lists them.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: Where the runs and their results go.
        recipe: What is varied; else what the paper varied.
        **settings: As in `compare`, `quiet` among them.

    Returns:
        Every variant with what it reached.

    Example:
        >>> ablate("masking-rate", corpus=texts, out=folder / "rates", size="tiny")
        Traceback (most recent call last):
        larvatus.errors.UsageError: a comparison needs a budget that is the same for all: --tokens, --minutes or --steps
    """
    watcher = Watcher.on_stream(quiet=settings.pop("quiet", False), stderr=settings.pop("to_stderr", False))
    chosen, *rest = structs_of(settings, CompareSettings, *_OF_RUNS, of="ablate")
    contestants = read_ablation(name).contestants(recipe=recipe, size=chosen.size, settings=list(chosen.settings))
    return _compare(contestants, chosen, *rest, corpus=corpus, out=out, watcher=watcher)


_OF_RUNS = (BudgetSettings, MachineSettings, TextSettings)


def _compare(
    contestants: tuple[comparing.Contestant, ...],
    chosen: CompareSettings,
    time: BudgetSettings,
    machine: MachineSettings,
    text: TextSettings,
    *,
    corpus: Corpus,
    out: str | Path,
    watcher: Watcher,
) -> Results:
    plan = comparing.Comparison(
        contestants=contestants,
        corpus=text_given(corpus),
        out=Path(out),
        budget=time.budget,
        seeds=(chosen.seed,) if chosen.seeds is None else chosen.seeds,
        valid=chosen.valid,
        options=text.options,
        runtime=machine.runtime,
        resume=chosen.resume,
    )
    return comparing.compare(plan, watcher)


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: str | None = None,
    dtype: Number = "float32",
    revision: str | None = None,
    online: bool = False,
    overwrite: bool = False,
) -> Converted:
    """Write a model in another layout: ours or one of Hugging Face's. Heads without a place there are left out.

    Args:
        source: A model directory, or a model of the hub (`org/name`).
        out: Where the converted model goes.
        to: The layout, such as `bert`; else the first that fits.
        dtype: Precision of the weights.
        revision: Commit of a hub model, 40 digits.
        online: Fetch a hub model that is not in the cache.
        overwrite: Replace what stands in `out`.

    Returns:
        What was written: the layout, heads kept and left out, bytes.

    Example:
        >>> convert(directory, folder / "as-bert", to="bert").layout
        'bert'
    """
    return convert_bundle(source, Path(out), to=to, dtype=dtype, revision=revision, online=online, overwrite=overwrite)
