"""The vectors of a teacher: computed once for the texts of a data set, and kept in a folder if one is named.

    teacher = load_teacher("all-mpnet-base-v2")
    vectors = teacher_vectors(teacher, texts, TeacherOptions(scoring=scoring, folder=Path("mpnet-vectors")))
    vectors[np.array([3, 0])]                       # [2, K]

The folder holds parts of 8,192 texts, each with a checksum (`data/bulk/parts.py`), and what they are of: teacher, texts
and how long texts are read. A computation that was interrupted continues after its last part; another teacher or other
texts are refused. Parts are mapped from the disk, so memory does not grow with the texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from larvatus.core import files
from larvatus.core.arrays import Floats, Ints
from larvatus.core.errors import NumericsError, UsageError
from larvatus.core.settings import Settings
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.labelled.records import Place, shorten
from larvatus.models.bundle.checksums import sentence_digest
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.new_heads import attach_head, sentence_bundle
from larvatus.models.bundle.sentence_modules import sentence_head, unsupported_modules
from larvatus.models.heads.embedding import EmbeddingConfig
from larvatus.tasks.embed.encode import EncodeOptions, embedder_of, encode_sentences, text_vectors
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions

AT_ONCE = 8_192
"""Texts of a part."""


class TextsDone(Settings):
    """How far the computation has come."""

    texts: int = 0


@dataclass(frozen=True, eq=False)
class TeacherVectors:
    """[U, K] vectors in parts of `AT_ONCE` rows, in memory or mapped."""

    parts: Sequence[Floats]
    width: int

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, rows: Ints) -> Floats:
        chosen = np.asarray(rows, np.int64)
        vectors = np.empty((len(chosen), self.width), np.float32)
        for number in np.unique(chosen // AT_ONCE).tolist():
            in_part = chosen // AT_ONCE == number
            vectors[in_part] = self.parts[number][chosen[in_part] % AT_ONCE]
        return vectors

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.asarray(self[np.arange(len(self))], dtype)


def load_teacher(name: str) -> Bundle:
    """A model that embeds: with its own head, or any other encoder with the mean of its tokens."""
    bundle = sentence_bundle(load_bundle(name))
    if sentence_head(bundle.objectives) is not None:
        return bundle
    if any(getattr(config, "in_modules", False) for config in bundle.objectives):
        raise UsageError(f"the teacher {name} gives late or sparse vectors; use a teacher with one vector for a text")
    if bundle.pooling:
        modules = unsupported_modules(bundle.path, bundle.tokenizer.template, hidden=bundle.model.hidden)
        raise UsageError(f"the teacher {name} has {modules or bundle.pooling}, which Larvatus does not have")
    return attach_head(bundle, EmbeddingConfig(), seed=0)[0]


def teacher_vectors(
    teacher: Bundle,
    texts: Sequence[str],
    scoring: ScoringOptions,
    *,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> TeacherVectors:
    """The vector of each text, from the folder where they are kept, or computed."""
    width = embedder_of(teacher.network).size_of_vector
    teacher.network.to(scoring.device)
    if folder is None:
        blocks = [_computed(teacher, texts, start, scoring) for start in range(0, len(texts), AT_ONCE)]
        return TeacherVectors(blocks, width)
    parts = PartsFolder(folder, _identity(teacher, texts), kind=TextsDone, suffix=".npy")
    with files.locked(folder), parts.removed_when_empty():
        done = parts.open(resume=True).texts
        if done:
            say(f"teacher: {done:,} of {len(texts):,} vectors are in {folder}")
        for start in range(done, len(texts), AT_ONCE):
            block = _computed(teacher, texts, start, scoring)
            parts.write(_saved(block), TextsDone(texts=start + len(block)), size=block.nbytes)
        mapped = [np.load(path, mmap_mode="r") for path in parts.paths()]
    return TeacherVectors(mapped, width)


def _saved(block: Floats) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, block)

    return write


def _computed(teacher: Bundle, texts: Sequence[str], start: int, scoring: ScoringOptions) -> Floats:
    block = texts[start : start + AT_ONCE]
    examples = [SentenceExample((text,), "texts", Place("text", start + n)) for n, text in enumerate(block, start=1)]
    head = embedder_of(teacher.network)
    options = EncodeOptions(pool=head.config.pool, windows=WindowOptions.of(teacher))
    data = encode_sentences(teacher, examples, options)
    vectors = text_vectors(teacher.network, data, scoring)[data.texts]
    bad = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(bad):
        raise NumericsError(f"the teacher gives no finite vector for {shorten(block[int(bad[0])])}; use another")
    return vectors


def _identity(teacher: Bundle, texts: Sequence[str]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(len(text).to_bytes(8, "little") + text.encode("utf-8", "surrogatepass"))
    return {"teacher": sentence_digest(teacher.path), "texts": digest.hexdigest(), "count": len(texts)}
