"""Documents to checksummed token shards, packing into training sequences, and the resumable loader. No torch.

    build_corpus(paths, tokenizer, out)  →  Corpus.open(out)  →  Loader(corpus, packing=…, …).steps(cursor)

Names are imported when first used: a worker process starts with what it needs and no more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from larvatus.data.corpus.build import BuildOptions, CorpusSummary, build_corpus
    from larvatus.data.corpus.loader import Cursor, Loader
    from larvatus.data.corpus.store import Corpus, is_corpus

__all__ = ["BuildOptions", "Corpus", "CorpusSummary", "Cursor", "Loader", "build_corpus", "is_corpus"]

_HOMES = {
    "BuildOptions": "build",
    "CorpusSummary": "build",
    "build_corpus": "build",
    "Cursor": "loader",
    "Loader": "loader",
    "Corpus": "store",
    "is_corpus": "store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
