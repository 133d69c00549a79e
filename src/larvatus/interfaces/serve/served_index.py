"""An index of passages as the server offers it: opened when the server starts, with the model that it was built with.

    served = ServedIndex.open("index", model, name="index")
    served.search(["who may appeal?"], top=5)[0]["hits"][0]["document"]

A client sees files by their paths in the index. Absolute paths are given below the folder that all files share, so that
no folder of this machine reaches a client.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from larvatus.inference.model import Model
from larvatus.inference.search.generation import read_manifest
from larvatus.inference.search.passage_index import Index
from larvatus.inference.search.results import SearchResults

SAMPLED = 64
"""Passages from which the cost of reading one is estimated."""


@dataclass(frozen=True, eq=False)
class ServedIndex:
    name: str
    index: Index
    folder: str
    """Beginning of all absolute paths, which clients do not see; empty if there are none."""
    _tokens: dict[str, int] = field(default_factory=dict)
    """Tokens of a passage, by the fingerprint of the model that reads it."""

    @classmethod
    def open(cls, path: str | Path, model: Model, *, name: str) -> ServedIndex:
        """Open an index with the model that it was built with; its checksums are verified."""
        index = Index.open(path, model=model)
        absolute = [name for name in index.files if os.path.isabs(name)]
        shared = os.path.commonpath([os.path.dirname(name) for name in absolute]) if absolute else ""
        return cls(name, index, f"{shared.rstrip(os.sep)}{os.sep}" if absolute else "")

    @property
    def longest(self) -> int:
        """Most characters of a passage."""
        return int(self.index.manifest.reading["passages"]["passage"])

    def passage_tokens(self, model: Model) -> int:
        """Mean number of tokens of a passage in a model's vocabulary, from some passages of the whole index."""
        if model.fingerprint not in self._tokens:
            texts = self.index.some_texts(SAMPLED)
            lengths = [len(ids) for ids in model.tokenizer.encode_fast(texts)]
            self._tokens[model.fingerprint] = -(-sum(lengths) // max(1, len(lengths)))
        return self._tokens[model.fingerprint]

    def search(self, queries: Sequence[str], **settings: Any) -> list[dict[str, Any]]:
        """A dict for each query, as `SearchResults.to_dict` gives it."""
        return [{"index": self.name, **self._shown(each).to_dict()} for each in self.index.search(queries, **settings)]

    def _shown(self, results: SearchResults) -> SearchResults:
        if not self.folder:
            return results
        hits = tuple(replace(hit, document=hit.document.removeprefix(self.folder)) for hit in results)
        return replace(results, hits=hits, changed=tuple(line.removeprefix(self.folder) for line in results.changed))

    def describe(self) -> dict[str, Any]:
        """The entry of /v1/models."""
        held = self.index.manifest
        return {
            "name": self.name,
            "passages": held.passages,
            "documents": held.documents,
            "columns": list(held.columns),
            "hybrid": self.index.has_words,
        }


def models_of(indexes: Iterable[str]) -> list[str]:
    """Names of the models that indexes were built with."""
    return list(dict.fromkeys(read_manifest(Path(path)).model for path in indexes))
