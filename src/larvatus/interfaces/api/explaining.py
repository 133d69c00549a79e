"""Tuned lenses trained on a corpus, and the faithfulness of explanations on a user's texts.

train_lens("runs/mine", "text/")                                  # saved with the model: model.lens(…, tuned="default")
measure_faithfulness("runs/reviews", "reviews.csv").verdict       # which method to trust there
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import msgspec

from larvatus.core.errors import DataError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.ranges import Count
from larvatus.core.rng import stream
from larvatus.core.settings import Flag, SeededSettings
from larvatus.core.text_inputs import checked_inputs, described
from larvatus.data.labelled.tables import Columns
from larvatus.data.text.readers import Skipped, read_single_texts
from larvatus.data.text.words import segment_words
from larvatus.evaluation.interpretation.faithfulness import FaithfulnessTable
from larvatus.evaluation.interpretation.faithfulness import measure_faithfulness as measure
from larvatus.evaluation.interpretation.lens_training import LensTraining
from larvatus.evaluation.interpretation.lens_training import train_lens as train
from larvatus.inference.cloze.fill import mark_of
from larvatus.inference.interpret.attributions import ExplainOptions
from larvatus.inference.interpret.explain import check_explainable, fill_outcome
from larvatus.inference.interpret.tuned_lens import LENSES, TunedLens, masked_lm_predictor
from larvatus.inference.model import Model
from larvatus.interfaces.api.interpretation import read_held_out
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.bundle.named_tensors import SUFFIX
from larvatus.tasks.inputs import Input, InputPlace
from larvatus.tasks.outcome import ExplainedOutcome, OutcomeChoice, TextTooLong
from larvatus.tasks.registry import is_finetuned, task_of

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import MeasureFaithfulnessKeywords, TrainLensKeywords


def train_lens(
    model: str | Path | Model,
    corpus: Texts,
    *,
    name: str = "default",
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    skipped: Skipped | None = None,
    **settings: Unpack[TrainLensKeywords],
) -> TunedLens:
    """Train a tuned lens on text (Belrose et al. 2023): a translator for each layer, saved with the model.

    Args:
        model: A model directory, a hub name, or a loaded model, with a masked-lm head.
        corpus: Text, or a built corpus; a tenth of its batches is held out and measured.
        name: Its name: `model.lens(…, tuned=name)`.
        out: A .safetensors elsewhere, if the model's directory cannot be written.
        overwrite: Replace one that exists.
        progress: Called with how much is done, and of how much.
        skipped: Counts what could not be read.
        **settings: `tokens`, `steps`, `positions`, `rate`, `seed`; how text is read: `language`, `sentences`, ….

    Returns:
        The lens, with the KL of each layer to the last on held-out text, before and after.

    Example:
        >>> trained = lv.pretrain("bert", corpus=texts, out=folder / "lens", size="tiny", steps=2, quiet=True, **small)
        >>> lens = train_lens(trained, texts, steps=2, tokens=4_000)
        >>> len(lens.about.logit_kl), len(lens.about.tuned_kl)
        (1, 1)
    """
    chosen, reading = read_settings(settings, LensTraining, TextSettings, function="train_lens")
    loaded, paths = loaded_model(model), path_names(corpus)
    path = lens_file(loaded, name, out)
    check_outputs(path, overwrite=overwrite, inputs=paths, parents=True)
    masked_lm_predictor(loaded.network, loaded.tokenizer, str(loaded.bundle.path))  # refused before text is read
    batches = read_held_out(loaded, paths, chosen.tokens, reading, skipped if skipped is not None else Skipped())
    corpus_name = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
    lens = train(loaded, batches, chosen, name=path.name.removesuffix(SUFFIX), corpus=corpus_name, progress=progress)
    lens.save(path)
    return lens


def lens_file(model: Model, name: str, out: str | Path | None = None) -> Path:
    """Where a tuned lens is saved."""
    if out is not None and Path(out).suffix != SUFFIX:
        raise UsageError(f"--out {out} must end in {SUFFIX}")
    return LENSES.path(model.bundle.path, name) if out is None else Path(out)


class FaithfulnessData(SeededSettings):
    """The texts that faithfulness is measured on."""

    limit: Count = 200
    """Texts, a random sample of more."""
    text: Annotated[str | None, Flag(metavar="COLUMN")] = None
    """Column of the text, by name or number; default: guessed and reported."""
    pair_column: Annotated[str | None, Flag(metavar="COLUMN")] = None
    """Column of the second text."""


def measure_faithfulness(
    model: str | Path | Model,
    data: str | Path | Iterable[Input],
    *,
    progress: Callable[[int], None] = lambda done: None,
    note: Callable[[str], None] = lambda line: None,
    **settings: Unpack[MeasureFaithfulnessKeywords],
) -> FaithfulnessTable:
    """Which method of `Model.explain` to trust on given texts: comprehensiveness and sufficiency (DeYoung et al. 2020).

    Args:
        model: A model directory, a hub name, or a loaded model: a classifier, tagger, answer model or masked model.
        data: A file as for `larvatus predict`, or inputs of `predict`. For a masked model texts; one without a blank
            gets one in place of a random word.
        progress: Called with the number of texts that are done.
        note: Called with a line on how the file is read.
        **settings: `methods` (all), `baseline`, `steps`, `tolerance`; `limit`, `seed`, `text` and `pair_column`.

    Returns:
        Both measures of each method and of a random order of words, with 95% intervals, and a verdict.

    Example:
        >>> table = measure_faithfulness(classifier, ["good and wide", "bad and deep"], methods=("leave-one-out",))
        >>> [row.method for row in table.rows]
        ['leave-one-out', 'random']
    """
    chosen, given = read_settings(settings, ExplainOptions, FaithfulnessData, function="measure_faithfulness")
    loaded = loaded_model(model)
    options = chosen if chosen.methods else msgspec.structs.replace(chosen, methods=("all",))
    check_explainable(loaded, options)
    examples = list(_examples(loaded, data, given, note))
    if not examples:
        raise DataError(f"{data if isinstance(data, str | Path) else 'data'} holds no text; give some")
    kept = sorted(stream(given.seed, "explained texts").permutation(len(examples))[: given.limit].tolist())
    outcomes = (_outcome(loaded, examples[number], seed=given.seed, number=number) for number in kept)
    return measure(outcomes, options, loaded.tokenizer.mask_id, seed=given.seed, progress=progress)


def _examples(
    loaded: Model, data: str | Path | Iterable[Input], given: FaithfulnessData, note: Callable[[str], None]
) -> Iterator[Any]:
    """Texts with blanks for a masked model; examples of its task for a fine-tuned one."""
    task = task_of(loaded.bundle) if is_finetuned(loaded.bundle) else None
    if isinstance(data, str | Path):
        if task is None:
            yield from (text for _, text in read_single_texts(str(data), given.text))
        else:
            yield from task.read_plain(str(data), Columns(text=given.text, pair=given.pair_column), None, note)
        return
    for number, each in enumerate(checked_inputs(data, "data").inputs, start=1):
        if task is None and not isinstance(each, str):
            raise UsageError(f"text {number} is {described(each)}, not text; give texts with or without a blank")
        yield each if task is None else task.example(each, InputPlace("text", number))


def _outcome(loaded: Model, example: Any, *, seed: int, number: int) -> ExplainedOutcome | None:
    """What the model predicts; None for a text that is too long, or has no word to mask."""
    try:
        if is_finetuned(loaded.bundle):
            return task_of(loaded.bundle).outcome(loaded.bundle, example, OutcomeChoice())
        text = with_blank(example, mark_of(example, loaded.tokenizer), seed=seed, number=number)
        return None if text is None else fill_outcome(loaded, text, OutcomeChoice())
    except TextTooLong:
        return None


def with_blank(text: str, mark: str, *, seed: int, number: int) -> str | None:
    """A text with a blank in place of a random word, if it has none; None if no word has a letter.

    >>> with_blank("rivers.", "[MASK]", seed=0, number=0), with_blank("a [MASK].", "[MASK]", seed=0, number=0)
    ('[MASK].', 'a [MASK].')
    """
    if mark in text:
        return text
    spans = [(a, b) for a, b in segment_words(text).tolist() if any(map(str.isalpha, text[a:b]))]
    if not spans:
        return None
    start, end = spans[int(stream(seed, "masked word", item=number).integers(len(spans)))]
    return text[:start] + mark + text[end:]
