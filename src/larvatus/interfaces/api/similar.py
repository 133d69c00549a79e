"""An index of word instances in a corpus, to be searched for those used in the same meaning, as one call.

build_index("runs/mine", "texts/", out="bank.index", words=["bank"], layers="last4")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import msgspec

from larvatus.core.errors import UsageError
from larvatus.core.flags import Flag, PathName
from larvatus.core.settings import Settings
from larvatus.core.signals import resumable
from larvatus.data.corpus.sources import fingerprint
from larvatus.data.text.readers import Skipped
from larvatus.inference.model import Model, load
from larvatus.inference.search.concordance import DocumentFilter, Wanted
from larvatus.inference.search.index import IndexDescription
from larvatus.inference.search.index import build_index as write_index
from larvatus.inference.vectors.fingerprints import settings_hash
from larvatus.inference.vectors.options import EmbedOptions, Pool
from larvatus.inference.vectors.passages import PassageOptions, passages
from larvatus.interfaces.settings import TextSettings, read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import BuildIndexKeywords

ALL = "all"


class VectorSettings(Settings):
    """Which vectors are compared."""

    layers: str | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights."""
    pool: Pool | None = None
    """Subwords: mean, sum, max, first or last."""
    standardise: Annotated[PathName | None, Flag(metavar="NAME")] = None
    """z-scores: the name that isotropy fit saved with the model, or its file."""

    def options(self, loaded: Model) -> EmbedOptions:
        standardiser = loaded.standardiser(self.standardise)
        return EmbedOptions(
            unit="span", layers=self.layers or "last", pool=self.pool or "mean", standardise=standardiser
        )


@dataclass(frozen=True, kw_only=True)
class IndexRequest:
    """Words to index, their vectors, and how the text is read."""

    words: str | Sequence[str]
    vectors: VectorSettings
    reading: TextSettings
    resume: bool = False


def build_index(
    model: str | Path | Model,
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    words: str | Sequence[str],
    resume: bool = False,
    device: str = "auto",
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
    **settings: Unpack[BuildIndexKeywords],
) -> IndexDescription:
    """Vectors of a word's instances in a corpus, or of all words, to be searched with `model.nearest`.

    Args:
        model: A model directory, a hub name, or a model that is loaded.
        corpus: Files, directories or globs of text.
        out: The new index, a directory.
        words: A word, several, or `"all"`.
        resume: Go on with a build that was interrupted.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with how many instances are done.
        skipped: Counts what could not be read.
        **settings: `layers`, `pool`, `standardise`; how text is read: `language`, `sentences`, `split`, `on_bad`,
            `encoding`, `text` (column of tables).

    Returns:
        How many instances of how many words it holds, and by which settings.

    Example:
        >>> build_index(model, texts, out=folder / "bank.index", words="bank").instances
        60
    """
    vectors, reading = read_settings(settings, VectorSettings, TextSettings, function="build_index")
    request = IndexRequest(words=words, vectors=vectors, reading=reading, resume=resume)
    return run_index_build(model, corpus, request, out=out, device=device, progress=progress, skipped=skipped)


def run_index_build(
    model: str | Path | Model,
    corpus: str | Path | Sequence[str | Path],
    request: IndexRequest,
    *,
    out: str | Path,
    device: str,
    progress: Callable[[int], None],
    skipped: Skipped | None,
) -> IndexDescription:
    """Run `build_index` from structs."""
    words, reading, resume = request.words, request.reading, request.resume
    wanted = Wanted.of(None if words == ALL else [words] if isinstance(words, str) else words)
    paths = [str(corpus)] if isinstance(corpus, str | Path) else [str(path) for path in corpus]
    inputs = fingerprint(paths)
    if inputs is None and resume:
        raise UsageError("only local files can be gone on with: standard input and addresses cannot be read again")
    loaded = model if isinstance(model, Model) else load(model, device=device)
    options, chosen = request.vectors.options(loaded), DocumentFilter(wanted)
    identity = {**_identity(loaded, options, wanted, reading.passages), "inputs": inputs}
    pieces = passages(paths, reading.passages, skipped if skipped is not None else Skipped(), chosen)
    with resumable("the same command with --resume goes on"):
        return write_index(
            loaded, pieces, chosen, Path(out), options, settings=identity, resume=resume, progress=progress
        )


def _identity(loaded: Model, options: EmbedOptions, wanted: Wanted, reading: PassageOptions) -> dict[str, Any]:
    """What must be the same for an interrupted build to go on."""
    return {
        "model": loaded.fingerprint,
        "tokenizer": settings_hash(loaded.tokenizer),
        "layers": options.layers,
        "pool": options.pool,
        "standardise": options.standardise.checksum if options.standardise else None,
        "inputs": None,
        "words": sorted(wanted.words) if wanted.words is not None else None,
        **msgspec.to_builtins(reading),
    }
