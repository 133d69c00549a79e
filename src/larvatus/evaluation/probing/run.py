"""Probing runs: frozen vectors of all layers, probes next to their controls, and the same on random weights.

    report = probe_layers(model, read_probe_data("tag", "dev.conllu"), ProbingSettings())

*Selectivity* is accuracy less that on the control task (Hewitt & Liang 2019). The *description length* of the training
labels is that of the online code (Voita & Titov 2020, *Information-theoretic probing with minimum description length*):
the first part is sent with log₂ C bits a label, each later part by a probe that was trained on all parts before it,

    L = t_1 log₂ C − Σ_i log₂ p_i(y of part i + 1 | x)        compression = n log₂ C / L

where n counts all training labels. The parts are whole sentences, in an order of the seed.

Training texts train, validation texts stop MLPs and mixes early, test texts are scored; intervals are bootstraps over
texts, of selectivity and compression over the same texts on both sides. They say how scores would move with other
texts, not with another training run of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Floats, Ints
from larvatus.core.batch import runs
from larvatus.core.errors import DataError
from larvatus.core.ranges import Count, Range, Size, whole
from larvatus.core.settings import Flag, SeededSettings
from larvatus.evaluation.probing.examples import TEST, TRAIN, VALIDATION, ProbeData, ProbeTask, labels_by_word
from larvatus.evaluation.probing.features import (
    Scaler,
    UnitVectors,
    check_layers,
    features,
    random_encoder,
    read_vectors,
)
from larvatus.evaluation.probing.results import LayerProbe, ProbeKind, ProbeReport
from larvatus.evaluation.probing.structural import Trees, TreeScores, chain_scores, probe_trees
from larvatus.evaluation.probing.training import (
    fit_linear,
    fit_mix,
    fit_mlp,
    log_probabilities,
    mixed_logits,
    online_parts,
)
from larvatus.inference.model import Model
from larvatus.metrics.classification import divide
from larvatus.metrics.intervals import Interval, Score, bootstrap
from larvatus.models.bundle.model_names import display_name
from larvatus.models.nn.encoder import Encoder

AT_ONCE = 512 * 2**20
"""Bytes of features whose layers are trained together."""
Progress = Callable[[int], None]
Reader = Callable[[Encoder], UnitVectors]


class ProbingSettings(SeededSettings):
    """What is probed, and by which probes."""

    task: ProbeTask | None = None
    """tag, spans, relations, arcs, roles, coref or structure; default: by the file."""
    layers: tuple[Annotated[int, whole(-10_000, 10_000)], ...] = ()
    """Layers, such as 0,6,12 (0: embeddings); default: all."""
    probe: Literal["both", "linear", "mlp"] = "both"
    """Kind of probes: linear, mlp (one hidden layer), or both."""
    hidden: Size = 64
    """Hidden units of an MLP."""
    limit: Count = 2_000
    """Most texts of a file, sampled at random."""
    labels: Annotated[int, whole(2, 1_000)] = 100
    """Most labels; examples of rarer ones are skipped."""
    description_length: bool = True
    """Measure description length by the online code, which takes twice the time."""
    random_weights: bool = True
    """Probe an encoder of the same shape with random weights too."""
    memory: Annotated[float, Range(0, 1e6, above=True), Flag(metavar="GIB")] = 4.0
    """Most memory for the vectors of all layers."""
    samples: Annotated[int, whole(2, 100_000)] = 1_000
    """Samples of the bootstrap."""

    @property
    def kinds(self) -> tuple[ProbeKind, ...]:
        return ("linear", "mlp") if self.probe == "both" else (self.probe,)


@dataclass(eq=False)
class ProbeOutputs:
    """What probes of one encoder give, [L, …], by kind of probe."""

    right: dict[ProbeKind, Doubles] = field(default_factory=dict)
    """[L, test] whether each example is answered rightly."""
    control: dict[ProbeKind, Doubles] = field(default_factory=dict)
    bits: dict[ProbeKind, Doubles] = field(default_factory=dict)
    """[L, train] code length of each example."""
    mix_right: Doubles | None = None
    """[L, test] of the mixes of the first layers."""
    mixing: Doubles | None = None
    """[L] weights of the mix of all layers."""


def probe_layers(
    model: Model, data: ProbeData, settings: ProbingSettings = ProbingSettings(), progress: Progress = lambda done: None
) -> ProbeReport:
    """Probe all layers; `progress` is called with the number of texts that were read."""
    layers = check_layers(model.encoder, settings.layers)

    def read(encoder: Encoder) -> UnitVectors:
        memory = settings.memory
        return read_vectors(encoder, model.tokenizer, data, layers=layers, memory=memory, progress=progress)

    report = _probe_trees if data.task == "structure" else _probe_labels
    return report(model, data, settings, read)


def _all_notes(data: ProbeData, vectors: UnitVectors) -> tuple[str, ...]:
    long = f"{vectors.long:,} texts are longer than the model's window and are read in several"
    return (*data.notes, long) if vectors.long else data.notes


def _probe_labels(model: Model, data: ProbeData, settings: ProbingSettings, read: Reader) -> ProbeReport:
    vectors = read(model.encoder)
    data = data.without(vectors.missing)
    train, validation, test = (data.of(part) for part in (TRAIN, VALIDATION, TEST))
    if not (len(train) and len(validation) and len(test)):
        raise DataError(f"{data.source}: a part of the data has no example; give more texts")
    layers, notes, depth = vectors.layers, _all_notes(data, vectors), model.encoder.depth
    measured = measure(vectors.array, data, settings, control=True, mixes=len(layers) == depth + 1)
    del vectors  # before those of random weights are read
    random = None
    if settings.random_weights:
        random = measure(read(random_encoder(model, settings.seed)).array, data, settings)
    rows = [
        LayerProbe(layer=layer, kind=kind, metrics=_metrics(measured, random, data, settings, kind, at))
        for kind in settings.kinds
        for at, layer in enumerate(layers)
    ]
    expected, centre = None, None
    if measured.mix_right is not None and measured.mixing is not None:
        sums = by_text(measured.mix_right, data.owners[test])
        expected = _bootstrap(sums, lambda sums: expected_layer(sums[..., :-1] / sums[..., -1:]), settings)
        centre = float(measured.mixing @ np.arange(depth + 1))
    answers = baseline_answers(data)
    return ProbeReport(
        model=display_name(model.bundle.path),
        data=data.source,
        task=data.task,
        metric="accuracy",
        layers=tuple(rows),
        baselines={name: _share(right, data.owners[test], settings) for name, right in answers.items()},
        expected_layer=expected,
        centre_of_gravity=centre,
        counts={"training examples": len(train), "test examples": len(test), "labels": len(data.names)},
        notes=notes,
        seed=settings.seed,
    )


def measure(
    vectors: Floats, data: ProbeData, settings: ProbingSettings, *, control: bool = False, mixes: bool = False
) -> ProbeOutputs:
    """Train probes on the vectors [L, U, D] of one encoder, some layers at a time."""
    train, test = data.of(TRAIN), data.of(TEST)
    gold, other = torch.from_numpy(data.labels), torch.from_numpy(data.control_labels(settings.seed))
    parts: dict[tuple[str, ProbeKind], list[Doubles]] = {}
    scalers = []
    width = vectors.shape[2] * (1 if data.units.shape[1] == 1 else 3)
    for first, last in runs(np.full(len(vectors), len(data.units) * width * 4), AT_ONCE):
        x = features(vectors[first:last], data.units)
        scalers.append(scaler := Scaler.of(x[:, train]))
        x = scaler(x)
        for kind in settings.kinds:
            fit = _Fit(kind, x, data, settings)
            if settings.description_length:
                parts.setdefault(("bits", kind), []).append(code_lengths(fit, gold))
            parts.setdefault(("right", kind), []).append(fit.right(gold, train, test))
            if control:
                parts.setdefault(("control", kind), []).append(fit.right(other, train, test))
        del x
    measured = ProbeOutputs()
    for (name, kind), arrays in parts.items():
        getattr(measured, name)[kind] = np.concatenate(arrays)
    if mixes:
        whole = Scaler(torch.cat([each.mean for each in scalers]), torch.cat([each.deviation for each in scalers]))
        measured.mix_right, measured.mixing = _mixes(vectors, data, whole, settings)
    return measured


@dataclass(frozen=True, eq=False)
class _Fit:
    """A kind of probe on scaled features [G, N, F]."""

    kind: ProbeKind
    x: Tensor
    data: ProbeData
    settings: ProbingSettings

    def log_probabilities(self, y_N: Tensor, train: Ints, chosen: Ints) -> Tensor:
        """log p [G, chosen, C] of a probe that is trained on some examples."""
        classes, at = len(self.data.names), torch.from_numpy(train)
        if self.kind == "linear":
            weights = [fit_linear(self.x[:, at], y_N[at], classes)]
        else:
            split = (train, self.data.of(VALIDATION))
            weights = fit_mlp(self.x, y_N, classes, split=split, hidden=self.settings.hidden, seed=self.settings.seed)
        with torch.no_grad():
            return log_probabilities(self.x[:, torch.from_numpy(chosen)], weights)

    def right(self, y_N: Tensor, train: Ints, test: Ints) -> Doubles:
        answers = self.log_probabilities(y_N, train, test).argmax(-1)
        return np.asarray((answers == y_N[torch.from_numpy(test)]).double().numpy())


def code_lengths(fit: _Fit, y_N: Tensor) -> Doubles:
    """Bits [G, train] of each training label in the online code."""
    train = fit.data.of(TRAIN)
    texts, text = np.unique(fit.data.owners[train], return_inverse=True)
    parts = online_parts(np.bincount(text, minlength=len(texts)), fit.settings.seed)
    bits = np.full((len(fit.x), len(train)), math.log2(len(fit.data.names)))
    known = np.flatnonzero(np.isin(text, parts[0]))
    for part in parts[1:]:
        sent = np.flatnonzero(np.isin(text, part))
        log_p = fit.log_probabilities(y_N, train[known], train[sent]).double()
        bits[:, sent] = -log_p[:, torch.arange(len(sent)), y_N[train[sent]]].numpy() / math.log(2)
        known = np.sort(np.concatenate([known, sent]))
    return bits


def _mixes(vectors: Floats, data: ProbeData, scaler: Scaler, settings: ProbingSettings) -> tuple[Doubles, Doubles]:
    """[L, test] whether mixes of the first layers are right, and the weights [L] of the mix of all."""

    def scaled(chosen: Ints) -> Tensor:
        return scaler(features(vectors, data.units[chosen]))

    y_N, test = torch.from_numpy(data.labels), data.of(TEST)
    shape = (len(vectors), scaler.mean.shape[2] + 1, len(data.names))
    mixing, w = fit_mix(scaled, y_N, shape, split=(data.of(TRAIN), data.of(VALIDATION)), seed=settings.seed)
    with torch.no_grad():
        chunks = [test[first : first + 2_048] for first in range(0, len(test), 2_048)]
        right = [(mixed_logits(scaled(part), mixing, w).argmax(-1) == y_N[part]).double() for part in chunks]
    return torch.cat(right, 1).numpy(), mixing[-1].double().numpy()


def expected_layer(scores: Doubles) -> Doubles:
    """Σ_l l Δ_l / Σ_l Δ_l with Δ_l = S_l − S_l−1, over the last axis; NaN if layers above 0 add nothing.

    >>> expected_layer(np.array([0.5, 0.7, 0.8, 0.8])).round(3).item()
    1.333
    """
    gains = np.diff(scores, axis=-1)
    total = gains.sum(-1)
    return np.where(total > 0, divide((gains * np.arange(1, gains.shape[-1] + 1)).sum(-1), total), np.nan)


def baseline_answers(data: ProbeData) -> dict[str, Doubles]:
    """[test] whether two answers without a model are right: the most frequent label, and that of the word type."""
    train, test = data.of(TRAIN), data.of(TEST)
    majority = int(np.bincount(data.labels[train], minlength=len(data.names)).argmax())
    by_type = labels_by_word((data.types[n], int(data.labels[n])) for n in train.tolist())
    answers = np.array([by_type.get(data.types[n], majority) for n in test.tolist()])
    gold = data.labels[test]
    return {
        "majority": (gold == majority).astype(np.float64),
        "majority of the word type": (gold == answers).astype(np.float64),
    }


def _metrics(
    measured: ProbeOutputs,
    random: ProbeOutputs | None,
    data: ProbeData,
    settings: ProbingSettings,
    kind: ProbeKind,
    at: int,
) -> Mapping[str, Interval]:
    """Scores of one layer, with intervals."""
    owners = data.owners[data.of(TEST)]
    right, control = measured.right[kind][at], measured.control[kind][at]
    metrics = {
        "accuracy": _share(right, owners, settings),
        "control": _share(control, owners, settings),
        "selectivity": _share(right - control, owners, settings),
    }
    if random is not None:
        metrics["random"] = _share(random.right[kind][at], owners, settings)
    if settings.description_length:
        senders, uniform = data.owners[data.of(TRAIN)], math.log2(len(data.names))
        for name, source in (("compression", measured), ("compression_random", random)):
            if source is None:
                continue
            sums = by_text(source.bits[kind][at][None], senders)
            if name == "compression":
                metrics["bits"] = _bootstrap(sums, _ratio, settings)
            metrics[name] = _bootstrap(sums, lambda sums: uniform * divide(sums[..., 1], sums[..., 0]), settings)
    return metrics


def by_text(values_KN: Doubles, owners: Ints) -> Doubles:
    """Sums of values of each text, and the number of its examples: [texts, K + 1]."""
    _, text = np.unique(owners, return_inverse=True)
    rows = [np.bincount(text, weights=values) for values in values_KN]
    return np.stack([*rows, np.bincount(text).astype(np.float64)], 1)


def _ratio(sums: Doubles) -> Doubles:
    return divide(sums[..., 0], sums[..., 1])


def _bootstrap(rows: Doubles, score: Score, settings: ProbingSettings) -> Interval:
    return bootstrap(rows, score, samples=settings.samples, seed=settings.seed)


def mean_interval(sums: Doubles, settings: ProbingSettings) -> Interval:
    """Mean over examples with its interval over texts, from sums and counts of texts."""
    return _bootstrap(sums, _ratio, settings)


def _share(values: Doubles, owners: Ints, settings: ProbingSettings) -> Interval:
    return mean_interval(by_text(values[None], owners), settings)


def _probe_trees(model: Model, data: ProbeData, settings: ProbingSettings, read: Reader) -> ProbeReport:
    vectors = read(model.encoder)
    trees = Trees.of(data, vectors.missing)
    scores = probe_trees(vectors.array, trees, seed=settings.seed)
    control = probe_trees(vectors.array, trees.with_control(data, settings.seed), seed=settings.seed)
    layers, notes = vectors.layers, _all_notes(data, vectors)
    del vectors
    random = None
    if settings.random_weights:
        random = probe_trees(read(random_encoder(model, settings.seed)).array, trees, seed=settings.seed)
    rows = [
        LayerProbe(layer=layer, kind="structural", metrics=_tree_metrics(scores, control, random, at, settings))
        for at, layer in enumerate(layers)
    ]
    parts = {"training sentences": TRAIN, "test sentences": TEST}
    return ProbeReport(
        model=display_name(model.bundle.path),
        data=data.source,
        task=data.task,
        metric="uuas",
        layers=tuple(rows),
        baselines={"neighbours joined": _bootstrap(chain_scores(trees), _ratio, settings)},
        expected_layer=None,
        centre_of_gravity=None,
        counts={name: int((trees.parts == part).sum()) for name, part in parts.items()},
        notes=notes,
        seed=settings.seed,
    )


def _tree_metrics(
    scores: TreeScores, control: TreeScores, random: TreeScores | None, at: int, settings: ProbingSettings
) -> Mapping[str, Interval]:
    both = np.concatenate([scores.uuas[at], control.uuas[at]], 1)

    def selectivity(sums: Doubles) -> Doubles:
        return _ratio(sums[..., :2]) - _ratio(sums[..., 2:])

    metrics = {
        "uuas": _bootstrap(scores.uuas[at], _ratio, settings),
        "control": _bootstrap(control.uuas[at], _ratio, settings),
        "selectivity": _bootstrap(both, selectivity, settings),
    }
    if random is not None:
        metrics["random"] = _bootstrap(random.uuas[at], _ratio, settings)
    for name in ("spearman", "depth_spearman", "root"):
        metrics[name] = _bootstrap(getattr(scores, name)[at], _ratio, settings)
    return metrics
