"""Pretrain and convert, as one call each.

model = pretrain("bert", corpus="judgments/", out="runs/law", size="small", minutes=30)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from larvatus.core.errors import UsageError
from larvatus.data.text.tokenizer import Tokenizer
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
from larvatus.models.bundle.model_names import NAME as PACKAGED
from larvatus.models.recipes import Recipe, read_recipe
from larvatus.training.engine.launch import launch
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Budget
from larvatus.training.pretraining.adapt import AdaptedRecipe, AdaptedTexts, ParentVocabulary, adapted_recipe
from larvatus.training.pretraining.evaluation import HeldOutScores
from larvatus.training.pretraining.job import ParentModel, PretrainingJob
from larvatus.training.pretraining.new_vocabulary import NewVocabulary
from larvatus.training.pretraining.plan import EPOCHS
from larvatus.training.pretraining.prepare import prepare
from larvatus.training.pretraining.replay import ReplayText
from larvatus.training.pretraining.run import train as train_encoder
from larvatus.training.pretraining.text_record import EMBEDDED

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
            (a model to adapt), `vocabulary`, `add_words`, `initialise`, `dictionary`, `embedding_share`, `old`,
            `replay`, `replay_text`, `stay`, `seed`. How long, one of `steps`, `minutes`, `epochs`,
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
    if read.mixture.replay_share and chosen.replay is None:
        raise UsageError("mixture.replay is the share of text that must be named; give --replay and --replay-text")
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
        embedding_share=_embedding_share(chosen),
        stay=chosen.stay,
        free=adapted.free,
    )
    given = text_given(corpus)
    texts = partial(prepare, read, given, out=where, valid=chosen.valid, options=text.options, reporter=reporter)
    if origin is None:
        return train_encoder(job, texts, reporter)
    vocabulary = _vocabulary(chosen, origin, read, text)
    return train_encoder(job, AdaptedTexts(vocabulary, texts, _old_text(chosen)), reporter)


NEW, GROW = "new", "grow"
GROWN_WORDS = "500"
"""Words that `--vocabulary grow` adds unless others are requested."""
EMBEDDING_SHARE = 0.1
"""Share of the steps that train only the embeddings of a new vocabulary."""


def _vocabulary(
    chosen: PretrainSettings, origin: ParentModel, recipe: Recipe, text: TextSettings
) -> ParentVocabulary | NewVocabulary:
    """The vocabulary of a run that continues from a model, and the text that it replays."""
    replay = None
    if chosen.replay_text is not None:
        replay = ReplayText(chosen.replay_text, text.reading(), text.sentences)
    if not _is_new(chosen):
        words = [*chosen.add_words] or ([GROWN_WORDS] if chosen.vocabulary == GROW else [])
        return ParentVocabulary(origin, words, replay)
    return NewVocabulary(
        origin=origin,
        recipe=recipe,
        directory=None if chosen.vocabulary == NEW else chosen.vocabulary,
        initialise=chosen.initialise or "focus",
        dictionary=chosen.dictionary,
        replay=replay,
        seed=chosen.seed,
    )


def _old_text(chosen: PretrainSettings) -> str | None:
    """Text of the old domain to measure. Of the packaged English model, by default what every Python carries.

    Held-out replayed text is measured where there is some.
    """
    changes = _is_new(chosen) or chosen.stay > 0
    if chosen.old is None and chosen.start == PACKAGED and changes and chosen.replay_text is None:
        return EMBEDDED
    return chosen.old


def _is_new(chosen: PretrainSettings) -> bool:
    """Whether another vocabulary replaces the model's."""
    return chosen.vocabulary not in (None, GROW)


def _embedding_share(chosen: PretrainSettings) -> float:
    if chosen.embedding_share is None:
        return EMBEDDING_SHARE if _is_new(chosen) else 0.0
    return chosen.embedding_share


def _check_adaptation(chosen: PretrainSettings) -> None:
    """Refuse options that go together and were given apart."""
    if _is_new(chosen) and chosen.add_words:
        raise UsageError("--add-words extends the old vocabulary; give it with --vocabulary grow, or leave it out")
    for name in ("initialise", "dictionary", "embedding_share"):
        if getattr(chosen, name) is not None and not _is_new(chosen):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is about the tokens of another vocabulary; give --vocabulary new, or a tokenizer")
    if chosen.replay is not None and chosen.replay_text is None:
        raise UsageError(
            "--replay mixes in text of the old domain, which a model does not carry; name some: --replay-text PATH "
            "(for English models, --replay-text embedded is Python's documentation)"
        )
    if chosen.replay_text is not None and chosen.replay is None and chosen.initialise != "wechsel":
        raise UsageError("--replay-text is for --replay; give its share of each batch, such as --replay 0.1")


def _origin(chosen: PretrainSettings, out: Path) -> ParentModel | None:
    if chosen.start is not None:
        _check_adaptation(chosen)
        return ParentModel.load(chosen.start, out=out)
    vocabulary = ("vocabulary", "add_words", "initialise", "dictionary", "embedding_share")
    for name in (*vocabulary, "old", "replay", "replay_text", "stay"):
        if getattr(chosen, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} goes with --from DIR: there is no model to adapt")
    return None


def _recipe(
    name: str | Path | None, origin: ParentModel | None, chosen: PretrainSettings, reporter: Reporter
) -> AdaptedRecipe:
    named = None if name is None else str(name)
    if origin is not None:
        settings = list(chosen.settings)
        if chosen.replay is not None:
            settings.append(f"mixture.replay={chosen.replay}")
        vocabulary: Tokenizer | Literal["new"] | None = None
        if _is_new(chosen):
            vocabulary = "new" if chosen.vocabulary == NEW else Tokenizer.load(str(chosen.vocabulary))
        adapted = adapted_recipe(origin.bundle, named, size=chosen.size, settings=settings, vocabulary=vocabulary)
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
