"""Classify without training or with few examples: scores of each method, and PET as one call.

prompt("runs/mine", words={"pos": "great", "neg": "terrible"}, patterns="{text} It was {blank}.", data="test.tsv", k=0)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from larvatus.core.errors import UsageError
from larvatus.data.labelled.file_options import FileOptions, TextFiles
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.records import Dataset, Place, TextExample
from larvatus.data.labelled.tables import ENDINGS, Columns, ending, path_strings
from larvatus.data.labelled.texts import read_unlabelled
from larvatus.inference.model import Model, load
from larvatus.interfaces.api.task_settings import TuningMachine
from larvatus.interfaces.settings import loaded_model, read_settings
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.examples import read_examples
from larvatus.tasks.few_shot.experiment import run_experiment
from larvatus.tasks.few_shot.pet import PetRun
from larvatus.tasks.few_shot.results import FewShotSettings, FewShotTraining, PromptTable
from larvatus.tasks.few_shot.training import FewShot, sample_examples
from larvatus.tasks.prompt.pattern import NULL, LabelWords, words_by_label
from larvatus.tasks.prompt.prompted import check_trains
from larvatus.tasks.trainer.config import Callbacks
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.run import run_finetuning
from larvatus.training.engine.settings import Runtime

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import PromptKeywords


@overload
def prompt(
    model: str | Path | Model,
    *,
    words: LabelWords,
    patterns: str | Sequence[str] = NULL,
    data: Examples,
    train: Examples | None = None,
    unlabelled: Examples | None = None,
    say: Callable[[str], None] = lambda line: None,
    **settings: Unpack[PromptKeywords],
) -> PromptTable: ...


@overload
def prompt(
    model: str | Path | Model,
    *,
    words: LabelWords,
    patterns: str | Sequence[str] = NULL,
    train: Examples,
    unlabelled: Examples | None = None,
    out: str | Path,
    say: Callable[[str], None] = lambda line: None,
    **settings: Unpack[PromptKeywords],
) -> Model: ...


def prompt(
    model: str | Path | Model,
    *,
    words: LabelWords,
    patterns: str | Sequence[str] = NULL,
    data: Examples | None = None,
    train: Examples | None = None,
    unlabelled: Examples | None = None,
    out: str | Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    **settings: Unpack[PromptKeywords],
) -> PromptTable | Model:
    """Classify through patterns with a blank: scores with k examples, or a classifier by PET.

    Args:
        model: A model directory, a hub name, or a loaded model; pretrained with masked-lm, or one that writes.
        words: The word of each label, or several: `{"pos": "great", "neg": ["terrible", "bad"]}`.
        patterns: `"{text} It was {blank}."`, of pairs `"{first}? {blank}, {second}"`, or several; `null`: the text and
            a blank only (Logan et al. 2022).
        data: Labelled test examples; the result is a table of methods.
        train: Labelled examples to sample from; with `out` and `k=0` all of them are used.
        unlabelled: Texts for PET to label: a file, or a list of texts or pairs; if none are given, those of `train`
            that are not sampled.
        out: In place of `data`: where the classifier that PET trains is saved.
        say: Called with each line of the log.
        **settings: `k` (of each class), `total` (k in all), `draws`, `seed`, `methods` (`zero`, `calibrated`,
            `context`, `tune`, `pet`), `baseline="finetune"`, `neutral`; `steps`, `batch`, `rate`, `trained`, `length`,
            `unlabelled_most`, `distil_steps`, `temperature`, `mlm_weight`; `device`, `precision`, `microbatch`; names
            of columns (`text`, `pair`, `label`); with `out` also `resume`, `overwrite`.

    Returns:
        With `data` a table: `.rows`, each with `.mean`, `.deviation`, `.low`, `.high`; printed, it is text. With `out`
            the model.

    Example:
        >>> words = {"pos": "wide", "neg": "deep"}
        >>> table = prompt(directory, words=words, data=[("the river", "pos"), ("a bank", "neg")], k=0, device="cpu")
        >>> [row.method for row in table.rows]
        ['zero', 'calibrated']
    """
    loaded = loaded_model(model, settings.get("device", "auto"))
    resume, overwrite = settings.pop("resume", False), settings.pop("overwrite", False)
    given = {"device": str(loaded.device), **settings}
    few, training, machine, reading = read_settings(
        given, FewShotSettings, FewShotTraining, TuningMachine, TextFiles, function="prompt"
    )
    if (data is None) == (out is None):
        raise UsageError("prompt takes labelled test examples (data), or where PET saves a classifier (out)")
    few_shot = few_shot_of(loaded.bundle, words, patterns, training, machine)
    if data is not None:
        return prompt_table(few_shot, few, reading, data=data, train=train, unlabelled=unlabelled, say=say)
    if train is None:
        raise UsageError("PET learns from few labelled examples: give train")
    texts = None if unlabelled is None else read_texts_of(unlabelled, reading)
    pool = read_examples("prompt", train, reading)
    pet(few_shot, few, pool, texts, Path(str(out)), watch=Callbacks(say=say), resume=resume, overwrite=overwrite)
    return load(str(out), device=str(loaded.device))


def prompt_table(
    few_shot: FewShot,
    few: FewShotSettings,
    reading: TextFiles,
    *,
    data: Examples,
    train: Examples | None,
    unlabelled: Examples | None,
    say: Callable[[str], None],
) -> PromptTable:
    """Compare the methods on labelled test examples."""
    pool = None if train is None else read_examples("prompt", train, reading)
    texts = None if unlabelled is None else read_texts_of(unlabelled, reading)
    test = read_examples("prompt", data, reading, kind="multi-class")
    return run_experiment(few_shot, few, test=test, train=pool, unlabelled=texts, say=say)


def few_shot_of(
    bundle: Bundle, words: LabelWords, patterns: str | Sequence[str], training: FewShotTraining, machine: TuningMachine
) -> FewShot:
    """A model with its patterns and words, and how it learns."""
    several = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not several or len(set(several)) < len(several):
        raise UsageError(f"give one pattern or more, each once, not {list(several)}")
    runtime = Runtime.here(
        device=machine.device, precision=machine.precision, microbatch=machine.microbatch, compile=False
    )
    return FewShot(bundle=bundle, words=words_by_label(words), patterns=several, training=training, runtime=runtime)


def pet(
    few_shot: FewShot,
    few: FewShotSettings,
    pool: Dataset[TextExample],
    texts: Dataset[TextExample] | None,
    out: Path,
    *,
    watch: Callbacks,
    resume: bool = False,
    overwrite: bool = False,
) -> FineTuneResult:
    """PET on a sample of k examples, or on all of the pool if k is 0; saved."""
    check_trains(few_shot.bundle)
    drawn = sample_examples(pool, few.k, seed=few.seed, number=0, total=few.total) if few.k else pool
    if texts is None:
        from_pool = {example.key() for example in drawn.examples}
        rest = [dataclasses.replace(each, label=None) for each in pool.examples if each.key() not in from_pool]
        texts = dataclasses.replace(pool, examples=tuple(rest))
    if not len(texts):
        raise UsageError("PET needs unlabelled texts in addition to its training examples: give --unlabelled FILE")
    texts = dataclasses.replace(texts, examples=texts.examples[: few_shot.training.unlabelled_most])
    order = PetRun(
        task="classify",
        bundle=few_shot.bundle,
        name=str(few_shot.bundle.path),
        train=drawn,
        dev=None,
        out=out,
        resume=resume,
        overwrite=overwrite,
        few_shot=few_shot,
        unlabelled=texts,
        seed=few.seed,
    )
    return run_finetuning(order, dataclasses.replace(order.arguments(), callbacks=watch))


def read_texts_of(given: Examples, reading: FileOptions) -> Dataset[TextExample]:
    """Texts without labels: files, plain or tables, or a list of texts and pairs."""
    if isinstance(given, Dataset):
        return given
    if isinstance(given, str | Path) or (given and isinstance(given[0], Path)):
        return _of_files(path_strings(given), reading)
    texts = [(text, None) if isinstance(text, str) else tuple(text) for text in given]
    examples = tuple(TextExample(text, pair, None, Place("text", n)) for n, (text, pair) in enumerate(texts, start=1))
    return Dataset(examples=examples, source=f"{type(given).__name__} in memory")


def _of_files(names: Sequence[str], reading: FileOptions) -> Dataset[TextExample]:
    columns = dataclasses.replace(reading.columns, label=None) if isinstance(reading, TextFiles) else Columns()
    examples: list[TextExample] = []
    for name in names:
        told = columns if ending(name) in ENDINGS else Columns()
        read = (example.plain_text() for example in read_unlabelled(name, words=False, columns=told))
        examples += [example for example in read if example is not None]
    return Dataset(examples=tuple(examples), source=", ".join(names))
