"""Amnesic probing (Elazar et al. 2021): erase a property from the last layer, and see how masked words suffer.

Words with a label are masked. The vectors of their masks predict the words; they also tell the label, the part of
speech of the hidden word, say. What tells it linearly is erased in closed form:

    r(x) = x − U Uᵀ (x − μ)        U an orthonormal basis of the columns of Σ_xz

for labels z as one-hot vectors. Then Cov(r(x), z) = 0, and so no linear classifier beats the most frequent label
(Belrose et al. 2023, *LEACE*, theorem 3.1). The control projects as many random directions out. Masked accuracy that
falls more than with the control means that the prediction of words uses these directions. What is correlated with the
property is erased with it.

    eraser = Eraser.of(x_ND, z_N, classes)
    eraser(x_ND)                                 # the property is gone
    Eraser.of(x_ND, z_N, classes, random=0)      # as many random directions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, ranges, runs
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.rng import derive, stream
from larvatus.core.tables import Row, Table, Tabular
from larvatus.data.text.windows import windows
from larvatus.evaluation.probing.examples import TEST, TRAIN, ProbeData
from larvatus.evaluation.probing.features import Scaler
from larvatus.evaluation.probing.results import UNIT, interval_dict, percent
from larvatus.evaluation.probing.run import ProbingSettings, Progress, by_text, mean_interval
from larvatus.evaluation.probing.training import fit_linear, log_probabilities
from larvatus.inference.model import Model
from larvatus.metrics.figures import Figure
from larvatus.metrics.intervals import Interval
from larvatus.models.bundle.model_names import display_name
from larvatus.models.masked_prediction import MaskedPredictor, require_predictor
from larvatus.models.nn.device import forward_budget, on_device
from larvatus.models.objectives import MaskedLM

RATE = 0.15
"""Share of the labelled units of a text that are masked."""
DRAWS = 5
"""Random erasers."""
LOGITS = 2**24
"""Most logits at once."""


@dataclass(frozen=True, eq=False)
class Eraser:
    """Affine map that removes a property from vectors."""

    mean_D: Tensor
    basis_DK: Tensor
    """Directions that are erased."""

    @classmethod
    def of(cls, x_ND: Tensor, z_N: Tensor, classes: int, *, random: int | None = None) -> Eraser:
        """From vectors and their labels; with `random`, a seed, as many random directions instead."""
        x = x_ND.double()
        z = torch.nn.functional.one_hot(z_N, classes).double()
        left, sizes, _ = torch.linalg.svd((x - x.mean(0)).T @ (z - z.mean(0)) / len(x), full_matrices=False)
        basis = left[:, sizes > sizes.max() * 1e-6]
        if random is not None:
            generator = torch.Generator().manual_seed(derive(random, "probe random directions"))
            basis = torch.linalg.qr(torch.randn(basis.shape, generator=generator, dtype=torch.float64)).Q
        return cls(x.mean(0).float(), basis.float())

    def __call__(self, x_ND: Tensor) -> Tensor:
        return x_ND - (x_ND - self.mean_D) @ self.basis_DK @ self.basis_DK.T


@dataclass(frozen=True, eq=False)
class MaskedStates:
    """Masked tokens, with their vectors of the last layer."""

    x: Tensor
    """[M, D]"""
    ids: Tensor
    """[M] hidden tokens."""
    labels: Tensor
    """[M] labels of their words."""
    owners: Ints
    """[M] texts."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AmnesicReport(Tabular):
    """Masked accuracy and accuracy of a linear probe, before and after a property is erased."""

    model: str
    data: str
    task: str
    rank: int
    """Erased directions."""
    masked: int
    """Masked tokens that are scored."""
    accuracy: dict[str, Interval]
    """Masked accuracy: whole, erased, random; and the differences to whole."""
    probe: dict[str, Interval]
    """Accuracy of a probe that is trained on the vectors of each: whole, erased, random; and the majority."""
    notes: tuple[str, ...]
    seed: int

    def figures(self) -> Iterator[Figure]:
        """Every number with its interval."""
        for metric, values in (("masked accuracy", self.accuracy), ("probe accuracy", self.probe)):
            for name, value in values.items():
                yield Figure.of(metric, value, unit=UNIT, task=self.task, category=name)

    def to_dicts(self) -> list[Row]:
        """A row for each number."""
        values = {"masked accuracy": self.accuracy, "probe accuracy": self.probe}
        return [
            {"metric": metric, "vectors": name, **interval_dict(value)}
            for metric, named in values.items()
            for name, value in named.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        names = ("model", "data", "task", "rank", "masked", "seed")
        return {**{name: getattr(self, name) for name in names}, "rows": self.to_dicts(), "notes": list(self.notes)}

    def table(self) -> Table:
        rows = [
            [name, *(percent(values[name]) if name in values else "" for values in (self.accuracy, self.probe))]
            for name in dict.fromkeys([*self.accuracy, *self.probe])
        ]
        notes = [
            f"{self.rank} directions are erased; random: mean of {DRAWS} samples of as many",
            f"brackets: 95% interval over {UNIT}; seed {self.seed}",
            *self.notes,
        ]
        title = f"{self.task} erased from the last layer: {self.model} on {self.data} ({self.masked:,} masked tokens)"
        return Table(("vectors", "masked accuracy", "probe accuracy"), rows, title=title, notes=notes)

    def __str__(self) -> str:
        return str(self.table())

    def __repr__(self) -> str:
        whole, erased, random = (self.accuracy[name].value for name in ("whole", "erased", "random"))
        return f"<AmnesicReport {self.task}: masked accuracy {whole:.4f}, erased {erased:.4f}, random {random:.4f}>"


def amnesic(
    model: Model, data: ProbeData, settings: ProbingSettings = ProbingSettings(), progress: Progress = lambda done: None
) -> AmnesicReport:
    """Erase the labels of words or spans from the last layer at masked tokens."""
    predictor = require_predictor(
        model.network, model.tokenizer, what="predict masked words", name=model.bundle.path.name
    )
    if not isinstance(predictor.head, MaskedLM):
        raise ArtefactError(f"{model.bundle.path.name} has no masked-lm head; use a model pretrained with masked-lm")
    if data.task not in ("tag", "spans"):
        raise UsageError(f"--amnesic masks single words or spans, not those of --task {data.task}; use tag or spans")
    states = _masked_states(model, predictor, data, settings.seed, progress)
    train, test = (torch.from_numpy(np.flatnonzero(data.parts[states.owners] == part)) for part in (TRAIN, TEST))
    classes = len(data.names)
    if len(train) < 2 * classes or not len(test):
        raise DataError(
            f"{data.source}: {len(train):,} masked tokens are too few for {classes} labels; give more texts"
        )
    x, y = states.x[train], states.labels[train]
    eraser = Eraser.of(x, y, classes)
    erasers = {"erased": [eraser], "random": [Eraser.of(x, y, classes, random=settings.seed + n) for n in range(DRAWS)]}
    right, probed = (
        {"whole": _right(predictor, states, test)},
        {"whole": _probe(states, states.x, train, test, classes)},
    )
    for name, several in erasers.items():
        right[name] = np.mean([_right(predictor, states, test, each) for each in several], 0)
        probed[name] = np.mean([_probe(states, each(states.x), train, test, classes) for each in several], 0)
    probed["majority"] = (states.labels[test] == int(y.bincount().argmax())).double().numpy()
    right |= {f"{name} less whole": right[name] - right["whole"] for name in erasers}
    right["erased less random"] = right["erased"] - right["random"]

    def intervals(values: dict[str, Doubles]) -> dict[str, Interval]:
        owners = states.owners[test.numpy()]
        return {name: mean_interval(by_text(each[None], owners), settings) for name, each in values.items()}

    return AmnesicReport(
        model=display_name(model.bundle.path),
        data=data.source,
        task=data.task,
        rank=eraser.basis_DK.shape[1],
        masked=len(test),
        accuracy=intervals(right),
        probe=intervals(probed),
        notes=data.notes,
        seed=settings.seed,
    )


@torch.inference_mode()
def _masked_states(
    model: Model, predictor: MaskedPredictor, data: ProbeData, seed: int, progress: Progress
) -> MaskedStates:
    """Mask some units of each text, at least one, with all their tokens; long texts are read in windows."""
    tokenizer = model.tokenizer
    template, mask = tokenizer.template.single, tokenizer.mask_id
    size = predictor.longest_text(tokenizer)
    first, by_owner = np.cumsum([0, *map(len, data.spans)]), _rows_of_texts(data)
    sequences: list[Ints] = []
    targets: list[list[tuple[int, int, int, int]]] = []  # place, hidden token, label, text
    for number, text in enumerate(data.texts):
        rows = by_owner.get(number, [])
        if not rows:
            continue
        alignment = tokenizer.encode(text)
        chosen = stream(seed, "probe masks", 0, number).permutation(rows)[: max(1, round(RATE * len(rows)))]
        label_of = {
            token: int(data.labels[row])
            for row in chosen.tolist()
            for token in alignment.tokens_of_chars(*data.spans[number][int(data.units[row, 0] - first[number])])
        }
        cut = windows(len(alignment.ids), size=size, overlap=0)
        ids = alignment.ids.astype(np.int64)
        hidden = ids.copy()
        hidden[list(label_of)] = mask
        for start, end in zip(cut.starts.tolist(), cut.ends.tolist(), strict=True):
            inside = [token for token in label_of if start <= token < end]
            if inside:
                sequences.append(np.concatenate([*template.interleave(hidden[start:end])]))
                targets.append(
                    [(token - start + template.opening, int(ids[token]), label_of[token], number) for token in inside]
                )
    if not sequences:
        raise DataError(f"{data.source}: no labelled word has a token to mask; give other texts")
    states, order = _states(predictor, sequences, targets, progress)
    table = np.array([target for index in order for target in targets[index]], np.int64)
    return MaskedStates(states, torch.from_numpy(table[:, 1]), torch.from_numpy(table[:, 2]), table[:, 3])


def _rows_of_texts(data: ProbeData) -> dict[int, list[int]]:
    """Examples of each text, without those whose label training lacks."""
    rows: dict[int, list[int]] = {}
    for row, (owner, label) in enumerate(zip(data.owners.tolist(), data.labels.tolist(), strict=True)):
        if label < len(data.names):
            rows.setdefault(owner, []).append(row)
    return rows


def _states(
    predictor: MaskedPredictor,
    sequences: Sequence[Ints],
    targets: Sequence[Sequence[tuple[int, int, int, int]]],
    progress: Progress,
) -> tuple[Tensor, list[int]]:
    """Vectors of masked tokens, and the order of the sequences in which they come: shortest first."""
    order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
    lengths = np.array([len(sequences[index]) for index in order], np.int64)
    parts = []
    for low, high in runs(lengths, forward_budget(predictor.device)):
        ids, positions = np.concatenate([sequences[index] for index in order[low:high]]), ranges(lengths[low:high])
        nothing = np.zeros_like(positions)
        batch = TokenBatch(
            ids=ids, lengths=lengths[low:high], positions=positions, segments=nothing, words=nothing + NO_WORD
        )
        begins = np.cumsum([0, *lengths[low:high].tolist()])
        at = [begins[n] + place for n, index in enumerate(order[low:high]) for place, *_ in targets[index]]
        z = predictor.encoder(on_device(batch, predictor.device), limit=int(lengths[high - 1]))
        parts.append(z[torch.tensor(at, device=z.device)].float().cpu())
        progress(high - low)
    return torch.cat(parts), order


@torch.inference_mode()
def _right(predictor: MaskedPredictor, states: MaskedStates, test: Tensor, erase: Eraser | None = None) -> Doubles:
    """Whether the most probable token is the hidden one, after its vector is changed."""
    assert isinstance(predictor.head, MaskedLM)
    x = states.x[test] if erase is None else erase(states.x[test])
    words = predictor.words_VE
    answers = [
        predictor.head.logits(part.to(words.device), words).argmax(-1).cpu()
        for part in x.split(max(1, LOGITS // len(words)))
    ]
    return np.asarray((torch.cat(answers) == states.ids[test]).double().numpy())


def _probe(states: MaskedStates, x: Tensor, train: Tensor, test: Tensor, classes: int) -> Doubles:
    """Whether a linear probe that is trained on these vectors is right."""
    scaled = Scaler.of(x[None, train])(x[None])
    weights = fit_linear(scaled[:, train], states.labels[train], classes)
    answers = log_probabilities(scaled[:, test], [weights])[0].argmax(-1)
    return np.asarray((answers == states.labels[test]).double().numpy())
