"""Fine-tuning by a search among candidates: `larvatus finetune classify --auto`, for small data.

    result = finetune_by_search(bundle, train, dev, args, minutes=2.0)
    result.bundle, result.search.candidates

The candidates are compared on the training examples, and the chosen one is trained on all of them: none are held out,
since the cross-validated predictions give scores and temperature. Validation examples, if there are any, score and
calibrate the saved model, and choose nothing.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from larvatus.data.labelled.records import Dataset, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.arguments import report_unknown
from larvatus.tasks.candidates.linear import FrozenVectors, fit_scaled
from larvatus.tasks.candidates.search import LAYERS, TUNED, CandidateSearch, Trial, search
from larvatus.tasks.classify.classify import labelled_texts
from larvatus.tasks.classify.task import TextValidation
from larvatus.tasks.examples import Split
from larvatus.tasks.scoring import head_of
from larvatus.tasks.trainer.checkpoint import Epoch, SeedRun
from larvatus.tasks.trainer.config import FineTuneArguments
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.run import FineTuneRun
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.tasks.validation import Calibration, fit_calibration, set_temperature


def finetune_by_search(
    bundle: Bundle,
    train: Dataset[TextExample],
    dev: Dataset[TextExample] | None,
    args: FineTuneArguments,
    *,
    minutes: float,
) -> FineTuneResult:
    """Search, train the chosen candidate on all training examples, and calibrate it."""
    candidates, vectors = search(bundle, train, args, minutes=minutes)
    chosen = candidates.choose()
    report = candidates.report(chosen)
    if chosen.name in TUNED:
        result = candidates.tuned(train, candidates.config(TUNED[chosen.name]), dev=dev, quiet=False)
    else:
        result = _linear_result(candidates, vectors, chosen, dev)
    if result.validation is None:
        logits_NK = chosen.logits.astype(np.float32)
        result = _with_temperature(result, fit_calibration(logits_NK, candidates.y, kind="softmax"))
    return dataclasses.replace(result, search=report)


def _linear_result(
    search: CandidateSearch, vectors: FrozenVectors, chosen: Trial, dev: Dataset[TextExample] | None
) -> FineTuneResult:
    """The model of a linear head, fitted on all training examples."""
    args, began, seed = search.args, time.monotonic(), search.args.seeds[0]
    layers = chosen.name == LAYERS
    x_ND = vectors.layers if layers else vectors.last
    (fit,) = fit_scaled(x_ND, search.y, classes=len(search.head.labels), penalties=[chosen.penalty])
    bundle = vectors.model(fit, layers=layers, seed=seed, device=args.runtime.device)
    head = head_of(bundle.network)
    validation, best = None, None
    if dev is not None:
        data = labelled_texts(bundle, dev.examples, head.config, args.windows(bundle))
        report_unknown(args, dev.source, data.unknown, ("texts", "labelled with classes"))
        validation = TextValidation(data, head.config, search.metric)
        loss = search.loss(fit.logits(x_ND))
        scores = validation.scores(bundle.network, args.scoring)
        best = Epoch(step=0, epoch=0.0, training_loss=loss, scores=scores)
    seconds = round(vectors.seconds + time.monotonic() - began, 3)
    history = () if best is None else (best,)
    config = msgspec.structs.replace(args.config, trained=TrainableConfig.read("head"))
    result = FineTuneResult(
        bundle=bundle,
        metric=search.metric,
        config=config,
        runs=(SeedRun(seed=seed, steps=0, seconds=seconds, history=history, best=best),),
        kept=seed,
        scores=None if best is None else best.scores,
        train=search.train,
        dev=dev,
        validation=validation,
        calibration=Calibration(),
        reused=(),
        trained=sum(parameter.numel() for parameter in head.parameters()),
        windows=vectors.windows,
    )
    if validation is None:
        return result
    return _with_temperature(result, validation.calibration(bundle.network, args.scoring))


def _with_temperature(result: FineTuneResult, calibration: Calibration) -> FineTuneResult:
    config = set_temperature(result.bundle.network, calibration.temperature).config
    bundle = dataclasses.replace(result.bundle, objectives=(config, *config.objectives))
    return dataclasses.replace(result, bundle=bundle, calibration=calibration)


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchRun(FineTuneRun):
    """A search as a run in its own directory: one that is stopped before its end leaves nothing there."""

    ranked = False

    minutes: float

    @property
    def more_identity(self) -> dict[str, Any]:
        return {"search": self.minutes}

    def split(self, args: FineTuneArguments) -> Split:
        """All training examples: folds hold them out in turn."""
        return self.train, self.dev

    def finetune(self, train: Dataset[TextExample], args: FineTuneArguments) -> FineTuneResult:
        return finetune_by_search(self.bundle, train, self.dev, args, minutes=self.minutes)
