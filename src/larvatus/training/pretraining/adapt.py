"""Domain- and task-adaptive pretraining (Gururangan et al. 2020): go on from a model, on text of your own.

    larvatus pretrain --from bert-base/ --corpus my_texts/ --out runs/mine --add-words 500 --old embedded

The text is encoded with the model's own vocabulary, longer by the words that are asked for. Text of the domain that the
model comes from (`--old`) and held-out text of the new one are evaluated before and after (`domains.py`).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import UsageError
from larvatus.core.files import sha256
from larvatus.data.corpus import Corpus, is_corpus
from larvatus.data.text.counting import count_ids, count_words
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.extend import Extension, NewUnits, extend, frequent_units, listed_units
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.training.engine.watch import Watcher
from larvatus.training.pretraining.origin import Origin
from larvatus.training.pretraining.prepare import Build, Documents, Domain, Prepared, before, held_out_shards
from larvatus.training.pretraining.text_note import EMBEDDED
from larvatus.training.pretraining.vocabulary_note import has_sound

BEFORE, EXTENSION = "before", "extension.json"


@dataclass(frozen=True)
class ModelsVocabulary:
    """The vocabulary of the model that a run goes on from, with the words that were asked for."""

    origin: Origin
    add_words: Sequence[str] = ()
    """Numbers of words to learn, and files of words."""

    def __post_init__(self) -> None:
        for given in self.add_words:
            if _number(given) is None and not Path(given).is_file():
                raise UsageError(f"--add-words {given} is neither a number nor a file of words")
            if (number := _number(given)) is not None and number < 1:
                raise UsageError(f"--add-words wants a number above 0 or a file of words, not {given}")

    @property
    def identity(self) -> dict[str, Any]:
        words = [given if _number(given) is not None else sha256(Path(given).resolve()) for given in self.add_words]
        return {"from": self.origin.fingerprint, "add_words": words}

    def check(self, tokenizer: Tokenizer, corpus: Path) -> None:
        if self.add_words:
            raise UsageError(
                f"{corpus} is built already, so its vocabulary cannot be extended; give the text itself, "
                "or leave out --add-words"
            )
        if tokenizer.fingerprint != self.origin.bundle.tokenizer.fingerprint:
            raise UsageError(
                f"{corpus} was built with another vocabulary than that of {self.origin.path}; give the text itself, "
                f"or build it again: larvatus corpus build … --tokenizer {self.origin.path}"
            )

    def make(self, documents: Documents, folder: Path, watcher: Watcher) -> None:
        tokenizer = self.origin.bundle.tokenizer
        (folder / EXTENSION).unlink(missing_ok=True)  # of an earlier try that was asked for other words
        shutil.rmtree(folder / BEFORE, ignore_errors=True)
        if tokenizer.counts is not None and not self.add_words:
            tokenizer.save(folder)
            return
        watcher.say("counting the words of the text …")
        words = count_words((document.text for document in documents()), tokenizer.library)
        if tokenizer.counts is None:  # of another text than the model's, but the only one there is
            tokenizer = dataclasses.replace(tokenizer, counts=count_ids(words, tokenizer.library, tokenizer.size))
        extension = self._extended(tokenizer, words, watcher)
        if extension is None:
            tokenizer.save(folder)
            return
        longer = extension.tokenizer
        assert longer.counts is not None
        dataclasses.replace(longer, counts=longer.counts + count_ids(words, longer.library, longer.size)).save(folder)
        tokenizer.save(folder / BEFORE)
        write_checksummed(folder / EXTENSION, {"first": extension.first, "parts": extension.parts})

    def before(self, folder: Path) -> Tokenizer | None:
        return Tokenizer.load(folder / BEFORE) if has_sound(folder, f"{BEFORE}/") else None

    def _extended(self, tokenizer: Tokenizer, words: list[tuple[str, int]], watcher: Watcher) -> Extension | None:
        units: dict[str, None] = {}
        for given in self.add_words:
            number = _number(given)
            chosen: NewUnits = (
                listed_units(Path(given), tokenizer) if number is None else frequent_units(words, tokenizer, number)
            )
            units |= dict.fromkeys(chosen.units)
            if str(chosen):
                watcher.say(f"--add-words {given}: {chosen}")
        if not units:
            if self.add_words:
                watcher.say("no word is to be added: the vocabulary stays as it is")
            return None
        extension = extend(tokenizer, list(units))
        shown = ", ".join(tokenizer.readable(unit).lstrip("Ġ▁") for unit in islice(units, 8))
        others = len(extension.parts) - len(units)
        on_the_way = f" and {others:,} pieces that they need" if others > 0 else ""
        watcher.say(
            f"added to the {tokenizer.size:,} pieces of the vocabulary: {len(units):,} words{on_the_way}: "
            f"{shown}{' …' if len(units) > 8 else ''}",
        )
        return extension


@dataclass(frozen=True)
class AdaptedTexts:
    """What `prepare` makes, but with the vocabulary of a model; and the domains to compare."""

    vocabulary: ModelsVocabulary
    prepare: partial[Prepared]
    """`prepare.prepare` with all that it needs but a vocabulary."""
    old: str | None = None
    """Text of the domain that the model comes from."""

    def __call__(self) -> Prepared:
        prepared = self.prepare(vocabulary=self.vocabulary)
        out: Path = self.prepare.keywords["out"]
        domains = []
        for name, path in (("new", prepared.valid), ("old", self._old(prepared.train, out))):
            if path is not None:
                twin = before(path) if is_corpus(before(path)) else path
                domains.append(Domain(name=name, path=path, before=twin))
        return dataclasses.replace(prepared, domains=tuple(domains))

    def _old(self, train: Path, out: Path) -> Path | None:
        """Shards of the old domain; of the embedded text, the part that is never trained on."""
        if self.old is None:
            return None
        build = Build(
            Corpus.open(train, verify=False).tokenizer,
            self.prepare.keywords["options"],
            sources=[self.old],
            watcher=self.prepare.keywords["watcher"],
            before=self.vocabulary.before(out / "vocabulary"),
        )
        if self.old == EMBEDDED:
            return build(lambda: embedded_documents("valid"), out / "corpus" / "old")
        return held_out_shards(self.old, out / "corpus" / "old", build=build, flag="--old")


def extension_of(out: Path) -> tuple[int, list[list[int]]]:
    """First new id, and the old pieces of each new one, of the run in `out`; nothing where nothing was added."""
    folder = out / "vocabulary"
    if not has_sound(folder, EXTENSION):
        return 0, []
    extension = read_checksummed(folder / EXTENSION, way="choose another --out")
    return int(extension["first"]), [list(map(int, parts)) for parts in extension["parts"]]


def parent_of(origin: Origin | None, out: Path) -> dict[str, object]:
    """Lineage: the model that the run in `out` went on from, and its own lineage; nothing where there is none."""
    if origin is None:
        return {}
    about = {"directory": str(origin.path), "sha256": origin.fingerprint, "lineage": origin.bundle.lineage}
    return {"parent": {**about, "added pieces": len(extension_of(out)[1])}}


def _number(given: str) -> int | None:
    try:
        return int(given)
    except ValueError:
        return None
