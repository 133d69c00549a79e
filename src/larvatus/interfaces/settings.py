"""Settings of runs, of reading text and of comparisons: one struct each, for commands and for Python.

    lv.pretrain("bert", corpus="texts/", out="runs/mine", size="tiny", steps=1_000, split="file")
    larvatus pretrain bert --corpus texts/ --out runs/mine --size tiny --steps 1000 --split file

Each keyword is a field of one of these structs, and so is each option; the docstring of a field is its help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, overload

import msgspec
from msgspec import Struct

from larvatus.core.errors import UsageError, did_you_mean, warn_of_older_name
from larvatus.core.ranges import Count, Length, PositiveShare, Range, Seed, Share, ShareBetween, Size, Steps, Weight
from larvatus.core.settings import Assignments, Flag, PathName, Settings
from larvatus.data.bulk.executor import BulkSettings
from larvatus.data.corpus.remote import is_address, mirror_corpus
from larvatus.data.text.documents import ReadOptions
from larvatus.data.text.languages import LanguagePath, LanguageSource
from larvatus.data.text.streams import UTF_8, check_encoding
from larvatus.inference.model import Model, load
from larvatus.inference.vectors.passages import PassageOptions
from larvatus.models.bundle.model_names import NAME as PACKAGED
from larvatus.training.engine.settings import (
    BUDGETS,
    MEMORY,
    MICROBATCH,
    SILENCE,
    SILENT_S,
    WORKERS,
    Budget,
    Checkpointing,
    Parallel,
    Runtime,
)
from larvatus.training.pretraining.prepare import TextOptions
from larvatus.training.pretraining.token_transfer import Initialise

THEN = "Fine-tuning afterwards"
"""A panel of the help."""
SECONDS = Range(0, 86_400, above=True)
"""Seconds of a measurement."""
Corpus = LanguageSource | Sequence[LanguageSource] | Mapping[str, str | Path]
"""Text: a file, folder, glob or built corpus, several, or by language: ``{"sw": "swahili/", "en": "english/"}``."""
Texts = str | Path | Sequence[str | Path]
"""Files, directories or globs of text."""


class TextSettings(Settings):
    """How text is read."""

    language: str = "en"
    """Language of text for which none is given."""
    sentences: Literal["library", "newline"] = "library"
    """Split by rule, or one sentence a line."""
    split: Literal["blank-line", "file"] = "blank-line"
    """What ends a document in plain text."""
    on_bad: Literal["fail", "skip"] = "fail"
    """Bad UTF-8, broken records: stop, or skip and count."""
    encoding: str | None = None
    """Encoding of text that is not UTF-8: latin-1, cp1252, utf-16, …."""
    text: Annotated[str | None, Flag(metavar="COLUMN")] = None
    """Column of tables (CSV, TSV, JSONL, Parquet) that holds the text; default: guessed and reported."""
    text_field: Annotated[str | None, Flag(metavar="COLUMN")] = None
    """Older name of --text."""
    language_field: str | None = None
    """Column of tables that holds the language."""
    licence: str = ""
    """Licence of the text, for the datasheet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.text is not None and not self.text:
            raise UsageError("--text is empty; name a column, or leave it out to have the text column guessed")
        if self.text_field is not None:
            warn_of_older_name("text_field", "text")

    @property
    def column(self) -> str | None:
        """Text column that the user named; None where it is guessed."""
        return self.text if self.text is not None else self.text_field

    def for_job(self, bulk: BulkSettings) -> TextSettings:
        """The same settings; bad rows are skipped if the job has a file for them."""
        return self if bulk.errors is None else msgspec.structs.replace(self, on_bad="skip")

    def reading(self, *, label_field: str | None = None) -> ReadOptions:
        """Options of the document readers. UTF-8 is left unset, so that the settings of a corpus do not change."""
        name = UTF_8 if self.encoding is None else check_encoding(self.encoding)
        options = ReadOptions(
            encoding=msgspec.UNSET if name == UTF_8 else name,
            split=self.split,
            language_field=self.language_field,
            on_bad=self.on_bad,
            label_field=label_field,
        )
        return options.named(self.column)

    @property
    def passages(self) -> PassageOptions:
        """Options of commands that read a corpus passage by passage."""
        return PassageOptions(reading=self.reading(), sentences=self.sentences, language=self.language)

    @property
    def options(self) -> TextOptions:
        """Options of a run that prepares its own text."""
        return TextOptions(
            reading=self.reading(), language=self.language, sentences=self.sentences, licence=self.licence
        )


class BudgetSettings(Settings):
    """How long to train: one of these."""

    steps: Steps | None = None
    """Train this many steps."""
    minutes: Annotated[float, BUDGETS["minutes"]] | None = None
    """Measure, then train as many steps as fit."""
    epochs: Annotated[float, BUDGETS["epochs"]] | None = None
    """Read the corpus this many times."""
    tokens: Annotated[int, BUDGETS["tokens"]] | None = None
    """Train on this many tokens."""

    @property
    def budget(self) -> Budget:
        return Budget(**msgspec.structs.asdict(self))


class MachineSettings(Settings):
    """Device, precision and memory: they differ between machines and do not change the result."""

    device: str = "auto"
    """auto, cpu or cuda."""
    precision: str = "auto"
    """fp32, bf16, or auto."""
    compile: bool | None = None
    """Compile the step (auto: on CUDA)."""
    microbatch: Annotated[int, MICROBATCH] | None = None
    """Tokens of one forward pass; halved where memory runs out."""
    workers: Annotated[int, WORKERS] | None = None
    """Processes that pack and mask ahead, up to 4 a core."""
    deterministic: bool = False
    """Give the same bits on every run, on CUDA too."""
    activation_checkpointing: Checkpointing = "auto"
    """Recompute layers in the backward pass instead of keeping them: always, never, or where memory is short."""
    memory: Annotated[float, MEMORY] | None = None
    """GB of device memory that training may use (all)."""
    rank_timeout: Annotated[float, SILENCE] = SILENT_S
    """Seconds without a heartbeat after which a process counts as lost."""

    @property
    def runtime(self) -> Runtime:
        chosen = msgspec.structs.asdict(self)
        rank_timeout = chosen.pop("rank_timeout")
        return replace(Runtime.here(**chosen), rank_timeout=rank_timeout)


class PretrainSettings(Settings):
    """Size, start, validation and checkpoints of a pretraining run."""

    size: str | None = None
    """tiny (its training fits a laptop too), mini, small, medium, base or large."""
    settings: Annotated[Assignments, Flag("--set")] = ()
    """field=value, such as model.layers=6."""
    valid: PathName | None = None
    """Validation text; default: every 50th document, or passages where there are few documents."""
    start: Annotated[PathName | None, Flag("--from", metavar="DIR")] = None
    """Adapt this model (a directory, or english, the packaged one), with its vocabulary (3 epochs)."""
    add_words: tuple[str, ...] = ()
    """With --from: number of new words to learn from the text, or a file of words; repeatable."""
    vocabulary: Annotated[PathName | None, Flag(metavar="new|grow|DIR")] = None
    """With --from: learn a new vocabulary, add words to the old one, or read a tokenizer; default: keep it."""
    initialise: Initialise | None = None
    """With a new vocabulary: how the vectors of its tokens start (focus)."""
    dictionary: PathName | None = None
    """With --initialise wechsel: word pairs, one per line: a new word, a tab, its translation."""
    embedding_share: Share | None = None
    """With a new vocabulary: share of the steps that train only embeddings first (0.1)."""
    old: PathName | None = None
    """With --from: text of the old domain, to measure forgetting; or embedded."""
    replay: ShareBetween | None = None
    """With --from: share of each batch that is text of the old domain, such as 0.1."""
    replay_text: PathName | None = None
    """Text of the old domain for --replay; or embedded, Python's English documentation."""
    stay: Weight = 0.0
    """With --from: weight of a pull towards the old weights, against forgetting; such as 1."""
    seed: Seed = 0
    """Seed of all randomness."""
    resume: bool = False
    """Resume from the newest sound checkpoint, if any."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    fork: bool = False
    """Resume although settings have changed."""
    evaluate_every: Steps | None = None
    """Steps between evaluations."""
    save_every: Steps | None = None
    """Steps between checkpoints."""
    tensorboard: bool = False
    """Write TensorBoard files too."""
    parallel: Parallel = "auto"
    """Under torchrun: all weights in each process, a shard in each, or shards where memory is short."""


class CompareSettings(Settings):
    """Candidates of a comparison, and fine-tuning afterwards."""

    size: str | None = None
    """tiny (its training fits a laptop too), mini, small, medium, base or large."""
    settings: Annotated[Assignments, Flag("--set")] = ()
    """field=value for all, or bert:field=value for one of them."""
    valid: PathName | None = None
    """Validation text; default: every 50th document, or passages where there are few documents."""
    seed: Seed = 0
    """Seed of all randomness."""
    seeds: tuple[Seed, ...] | None = None
    """Several, such as 1,2,3: the table shows mean ± deviation."""
    resume: bool = False
    """Keep finished runs, and resume the others."""
    then: Annotated[tuple[str, ...], Flag(metavar="TASK=PATH", panel=THEN)] = ()
    """Fine-tune each on a labelled set: a directory with train.* and dev.*, or TRAIN:DEV; repeatable."""
    then_settings: Annotated[Assignments, Flag("--then-set", metavar="NAME=VALUE", panel=THEN)] = ()
    """Fine-tuning options: epochs=3 for all, or for one task, set or recipe: tag:epochs=3; repeatable."""
    then_seeds: Annotated[tuple[Seed, ...], Flag(panel=THEN)] = (0, 1, 2)
    """Seeds that each candidate is fine-tuned with."""
    then_examples: Annotated[Count, Flag(metavar="N", panel=THEN)] | None = None
    """Most training examples of a set, sampled at random, the same for all candidates."""


class BenchSettings(Settings):
    """Model, text and length of a benchmark."""

    recipe: PathName | None = None
    """A recipe's name, or a TOML file (bert; modern with --grow length)."""
    size: str | None = None
    """tiny, mini, small, medium, base or large (base on a GPU, mini on a CPU)."""
    settings: Annotated[Assignments, Flag("--set")] = ()
    """field=value, such as model.layers=6."""
    model: PathName | None = None
    """A model directory instead of a recipe."""
    corpus: PathName = "embedded"
    """Text to read: a file, a folder, a glob, a built corpus; default: Python's own documentation."""
    length: Length | None = None
    """Tokens of the longest sequence; default: as in the recipe."""
    tokens: Count | None = None
    """Tokens of a step (65,536 on a GPU, 4,096 on a CPU)."""
    seconds: Annotated[float, SECONDS] = 3.0
    """Seconds to measure each figure, about."""
    peers: bool = True
    """Measure installed peers too: transformers, sentence-transformers."""
    grow: Literal["length", "batch", "layers", "corpus"] | None = None
    """Measure how time and memory grow with this instead."""
    largest: Count | None = None
    """With --grow: the largest length, batch, number of layers, or times that the text is repeated."""


class VocabularySettings(Settings):
    """Kind and size of a vocabulary."""

    kind: Annotated[Literal["wordpiece", "byte-bpe", "bpe", "unigram", "characters"], Flag("--type")] = "wordpiece"
    """Kind of subwords."""
    size: Size = 30_522
    """Number of tokens, special tokens included."""
    lowercase: Annotated[bool | None, Flag("--lowercase/--cased")] = None
    """Fold case and accents; default: as in the model family."""
    digits: Literal["together", "apart"] = "together"
    """apart: each digit is a token of its own (byte-bpe); together: digits merge as letters do."""
    alpha: Share = 1.0
    """Exponent of the language mixture, from 0 (uniform) to 1 (proportional)."""
    sample: PositiveShare = 1.0
    """Share of the documents that are counted, sampled at random."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "byte-bpe" and self.lowercase:
            raise UsageError("byte-level BPE keeps text as it is; leave out --lowercase")
        if self.kind != "byte-bpe" and self.digits == "apart":
            raise UsageError(f"digits are split apart for byte-level BPE only, not {self.kind}; use --type byte-bpe")


A = TypeVar("A", bound=Struct)
B = TypeVar("B", bound=Struct)
C = TypeVar("C", bound=Struct)
D = TypeVar("D", bound=Struct)


@overload
def read_settings(keywords: Mapping[str, object], a: type[A], /, *, function: str) -> tuple[A]: ...


@overload
def read_settings(keywords: Mapping[str, object], a: type[A], b: type[B], /, *, function: str) -> tuple[A, B]: ...


@overload
def read_settings(
    keywords: Mapping[str, object], a: type[A], b: type[B], c: type[C], /, *, function: str
) -> tuple[A, B, C]: ...


@overload
def read_settings(
    keywords: Mapping[str, object], a: type[A], b: type[B], c: type[C], d: type[D], /, *, function: str
) -> tuple[A, B, C, D]: ...


def read_settings(keywords: Mapping[str, object], /, *kinds: type[Struct], function: str) -> tuple[Any, ...]:
    """Keyword arguments of a public function as the structs they belong to; an unknown one is refused with the nearest.

    `tests/interfaces/keyword_types.py` generates the keyword types of the function from the structs of this call.
    """
    known = [name for kind in kinds for name in kind.__struct_fields__]
    for name in keywords:
        if name not in known:
            raise UsageError(f"{function} has no setting {name!r}{did_you_mean(name, known)}")
    return tuple(_convert(keywords, kind, function) for kind in kinds)


def _convert(keywords: Mapping[str, object], kind: type[A], function: str) -> A:
    fields = {name: _plain(keywords[name]) for name in kind.__struct_fields__ if name in keywords}
    try:
        return msgspec.convert(fields, kind, dec_hook=_path)
    except msgspec.ValidationError as fault:
        if isinstance(fault.__cause__, UsageError):
            raise fault.__cause__ from None
        raise UsageError(f"{function}: {fault}") from fault


def _plain(value: Any) -> Any:
    """``{"model.layers": 6}`` as the command line writes it, and a path in a form that is no model name."""
    if isinstance(value, Path):
        return f"./{value}" if str(value) == PACKAGED else str(value)
    if isinstance(value, list | tuple):
        return [_plain(each) if isinstance(each, Path) else each for each in value]
    return [f"{name}={each}" for name, each in value.items()] if isinstance(value, Mapping) else value


def _path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise NotImplementedError


def loaded_model(model: str | Path | Model | None, device: str = "auto") -> Model:
    """A model that is loaded, or that of a directory or a hub name; None for the packaged one."""
    return model if isinstance(model, Model) else load(model, device=device)


def path_names(texts: Texts) -> list[str]:
    """One path or several, as strings."""
    return [str(texts)] if isinstance(texts, str | Path) else [str(path) for path in texts]


def text_given(corpus: Corpus) -> list[LanguageSource]:
    """Text in all the ways that it may be named; for a built corpus in remote storage, its mirror on this machine."""
    if isinstance(corpus, Mapping):
        return [LanguagePath.of(f"{language}={path}") for language, path in corpus.items()]
    given = [corpus] if isinstance(corpus, str | Path | LanguagePath) else list(corpus)
    if len(given) == 1 and isinstance(given[0], str) and is_address(given[0]):
        return [mirror_corpus(given[0]) or given[0]]
    return given
