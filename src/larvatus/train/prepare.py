"""From what the user calls a corpus to what a run reads: vocabulary and shards, built beside the run.

    runs/mine/vocabulary/        learnt as the recipe says, from all the text
    runs/mine/corpus/train/      shards of the text
    runs/mine/corpus/valid/      shards of the held-out text: --valid, or every fiftieth document

A corpus that was built before (`larvatus corpus build`) is taken as it is, with its own vocabulary. The word
``embedded`` stands for the English prose that every Python ships. A run that goes on from a model brings its vocabulary
(`Vocabulary`, carried out in `adapt.py`); held-out text is then encoded with the one before it was extended, too.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from rich.console import Console
from rich.progress import Progress, TextColumn

from larvatus.corpus import BuildOptions, Corpus, build_corpus, is_corpus
from larvatus.corpus.format import Counts
from larvatus.errors import ArtefactError, UsageError
from larvatus.files import read_json, write_json
from larvatus.recipes import Recipe
from larvatus.text.embedded import embedded_documents
from larvatus.text.languages import Given, path_of, read_languages, train_mixed_vocabulary
from larvatus.text.readers import Document, ReadOptions, Skipped
from larvatus.text.tokenizer import Tokenizer

EMBEDDED = "embedded"
HELD_OUT_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How to read raw text."""

    reading: ReadOptions = field(default_factory=ReadOptions)
    language: str = "en"
    sentences: Literal["library", "newline"] = "library"
    licence: str = ""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Held-out shards of one kind of text."""

    name: str
    path: Path
    before: Path
    """The same text in the vocabulary before it was extended; the same shards where it was not."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Where the shards are."""

    train: Path
    valid: Path | None
    domains: tuple[Domain, ...] = ()
    """What a run that goes on from a model compares before and after."""


Documents = Callable[[], Iterable[Document]]


class Vocabulary(Protocol):
    """A vocabulary that is not learnt from the corpus alone."""

    @property
    def identity(self) -> dict[str, Any]:
        """What it is made of: a run under way keeps to it."""

    def check(self, tokenizer: Tokenizer, corpus: Path) -> None:
        """Refuse a built corpus of another vocabulary."""

    def make(self, documents: Documents, folder: Path, console: Console) -> int:
        """Save the tokenizer in the folder; the number of documents (or as many as tell whether to set some apart)."""

    def before(self, folder: Path) -> Tokenizer | None:
        """The tokenizer before it was extended, from the folder that `make` filled; None where it was not."""


def prepare(
    recipe: Recipe,
    corpus: Sequence[Given],
    *,
    out: Path,
    valid: str | None,
    options: TextOptions,
    console: Console,
    vocabulary: Vocabulary | None = None,
) -> Prepared:
    """Build what is not there yet. Called again after a kill, it goes on; when all is there, it does nothing."""
    if len(corpus) == 1 and is_corpus(Path(path_of(corpus[0]))):
        train = Path(path_of(corpus[0]))
        tokenizer = Corpus.open(train).tokenizer
        if vocabulary is None:
            _check_vocabulary(recipe, tokenizer, train)
        else:
            vocabulary.check(tokenizer, train)
        build = Build(tokenizer, options, sources=[valid or ""], console=console)
        held_out = held_out_shards(valid, out / "corpus" / "valid", build=build)
        if held_out is None:
            console.print("no held-out text: nothing will be evaluated; give some with --valid PATH")
        return Prepared(train=train, valid=held_out)
    folder = out / "corpus"
    marker = out / "corpus" / "text.json"
    given = {"corpus": [str(path) for path in corpus], "valid": valid, "options": msgspec.to_builtins(options)}
    given |= {} if vocabulary is None else {"vocabulary": vocabulary.identity}
    if marker.exists():
        if read_json(marker) != given:
            raise ArtefactError(f"{folder} was built from other text or options; choose another --out")
        return Prepared(train=folder / "train", valid=folder / "valid" if is_corpus(folder / "valid") else None)
    documents = _documents(corpus, out, options)
    apart = valid is None and EMBEDDED not in corpus
    tokenizer, count = _vocabulary(recipe, documents, out, options, console, vocabulary)
    apart = apart and count >= 2 * HELD_OUT_EVERY
    shorter = vocabulary.before(out / "vocabulary") if vocabulary else None
    build = Build(tokenizer, options, sources=corpus, console=console, before=shorter)
    build(_every(documents, kept=True) if apart else documents, folder / "train")
    if apart:
        held_out = build(_every(documents, kept=False), folder / "valid")
    elif valid is None and EMBEDDED in corpus:
        held_out = build(lambda: embedded_documents("valid"), folder / "valid")
    else:
        held_out = held_out_shards(valid, folder / "valid", build=build)
    if held_out is None:
        console.print(f"{count:,} documents are too few to set any apart: nothing will be evaluated; give --valid PATH")
    write_json(marker, given)
    return Prepared(train=folder / "train", valid=held_out)


def _documents(corpus: Sequence[Given], out: Path, options: TextOptions) -> Documents:
    """The text, to be read as often as needed (standard input is kept beside the run for that)."""
    if EMBEDDED in corpus:
        if len(corpus) > 1:
            raise UsageError("--corpus embedded stands alone")
        return lambda: embedded_documents("train")
    paths = [str(kept_input(out)) if path == "-" else path for path in corpus]
    return lambda: read_languages(paths, options=options.reading, skipped=Skipped())


def kept_input(out: Path) -> Path:
    """Standard input, kept in a file beside the run, so that it can be read again."""
    path = out / "corpus" / "input.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".tmp")
        with aside.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        aside.rename(path)
    return path


def held_out_documents(
    corpus: Sequence[Given], *, out: Path, valid: str | None, options: TextOptions
) -> Documents | None:
    """The held-out text itself, as `prepare` set it apart in `out`; None where there is none, or only shards of it."""
    if valid is not None:
        return None if is_corpus(Path(valid)) else _documents([valid], out, options)
    if len(corpus) == 1 and is_corpus(Path(path_of(corpus[0]))):
        return None
    if EMBEDDED in corpus:
        return lambda: embedded_documents("valid")
    apart = is_corpus(out / "corpus" / "valid")
    return _every(_documents(corpus, out, options), kept=False) if apart else None


def _every(documents: Documents, *, kept: bool) -> Documents:
    """All documents but every fiftieth of each language, or every fiftieth alone."""

    def some() -> Iterator[Document]:
        seen: Counter[str | None] = Counter()
        for document in documents():
            seen[document.language] += 1
            if (seen[document.language] % HELD_OUT_EVERY != 0) == kept:
                yield document

    return some


def _vocabulary(
    recipe: Recipe,
    documents: Documents,
    out: Path,
    options: TextOptions,
    console: Console,
    own: Vocabulary | None,
) -> tuple[Tokenizer, int]:
    """Learn the recipe's vocabulary, or take up the one that an interrupted run left; and count the documents."""
    folder = out / "vocabulary"
    note = folder / "vocabulary.json"
    mixed = recipe.mixture.alpha < 1
    wanted = msgspec.to_builtins(recipe.tokenizer) | ({"alpha": recipe.mixture.alpha} if mixed else {})
    wanted = wanted if own is None else own.identity
    if note.exists() and read_json(note).get("settings") == wanted:
        return Tokenizer.load(folder), int(read_json(note)["documents"])
    count = 0

    def counted() -> Iterator[Document]:
        nonlocal count
        for document in documents():
            count += 1
            yield document

    if own is not None:
        count = own.make(documents, folder, console)
        write_json(note, {"settings": wanted, "documents": count})
        return Tokenizer.load(folder), count
    console.print("learning the vocabulary …")
    tokenizer = train_mixed_vocabulary(
        counted(),
        recipe.tokenizer,
        recipe.mixture.repeats if mixed else None,
        language=options.language,
        sentences=options.sentences,
    )
    tokenizer.save(folder)
    write_json(note, {"settings": wanted, "documents": count})
    return tokenizer, count


def held_out_shards(given: str | None, folder: Path, *, build: Build, flag: str = "--valid") -> Path | None:
    """Held-out shards: a built corpus of the same vocabulary, or built from text in `folder`."""
    if given is None:
        return None
    if is_corpus(Path(given)):
        if Corpus.open(Path(given)).tokenizer.pieces != build.tokenizer.pieces:
            raise UsageError(f"{flag} {given} was built with another vocabulary; give the text itself")
        return Path(given)
    return dataclasses.replace(build, sources=[given])(_documents([given], folder.parent.parent, build.options), folder)


def before(folder: Path) -> Path:
    """Where the shards of a folder stand in the vocabulary before it was extended."""
    return folder.with_name(f"{folder.name}-before")


@dataclass(frozen=True)
class Build:
    """Builds shards, and shows how far it is."""

    tokenizer: Tokenizer
    options: TextOptions
    sources: Sequence[Given]
    console: Console
    before: Tokenizer | None = None
    """The vocabulary before it was extended: held-out text is built with both."""

    def __call__(self, documents: Documents, folder: Path) -> Path:
        if self.before is not None and folder.name != "train":
            dataclasses.replace(self, tokenizer=self.before, before=None)(documents, before(folder))
        quiet = not self.console.is_terminal
        with Progress(TextColumn("  {task.description}"), console=self.console, transient=True, disable=quiet) as bar:
            task = bar.add_task(f"{folder.name}: encoding")

            def show(counts: Counts) -> None:
                words = f"{folder.name}: {counts.documents:,} documents, {counts.tokens:,} tokens"
                bar.update(task, description=words)

            options = BuildOptions(
                language=self.options.language,
                sentences=self.options.sentences,
                reading=self.options.reading,
                sources=self.sources,
                licence=self.options.licence,
                progress=show,
                notice=lambda line: self.console.print(line, soft_wrap=True),
            )
            build_corpus(documents(), self.tokenizer, folder, options)
        return folder


def _check_vocabulary(recipe: Recipe, tokenizer: Tokenizer, path: Path) -> None:
    kind = msgspec.to_builtins(recipe.tokenizer)["type"]
    if tokenizer.kind != kind:
        raise UsageError(
            f"{path} was built with a {tokenizer.kind} vocabulary, but the recipe wants {kind}; "
            f'build it again, or set tokenizer.type = "{tokenizer.kind}"'
        )
