"""Replayed text: a share of each batch is text of the model's old domain, so that the model keeps what it knew.

    replay = ReplayText("wikipedia.txt", ReadOptions())
    replay.training(length=512)           # documents to mix in, tagged `REPLAYED`
    replay.held_out(length=512)           # documents that are never trained on, which measure what was forgotten

Experience replay is the simplest remedy for catastrophic forgetting: 1 to 5% of old tokens keep most of the old
domain's loss (Ibrahim et al. 2024, *Simple and scalable strategies to continually pre-train large language models*).
The share itself is `mixture.replay` of the recipe (`data/corpus/mixture.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from larvatus.core.errors import DataError, UsageError
from larvatus.data.corpus import is_corpus
from larvatus.data.corpus.mixture import REPLAYED
from larvatus.data.text.documents import Document, ReadOptions
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.readers import read_documents
from larvatus.data.text.validation_split import ValidationSplit
from larvatus.data.text.words import Mode
from larvatus.training.pretraining.text_record import EMBEDDED, Hashes, text_hashes


@dataclass(frozen=True)
class ReplayText:
    """Text of the old domain."""

    path: str
    """A file, folder or glob, or ``embedded``."""
    reading: ReadOptions
    sentences: Mode = "library"

    def __post_init__(self) -> None:
        if self.path == "-":
            raise UsageError("--replay-text reads files, not standard input; name a file")
        if is_corpus(Path(self.path)):
            raise UsageError(f"--replay-text {self.path} is a built corpus; give the text itself")

    def hashes(self, out: Path) -> Hashes:
        """Checksums of the text, by the name that errors call it."""
        return {f"--replay-text {name}": each for name, each in text_hashes([self.path], None, out=out).items()}

    def training(self, *, length: int) -> Iterator[Document]:
        """Documents to train on. `length`: tokens of the longest sequence."""
        if self.path == EMBEDDED:
            return _tagged(embedded_documents("train"))
        return self._split(length).training(self._documents())

    def held_out(self, *, length: int) -> Iterator[Document]:
        """Documents that measure the old domain; none where the text is too short to hold any out."""
        if self.path == EMBEDDED:
            return _tagged(embedded_documents("valid"))
        split = self._split(length)
        return iter(()) if split.nothing else split.held_out(self._documents())

    def _split(self, length: int) -> ValidationSplit:
        split = ValidationSplit.of(self._documents(), length=length, language=REPLAYED, sentences=self.sentences)
        if not split.languages:
            raise DataError(f"--replay-text {self.path} holds no text; give a file that holds some")
        return split

    def _documents(self) -> Iterator[Document]:
        return _tagged(read_documents([self.path], options=self.reading))


def _tagged(documents: Iterable[Document]) -> Iterator[Document]:
    return (dataclasses.replace(document, language=REPLAYED) for document in documents)
