"""Vectors of a corpus in a file, an index of word instances, and sense vectors.

embed_files("runs/mine", "texts/", out="vectors.parquet", unit="word", layers="last4")
build_index("runs/mine", "texts/", out="bank.index", words=["bank"], layers="last4")
build_senses("runs/mine", "semcor3.0.tar.xz", out="senses", layers="last4")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import msgspec

from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Flag, PathName, Settings
from larvatus.core.signals import resumable
from larvatus.data.bulk.executor import BulkSettings
from larvatus.data.bulk.parts import write_errors_to
from larvatus.data.corpus.sources import fingerprint
from larvatus.data.text.readers import Skipped
from larvatus.inference.model import Model
from larvatus.inference.search.concordance import DocumentFilter, WordFilter
from larvatus.inference.search.index import IndexDescription
from larvatus.inference.search.index import build_index as write_index
from larvatus.inference.senses.build import build_senses as mean_of_tagged
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.tagged import ReadingCounts, read_semcor
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.bulk import BulkOptions, BulkRun, BulkSummary
from larvatus.inference.vectors.bulk import embed_files as write_vectors
from larvatus.inference.vectors.parts import BulkProgress
from larvatus.inference.vectors.passages import PassageOptions, passages
from larvatus.inference.vectors.pooling import EmbedOptions, Pool, VectorOptions, embed_options
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.loaded import model_fingerprint, settings_hash

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import BuildIndexKeywords, BuildSensesKeywords, EmbedFilesKeywords


class EmbedSettings(VectorOptions):
    """Which vectors are written, and how."""

    layers: str | None = None
    standardise: Annotated[PathName | None, Flag(metavar="NAME")] = None
    """z-scores: the name that isotropy fit saved with the model, or its file."""
    dtype: Literal["float32", "float16"] = "float32"
    """Numbers in the file."""
    overwrite: bool = False
    """Replace files that exist; never those that are read."""
    resume: bool = False
    """Resume an interrupted run."""

    def options(self, loaded: Model) -> EmbedOptions:
        shared = {name: getattr(self, name) for name in VectorOptions.__struct_fields__}
        return embed_options(loaded, **shared, standardise=loaded.standardiser(self.standardise))


def embed_files(
    model: str | Path | Model,
    corpus: Texts,
    *,
    out: str | Path,
    progress: Callable[[BulkProgress], None] = lambda counts: None,
    **settings: Unpack[EmbedFilesKeywords],
) -> BulkSummary:
    """Vectors of the words, sentences or documents of a corpus, with their text and place, in a file.

    Args:
        model: A model directory, a hub name, or a loaded model.
        corpus: Files, directories or globs of text.
        out: `vectors.parquet`, `.arrow`, `.safetensors` or `.npy`.
        progress: Called with the progress.
        **settings: `unit`, `layers`, `pool`, `normalise`, `standardise`, `dtype`, `overlap`, `precision`, `overwrite`,
            `resume`; how text is read: `language`, `sentences`, `split`, `on_bad`, `encoding`, `text` (column of
            tables); where it runs: `ray` (address of a Ray cluster, or `"auto"`), and `errors`, a file for bad rows.

    Returns:
        How much was read and written.

    Example:
        >>> embed_files(model, texts, out=folder / "vectors.parquet", unit="document").counts.units
        60
    """
    chosen, text, bulk = read_settings(settings, EmbedSettings, TextSettings, BulkSettings, function="embed_files")
    return run_embedding(model, corpus, chosen, text, bulk, out=out, progress=progress)


def run_embedding(
    model: str | Path | Model,
    corpus: Texts,
    chosen: EmbedSettings,
    text: TextSettings,
    bulk: BulkSettings,
    *,
    out: str | Path,
    progress: Callable[[BulkProgress], None],
) -> BulkSummary:
    """Run `embed_files` from structs."""
    text = text.for_job(bulk)
    paths = path_names(corpus)
    check_outputs(bulk.errors, overwrite=True, inputs=paths)
    loaded = loaded_model(model)
    options = BulkOptions(
        embed=chosen.options(loaded),
        reading=text.reading(),
        sentences=text.sentences,
        language=text.language,
        number=chosen.dtype,
    )
    carrying = BulkRun(
        resume=chosen.resume,
        overwrite=chosen.overwrite,
        progress=progress,
        executor=bulk.executor(device=loaded.requested_device),
    )
    with write_errors_to(bulk.errors):
        return write_vectors(loaded, paths, Path(out), options, carrying)


ALL = "all"


class VectorSettings(Settings):
    """Which vectors are compared."""

    layers: str | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights; default: the model's own for words."""
    pool: Pool | None = None
    """Subwords: mean, sum, max, first or last."""
    standardise: Annotated[PathName | None, Flag(metavar="NAME")] = None
    """z-scores: the name that isotropy fit saved with the model, or its file."""

    def options(self, loaded: Model) -> EmbedOptions:
        standardiser = loaded.standardiser(self.standardise)
        return embed_options(loaded, unit="span", layers=self.layers, pool=self.pool, standardise=standardiser)


@dataclass(frozen=True, kw_only=True)
class IndexRequest:
    """Words to index, their vectors, and how the text is read."""

    words: str | Sequence[str]
    vectors: VectorSettings
    reading: TextSettings
    resume: bool = False


def build_index(
    model: str | Path | Model,
    corpus: Texts,
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
        model: A model directory, a hub name, or a loaded model.
        corpus: Files, directories or globs of text.
        out: The new index, a directory.
        words: A word, several, or `"all"`.
        resume: Resume an interrupted build.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with the number of instances are done.
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
    corpus: Texts,
    request: IndexRequest,
    *,
    out: str | Path,
    device: str,
    progress: Callable[[int], None],
    skipped: Skipped | None,
) -> IndexDescription:
    """Run `build_index` from structs."""
    words, reading, resume = request.words, request.reading, request.resume
    wanted = WordFilter.of(None if words == ALL else [words] if isinstance(words, str) else words)
    paths = path_names(corpus)
    inputs = fingerprint(paths)
    if inputs is None and resume:
        raise UsageError("--resume needs local files: standard input and addresses cannot be read again")
    loaded = loaded_model(model, device)
    options, chosen = request.vectors.options(loaded), DocumentFilter(wanted)
    identity = {**_identity(loaded, options, wanted, reading.passages), "inputs": inputs}
    pieces = passages(paths, reading.passages, skipped if skipped is not None else Skipped(), chosen)
    with resumable("the same command with --resume continues"):
        return write_index(
            loaded, pieces, chosen, Path(out), options, settings=identity, resume=resume, progress=progress
        )


def _identity(loaded: Model, options: EmbedOptions, wanted: WordFilter, reading: PassageOptions) -> dict[str, Any]:
    """Settings that must be the same to resume an interrupted build."""
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


class SenseVectorSettings(Settings):
    """What sense vectors are means of."""

    layers: str | None = None
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all; default: the model's own,
    mostly the last."""
    pool: Pool = "mean"
    """Subwords of a word: mean, sum, max, first or last."""
    names: bool = False
    """Count names tagged by their class (person, group, …) as that word."""


def build_senses(
    model: str | Path | Model,
    corpus: str | Path,
    *,
    out: str | Path,
    wordnet: str | Path | None = None,
    device: str = "auto",
    progress: Callable[[ReadingCounts], None] = lambda reading: None,
    reading: ReadingCounts | None = None,
    **settings: Unpack[BuildSensesKeywords],
) -> SenseInventory:
    """A vector for each sense: the mean of the words that are tagged with it. Saved for `model.senses(out)`.

    Args:
        model: A model directory, a hub name, or a loaded model.
        corpus: SemCor: a folder, or its .tar.xz.
        out: Directory for the sense vectors; there must be none yet.
        wordnet: Folder of WordNet's database files; Debian's by default.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called now and then with what is read so far.
        reading: Counts what is read, tags that WordNet has not included.
        **settings: `layers`, `pool`, `names`.

    Returns:
        The senses with their vectors, and what they were made of.

    Example:
        >>> build_senses(model, "semcor/", out=folder / "senses", wordnet="no/such/folder")
        Traceback (most recent call last):
        larvatus.core.errors.DataError: no/such/folder is not a folder of WordNet; check the path
    """
    (chosen,) = read_settings(settings, SenseVectorSettings, function="build_senses")
    return run_sense_build(
        model, corpus, chosen, out=out, wordnet=wordnet, device=device, progress=progress, reading=reading
    )


def run_sense_build(
    model: str | Path | Model,
    corpus: str | Path,
    chosen: SenseVectorSettings,
    *,
    out: str | Path,
    wordnet: str | Path | None,
    device: str,
    progress: Callable[[ReadingCounts], None],
    reading: ReadingCounts | None,
) -> SenseInventory:
    """Run `build_senses` from structs."""
    if os.path.lexists(out):
        raise ArtefactError(f"{out} is there already; remove it, or choose another --out")
    database = WordNet.open(wordnet)
    loaded = loaded_model(model, device)
    options = embed_options(loaded, unit="span", layers=chosen.layers, pool=chosen.pool)
    name = str(loaded.bundle.path if isinstance(model, Model) else model)
    counts = reading if reading is not None else ReadingCounts()
    inventory = mean_of_tagged(
        loaded.encoder,
        loaded.tokenizer,
        read_semcor(corpus, database, counts, names=chosen.names),
        options,
        wordnet=database,
        reading=counts,
        model=(model_fingerprint(loaded.bundle.path, loaded.tokenizer), name),
        progress=progress,
    )
    inventory.save(Path(out))
    return inventory
