"""Frozen features, computed once: when only the head is trained, no epoch runs the encoder (Devlin et al. 2019, §5.3).

    features = Features.build(model, data, ScoringOptions(device="cpu"))
    loss = features.loss(head, chosen, on_device(data.batch(chosen), "cpu"))      # as through the encoder

What is kept is what the head's `features` gives, in float32: a row for each sequence, word, or token of answers, of the
last layer, or of all layers where the head mixes them; for a tagger that learns subwords, a row for each of those. The
rows lie in a temporary file without a name, mapped into memory: however the process ends, the file is gone with it.

Held-out examples, which are scored again and again, have features too: ``build(…, learning=False).scores(head)``.
Features depend only on the encoder: heads of the same kind with other seeds may share them.
E examples, S sequences, R rows, D hidden size, K classes or tags.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, WordTokens, edges, runs
from larvatus.core.errors import ArtefactError
from larvatus.models.heads.head import Head
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import Loss
from larvatus.tasks.encoding.sequences import Sequences, run_indices
from larvatus.tasks.scoring import ScoringOptions, head_of


class ExampleBatches(Protocol):
    """Examples by number."""

    def __len__(self) -> int: ...

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        """Some of them, in this order, each of one or more sequences."""


@runtime_checkable
class PlannedBatches(Protocol):
    """Examples that decide themselves which of them make a step."""

    def steps(self, size: int) -> int:
        """Steps of an epoch, of at most `size` examples each."""

    def epoch_batches(self, seed: int, epoch: int, size: int) -> Sequence[Ints]:
        """The examples of each step of an epoch: as many steps as `steps` says, none empty, by seed and epoch only."""

    def remarks(self, size: int) -> Sequence[str]:
        """What to report about such steps, before training."""


def epoch_steps(data: ExampleBatches, size: int) -> int:
    """Steps of an epoch of at most `size` examples each."""
    return data.steps(size) if isinstance(data, PlannedBatches) else -(-len(data) // size)


class EncodedExamples(ExampleBatches, Protocol):
    """Examples, and the sequences that they are read as."""

    @property
    def sequences(self) -> Sequences: ...


class Features:
    def __init__(self, sizes: FeatureSizes, rows: Floats, scoring: ScoringOptions) -> None:
        self.sizes, self.scoring = sizes, scoring
        self.rows = rows  # [R, D], or [R, layers + 1, D] for a mix
        self._starts = edges(sizes.rows)[:-1]  # [E] first row of each example

    @classmethod
    @torch.inference_mode()
    def build(
        cls,
        model: Network,
        data: ExampleBatches,
        scoring: ScoringOptions,
        *,
        learning: bool = True,
        progress: Callable[[int, int], None] = lambda done, all: None,
    ) -> Features:
        """Read all examples once, short ones first, for `loss`, or where they are not for learning, for `scores`.

        `progress` is called with the tokens read and the total. Leaves the encoder in evaluation mode.
        """
        head, encoder = head_of(model), model.encoder
        encoder.eval()
        sizes = FeatureSizes.of(data, head, learning=learning)
        depth = () if head.mix is None else (len(head.mix.layers),)
        features = cls(sizes, _mapped((int(sizes.rows.sum()), *depth, encoder.width)), scoring)
        order = np.argsort(sizes.tokens, kind="stable")
        done = 0
        for first, last in runs(sizes.tokens[order], scoring.budget):
            chosen = order[first:last]
            parts = []
            for part in data.batch(chosen).cuts(scoring.budget):  # more than one if a single example is longer
                batch = on_device(part, scoring.device)
                with scoring.autocast():
                    states = head.states(model.encoder, batch.tokens, limit=int(part.tokens.lengths.max()))
                    parts.append(head.features(states, batch, learning=learning))
            x = torch.cat(parts, dim=-2)
            rows = x if head.mix is None else x.transpose(0, 1)
            features.rows[features._rows_of(chosen)] = rows.float().cpu().numpy()
            done += int(sizes.tokens[chosen].sum())
            progress(done, int(sizes.tokens.sum()))
        return features

    def _rows_of(self, examples: Ints) -> Ints:
        return run_indices(self._starts[examples], self.sizes.rows[examples])

    def _take(self, rows: Ints | slice) -> Tensor:
        x = torch.from_numpy(np.array(self.rows[rows])).to(self.scoring.device)
        return x if x.ndim == 2 else x.transpose(0, 1)

    def of(self, examples: Ints) -> Tensor:
        """Features of these examples, as from `head.features`: [rows, D], or [layers + 1, rows, D] for a mix."""
        return self._take(self._rows_of(np.asarray(examples, np.int64)))

    def loss(self, head: Head, examples: Ints, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss of the head on a batch of these examples; the tokens of the batch are not read."""
        assert self.sizes.learning, "these features are not for learning"
        loss: Loss = head(self.of(examples), batch, accuracy=accuracy)
        return loss

    @torch.inference_mode()
    def scores(self, head: Head) -> Floats:
        """Scores of each sequence or word of all examples, as from `score_sequences`."""
        assert not self.sizes.learning, "these features are for learning"
        head.eval()
        units, border = self.sizes.units, edges(self.sizes.units)
        scores = np.zeros((len(self.rows), head.outputs), np.float32)
        for first, last in runs(units, self.scoring.budget):
            place = slice(int(border[first]), int(border[last]))
            batch = on_device(_rows_alone(units[first:last]), self.scoring.device)
            with self.scoring.autocast():
                logits = head.logits(self._take(place), batch)
            scores[place] = logits.float().cpu().numpy()
        return scores


@dataclass(frozen=True, eq=False)
class FeatureSizes:
    tokens: Ints  # [E]
    rows: Ints  # [E]
    units: Ints  # [S] rows of each sequence: itself, its words, or its tokens
    learning: bool
    """Whether rows are for the loss, not for scores."""

    @classmethod
    def of(cls, data: ExampleBatches, head: Head, *, learning: bool) -> FeatureSizes:
        tokens, rows, units = [], [], [np.empty(0, np.int64)]
        for number in range(len(data)):
            batch = data.batch(np.array([number])).tokens
            units.append(head.rows(batch, learning=learning))
            rows.append(int(units[-1].sum()))
            tokens.append(batch.size)
        return cls(
            tokens=np.array(tokens, np.int64),
            rows=np.array(rows, np.int64),
            units=np.concatenate(units),
            learning=learning,
        )


def _rows_alone(counts: Ints) -> TrainingBatch[Ints]:
    """A batch with numbers of rows but without tokens, for scores from features."""
    nothing = np.empty(0, np.int64)
    words = WordTokens(rows=nothing, words=nothing, counts=counts, starts=counts, total=int(counts.sum()))
    tokens = TokenBatch(
        ids=nothing, lengths=counts, positions=nothing, segments=nothing, words=nothing, word_tokens=words
    )
    return TrainingBatch(tokens=tokens, targets={})


def _mapped(shape: tuple[int, ...]) -> Floats:
    """Zeros on disk."""
    size, place = 4 * int(np.prod(shape)), tempfile.gettempdir()
    if size == 0:
        return np.zeros(shape, np.float32)
    free = shutil.disk_usage(place).free
    if size > free:
        raise ArtefactError(
            f"frozen features take {size / 1e9:,.1f} GB, but {place} has {free / 1e9:,.1f} GB left; "
            "set TMPDIR to a larger disk, or train last1 instead of the head"
        )
    with tempfile.TemporaryFile() as file:  # the map outlives it
        return np.memmap(file, np.float32, "w+", shape=shape)
