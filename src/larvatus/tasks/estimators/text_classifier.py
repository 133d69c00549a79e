"""A classifier in the manner of scikit-learn: `fit`, `predict`, `predict_proba`, `score`, for grids and pipelines.

from sklearn.model_selection import GridSearchCV
grid = GridSearchCV(TextClassifier("bert-base"), {"rate": [2e-5, 5e-5], "epochs": [2, 4]}, cv=3)
grid.fit(texts, labels)
grid.best_estimator_.predict(["A text."])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import as_string, checked_inputs, is_table
from larvatus.data.labelled.records import Dataset, Kind, TextExample
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.estimators.base import Classifier, FineTunedEstimator
from larvatus.tasks.predict import Input, InputPlace
from larvatus.tasks.results import Classified
from larvatus.tasks.trainer.finetune import finetune


class TextClassifier(Classifier, FineTunedEstimator):
    """Classify texts or pairs. After `fit`: `classes_`, `bundle_`, `held_out_score_`.

    Args:
        model: A model directory, or a hub name.
        epochs: Times over the examples; as suits their number by default.
        rate: Learning rate; as suits what is trained by default.
        batch: Examples of a step.
        seed: Of order, dropout and a new head's weights.
        trained: What learns: `all`, `head`, `last2`, `lora16` and the like.
        pool: How a text becomes one vector: `cls`, `mean` or `max`; as suits the model by default.
        class_weight: `balanced` counts rare classes more; or a weight for each class.
        length: Tokens of a window of a long text; as many as the model has positions by default.
        truncate: Read the first window alone.
        hold_out: Keep a tenth of the examples to choose the best weights and to calibrate probabilities.
        device: `auto`, `cpu` or `cuda`.

    Example:
        >>> classifier = TextClassifier("runs/mine", epochs=1, device="cpu")
        >>> classifier.fit(["the river", "the homework"] * 8, ["wet", "dry"] * 8).classes_.tolist()
        ['dry', 'wet']
        >>> classifier.predict_proba(["the bank"]).shape
        (1, 2)
    """

    def __init__(
        self,
        model: str | Path | Bundle = "",
        *,
        epochs: int | None = None,
        rate: float | None = None,
        batch: int = 32,
        seed: int = 0,
        trained: str = "all",
        pool: str | None = None,
        class_weight: str | dict[Any, float] | None = None,
        length: int | None = None,
        truncate: bool = False,
        hold_out: bool = False,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.rate = rate
        self.batch = batch
        self.seed = seed
        self.trained = trained
        self.pool = pool
        self.class_weight = class_weight
        self.length = length
        self.truncate = truncate
        self.hold_out = hold_out
        self.device = device

    def fit(self, X: Sequence[Any], y: Sequence[Any], groups: Sequence[Any] | None = None) -> TextClassifier:
        """Fine-tune the model on texts and their classes; the estimator itself comes back.

        Args:
            X: Texts, or pairs; an array of two columns serves.
            y: One class for each, of any kind that sorts.
            groups: With `hold_out`, the group of each text: a group is held out whole.
        """
        texts, labels = _texts(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(texts):
            raise DataError(f"{len(texts)} texts want as many classes, one each, not an array of shape {labels.shape}")
        if labels.dtype.kind == "f" and not np.all(labels == np.floor(labels)):
            raise DataError("y holds numbers that are no classes; regression is for larvatus finetune")
        classes = np.unique(labels)
        names = {label: str(label) for label in classes.tolist()}
        if len(set(names.values())) < len(names):
            raise DataError(f"two classes of {classes.tolist()} are written alike; rename one")
        examples = tuple(
            TextExample(*_parts(text), names[label], InputPlace("text", number))
            for number, (text, label) in enumerate(zip(texts, labels.tolist(), strict=True), start=1)
        )
        kind: Kind = "multi-class"
        data = Dataset(examples, "X", kind=kind, groups=self._groups(examples, groups))
        self._keep(finetune("classify", self._base(), data, None, self._arguments(self._options(names))))
        self.classes_ = classes
        return self

    def _options(self, names: dict[Any, str]) -> ClassifyOptions:
        weights = self.class_weight
        if isinstance(weights, str) and weights != "balanced":
            raise UsageError(f"class_weight is balanced, a weight for each class, or None, not {weights!r}")
        if self.pool not in (None, "cls", "mean", "max"):
            raise UsageError(f"pool is cls, mean or max, not {self.pool!r}")
        given = weights if isinstance(weights, dict) else {}
        by_name = {names.get(label, str(label)): value for label, value in given.items()}
        pool: Any = self.pool
        return ClassifyOptions(pool=pool, balanced=weights == "balanced", class_weights=by_name)

    def predict_proba(self, X: Sequence[Any]) -> Floats:
        """Probabilities of every class for every text, in the order of `classes_`: [texts, classes].

        Args:
            X: Texts, or pairs.
        """
        predictor = self._predictor()
        names = [str(label) for label in self.classes_.tolist()]
        rows = [
            [share[name] for name in names]
            for share in (cast(Classified, prediction).probabilities for prediction in predictor.predict(_texts(X)))
        ]
        return np.array(rows, dtype=np.float32).reshape(-1, len(names))

    def predict(self, X: Sequence[Any]) -> npt.NDArray[Any]:
        """The likeliest class of every text.

        Args:
            X: Texts, or pairs.
        """
        best = self.predict_proba(X).argmax(1)
        classes: npt.NDArray[Any] = self.classes_[best]
        return classes

    def score(self, X: Sequence[Any], y: Sequence[Any], sample_weight: Any = None) -> float:
        """Accuracy: the share of texts whose class is right.

        Args:
            X: Texts, or pairs.
            y: Their classes.
            sample_weight: How much each counts.
        """
        right = self.predict(X) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))


def _texts(X: Sequence[Any]) -> list[Input]:
    """Texts and pairs, from a list, an array, a column of a data frame, or a data frame of two."""
    if as_string(X) is not None:
        raise UsageError("a list of texts is wanted, not one text; write [text]")
    rows = X.values.tolist() if is_table(X) and hasattr(X, "values") else X
    listed = checked_inputs(list(rows) if isinstance(rows, tuple) else rows, "X").inputs
    return [tuple(text) if isinstance(text, list) else text for text in listed]


def _parts(text: Input) -> tuple[str, str | None]:
    if isinstance(text, str):
        return text, None
    if isinstance(text, tuple) and len(text) == 2:
        first, second = text
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    raise UsageError(f"X holds {type(text).__name__} where a text or a pair of two is wanted: {text!r:.60}")
