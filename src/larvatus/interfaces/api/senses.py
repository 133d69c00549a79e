"""A vector for each sense of WordNet, from tagged text, as one call.

build_senses("runs/mine", "semcor3.0.tar.xz", out="senses", layers="last4")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from larvatus.core.errors import ArtefactError
from larvatus.core.settings import Settings
from larvatus.inference.model import Model, load
from larvatus.inference.senses.build import build_senses as mean_of_tagged
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.inference.senses.semcor import read_semcor
from larvatus.inference.senses.tagged import Reading
from larvatus.inference.senses.wordnet import WordNet
from larvatus.inference.vectors.fingerprints import model_fingerprint
from larvatus.inference.vectors.options import EmbedOptions, Pool
from larvatus.interfaces.settings import read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import BuildSensesKeywords


class SenseVectorSettings(Settings):
    """What sense vectors are means of."""

    layers: str = "last"
    """last, last4 (mean), last4-sum, a number (0: embeddings), or weights 0.1,0.2,… of all."""
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
    progress: Callable[[Reading], None] = lambda reading: None,
    reading: Reading | None = None,
    **settings: Unpack[BuildSensesKeywords],
) -> SenseInventory:
    """A vector for each sense: the mean of the words that are tagged with it. Saved for `model.senses(out)`.

    Args:
        model: A model directory, a hub name, or a model that is loaded.
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
        larvatus.core.errors.DataError: no/such/folder is no folder of WordNet; check the path
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
    progress: Callable[[Reading], None],
    reading: Reading | None,
) -> SenseInventory:
    """Run `build_senses` from structs."""
    if os.path.lexists(out):
        raise ArtefactError(f"{out} is there already; remove it, or choose another --out")
    options = EmbedOptions(unit="span", layers=chosen.layers, pool=chosen.pool)
    database = WordNet.open(wordnet)
    loaded = model if isinstance(model, Model) else load(model, device=device)
    name = str(loaded.bundle.path if isinstance(model, Model) else model)
    counts = reading if reading is not None else Reading()
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
