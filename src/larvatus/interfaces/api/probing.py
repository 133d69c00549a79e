"""Probes of what each layer of an encoder knows, and amnesic probing.

probe("runs/mine", "dev.conllu").best("linear").layer                       # parts of speech
probe("runs/mine", "dev.conllu", task="arcs", probe="linear")
amnesic_probe("runs/mine", "dev.conllu").accuracy["erased"].value
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from larvatus.data.labelled.file_options import WordFiles
from larvatus.data.labelled.in_memory import Examples
from larvatus.evaluation.probing.amnesic import AmnesicReport, amnesic
from larvatus.evaluation.probing.examples import ProbeData, read_probe_data
from larvatus.evaluation.probing.results import ProbeReport
from larvatus.evaluation.probing.run import ProbingSettings, probe_layers
from larvatus.inference.model import Model
from larvatus.interfaces.settings import loaded_model, read_settings

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import AmnesicProbeKeywords, ProbeKeywords


def probe(
    model: str | Path | Model,
    data: Examples,
    *,
    test: Examples | None = None,
    progress: Callable[[int], None] = lambda done: None,
    **settings: Unpack[ProbeKeywords],
) -> ProbeReport:
    """Probe what each layer of an encoder knows of a labelled file, next to controls.

    Args:
        model: A model directory, a hub name, or a loaded model.
        data: Labelled examples: a file, several, a table, a list. Any tagged, spanned or paired file is a probe.
        test: Examples of the same kind to score on; a fifth of the data by default.
        progress: Called with the number of texts that were read.
        **settings: `task`, `tag` (column or feature), `layers`, `probe` (both, linear, mlp), `limit`, `labels`, `seed`,
            and others of `larvatus probe`.

    Returns:
        Scores of each layer with intervals, the best and the expected layer; prints as a table.

    Example:
        >>> report = probe(model, "train.conll", probe="linear", samples=20)
        >>> [row.layer for row in report.layers], 0 <= report.best().score.value <= 1
        ([0, 1, 2], True)
    """
    chosen, columns = read_settings(settings, ProbingSettings, WordFiles, function="probe")
    return probe_layers(loaded_model(model), read_for_probe(data, test, chosen, columns), chosen, progress)


def amnesic_probe(
    model: str | Path | Model,
    data: Examples,
    *,
    test: Examples | None = None,
    progress: Callable[[int], None] = lambda done: None,
    **settings: Unpack[AmnesicProbeKeywords],
) -> AmnesicReport:
    """Erase a property of words or spans from the last layer, and measure masked accuracy.

    Args:
        model: A model directory with a masked-lm head, a hub name, or a loaded model.
        data: Words with tags, or spans, as for `probe`.
        test: Examples of the same kind to score on; a fifth of the data by default.
        progress: Called with the number of texts that were read.
        **settings: Those of `probe`.

    Returns:
        Masked accuracy as it is, with the property erased, and with as many random directions erased.

    Example:
        >>> sorted(amnesic_probe(model, "train.conll", samples=20).probe)
        ['erased', 'majority', 'random', 'whole']
    """
    chosen, columns = read_settings(settings, ProbingSettings, WordFiles, function="amnesic_probe")
    return amnesic(loaded_model(model), read_for_probe(data, test, chosen, columns), chosen, progress)


def read_for_probe(data: Examples, test: Examples | None, chosen: ProbingSettings, columns: WordFiles) -> ProbeData:
    """Labelled examples of a probe from structs."""
    limit, labels, seed = chosen.limit, chosen.labels, chosen.seed
    return read_probe_data(chosen.task, data, test=test, columns=columns, limit=limit, most_labels=labels, seed=seed)
