"""What an index stores of a text, by the kind of vectors that the model gives.

| kind | stored for each passage | searched by |
| --- | --- | --- |
| dense | a unit vector (`storage.py`) | `nearest.py`, `nearest.py` |
| late | 8-bit vectors of its tokens, and their mean as a unit vector | `late_index.py` |
| sparse | tokens of the vocabulary with weights | `late_index.py` |

    index_kind(model)                                   # "late"
    encode_passages(model, texts, ("float16",))         # the arrays and records to store
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from larvatus.core.arrays import Floats, Ints, Records
from larvatus.core.errors import ArtefactError, NumericsError
from larvatus.data.labelled.records import Place
from larvatus.inference.model.encoder import EncoderModel
from larvatus.inference.search.generation import IndexManifest
from larvatus.inference.search.late_index import encode_tokens, mean_vector
from larvatus.inference.search.sparse_index import encode_weights
from larvatus.inference.search.storage import Kind, StoredVectors
from larvatus.inference.vectors.pooling import embed_options, vector_size
from larvatus.models.heads.head import VectorKind
from larvatus.tasks.embed.compared import ComparedTexts, SparseTexts, TokenTexts, compared_texts, reading_of
from larvatus.tasks.embed.encode import encode_sentences
from larvatus.tasks.embed.examples import SentenceExample
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.scoring import ScoringOptions


class StoredTexts(NamedTuple):
    """Texts as they are stored."""

    arrays: dict[str, Records]
    """A row for each text."""
    records: list[bytes] | None
    """The records of each text; None for dense vectors."""


def check_model(manifest: IndexManifest, model: EncoderModel, path: Path, *, way: str) -> None:
    """Refuse a model whose vectors are not those of the index."""
    if manifest.fingerprint != model.vector_fingerprint:
        with_adapter = model.bundle.adapter is not None
        adapter = ", with its sentence adapter" if with_adapter else ""
        before = ", without its sentence adapter" if with_adapter and manifest.fingerprint == model.fingerprint else ""
        raise ArtefactError(
            f"{path} was built with the model {manifest.model} ({manifest.fingerprint[:8]}…{before}), and this one is "
            f"{model_name(model)} ({model.vector_fingerprint[:8]}…{adapter}); {way}"
        )


def index_kind(model: EncoderModel) -> VectorKind:
    """The kind of vectors of a model."""
    head = model.token_head
    kind: VectorKind = "dense" if head is None else head.config.vector_kind
    return kind


def index_size(model: EncoderModel) -> int:
    """Dimensions of its vectors."""
    head = model.token_head
    return vector_size(model, embed_options(model)) if head is None else head.size_of_vector


def encode_passages(model: EncoderModel, texts: Sequence[str], kinds: Sequence[Kind]) -> StoredTexts:
    """The vectors of texts as an index stores them."""
    kind = index_kind(model)
    if kind == "dense":
        return StoredTexts(StoredVectors.encode(unit_vectors(model, texts), kinds), None)
    if kind == "late":
        vectors = token_vectors(model, texts)
        means_NK = np.stack([mean_vector(each) for each in vectors])
        return StoredTexts(StoredVectors.encode(means_NK, kinds), [encode_tokens(each) for each in vectors])
    return StoredTexts({}, [encode_weights(*each) for each in sparse_weights(model, texts)])


def unit_vectors(model: EncoderModel, texts: Sequence[str]) -> Floats:
    """Sentence vectors of length 1; zeros for a text without a token of the vocabulary (a lone control character).

    A vector that is not finite is refused: the weights are damaged, or numbers overflow.
    """
    listed = model.vectors(list(texts), unit="sentence", normalise=True)
    vectors_ND: Floats = np.stack([vectors.array for vectors in listed]).astype(np.float32)
    for place, vectors in enumerate(listed):
        if not vectors.tokens:
            vectors_ND[place] = 0.0
        else:
            _check_finite(vectors_ND[place], texts[place], model)
    return vectors_ND


def token_vectors(model: EncoderModel, texts: Sequence[str]) -> list[Floats]:
    """[n, K] the token vectors of each text of a model with late vectors; none of a text without a token."""
    vectors, numbers, sizes = _compared(model, texts)
    assert isinstance(vectors, TokenTexts)
    listed = [vectors.text(number)[: None if size else 0] for number, size in zip(numbers, sizes, strict=True)]
    for each, text in zip(listed, texts, strict=True):
        _check_finite(each, text, model)
    return listed


def sparse_weights(model: EncoderModel, texts: Sequence[str]) -> list[tuple[Ints, Floats]]:
    """The tokens with weights above 0 of each text of a model with sparse vectors; none of a text without a token."""
    vectors, numbers, sizes = _compared(model, texts)
    assert isinstance(vectors, SparseTexts)
    listed = [vectors.text(number) for number in numbers]
    for (_, weights), text in zip(listed, texts, strict=True):
        _check_finite(weights, text, model)
    return [each if size else (each[0][:0], each[1][:0]) for each, size in zip(listed, sizes, strict=True)]


def _compared(model: EncoderModel, texts: Sequence[str]) -> tuple[ComparedTexts, list[int], list[int]]:
    """The vectors of the different texts, the number of each text among them, and its tokens."""
    head = model.token_head
    assert head is not None
    examples = [SentenceExample((text,), "texts", Place("text", number)) for number, text in enumerate(texts, start=1)]
    data = encode_sentences(model.bundle, examples, reading_of(head, WindowOptions.of(model.bundle)))
    vectors = compared_texts(model.network, data, ScoringOptions(device=str(model.device)))
    return vectors, data.texts.tolist(), data.sequences.tokens[data.texts].tolist()


def _check_finite(vectors: Floats, text: str, model: EncoderModel) -> None:
    if not np.isfinite(vectors).all():
        raise NumericsError(
            f"the vector of {text[:40]!r} is not finite; check the weights of {model_name(model)}, or use fp32"
        )


def model_name(model: EncoderModel) -> str:
    """The name by which a model can be loaded again."""
    return str(getattr(model.origin, "path", model.bundle.path))
