"""Sentence vectors of a frozen model, computed once, and the linear head over them as a model.

    vectors = FrozenVectors.read(bundle, train, args)
    vectors.last, vectors.layers                     # [N, D] of the last layer, [N, 4 D] of the four highest
    model = vectors.model(LinearFit(weight, bias), layers=True)     # a `Bundle` that predicts the same

A text is read as `larvatus finetune classify --trained head` reads it: by the pooling of a sentence encoder, else the
mean of its tokens; with the sentence adapter that a model may have, merged into its weights. The vector of a long text
is the mean of its windows, so its scores are the mean of theirs, as in prediction.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import msgspec
import numpy as np
import torch
from msgspec import UNSET

from larvatus.core.arrays import Floats
from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.models.bundle.new_heads import attach_head, sentence_bundle
from larvatus.models.heads import Classification, ClassificationConfig
from larvatus.tasks.candidates.logistic import LinearFit
from larvatus.tasks.classify.classify import merge_windows
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.classify.task import ClassifyTask
from larvatus.tasks.features import Features
from larvatus.tasks.scoring import head_as
from larvatus.tasks.trainer.causal import with_delimiters
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.trainable import TrainableConfig

HIGHEST = 4
"""Layers that are concatenated."""


@dataclass(frozen=True, eq=False)
class FrozenVectors:
    base: Bundle
    """The encoder, with its sentence adapter merged."""
    head: ClassificationConfig
    """The linear head over the last layer."""
    layers: Floats
    """[N, layers · D] of the highest layers, the last one last."""
    width: int
    seconds: float
    """Time that reading all texts took."""
    windows: tuple[int, int]
    """Texts longer than a window, and their windows."""

    @property
    def last(self) -> Floats:
        """[N, D] of the last layer."""
        return self.layers[:, -self.width :]

    @classmethod
    def read(cls, bundle: Bundle, train: Dataset[TextExample], args: FineTuneArguments) -> FrozenVectors:
        base = sentence_bundle(with_delimiters(bundle))
        if bundle.adapter is not None:
            args.say("linear heads read the model's sentence adapter, merged into its weights")
        config = msgspec.structs.replace(args.config, trained=TrainableConfig.read("head"))
        options = ClassifyOptions(dense="none", mix=False)
        prepared = ClassifyTask().prepare(base, train, None, dataclasses.replace(args, config=config, options=options))
        head = msgspec.structs.replace(prepared.head, dropout=0.0, bias=UNSET)
        network = attach_head(base, _over(head, base), seed=0)[0].network.to(args.runtime.device)
        began = time.monotonic()
        features = Features.build(network, prepared.encoded, args.scoring)
        sequences = prepared.encoded.sequences
        rows = np.asarray(features.rows).reshape(len(features.rows), -1)
        vectors = merge_windows(rows, sequences.parts)
        seconds, long = time.monotonic() - began, sequences.parts > 1
        windows = (int(long.sum()), int(sequences.parts[long].sum()))
        return cls(base, head, vectors, base.network.encoder.width, seconds, windows)

    def model(self, fit: LinearFit, *, layers: bool, seed: int, device: str) -> Bundle:
        """The model whose scores are those of a fit on `layers` or on `last`."""
        head = _over(self.head, self.base) if layers else self.head
        bundle, _ = attach_head(self.base, head, seed=seed)
        classifier = head_as(bundle.network, Classification, "classify texts").classifier
        with torch.no_grad():
            classifier.weight.copy_(torch.from_numpy(fit.weight))
            classifier.bias.copy_(torch.from_numpy(fit.bias))
        bundle.network.to(device)
        return bundle


def _over(head: ClassificationConfig, base: Bundle) -> ClassificationConfig:
    """The head over the highest layers."""
    count = min(HIGHEST, base.network.encoder.depth)
    return msgspec.structs.replace(head, mix=f"concat{count}")
