"""A model behind the encoder protocol of `mteb` (Muennighoff et al. 2023): its tasks run on our vectors.

    import mteb, larvatus as lv
    mteb.evaluate(lv.MtebEncoder(lv.load("runs/faq")), mteb.get_tasks(tasks=["STSBenchmark"]))

The protocol is that of mteb 2 (`EncoderProtocol`). mteb itself is imported only where it asks for a description of the
model, under whose name and revision it stores results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import UsageError
from larvatus.inference.model import load
from larvatus.inference.vectors.pooling import embed_options, vector_size

if TYPE_CHECKING:
    from larvatus.inference.model import Model

REVISION = 12
"""Characters of the fingerprint that names the weights."""


class MtebEncoder:
    """Vectors of a loaded model for the tasks of `mteb`.

    Args:
        model: A loaded model, or its directory or name.
        revision: Not used; mteb hands it over with a name.
        device: Where a named model is loaded.
        **settings: Not used, likewise.

    Example:
        >>> encoder = lv.MtebEncoder(model)
        >>> encoder.encode([{"text": ["the river", "the town"]}, {"text": ["a bank"]}]).shape
        (3, 16)
    """

    def __init__(
        self, model: str | Path | Model, revision: str | None = None, *, device: str | None = None, **settings: Any
    ) -> None:
        self.model = load(model, device=device or "auto") if isinstance(model, str | Path) else model

    def encode(self, inputs: Iterable[Mapping[str, Any]], **task: Any) -> Floats:
        """Vectors [n, D] of the texts of batches, each a mapping with a list `text`.

        Args:
            inputs: Batches, as a `DataLoader` of mteb gives them. A document's title is part of its `text` there.
            **task: What mteb says of the task (`task_metadata`, `hf_split`, `hf_subset`, `prompt_type`); our models
                have no prompts, and embed a query as they embed a document.

        Returns:
            The vectors in the order of the texts.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise UsageError(f"the task has inputs of {', '.join(map(str, batch)) or 'nothing'}, and no texts")
            texts += batch["text"]
        vectors: Floats = np.asarray(self.model.embed(texts), np.float32)
        return vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Floats:
        """Cosines [n, m] of all vectors of one array with all of another.

        Args:
            embeddings1: Vectors [n, D] or [D].
            embeddings2: Vectors [m, D] or [D].

        Returns:
            The cosines.
        """
        first_ND, second_MD = np.atleast_2d(_unit(embeddings1)), np.atleast_2d(_unit(embeddings2))
        cosines: Floats = first_ND @ second_MD.T
        return cosines

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Floats:
        """Cosines [n] of vectors at the same place of two arrays.

        Args:
            embeddings1: Vectors [n, D].
            embeddings2: Vectors [n, D].

        Returns:
            The cosines.
        """
        cosines: Floats = (_unit(embeddings1) * _unit(embeddings2)).sum(-1)
        return cosines

    @cached_property
    def mteb_model_meta(self) -> Any:
        """What mteb stores with results: name, fingerprint of the weights, size of vectors."""
        described: Any = import_module("mteb.models.model_meta").ModelMeta
        options = embed_options(self.model, unit="sentence")
        return described.create_empty(
            {
                "name": f"larvatus/{Path(self.model.bundle.path).name}",
                "revision": self.model.vector_fingerprint[:REVISION],
                "embed_dim": vector_size(self.model, options),
            }
        )


def _unit(vectors: Any) -> Floats:
    rows = np.asarray(vectors, np.float32)
    scaled: Floats = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
    return scaled
