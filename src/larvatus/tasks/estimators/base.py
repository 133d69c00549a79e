"""Base of the scikit-learn estimators: their settings as arguments of fine-tuning, and the fitted model.

Where scikit-learn is installed they are its estimators (`BaseEstimator`, with the tags that newer versions ask for);
without it they work by themselves. `fit` holds nothing out unless `hold_out=True`, which keeps a tenth of the examples
to choose the best weights and to calibrate probabilities: searches and cross-validation hold out their own.

    class TextClassifier(Classifier, FineTuned): …
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from larvatus.core.errors import DataError, UsageError
from larvatus.data.labelled.records import Place
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.predict import PredictOptions, TaskPredictor
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.settings import Runtime


class _Parameters:
    """What scikit-learn's `BaseEstimator` gives, for machines without it."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Any:
        """Change settings; the estimator itself comes back."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}; there are {', '.join(known)}")
            setattr(self, name, value)
        return self


if TYPE_CHECKING:
    _Estimator = _Parameters

    class Classifier:
        pass

else:
    try:
        from sklearn.base import BaseEstimator as _Estimator
        from sklearn.base import ClassifierMixin as Classifier
    except ImportError:
        _Estimator, Classifier = _Parameters, type("Classifier", (), {})


class FineTunedEstimator(_Estimator):
    """Base of classifier and tagger: settings as arguments, and the fitted model."""

    model: str | Path | Bundle
    epochs: int | None
    rate: float | None
    batch: int
    seed: int
    trained: str
    length: int | None
    truncate: bool
    hold_out: bool
    device: str
    bundle_: Bundle

    def _base(self) -> Bundle:
        return self.model if isinstance(self.model, Bundle) else load_bundle(self.model)

    def _arguments(self, options: Struct) -> FineTuneArguments:
        config = TrainConfig(
            epochs=self.epochs,
            batch=self.batch,
            rate=self.rate,
            length=self.length,
            truncate=self.truncate,
            trained=TrainableConfig.read(self.trained),
        )
        runtime = Runtime.here(device=self.device, compile=False)
        return FineTuneArguments(
            config=config, options=options, runtime=runtime, seeds=(self.seed,), hold_out=self.hold_out
        )

    def _groups(self, examples: Sequence[Any], groups: Sequence[Any] | None) -> dict[Place, str]:
        if groups is None:
            return {}
        if not self.hold_out:
            raise UsageError("groups say what is held out together; fit holds out nothing unless hold_out=True")
        if len(groups) != len(examples):
            raise DataError(f"{len(examples)} examples, but groups of {len(groups)}; give the group of each")
        return {example.place: str(group) for example, group in zip(examples, groups, strict=True)}

    def _keep(self, tuned: FineTuneResult) -> None:
        """What stays of a run: the model, and its score on what was held out, if anything was."""
        self.bundle_ = tuned.bundle
        self.held_out_score_ = tuned.scores.main if tuned.scores is not None else None

    def _predictor(self) -> TaskPredictor:
        if not hasattr(self, "bundle_"):
            raise _not_fitted(f"this {type(self).__name__} is not fitted yet; call fit with examples first")
        options = PredictOptions(length=self.length, truncate=self.truncate)
        device = next(self.bundle_.network.parameters()).device
        return TaskPredictor(self.bundle_, options, device)


def _not_fitted(message: str) -> Exception:
    """scikit-learn's own error where it is installed: its tools look for that."""
    try:
        from sklearn.exceptions import NotFittedError
    except ImportError:
        return UsageError(message)
    fault: Exception = NotFittedError(message)
    return fault
