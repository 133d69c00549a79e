"""Which of two sentences a model expects more, over files of minimal pairs, as one call.

score_pairs("runs/mine", "blimp/adjunct_island.jsonl").overall.share
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs
from larvatus.core.settings import Settings
from larvatus.core.signals import resumable
from larvatus.core.text_inputs import checked_inputs, described
from larvatus.evaluation.compare.minimal_pairs import MinimalPair, Normalise, PairRun, minimal_pair, read_pairs
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.model import Model
from larvatus.interfaces.settings import loaded_model, read_settings
from larvatus.metrics.accuracy import PairAccuracies
from larvatus.models.loaded import model_fingerprint, settings_hash

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import ScorePairsKeywords


class PairSettings(Settings):
    """How sentences are scored."""

    method: Method = "original"
    """Mask each token by itself, or with the rest of its word (Kauf & Ivanova 2023)."""
    normalise: Normalise = "none"
    """Divide each sentence's score by its tokens or words."""


def score_pairs(
    model: str | Path | Model,
    pairs: str | Path | Sequence[str | Path] | Sequence[tuple[str, str]],
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
    **settings: Unpack[ScorePairsKeywords],
) -> PairAccuracies:
    """How often a model gives the good sentence of a minimal pair the higher pseudo-log-likelihood, by phenomenon.

    Args:
        model: A model directory, a hub name, or a loaded model.
        pairs: Files, of BLiMP's JSONL or of good<TAB>bad[<TAB>phenomenon] lines; or pairs of good and bad sentences.
        out: A file for the scores of all pairs: .jsonl, .csv, .tsv or .parquet.
        overwrite: Replace it if it exists.
        resume: Resume an interrupted run to `out`.
        device: Where a model is loaded: `auto`, `cpu` or `cuda`.
        progress: Called with the number of pairs are done, first those of an interrupted run, and of how many.
        **settings: `method` (`original`, `word-l2r`), `normalise` (`none`, `token`, `word`).

    Returns:
        Accuracy with its interval, overall and by group, and the number of ties, which count as wrong.

    Example:
        >>> score_pairs(model, [("The boat lay there.", "The boat there lay.")]).overall.total
        1
    """
    (chosen,) = read_settings(settings, PairSettings, function="score_pairs")
    if resume and out is None:
        raise UsageError("--resume needs --out, the file of the run that was interrupted")
    files, sentences = files_or_sentences(pairs)
    path = None if out is None else Path(out)
    inputs = [model.bundle.path if isinstance(model, Model) else model, *files]
    check_outputs(path, overwrite=overwrite, inputs=inputs)
    loaded = loaded_model(model, device)
    read = sentences or read_pairs(files)
    name, total = str(loaded.bundle.path), len(read)
    run = PairRun(
        loaded.network,
        loaded.tokenizer,
        read,
        chosen.method,
        chosen.normalise,
        name,
        lambda done: progress(done, total),
    )
    if path is None:
        return run.finish()
    identity = {
        "method": chosen.method,
        "normalise": chosen.normalise,
        "model": model_fingerprint(loaded.bundle.path, loaded.tokenizer),
        "tokenizer": settings_hash(loaded.tokenizer),
    }
    with resumable("the same command with --resume continues from what was written"):
        return run.to_file(path, identity, resume=resume, overwrite=overwrite)


def files_or_sentences(given: Any) -> tuple[list[str], list[MinimalPair]]:
    """Names of files, or pairs of sentences in memory."""
    several = [given] if isinstance(given, str | Path) else given
    if isinstance(several, list | tuple) and any(isinstance(each, str | Path) for each in several):
        for at, each in enumerate(several):
            if not isinstance(each, str | Path):
                raise UsageError(f"pairs[{at}] is {described(each)}, not the name of a file as the others are")
        return [str(each) for each in several], []
    listed = checked_inputs(list(several) if isinstance(several, tuple) else several, "pairs").inputs
    return [], [minimal_pair(each, f"pair {number} of {len(listed)}") for number, each in enumerate(listed, 1)]
