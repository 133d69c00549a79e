"""Frozen features, computed once: when the head alone learns, no epoch reads the encoder (Devlin et al. 2019, §5.3).

    features = Features.build(model, data, Scoring(device="cpu"))
    loss = features.loss(chosen, on_device(data.batch(chosen), "cpu"))      # as through the encoder

What is kept is what the head's `features` gives, in float32: a row for each sequence or word, of the last layer, or of
all layers where the head mixes them; for a tagger that learns subwords, a row for each of those. The rows lie in a
temporary file without a name, mapped into memory: however the process ends, the file is gone with it.
E examples, R rows, D hidden size.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.batch import Ints, TrainingBatch, WordTags, edges, runs
from larvatus.errors import ArtefactError
from larvatus.nn.device import on_device
from larvatus.objectives import Loss, Pretraining, Tagging
from larvatus.tasks.scoring import Head, Scoring, head_of, states_of
from larvatus.tasks.sequences import gathered


class Examples(Protocol):
    """Examples by number."""

    def __len__(self) -> int: ...

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        """Some of them, in this order, each of one or more sequences."""


class Features:
    def __init__(self, head: Head, counts: Ints, rows: npt.NDArray[np.float32], device: str) -> None:
        self.head = head
        self.rows = rows  # [R, D], or [R, layers + 1, D] for a mix
        self.device = device
        self._counts, self._starts = counts, edges(counts)[:-1]  # [E] rows of each example, and the first of them

    @classmethod
    @torch.inference_mode()
    def build(
        cls,
        model: Pretraining,
        data: Examples,
        scoring: Scoring,
        *,
        progress: Callable[[int, int], None] = lambda done, all: None,
    ) -> Features:
        """Read all examples once, short ones first; `progress` is told tokens read and tokens in all.

        Leaves the encoder in evaluation mode.
        """
        head = head_of(model)
        model.encoder.eval()
        lengths, counts = _sizes(head, data)
        config = model.encoder.config
        depth = () if head.mix is None else (config.layers + 1,)
        features = cls(head, counts, _mapped((int(counts.sum()), *depth, config.hidden)), scoring.device)
        order = np.argsort(lengths, kind="stable")
        done = 0
        for first, last in runs(lengths[order], scoring.budget):
            chosen = order[first:last]
            found = []
            for part in data.batch(chosen).cuts(scoring.budget):  # more than one if a single example is longer
                batch = on_device(part, scoring.device)
                with scoring.autocast():
                    states = states_of(model, batch, head, limit=int(part.tokens.lengths.max()))
                    found.append(_features(head, states, batch).float())
            x = torch.cat(found, dim=-2)
            own = x if head.mix is None else x.transpose(0, 1)
            features.rows[features._rows_of(chosen)] = own.cpu().numpy()
            done += int(lengths[chosen].sum())
            progress(done, int(lengths.sum()))
        return features

    def _rows_of(self, examples: Ints) -> Ints:
        return gathered(self._starts[examples], self._counts[examples])

    def of(self, examples: Ints) -> Tensor:
        """What `head.features` gives for a batch of these examples: [rows, D], or [layers + 1, rows, D] for a mix."""
        x = torch.from_numpy(np.asarray(self.rows[self._rows_of(np.asarray(examples, np.int64))])).to(self.device)
        return x if self.head.mix is None else x.transpose(0, 1)

    def loss(self, examples: Ints, batch: TrainingBatch[Tensor], *, accuracy: bool = False) -> Loss:
        """The loss of the head on a batch of these examples; the tokens of the batch are not read."""
        targets = batch.targets[self.head.needs]
        if _of_subwords(self.head):
            targets = subword_targets(targets)
        loss: Loss = self.head(self.of(examples), targets, accuracy=accuracy)
        return loss


def subword_targets(words: WordTags[Tensor]) -> WordTags[Tensor]:
    """Every (token, word) pair as a word of its own, with the tag of its word."""
    pairs = torch.arange(len(words.words), device=words.words.device)
    sequence_W = torch.repeat_interleave(torch.arange(len(words.counts), device=words.counts.device), words.counts)
    counts = torch.bincount(sequence_W[words.words], minlength=len(words.counts))
    return WordTags(rows=words.rows, words=pairs, tags=words.tags[words.words], counts=counts)


def _of_subwords(head: Head) -> bool:
    return isinstance(head, Tagging) and not head.config.whole_words


def _features(head: Head, states: Tensor, batch: TrainingBatch[Tensor]) -> Tensor:
    if _of_subwords(head):
        return states.index_select(0, batch.targets[WordTags].rows)
    return head.features(states, batch)


def _sizes(head: Head, data: Examples) -> tuple[Ints, Ints]:
    """[E] tokens and [E] rows of each example."""
    lengths, counts = np.zeros(len(data), np.int64), np.zeros(len(data), np.int64)
    for number in range(len(data)):
        batch = data.batch(np.array([number]))
        lengths[number] = batch.tokens.size
        words: Any = batch.targets[WordTags] if isinstance(head, Tagging) else None
        if words is None:
            counts[number] = batch.tokens.count
        else:
            counts[number] = len(words.rows) if _of_subwords(head) else len(words.tags)
    return lengths, counts


def _mapped(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
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
