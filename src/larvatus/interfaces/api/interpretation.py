"""Isotropy of a model's vectors, standardisation, and the importance of attention heads.

fit_standardiser("runs/mine", "text/", name="default")          # saved with the model: embed(…, standardise="default")
measure_isotropy("runs/mine", "held_out.txt", standardise="default").layers[-1].plain.expected
head_importance("runs/mine", "held_out.txt", prune=[(1, 2), (3, 1)], out="runs/pruned").pruned
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import msgspec

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Settings
from larvatus.data.corpus import BuildOptions
from larvatus.data.text.readers import Skipped
from larvatus.evaluation.compare.languages import held_out_text, open_text
from larvatus.inference.interpret.attention import check_head
from larvatus.inference.interpret.importance import (
    NOT_MEASURED,
    Head,
    Importance,
    masked_losses,
    measured_objective,
    prune_heads,
    read_heads,
)
from larvatus.inference.interpret.importance import head_importance as measure_importance
from larvatus.inference.interpret.isotropy import IsotropyOptions, IsotropyReport
from larvatus.inference.interpret.isotropy import measure_isotropy as measure
from larvatus.inference.model import Model
from larvatus.inference.vectors.standardise import Standardiser, standardiser_path
from larvatus.inference.vectors.standardise_fit import FitOptions
from larvatus.inference.vectors.standardise_fit import fit_standardiser as fit
from larvatus.interfaces.settings import Texts, TextSettings, loaded_model, path_names, read_settings
from larvatus.models.bundle.directory import check_model_directory
from larvatus.models.bundle.named_tensors import SUFFIX
from larvatus.training.engine.settings import BUDGETS

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import (
        FitStandardiserKeywords,
        HeadImportanceKeywords,
        MeasureIsotropyKeywords,
    )


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
        model: A model directory, a hub name, or a loaded model.
        corpus: Files, directories or globs of text.
        name: Its name: `embed(…, standardise=name)`.
        out: A .safetensors elsewhere, if the model's directory cannot be written.
        overwrite: Replace one that exists.
        progress: Called with the number of units are done.
        skipped: Counts what could not be read.
        **settings: `unit`, `pool`, `punctuation`, `most`; how text is read: `language`, `sentences`, `split`, ….

    Example:
        >>> fit_standardiser(model, texts, out=folder / "z.safetensors").mean.shape
        (3, 16)
    """
    chosen, reading = read_settings(settings, FitOptions, TextSettings, function="fit_standardiser")
    loaded = loaded_model(model)
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
    paths = path_names(corpus)
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
        model: A model directory, a hub name, or a loaded model.
        corpus: Files, directories or globs of text.
        standardise: The name that `fit_standardiser` saved with the model, its file, or what it gave.
        progress: Called with the number of words are done.
        skipped: Counts what could not be read.
        **settings: `pool`, `punctuation`, `most`, `rogue`, `shrinkage`, `seed`; how text is read.

    Example:
        >>> len(measure_isotropy(model, texts, most=500).layers)
        3
    """
    chosen, reading = read_settings(settings, IsotropyOptions, TextSettings, function="measure_isotropy")
    loaded = loaded_model(model)
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
        path_names(corpus),
        msgspec.structs.replace(chosen, passages=reading.passages),
        standardise=loaded.standardiser(standardise),
        progress=progress,
        skipped=skipped if skipped is not None else Skipped(),
    )


class ImportanceSettings(Settings):
    """How much text is read."""

    tokens: Annotated[int, BUDGETS["tokens"]] = 32_768
    """Read no more."""


@dataclass(frozen=True)
class Pruning:
    """Heads to mask for good, and the directory of the pruned model."""

    heads: str | Sequence[Head] | None = None
    out: str | Path | None = None
    overwrite: bool = False


def head_importance(
    model: str | Path | Model,
    corpus: Texts,
    *,
    prune: str | Sequence[Head] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
    skipped: Skipped | None = None,
    **settings: Unpack[HeadImportanceKeywords],
) -> Importance:
    """How much the masked-lm loss on held-out text (of a left-to-right model, the loss of the next token) grows when a
    head is masked, one at a time (Michel et al. 2019).

    Args:
        model: A model directory, a hub name, or a loaded model.
        corpus: Held-out text, or a built corpus.
        prune: Heads to mask permanently, in a copy of the model: `[(1, 2), (3, 1)]` or `"1:2,3:1"`, layer and head.
        out: Directory of the pruned model.
        overwrite: Replace a model that is there.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with the number of passes over the text are done, and of how many.
        skipped: Counts what could not be read.
        **settings: `tokens`, the most to read; how text is read: `language`, `sentences`, `split`, ….

    Returns:
        The loss, the importance of each head and, if heads were pruned, the loss without them together.

    Example:
        >>> trained = lv.pretrain("bert", corpus=texts, out=folder / "heads", size="tiny", steps=2, quiet=True, **small)
        >>> [(row.layer, row.head) for row in head_importance(trained, texts, tokens=500).rows]
        [(1, 1), (1, 2)]
    """
    chosen, reading = read_settings(settings, ImportanceSettings, TextSettings, function="head_importance")
    pruning = Pruning(prune, out, overwrite)
    return run_head_importance(
        model, corpus, chosen, reading, pruning=pruning, device=device, progress=progress, skipped=skipped
    )


def run_head_importance(
    model: str | Path | Model,
    corpus: Texts,
    chosen: ImportanceSettings,
    reading: TextSettings,
    *,
    pruning: Pruning,
    device: str,
    progress: Callable[[int, int], None],
    skipped: Skipped | None,
) -> Importance:
    """Run `head_importance` from structs."""
    prune, out, overwrite = pruning.heads, pruning.out, pruning.overwrite
    if (prune is None) != (out is None):
        raise UsageError("--prune and --out go together: which heads to mask for good, and where to write the model")
    heads = read_heads(prune) if isinstance(prune, str) else [(layer, head) for layer, head in prune or ()]
    paths = path_names(corpus)
    name = str(model.bundle.path if isinstance(model, Model) else model)
    if out is not None:
        check_model_directory(Path(out), overwrite=overwrite, inputs=[name, *paths])
    loaded = loaded_model(model, device)
    _check(loaded, heads)
    held_out = read_held_out(loaded, paths, chosen.tokens, reading, skipped if skipped is not None else Skipped())
    result = _measured(loaded, held_out, progress)
    if out is None:
        return result
    losses, counts = masked_losses(loaded.network, held_out, heads)
    prune_heads(loaded.bundle, heads, Path(out), source=name)
    return msgspec.structs.replace(result, pruned=float(losses.sum() / counts.sum()))


def _check(loaded: Model, heads: Sequence[Head]) -> None:
    if measured_objective(loaded.network) is None:
        raise ArtefactError(f"{loaded.bundle.path} {NOT_MEASURED}")
    for layer, head in heads:
        check_head(layer, head, layers=loaded.encoder.depth, heads=loaded.encoder.heads)


def read_held_out(
    loaded: Model, paths: Sequence[str], tokens: int, reading: TextSettings, skipped: Skipped
) -> list[TrainingBatch[Ints]]:
    options = BuildOptions(language=reading.language, sentences=reading.sentences, reading=reading.reading())
    with tempfile.TemporaryDirectory() as folder:
        opened = open_text(paths, loaded.tokenizer, Path(folder) / "corpus", options)
        skipped.bad.update(opened.manifest.skipped)
        return held_out_text(loaded.bundle, opened, tokens=tokens)


def _measured(
    loaded: Model, held_out: Sequence[TrainingBatch[Ints]], progress: Callable[[int, int], None]
) -> Importance:
    total, done = 1 + loaded.encoder.depth * loaded.encoder.heads, 0

    def passed() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    return measure_importance(loaded.network, held_out, passed)
