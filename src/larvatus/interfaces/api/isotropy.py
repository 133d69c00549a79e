"""How much all vectors of a model point the same way, and the standardisation that undoes it, as one call each.

fit_standardiser("runs/mine", "text/", name="default")          # saved with the model: embed(…, standardise="default")
measure_isotropy("runs/mine", "held_out.txt", standardise="default").layers[-1].plain.expected
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.data.text.readers import Skipped
from larvatus.inference.interpret.isotropy import IsotropyOptions, IsotropyReport
from larvatus.inference.interpret.isotropy import measure_isotropy as measure
from larvatus.inference.model import Model, load
from larvatus.inference.vectors.standardise.fit import FitOptions
from larvatus.inference.vectors.standardise.fit import fit_standardiser as fit
from larvatus.inference.vectors.standardise.standardise import SUFFIX, Standardiser, standardiser_path
from larvatus.interfaces.settings import TextSettings, read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import FitStandardiserKeywords, MeasureIsotropyKeywords

Texts = str | Path | Sequence[str | Path]


def fit_standardiser(
    model: str | Path | Model,
    corpus: Texts,
    *,
    name: str = "default",
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
    **settings: Unpack[FitStandardiserKeywords],
) -> Standardiser:
    """Mean and spread of every dimension over a corpus, of all layers at once, saved with the model.

    Args:
        model: A model directory, a hub name, or a model that is loaded.
        corpus: Files, directories or globs of text.
        name: What it will be called: `embed(…, standardise=name)`.
        out: A .safetensors elsewhere, if the model's directory cannot be written.
        overwrite: Replace one that exists.
        progress: Called with how many units are done.
        skipped: Counts what could not be read.
        **settings: `unit`, `pool`, `punctuation`, `most`; how text is read: `language`, `sentences`, `split`, ….

    Example:
        >>> fit_standardiser(model, texts, out=folder / "z.safetensors").mean.shape
        (3, 16)
    """
    chosen, reading = read_settings(settings, FitOptions, TextSettings, function="fit_standardiser")
    loaded = model if isinstance(model, Model) else load(model)
    path = standardiser_file(loaded, name, out)
    return run_standardiser_fit(
        loaded, corpus, chosen, reading, path=path, overwrite=overwrite, progress=progress, skipped=skipped
    )


def run_standardiser_fit(
    loaded: Model,
    corpus: Texts,
    chosen: FitOptions,
    reading: TextSettings,
    *,
    path: Path,
    overwrite: bool,
    progress: Callable[[int], None],
    skipped: Skipped | None,
) -> Standardiser:
    """Run `fit_standardiser` from structs."""
    paths = _paths(corpus)
    check_outputs(path, overwrite=overwrite, inputs=paths, parents=True)
    fitted = fit(
        loaded.encoder,
        loaded.tokenizer,
        paths,
        msgspec.structs.replace(chosen, passages=reading.passages),
        name=path.name.removesuffix(SUFFIX),
        model=loaded.fingerprint,
        progress=progress,
        skipped=skipped if skipped is not None else Skipped(),
    )
    fitted.save(path)
    return fitted


def standardiser_file(model: Model, name: str, out: str | Path | None = None) -> Path:
    """Where a standardiser is saved."""
    if out is not None and Path(out).suffix != SUFFIX:
        raise UsageError(f"--out {out} must end in {SUFFIX}")
    return standardiser_path(model.bundle.path, name) if out is None else Path(out)


def measure_isotropy(
    model: str | Path | Model,
    corpus: Texts,
    *,
    standardise: str | Standardiser | None = None,
    progress: Callable[[int], None] = lambda done: None,
    skipped: Skipped | None = None,
    **settings: Unpack[MeasureIsotropyKeywords],
) -> IsotropyReport:
    """Anisotropy, rogue dimensions, IsoScore* and frequency effect of all layers; before and after standardising.

    Args:
        model: A model directory, a hub name, or a model that is loaded.
        corpus: Files, directories or globs of text.
        standardise: The name that `fit_standardiser` saved with the model, its file, or what it gave.
        progress: Called with how many words are done.
        skipped: Counts what could not be read.
        **settings: `pool`, `punctuation`, `most`, `rogue`, `shrinkage`, `seed`; how text is read.

    Example:
        >>> len(measure_isotropy(model, texts, most=500).layers)
        3
    """
    chosen, reading = read_settings(settings, IsotropyOptions, TextSettings, function="measure_isotropy")
    loaded = model if isinstance(model, Model) else load(model)
    return run_isotropy(loaded, corpus, chosen, reading, standardise=standardise, progress=progress, skipped=skipped)


def run_isotropy(
    loaded: Model,
    corpus: Texts,
    chosen: IsotropyOptions,
    reading: TextSettings,
    *,
    standardise: str | Standardiser | None,
    progress: Callable[[int], None],
    skipped: Skipped | None,
) -> IsotropyReport:
    """Run `measure_isotropy` from structs."""
    return measure(
        loaded.encoder,
        loaded.tokenizer,
        _paths(corpus),
        msgspec.structs.replace(chosen, passages=reading.passages),
        standardise=loaded.standardiser(standardise),
        progress=progress,
        skipped=skipped if skipped is not None else Skipped(),
    )


def _paths(corpus: Texts) -> list[str]:
    return [str(corpus)] if isinstance(corpus, str | Path) else [str(path) for path in corpus]
