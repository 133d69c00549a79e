"""Turns a corpus as the user names it into the vocabulary and shards that a run reads, stored with the run.

    runs/mine/vocabulary/        the vocabulary of the recipe with its token counts, trained on the training text only
    runs/mine/corpus/train/      shards of the training text
    runs/mine/corpus/valid/      shards of the validation text: --valid, or a part of the corpus (`validation_split.py`)
    runs/mine/corpus/split.json  which part
    runs/mine/corpus/text.json   hashes of the text (`text_record.py`)

A corpus that was built before (`larvatus corpus build`) is used unchanged, with its own vocabulary and token counts.
The name ``embedded`` means the English prose that ships with every Python. A run that continues training a model uses
the vocabulary of that model (`VocabularySource`, implemented in `adapt.py`), or another one (`new_vocabulary.py`); if
the vocabulary changes, validation text is also encoded with the original one. Replayed text of the model's old domain
(`replay.py`) is added to the shards of the training text, under a language tag of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.regular_files import is_there
from larvatus.data.corpus import BuildOptions, Corpus, build_corpus, is_corpus
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corruption import check_mask
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.languages import (
    LanguageSource,
    first_languages,
    path_of,
    read_languages,
    train_mixed_vocabulary,
)
from larvatus.data.text.readers import Document, ReadOptions, Skipped
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.validation_split import ValidationSplit
from larvatus.models.recipes import Recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.pretraining.replay import ReplayText
from larvatus.training.pretraining.text_record import (
    EMBEDDED,
    check_shards,
    kept_input,
    record_text,
    record_vocabulary,
    resume_text,
    text_hashes,
    vocabulary_matches,
)

SPLIT = "split.json"


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How to read raw text."""

    reading: ReadOptions = field(default_factory=ReadOptions)
    language: str = "en"
    sentences: Literal["library", "newline"] = "library"
    licence: str = ""


@dataclass(frozen=True, kw_only=True)
class TextDomain:
    """Held-out shards of one kind of text."""

    name: str
    path: Path
    before: Path
    """The same text in the vocabulary before it was extended; the same shards where it was not."""


@dataclass(frozen=True, kw_only=True)
class PreparedCorpus:
    """Where the shards are."""

    train: Path
    valid: Path | None
    domains: tuple[TextDomain, ...] = ()
    """What a run that continues from a model compares before and after."""


Documents = Callable[[], Iterable[Document]]


class VocabularySource(Protocol):
    """A vocabulary that is not only trained on the corpus, and what else a parent model brings."""

    @property
    def replay(self) -> ReplayText | None:
        """Text of the old domain to mix in; None: none."""

    @property
    def identity(self) -> dict[str, Any]:
        """What it is made of: a run under way keeps to it."""

    def check(self, tokenizer: Tokenizer, corpus: Path) -> None:
        """Refuse a built corpus of another vocabulary."""

    def make(self, documents: Documents, folder: Path, reporter: Reporter) -> None:
        """Save the tokenizer in the folder; `documents` are those to train on."""

    def before(self, folder: Path) -> Tokenizer | None:
        """The tokenizer before it was extended, from the folder that `make` filled; None where it was not."""


def prepare(
    recipe: Recipe,
    corpus: Sequence[LanguageSource],
    *,
    out: Path,
    valid: str | None,
    options: TextOptions,
    reporter: Reporter,
    vocabulary: VocabularySource | None = None,
    length: int | None = None,
) -> PreparedCorpus:
    """Build what is not there yet. Called again after a kill, it continues; when all is there, it does nothing.

    `length` is that of the longest sequence that will be trained on, if it is not only the recipe's.
    """
    only = _languages_read(recipe, corpus, options)
    if len(corpus) == 1 and is_corpus(Path(path_of(corpus[0]))):
        train = Path(path_of(corpus[0]))
        tokenizer = Corpus.open(train).tokenizer
        if vocabulary is None:
            _check_vocabulary(recipe, tokenizer, train)
        else:
            vocabulary.check(tokenizer, train)
        build = CorpusBuilder(tokenizer, options, sources=[valid or ""], reporter=reporter)
        held_out = held_out_shards(valid, out / "corpus" / "valid", build=build)
        if held_out is None:
            reporter.say("no held-out text: nothing will be evaluated; give some with --valid PATH")
        return PreparedCorpus(train=train, valid=held_out)
    folder = out / "corpus"
    given = {"corpus": [str(path) for path in corpus], "valid": valid, "options": msgspec.to_builtins(options)}
    given |= {"vocabulary": _wanted(recipe, vocabulary)} | _languages_wanted(recipe)
    hashes = text_hashes(corpus, valid, out=out)
    if vocabulary is not None and vocabulary.replay is not None:
        given |= {"replay": vocabulary.replay.path}
        hashes |= vocabulary.replay.hashes(out)
    shards = resume_text(folder, given, hashes, say=reporter.say)
    if shards is not None:
        return PreparedCorpus(train=folder / "train", valid=check_shards(folder, shards))
    documents = _documents(corpus, out, options)
    split = None
    if valid is None and EMBEDDED not in corpus:
        split = _split(documents, folder, options, length=length or longest([recipe]), reporter=reporter)
    training = only(documents if split is None else lambda: split.training(documents()))
    note = {"settings": _wanted(recipe, vocabulary), "split": split.to_dict() if split else None, "texts": hashes}
    tokenizer = _vocabulary(
        recipe, training, out=out, options=options, reporter=reporter, given=vocabulary, wanted=note
    )
    shorter = vocabulary.before(out / "vocabulary") if vocabulary else None
    build = CorpusBuilder(tokenizer, options, sources=corpus, reporter=reporter, before=shorter)
    replay = vocabulary.replay if vocabulary and recipe.mixture.replay_share else None
    _build_training(build, training, folder / "train", replay=replay, length=length or longest([recipe]))
    if isinstance(documents, _Read) and (documents.skipped.total or documents.skipped.left):
        reporter.say(f"skipped: {documents.skipped}")
    if valid is not None:
        held_out = held_out_shards(valid, folder / "valid", build=build)
    else:
        apart = held_out_documents(corpus, out=out, valid=None, options=options)
        held_out = None if apart is None else build(only(apart), folder / "valid")
    record_text(folder, given, hashes, valid=folder / "valid" if held_out == folder / "valid" else None)
    return PreparedCorpus(train=folder / "train", valid=held_out)


def _build_training(
    build: CorpusBuilder, documents: Documents, folder: Path, *, replay: ReplayText | None, length: int
) -> None:
    """Shards of the training text, and of the text that is replayed with it."""
    if replay is None:
        build(documents, folder)
        return
    both = dataclasses.replace(build, sources=[*build.sources, replay.path])
    both(lambda: chain(documents(), replay.training(length=length)), folder)


def longest(recipes: Iterable[Recipe]) -> int:
    """Tokens of the longest sequence that any of the recipes trains on: what a gap around held-out text must hold."""
    return max(phase.length for recipe in recipes for phase in recipe.phases)


def _split(
    documents: Documents, folder: Path, options: TextOptions, *, length: int, reporter: Reporter
) -> ValidationSplit:
    """Decide what is held out, report it, and store it with the shards."""
    split = ValidationSplit.of(documents(), length=length, language=options.language, sentences=options.sentences)
    reporter.say(f"held out: {split}")
    if split.nothing:
        reporter.say("too little text to hold any out: nothing will be evaluated; give some with --valid PATH")
    folder.mkdir(parents=True, exist_ok=True)
    write_checksummed(folder / SPLIT, split.to_dict())
    return split


def _documents(corpus: Sequence[LanguageSource], out: Path, options: TextOptions) -> Documents:
    """The text, to be read as often as needed (standard input is kept with the run for that)."""
    if EMBEDDED in corpus:
        if len(corpus) > 1:
            raise UsageError("--corpus embedded cannot be combined with other text")
        return lambda: embedded_documents("train")
    return _Read([str(kept_input(out)) if path == "-" else path for path in corpus], options.reading)


@dataclass
class _Read:
    """Text in files, read again on each call."""

    paths: list[LanguageSource]
    options: ReadOptions
    skipped: Skipped = field(default_factory=Skipped)
    """What the last reading left out."""

    def __call__(self) -> Iterable[Document]:
        self.skipped = Skipped()
        return read_languages(self.paths, options=self.options, skipped=self.skipped)


def held_out_documents(
    corpus: Sequence[LanguageSource], *, out: Path, valid: str | None, options: TextOptions
) -> Documents | None:
    """The held-out text itself, as `prepare` held it out in `out`; None where there is none, or only shards of it."""
    if valid is not None:
        return None if is_corpus(Path(valid)) else _documents([valid], out, options)
    if len(corpus) == 1 and is_corpus(Path(path_of(corpus[0]))):
        return None
    if EMBEDDED in corpus:
        return lambda: embedded_documents("valid")
    note = out / "corpus" / SPLIT
    if not is_there(note):
        raise ArtefactError(f"{out} was prepared by a version that split text in another way; choose another --out")
    split = msgspec.convert(read_checksummed(note, way="choose another --out"), ValidationSplit)
    documents = _documents(corpus, out, options)
    return None if split.nothing else lambda: split.held_out(documents())


def _vocabulary(
    recipe: Recipe,
    documents: Documents,
    *,
    out: Path,
    options: TextOptions,
    reporter: Reporter,
    given: VocabularySource | None,
    wanted: dict[str, Any],
) -> Tokenizer:
    """Learn the recipe's vocabulary, or use the one that an interrupted run trained on the same text."""
    folder = out / "vocabulary"
    if vocabulary_matches(folder, wanted):
        return Tokenizer.load(folder)
    if given is not None:
        given.make(documents, folder, reporter)
    else:
        reporter.say("learning the vocabulary …")
        train_mixed_vocabulary(
            documents(),
            recipe.tokenizer,
            recipe.mixture.repeats if recipe.mixture.alpha < 1 else None,
            language=options.language,
            sentences=options.sentences,
        ).save(folder)
    record_vocabulary(folder, wanted)
    return Tokenizer.load(folder)  # to the byte what a run that continues reads


def _wanted(recipe: Recipe, given: VocabularySource | None) -> dict[str, Any]:
    """All that decides a vocabulary, apart from the text."""
    if given is not None:
        return given.identity
    settings: dict[str, Any] = msgspec.to_builtins(recipe.tokenizer)
    return settings | ({"alpha": recipe.mixture.alpha} if recipe.mixture.alpha < 1 else {}) | _languages_wanted(recipe)


def _languages_wanted(recipe: Recipe) -> dict[str, Any]:
    count = recipe.mixture.languages
    return {} if count is msgspec.UNSET else {"languages": count}


def _languages_read(
    recipe: Recipe, corpus: Sequence[LanguageSource], options: TextOptions
) -> Callable[[Documents], Documents]:
    """From all documents to those in the languages that the recipe reads; what is held out is chosen before."""
    count = recipe.mixture.languages
    if count is msgspec.UNSET:
        return lambda documents: documents
    languages = first_languages(corpus, count)

    def only(documents: Documents) -> Documents:
        return lambda: (each for each in documents() if (each.language or options.language) in languages)

    return only


def held_out_shards(given: str | None, folder: Path, *, build: CorpusBuilder, flag: str = "--valid") -> Path | None:
    """Held-out shards: a built corpus of the same vocabulary, or built from text in `folder`."""
    if given is None:
        return None
    if is_corpus(Path(given)):
        if Corpus.open(Path(given)).tokenizer.tokens != build.tokenizer.tokens:
            raise UsageError(f"{flag} {given} was built with another vocabulary; give the text itself")
        return Path(given)
    return dataclasses.replace(build, sources=[given])(_documents([given], folder.parent.parent, build.options), folder)


def unextended_path(folder: Path) -> Path:
    """Folder of the shards in the vocabulary before it was extended."""
    return folder.with_name(f"{folder.name}-before")


@dataclass(frozen=True)
class CorpusBuilder:
    """Builds shards, and shows how far it is."""

    tokenizer: Tokenizer
    options: TextOptions
    sources: Sequence[LanguageSource]
    reporter: Reporter
    before: Tokenizer | None = None
    """The vocabulary before it was extended: held-out text is built with both."""

    def __call__(self, documents: Documents, folder: Path) -> Path:
        if self.before is not None and folder.name != "train":
            dataclasses.replace(self, tokenizer=self.before, before=None)(documents, unextended_path(folder))
        with self.reporter.counter(f"{folder.name}: encoding") as show:

            def progress(counts: CorpusCounts) -> None:
                show(f"{folder.name}: {counts.documents:,} documents, {counts.tokens:,} tokens")

            options = BuildOptions(
                language=self.options.language,
                sentences=self.options.sentences,
                reading=self.options.reading,
                sources=self.sources,
                licence=self.options.licence,
                progress=progress,
                notice=self.reporter.say,
            )
            build_corpus(documents(), self.tokenizer, folder, options)
        return folder


def _check_vocabulary(recipe: Recipe, tokenizer: Tokenizer, path: Path) -> None:
    kind = msgspec.to_builtins(recipe.tokenizer)["type"]
    if tokenizer.kind != kind:
        raise UsageError(
            f"{path} was built with a {tokenizer.kind} vocabulary, but the recipe needs {kind}; "
            f'build it again, or set tokenizer.type = "{tokenizer.kind}"'
        )
    check_mask(recipe.corruption, tokenizer.id(tokenizer.special.mask))
