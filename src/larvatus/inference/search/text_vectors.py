"""Vectors of passages and queries: those of the model that an index was built with, and of no other.

    check_model(manifest, model, Path("index"), way="build it again")
    unit_vectors(model, ["who may appeal?"])                    # [1, D], of length 1

Building and searching an index both call these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import ArtefactError, NumericsError
from larvatus.inference.model.encoder import EncoderModel
from larvatus.inference.search.generation import IndexManifest
from larvatus.inference.vectors.own_pooling import embed_options
from larvatus.inference.vectors.own_pooling import vector_size as size_of_vectors


def check_model(manifest: IndexManifest, model: EncoderModel, path: Path, *, way: str) -> None:
    """Refuse a model whose vectors are not those of the index."""
    if manifest.fingerprint != model.fingerprint:
        raise ArtefactError(
            f"{path} was built with the model {manifest.model} ({manifest.fingerprint[:8]}…), and this one is "
            f"{model_name(model)} ({model.fingerprint[:8]}…); {way}"
        )


def model_name(model: EncoderModel) -> str:
    """The name by which a model can be loaded again."""
    return str(getattr(model.origin, "path", model.bundle.path))


def unit_vectors(model: EncoderModel, texts: Sequence[str]) -> Floats:
    """Sentence vectors of length 1; zeros for a text without a token of the vocabulary (a lone control character).

    A vector that is not finite is refused: the weights are damaged, or numbers overflow.
    """
    listed = model.vectors(list(texts), unit="sentence", normalise=True)
    vectors_ND: Floats = np.stack([vectors.array for vectors in listed]).astype(np.float32)
    for place, vectors in enumerate(listed):
        if not vectors.tokens:
            vectors_ND[place] = 0.0
        elif not np.isfinite(vectors_ND[place]).all():
            name = model_name(model)
            raise NumericsError(
                f"the vector of {texts[place][:40]!r} is not finite; check the weights of {name}, or use fp32"
            )
    return vectors_ND


def vector_size(model: EncoderModel) -> int:
    """Dimensions of these vectors: of the encoder, or of the linear layer of a sentence encoder."""
    return size_of_vectors(model, embed_options(model, unit="sentence", normalise=True))
