"""Another vocabulary for a pretrained model: learned on the new text, or read from a directory.

    larvatus pretrain --from english --vocabulary new --corpus swahili.txt --out runs/sw
    larvatus pretrain --from english --vocabulary runs/tokenizer --initialise mean --corpus swahili.txt --out runs/sw

`token_transfer.py` describes how the vectors of its tokens start. The run keeps what was computed:

    runs/sw/vocabulary/                    the new vocabulary
    runs/sw/vocabulary/before/             the old one, with which held-out text is measured before the run
    runs/sw/vocabulary/rows.safetensors    weights of old rows for each new row
    runs/sw/vocabulary/rows.json           how many rows were copied, mixed, random; tokens per word before and after
"""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from larvatus.core.arrays import Doubles
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import DataError, UsageError
from larvatus.core.files import sha256
from larvatus.core.regular_files import read_named
from larvatus.data.corruption import check_mask
from larvatus.data.text.counting import count_ids, count_words
from larvatus.data.text.languages import scale_counts, train_mixed_vocabulary
from larvatus.data.text.shared_tokens import old_subwords, shared_tokens
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import CharactersConfig, Words, learn_vocabulary, pipeline
from larvatus.data.text.words import segment_words
from larvatus.models.recipes import Recipe
from larvatus.training.engine.reporter import Reporter
from larvatus.training.pretraining.job import ParentModel
from larvatus.training.pretraining.prepare import Documents
from larvatus.training.pretraining.replay import ReplayText
from larvatus.training.pretraining.static_vectors import aligned, static_vectors
from larvatus.training.pretraining.text_record import has_intact_files
from larvatus.training.pretraining.token_transfer import (
    Initialise,
    Mixtures,
    RowTransfer,
    copies,
    focus,
    means,
    wechsel,
)

BEFORE, ROWS, SUMMARY, EXTENSION = "before", "rows.safetensors", "rows.json", "extension.json"
FERTILITY_CHARACTERS = 2_000_000
"""Text on which tokens per word are counted."""
LEAST_PAIRS = 20
"""Word pairs of a dictionary that an alignment needs."""
LENGTH = 512
"""Tokens around held-out passages of replayed text."""


@dataclass(frozen=True, kw_only=True)
class NewVocabulary:
    """A vocabulary that replaces the parent's (a `VocabularySource`)."""

    origin: ParentModel
    recipe: Recipe
    """Its tokenizer settings are those of a vocabulary that is learned."""
    directory: str | None = None
    """A tokenizer to read; None: one is learned on the new text."""
    initialise: Initialise = "focus"
    dictionary: str | None = None
    """File of word pairs: a word of the new text, a tab, its translation."""
    replay: ReplayText | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.initialise == "wechsel" and (self.dictionary is None or self.replay is None):
            raise UsageError(
                "--initialise wechsel aligns the languages by a dictionary and learns vectors of the old one: "
                "give --dictionary FILE and --replay-text FILE, or --initialise focus, which needs neither"
            )
        if self.initialise != "wechsel" and self.dictionary is not None:
            raise UsageError("--dictionary goes with --initialise wechsel")
        if self.dictionary is not None and not Path(self.dictionary).is_file():
            raise UsageError(f"--dictionary {self.dictionary} is no file; write word pairs to it, or choose another")
        if isinstance(self.recipe.tokenizer, CharactersConfig):
            raise UsageError("a model that reads characters has no vocabulary to replace; leave out --vocabulary")

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "from": self.origin.fingerprint,
            "vocabulary": "new" if self.directory is None else Tokenizer.load(self.directory).fingerprint,
            "initialise": self.initialise,
            "dictionary": None if self.dictionary is None else sha256(Path(self.dictionary).resolve()),
            "seed": self.seed,
        }

    def check(self, tokenizer: Tokenizer, corpus: Path) -> None:
        raise UsageError(f"{corpus} is built already; --vocabulary needs the text itself")

    def before(self, folder: Path) -> Tokenizer | None:
        return Tokenizer.load(folder / BEFORE)

    def make(self, documents: Documents, folder: Path, reporter: Reporter) -> None:
        clear_attempt(folder)
        old, new = self.origin.bundle.tokenizer, self._tokenizer(documents, reporter)
        check_mask(self.recipe.corruption, new.id(new.special.mask))
        before, after = (fertility(each, documents()) for each in (old, new))
        reporter.say(
            f"new vocabulary: {new.size:,} tokens ({new.kind}), {after:.2f} per word of the new text; "
            f"the old one: {old.size:,} ({old.kind}), {before:.2f} per word"
        )
        rows, counts = self._rows(new, documents)
        reporter.say(f"vectors of the new tokens: {describe_counts(counts, self.initialise)}")
        new.save(folder)
        old.save(folder / BEFORE)
        rows.write(folder / ROWS)
        fertilities = {"tokens per word before": before, "tokens per word": after}
        write_checksummed(folder / SUMMARY, {"initialise": self.initialise, "rows": counts, **fertilities})

    def _tokenizer(self, documents: Documents, reporter: Reporter) -> Tokenizer:
        if self.directory is not None:
            tokenizer = Tokenizer.load(self.directory)
            if tokenizer.counts is not None:
                return tokenizer
            words = count_words(_texts(documents()), tokenizer.library)
            return dataclasses.replace(tokenizer, counts=count_ids(words, tokenizer.library, tokenizer.size))
        reporter.say("learning a vocabulary on the new text …")
        wanted = self.recipe.tokenizer
        if self.recipe.mixture.alpha < 1:
            return train_mixed_vocabulary(documents(), wanted, self.recipe.mixture.repeats)
        bare = pipeline(wanted)
        tokenizer = learn_vocabulary(self._words(documents, bare), bare, wanted, allow_smaller=True)
        if tokenizer.size < wanted.size:
            reporter.say(f"the text supports {tokenizer.size:,} tokens, fewer than the requested {wanted.size:,}")
        return tokenizer

    def _words(self, documents: Documents, bare: tokenizers.Tokenizer) -> Words:
        """Counted words of the new text, and of replayed text in its share: they need tokens too."""
        words, share = count_words(_texts(documents()), bare), self.recipe.mixture.replay_share
        if not share or self.replay is None:
            return words
        replayed = count_words(_texts(self.replay.training(length=LENGTH)), bare)
        sizes = [sum(count for _, count in each) for each in (words, replayed)]
        total = Counter(dict(words))
        for word, count in scale_counts(replayed, share / (1 - share) * sizes[0] / max(1, sizes[1])):
            total[word] += count
        return sorted(total.items())

    def _rows(self, new: Tokenizer, documents: Documents) -> tuple[RowTransfer, dict[str, int]]:
        """Weights of old rows, and how many rows each method gave."""
        old = self.origin.bundle.tokenizer
        shared = shared_tokens(new, old)
        if self.initialise == "random":
            shared[sorted(set(range(new.size)) - new.special_ids)] = -1
        copied = copies(shared)
        others: Mixtures = {}
        if self.initialise == "focus":
            others = focus(static_vectors(_texts(documents()), new, seed=self.seed), shared)
        elif self.initialise == "wechsel":
            others = self._aligned_rows(new, documents)
        averages = means(old_subwords(new, old)) if self.initialise not in ("copy", "random") else {}
        mixtures = {**averages, **others, **copied}
        counts = {
            "copied": len(copied),
            "mixed": len(others.keys() - copied.keys()),
            "mean": len(averages.keys() - others.keys() - copied.keys()),
            "random": new.size - len(mixtures),
        }
        return RowTransfer.of(new.size, mixtures), counts

    def _aligned_rows(self, new: Tokenizer, documents: Documents) -> Mixtures:
        assert self.replay is not None
        assert self.dictionary is not None
        old = self.origin.bundle.tokenizer
        here = static_vectors(_texts(documents()), new, seed=self.seed)
        there = static_vectors(_texts(self.replay.training(length=LENGTH)), old, seed=self.seed)
        pairs = [
            (first, second)
            for word, translation in read_dictionary(Path(self.dictionary))
            if (first := word_vector(word, new, here)) is not None
            and (second := word_vector(translation, old, there)) is not None
        ]
        if len(pairs) < LEAST_PAIRS:
            raise DataError(
                f"--dictionary {self.dictionary}: only {len(pairs)} pairs have words of both texts, and an alignment "
                f"needs {LEAST_PAIRS}; give more pairs or more text, or --initialise focus"
            )
        return wechsel(aligned(here, pairs), there)


def clear_attempt(folder: Path) -> None:
    """Remove what an earlier attempt with other options left in the folder of the vocabulary."""
    for name in (ROWS, SUMMARY, EXTENSION):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / BEFORE, ignore_errors=True)


def read_rows(out: Path) -> RowTransfer | None:
    """Weights of old rows of the run in `out`; None where its vocabulary is not new."""
    folder = out / "vocabulary"
    return RowTransfer.read(folder / ROWS) if has_intact_files(folder, ROWS) else None


def read_summary(out: Path) -> dict[str, Any]:
    """What `rows.json` of the run in `out` says; nothing where its vocabulary is not new."""
    folder = out / "vocabulary"
    if not has_intact_files(folder, SUMMARY):
        return {}
    return {
        name: value
        for name, value in read_checksummed(folder / SUMMARY, way="choose another --out").items()
        if name != "sha256"
    }


def read_dictionary(path: Path) -> list[tuple[str, str]]:
    """Word pairs of a file: a word of the new text, a tab, its translation; one pair per line."""
    pairs = []
    for number, line in enumerate(read_named(path, DataError).splitlines(), 1):
        cells = line.split("\t")
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            raise DataError(f"{path}:{number}: {line[:40]!r} is no pair; write a word, a tab and its translation")
        pairs.append((cells[0].strip(), cells[1].strip()))
    if not pairs:
        raise DataError(f"{path} holds no word pairs; write one per line: a word, a tab and its translation")
    return pairs


def word_vector(word: str, tokenizer: Tokenizer, vectors: Doubles) -> Doubles | None:
    """The mean of the static vectors of a word's tokens, of length 1; None where none has a vector."""
    mean: Doubles = vectors[tokenizer.encode_fast([f" {word}"])[0]].sum(0)
    length = float(np.linalg.norm(mean))
    return mean / length if length else None


def fertility(tokenizer: Tokenizer, documents: Iterable[Any]) -> float:
    """Tokens per word, on the first `FERTILITY_CHARACTERS` of the text."""
    tokens = words = 0
    for text in _beginning(_texts(documents)):
        tokens += int(tokenizer.encode_lengths([text])[1].sum())
        words += len(segment_words(text))
    return tokens / max(1, words)


def _beginning(texts: Iterable[str]) -> Iterator[str]:
    read = 0

    def short(text: str) -> bool:
        nonlocal read
        read += len(text)
        return read - len(text) < FERTILITY_CHARACTERS

    return takewhile(short, texts)


def _texts(documents: Iterable[Any]) -> Iterator[str]:
    return (document.text for document in documents)


def describe_counts(counts: dict[str, int], initialise: Initialise) -> str:
    """How many rows each method gave, in words.

    >>> describe_counts({"copied": 120, "mixed": 300, "mean": 4, "random": 0}, "focus")
    '120 copied, 300 mixed (focus), 4 means of old subwords'
    """
    names = {"mixed": f"mixed ({initialise})", "mean": "means of old subwords"}
    return ", ".join(f"{count:,} {names.get(name, name)}" for name, count in counts.items() if count)
