"""Vectors of a whole corpus in a file, as one call.

embed_files("runs/mine", "texts/", out="vectors.parquet", unit="word", layers="last4")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

import msgspec

from larvatus.core.flags import Flag, PathName
from larvatus.core.outputs import check_outputs
from larvatus.core.ranges import CountOrNone
from larvatus.core.settings import Settings
from larvatus.data.bulk.set_aside import errors_to
from larvatus.data.bulk.settings import BulkSettings
from larvatus.inference.model import Model, load
from larvatus.inference.vectors.bulk.bulk import BulkOptions, BulkSummary, Carrying
from larvatus.inference.vectors.bulk.bulk import embed_files as write_vectors
from larvatus.inference.vectors.bulk.parts import Stand
from larvatus.inference.vectors.options import EmbedOptions, Pool, Precision, Unit
from larvatus.interfaces.settings import TextSettings, read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import EmbedFilesKeywords


class EmbedSettings(Settings):
    """Which vectors are written, and how."""

    unit: Unit = "sentence"
    """What gets a vector; span: words between stars, as in the *bank* of a river."""
    layers: str = "last"
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all."""
    pool: Pool = "mean"
    """Words, spans: mean, sum, max, first, last. Sentences, documents: mean, max, cls."""
    normalise: bool = False
    """Bring vectors to length 1."""
    standardise: Annotated[PathName | None, Flag(metavar="NAME")] = None
    """z-scores: the name that isotropy fit saved with the model, or its file."""
    dtype: Literal["float32", "float16"] = "float32"
    """Numbers in the file."""
    overlap: CountOrNone | None = None
    """Tokens that windows of a long text share; a quarter of a window by default."""
    precision: Precision = "fp32"
    """bf16 is for GPUs, and for CPUs that have it."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    resume: bool = False
    """Go on with a run that was interrupted."""


def embed_files(
    model: str | Path | Model,
    corpus: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    progress: Callable[[Stand], None] = lambda stand: None,
    **settings: Unpack[EmbedFilesKeywords],
) -> BulkSummary:
    """Vectors of the words, sentences or documents of a corpus, with their text and place, in a file.

    Args:
        model: A model directory, a hub name, or a model that is loaded.
        corpus: Files, directories or globs of text.
        out: `vectors.parquet`, `.arrow`, `.safetensors` or `.npy`.
        progress: Called with how far it is.
        **settings: `unit`, `layers`, `pool`, `normalise`, `standardise`, `dtype`, `overlap`, `precision`, `overwrite`,
            `resume`; how text is read: `language`, `sentences`, `split`, `on_bad`, `encoding`, `text` (column of
            tables); where it runs: `ray` (address of a Ray cluster, or `"auto"`), and `errors`, a file for bad rows.

    Returns:
        How much was read and written.

    Example:
        >>> embed_files(model, texts, out=folder / "vectors.parquet", unit="document").stand.units
        60
    """
    chosen, text, bulk = read_settings(settings, EmbedSettings, TextSettings, BulkSettings, function="embed_files")
    return run_embedding(model, corpus, chosen, text, bulk, out=out, progress=progress)


def run_embedding(
    model: str | Path | Model,
    corpus: str | Path | Sequence[str | Path],
    chosen: EmbedSettings,
    text: TextSettings,
    bulk: BulkSettings,
    *,
    out: str | Path,
    progress: Callable[[Stand], None],
) -> BulkSummary:
    """Run `embed_files` from structs."""
    text = text if bulk.errors is None else msgspec.structs.replace(text, on_bad="skip")
    paths = [str(corpus)] if isinstance(corpus, str | Path) else [str(path) for path in corpus]
    check_outputs(bulk.errors, overwrite=True, inputs=paths)
    loaded = model if isinstance(model, Model) else load(model)
    options = BulkOptions(
        embed=EmbedOptions(
            unit=chosen.unit,
            layers=chosen.layers,
            pool=chosen.pool,
            normalise=chosen.normalise,
            overlap=chosen.overlap,
            precision=chosen.precision,
            standardise=loaded.standardiser(chosen.standardise),
        ),
        reading=text.reading(),
        sentences=text.sentences,
        language=text.language,
        number=chosen.dtype,
    )
    carrying = Carrying(
        resume=chosen.resume,
        overwrite=chosen.overwrite,
        progress=progress,
        executor=bulk.executor(device=loaded.wanted_device),
    )
    with errors_to(bulk.errors):
        return write_vectors(loaded, paths, Path(out), options, carrying)
