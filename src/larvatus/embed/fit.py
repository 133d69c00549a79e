"""Fit a standardiser: mean and spread of every dimension of every layer, in one pass over a corpus.

    fitted = fit_standardiser(encoder, tokenizer, ["texts/"], FitOptions(), name="default", model=fingerprint)
    fitted.save(standardiser_path(directory, "default"))

Memory holds one block of text with its vectors of all layers, however long the corpus is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.embed.moments import RunningMoments
from larvatus.embed.options import EmbedOptions, Pool, Unit
from larvatus.embed.parts import Piece
from larvatus.embed.passages import PassageOptions, blocks, passages
from larvatus.embed.results import Vectors
from larvatus.embed.standardise import Standardiser
from larvatus.embed.vectors import embed_texts
from larvatus.errors import DataError, UsageError
from larvatus.nn.transformer import Transformer
from larvatus.text.readers import Skipped
from larvatus.text.tokenizer import Tokenizer

CHARACTERS = 1 << 14
"""Of a block: some 3,000 words, whose vectors of all layers are held at once."""


class FitOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    unit: Unit = "word"
    pool: Pool = "mean"
    passages: PassageOptions = PassageOptions()
    most: int | None = None
    """Units to read at most (rounded up to a passage); all of the corpus where it is None."""

    def __post_init__(self) -> None:
        if self.unit in ("span", "document"):
            raise UsageError(f"a corpus has no marked {self.unit}s to fit on; say --unit word, token or sentence")
        if self.most is not None and self.most < 2:
            raise UsageError(f"{self.most} units have no spread; say 2 or more")

    @property
    def reading(self) -> PassageOptions:
        """Sentences are read one by one where they are the unit."""
        return msgspec.structs.replace(self.passages, characters=0) if self.unit == "sentence" else self.passages


def fit_standardiser(
    encoder: Transformer,
    tokenizer: Tokenizer,
    paths: Sequence[str],
    options: FitOptions,
    *,
    name: str,
    model: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Standardiser:
    """μ and σ over all units of the files. `model` says which weights these are, see `model_fingerprint`."""
    moments = RunningMoments()
    for block in every_layer(encoder, tokenizer, paths, options, Skipped()):
        moments.add(joined(block))
        progress(moments.count)
    corpus = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
    return Standardiser.of(moments, name=name, unit=options.unit, pool=options.pool, model=model, corpus=corpus)


Block = list[tuple[Piece, Vectors]]


def every_layer(
    encoder: Transformer, tokenizer: Tokenizer, paths: Sequence[str], options: FitOptions, skipped: Skipped
) -> Iterator[Block]:
    """Passages with the vectors of their units from every layer, a block at a time."""
    asked = EmbedOptions(unit=options.unit, layers="all", pool=options.pool)
    left = options.most
    empty = True
    for block in blocks(passages(paths, options.reading, skipped), CHARACTERS):
        found = embed_texts(encoder, tokenizer, [piece.text for piece in block], asked)
        kept: Block = []
        for piece, vectors in zip(block, found, strict=True):
            kept.append((piece, vectors))
            left = None if left is None else left - len(vectors)
            if left is not None and left <= 0:
                break
        empty = False
        yield kept
        if left is not None and left <= 0:
            return
    if empty:
        raise DataError(f"no text in {', '.join(paths[:3])} ({skipped}); name files with text")


def joined(block: Block) -> npt.NDArray[np.float32]:
    """The vectors of a block: [layers + 1, N, D]."""
    return np.concatenate([vectors.vectors for _, vectors in block], axis=1)
