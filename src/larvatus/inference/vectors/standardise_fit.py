"""Fit a standardiser: mean and standard deviation of every dimension of every layer, in one pass over a corpus.

    fitted = fit_standardiser(encoder, tokenizer, ["texts/"], FitOptions(), name="default", model=fingerprint)
    fitted.save(standardiser_path(directory, "default"))

Memory holds one block of text with its vectors of all layers, whatever the size of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.errors import UsageError
from larvatus.core.ranges import Instances
from larvatus.core.settings import Settings
from larvatus.data.text.readers import Skipped
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.vectors.passages import LocatedText, PassageOptions, blocks, passages, sample
from larvatus.inference.vectors.pooling import EmbedOptions, Pool, Unit
from larvatus.inference.vectors.standardise import RunningMoments, Standardiser
from larvatus.inference.vectors.vectors import Vectors, embed_texts
from larvatus.models.nn.encoder import Encoder

CHARACTERS = 1 << 14
"""Characters of a block: about 3,000 words, whose vectors of all layers are held at once."""


class FitOptions(Settings):
    unit: Unit = "word"
    pool: Pool = "mean"
    passages: PassageOptions = PassageOptions()
    punctuation: bool = False
    """Whether punctuation counts as words."""
    most: Instances | None = None
    """Words of a random sample of passages; None for the whole corpus."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit in ("span", "document"):
            raise UsageError(f"a corpus has no marked {self.unit}s to fit on; use --unit word, token or sentence")

    @property
    def reading(self) -> PassageOptions:
        """How passages are read: one sentence at a time if sentences are the unit."""
        return msgspec.structs.replace(self.passages, characters=0) if self.unit == "sentence" else self.passages


def fit_standardiser(
    encoder: Encoder,
    tokenizer: Tokenizer,
    paths: Sequence[str],
    options: FitOptions,
    *,
    name: str,
    model: str,
    progress: Callable[[int], None] = lambda _: None,
    skipped: Skipped | None = None,
) -> Standardiser:
    """μ and σ over all units of the files. `model` is the model's fingerprint."""
    moments = RunningMoments()
    pieces: Iterable[LocatedText] = passages(paths, options.reading, Skipped() if skipped is None else skipped)
    if options.most is not None:
        pieces = sample(pieces, options.most)
    for block in every_layer(encoder, tokenizer, pieces, options.unit, options.pool):
        for vectors in block:
            moments.add(counted(vectors, punctuation=options.punctuation)[0])
        progress(moments.count)
    corpus = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
    corpus += " with punctuation" if options.punctuation else ""
    return Standardiser.of(moments, name=name, unit=options.unit, pool=options.pool, model=model, corpus=corpus)


def every_layer(
    encoder: Encoder, tokenizer: Tokenizer, pieces: Iterable[LocatedText], unit: Unit, pool: Pool
) -> Iterator[list[Vectors]]:
    """Units of passages with their vectors of every layer, one block of passages at a time."""
    options = EmbedOptions(unit=unit, layers="all", pool=pool)
    for block in blocks(pieces, CHARACTERS):
        yield list(embed_texts(encoder, tokenizer, [piece.text for piece in block], options))


def counted(vectors: Vectors, *, punctuation: bool) -> tuple[Floats, list[str]]:
    """Vectors [layers + 1, N, D] and texts of the units that count.

    These are the units with a vector; of words, only those with a letter or a digit (a seventh of all words are commas
    and full stops, whose similarity is of no interest).
    """
    units = vectors.units
    sound: npt.NDArray[np.bool_] = np.asarray(np.isfinite(vectors.vectors).all(axis=(0, 2)))
    if vectors.unit == "word" and not punctuation:
        sound &= np.array([any(map(str.isalnum, unit)) for unit in units], dtype=np.bool_)
    return vectors.vectors[:, sound], [unit for unit, finite in zip(units, sound.tolist(), strict=True) if finite]
