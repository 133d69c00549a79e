"""Pretrain and convert, as one call each.

model = pretrain("bert", corpus="judgments/", out="runs/law", size="small", minutes=30)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from larvatus.core.errors import UsageError
from larvatus.inference.model import Model, load
from larvatus.interfaces.settings import (
    BudgetSettings,
    Corpus,
    MachineSettings,
    PretrainSettings,
    TextSettings,
    read_settings,
    text_given,
)
from larvatus.models.bundle.convert import ConversionResult, convert_bundle
from larvatus.models.bundle.convert import Precision as Number
from larvatus.models.recipes import read_recipe
from larvatus.training.engine.launch import launch
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.adapt import AdaptedRecipe, AdaptedTexts, ParentVocabulary, adapted_recipe
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import ParentModel, PretrainingJob
from larvatus.training.pretraining.plan import EPOCHS
from larvatus.training.pretraining.prepare import prepare
from larvatus.training.pretraining.run import train as train_encoder

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import PretrainKeywords


def pretrain(
    recipe: str | Path | None = None,
    *,
    corpus: Corpus,
    out: str | Path,
    quiet: bool = False,
    **settings: Unpack[PretrainKeywords],
) -> Model:
    """Pretrain an encoder on text. Without a built corpus, the vocabulary and shards are built next to the run.

    Args:
        recipe: A recipe's name (`larvatus recipes` lists them) or a TOML file; with `start`, that model's own.
        corpus: Text, a built corpus, several, or a mapping from languages to text.
        out: Directory of the run, which becomes the model directory.
        quiet: Show no progress.
        **settings: Those of `larvatus pretrain`. What is trained: `size`, `settings` (`{"model.layers": 6}`), `start`
            (a model to adapt), `add_words`, `old`, `seed`. How long, one of `steps`, `minutes`, `epochs`,
            `tokens`. The run: `valid`, `resume`, `overwrite`, `fork`, `evaluate_every`, `save_every`, `tensorboard`,
            `parallel`. The machine: `device`, `precision`, `compile`, `microbatch`, `workers`, `deterministic`,
            `activation_checkpointing`, `memory`, `rank_timeout`. The text: `language`, `sentences`, `split`, `on_bad`,
            `encoding`, `text` (column of tables), `language_field`, `licence`.

    Returns:
        The model, loaded from `out`.

    Example:
        >>> model = pretrain("bert", corpus=texts, out=folder / "run", size="tiny", steps=2, quiet=True, **small)
        >>> model.encoder.config.hidden
        32
    """
    chosen, time, machine, text = read_settings(
        settings, PretrainSettings, BudgetSettings, MachineSettings, TextSettings, function="pretrain"
    )
    run_pretraining(recipe, chosen, time, machine, text, corpus=corpus, out=out, quiet=quiet)
    return load(out, device=machine.device)


def run_pretraining(
    recipe: str | Path | None,
    chosen: PretrainSettings,
    time: BudgetSettings,
    machine: MachineSettings,
    text: TextSettings,
    *,
    corpus: Corpus,
    out: str | Path,
    quiet: bool = False,
) -> Mapping[int, HeldOutScores]:
    """Run `pretrain` from structs; return scores on validation text by sequence length. The model stays on disk."""
    reporter = Reporter.on_stream(quiet=quiet or not launch().main)
    where = Path(out)
    origin = _origin(chosen, where)
    adapted, budget = _recipe(recipe, origin, chosen, reporter), time.budget
    read = adapted.recipe
    job = PretrainingJob(
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
        parallel=chosen.parallel,
        origin=origin,
        free=adapted.free,
    )
    given = text_given(corpus)
    texts = partial(prepare, read, given, out=where, valid=chosen.valid, options=text.options, reporter=reporter)
    if origin is None:
        return train_encoder(job, texts, reporter)
    words = list(chosen.add_words)
    return train_encoder(job, AdaptedTexts(ParentVocabulary(origin, words), texts, chosen.old), reporter)


def _origin(chosen: PretrainSettings, out: Path) -> ParentModel | None:
    if chosen.start is not None:
        return ParentModel.load(chosen.start, out=out)
    for flag, given in (("--add-words", chosen.add_words), ("--old", chosen.old)):
        if given:
            raise UsageError(f"{flag} goes with --from DIR: there is no model whose words or domain could be old")
    return None


def _recipe(
    name: str | Path | None, origin: ParentModel | None, chosen: PretrainSettings, reporter: Reporter
) -> AdaptedRecipe:
    named = None if name is None else str(name)
    if origin is not None:
        adapted = adapted_recipe(origin.bundle, named, size=chosen.size, settings=list(chosen.settings))
        reporter.say(f"continuing from {origin.path}, {adapted.why}")
        return adapted
    if named is None:
        raise UsageError("name a recipe (larvatus recipes lists them), or a model to adapt with --from DIR")
    return AdaptedRecipe(read_recipe(named, size=chosen.size, settings=list(chosen.settings)), why="")


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: str | None = None,
    dtype: Number = "float32",
    revision: str | None = None,
    online: bool = False,
    overwrite: bool = False,
) -> ConversionResult:
    """Convert a model to another layout: ours or one of Hugging Face's. Heads that the layout lacks are dropped.

    Args:
        source: A model directory, or a model of the hub (`org/name`).
        out: Directory of the converted model.
        to: The layout, such as `bert`; else the first that fits.
        dtype: Precision of the weights; `int8` stores whole numbers with a scale per row, which only Larvatus reads.
        revision: Commit of a hub model, 40 digits.
        online: Fetch a hub model that is not in the cache.
        overwrite: Replace what is in `out`.

    Returns:
        What was written: the layout, heads kept and dropped, bytes; for int8 `.reconstruction`, the error.

    Example:
        >>> convert(directory, folder / "as-bert", to="bert").layout
        'bert'
    """
    return convert_bundle(source, Path(out), to=to, dtype=dtype, revision=revision, online=online, overwrite=overwrite)
