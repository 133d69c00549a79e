"""Estimators in the manner of scikit-learn: `fit`, `predict`, `predict_proba`, `score`, for grids and pipelines.

    from sklearn.model_selection import GridSearchCV
    grid = GridSearchCV(TextClassifier("bert-base"), {"rate": [2e-5, 5e-5], "epochs": [2, 4]}, cv=3)
    grid.fit(texts, labels)
    grid.best_estimator_.predict(["A text."])
    tagger = WordTagger("bert-base", epochs=3).fit(sentences, tags)      # lists of words, lists of their tags

Where scikit-learn is installed they are its estimators (`BaseEstimator`, with the tags that newer versions require);
without it they work by themselves. `fit` holds nothing out unless `hold_out=True`, which keeps a tenth of the examples
to choose the best weights and to calibrate probabilities: searches and cross-validation hold out their own.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import as_string, checked_inputs, checked_texts_or_words, is_table
from larvatus.data.labelled.records import Dataset, Kind, Place, TaggedExample, TextExample
from larvatus.metrics.entities import tag_f1
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.classify.options import ClassifyOptions
from larvatus.tasks.encoding.sequences import WindowOptions
from larvatus.tasks.predict import Input, InputPlace, PredictOptions, TaskPredictor
from larvatus.tasks.results import Classified, Tagged
from larvatus.tasks.scoring import score_sequences
from larvatus.tasks.tag.tag import (
    TagOptions,
    convert_scheme,
    encode_words,
    scheme_of,
    tag_probabilities,
    tagger_of,
    words_read,
)
from larvatus.tasks.trainer.config import FineTuneArguments, TrainConfig
from larvatus.tasks.trainer.finetune import FineTuneResult, finetune
from larvatus.tasks.trainer.trainable import TrainableConfig
from larvatus.training.engine.settings import Runtime


class _Parameters:
    """Stand-in for scikit-learn's `BaseEstimator` where it is not installed."""

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


@dataclass(eq=False, repr=False)
class FineTunedEstimator(_Estimator):
    """Base of classifier and tagger: settings as arguments, and the fitted model. Fields are parameters."""

    model: str | Path | Bundle = ""
    _: KW_ONLY
    epochs: int | None = None
    rate: float | None = None
    batch: int = 32
    seed: int = 0
    trained: str = "all"
    length: int | None = None
    truncate: bool = False
    hold_out: bool = False
    device: str = "auto"

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
            raise UsageError("groups set what is held out together; fit holds out nothing unless hold_out=True")
        if len(groups) != len(examples):
            raise DataError(f"{len(examples)} examples, but groups of {len(groups)}; give the group of each")
        return {example.place: str(group) for example, group in zip(examples, groups, strict=True)}

    def _keep(self, tuned: FineTuneResult) -> None:
        """Keep the model of a run, and its validation score if examples were held out."""
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


@dataclass(kw_only=True, eq=False, repr=False)
class TextClassifier(Classifier, FineTunedEstimator):
    """Classify texts or pairs. After `fit`: `classes_`, `bundle_`, `held_out_score_`.

    Args:
        model: A model directory, or a hub name.
        epochs: Times over the examples; as suits their number by default.
        rate: Learning rate; as suits what is trained by default.
        batch: Examples of a step.
        seed: Of order, dropout and a new head's weights.
        trained: Trainable part: `all`, `head`, `last2`, `lora16` and the like.
        pool: How a text becomes one vector: `cls`, `mean` or `max`; as suits the model by default.
        class_weight: `balanced` counts rare classes more; or a weight for each class.
        length: Tokens of a window of a long text; as many as the model has positions by default.
        truncate: Read only the first window.
        hold_out: Keep a tenth of the examples to choose the best weights and to calibrate probabilities.
        device: `auto`, `cpu` or `cuda`.

    Example:
        >>> classifier = TextClassifier("runs/mine", epochs=1, device="cpu")
        >>> classifier.fit(["the river", "the homework"] * 8, ["wet", "dry"] * 8).classes_.tolist()
        ['dry', 'wet']
        >>> classifier.predict_proba(["the bank"]).shape
        (1, 2)
    """

    pool: str | None = None
    class_weight: str | dict[Any, float] | None = None

    def fit(self, X: Sequence[Any], y: Sequence[Any], groups: Sequence[Any] | None = None) -> TextClassifier:
        """Fine-tune the model on texts and their classes; the estimator itself comes back.

        Args:
            X: Texts, or pairs; an array of two columns serves.
            y: One class for each, of any kind that sorts.
            groups: With `hold_out`, the group of each text: a group is held out whole.
        """
        texts, labels = _texts(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(texts):
            raise DataError(f"{len(texts)} texts need as many classes, one each, not an array of shape {labels.shape}")
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
        raise UsageError("give a list of texts, not one text: [text]")
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
    raise UsageError(f"X holds {type(text).__name__} instead of a text or a pair of two: {text!r:.60}")


@dataclass(kw_only=True, eq=False, repr=False)
class WordTagger(FineTunedEstimator):
    """Tag words. After `fit`: `classes_` (all tags of the scheme), `bundle_`, `held_out_score_`.

    Args:
        model: A model directory, or a hub name.
        epochs: Times over the examples; as suits their number by default.
        rate: Learning rate; as suits what is trained by default.
        batch: Examples of a step.
        seed: Of order, dropout and a new head's weights.
        trained: Trainable part: `all`, `head`, `last2`, `lora16` and the like.
        crf: Score whole sequences of tags, by a conditional random field.
        repair: Mend tags that their scheme does not allow, rather than refuse them.
        length: Tokens of a window of a long text; as many as the model has positions by default.
        truncate: Read only the first window.
        hold_out: Keep a tenth of the examples to choose the best weights and to calibrate probabilities.
        device: `auto`, `cpu` or `cuda`.

    Example:
        >>> tagger = WordTagger("runs/mine", epochs=1, device="cpu")
        >>> tagger = tagger.fit([["the", "river"], ["the", "bank"]] * 8, [["O", "B-LOC"], ["O", "O"]] * 8)
        >>> len(tagger.predict([["a", "wide", "river"]])[0])
        3
    """

    crf: bool = False
    repair: bool = False

    def fit(
        self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]], groups: Sequence[Any] | None = None
    ) -> WordTagger:
        """Fine-tune the model on sentences and their tags; the estimator itself comes back.

        Args:
            X: Lists of words.
            y: Lists of their tags, in BIO, IOB1, BIOES or no scheme at all.
            groups: With `hold_out`, the group of each sentence: a group is held out whole.
        """
        data = _tagged(X, y)
        data = dataclasses.replace(data, groups=self._groups(data.examples, groups))
        self.written_ = scheme_of(data)
        options = TagOptions(crf=self.crf, repair=self.repair)
        self._keep(finetune("tag", self._base(), data, None, self._arguments(options)))
        self.classes_ = np.array(self._predictor().head.config.labels)
        return self

    def predict(self, X: Sequence[Sequence[str]]) -> list[list[str]]:
        """The likeliest tags of every sentence.

        Args:
            X: Lists of words.
        """
        predictions = self._predictor().predict(_sentences(X))
        return [list(cast(Tagged, prediction).tags) for prediction in predictions]

    def predict_proba(self, X: Sequence[Sequence[str]]) -> list[Floats]:
        """Probabilities of every tag for every word that is read, in the order of `classes_`: [words, tags] each.

        Args:
            X: Lists of words.
        """
        predictor = self._predictor()
        model = self.bundle_.network
        head = tagger_of(model)
        examples = [
            TaggedExample(tuple(words), None, InputPlace("text", n)) for n, words in enumerate(_sentences(X), start=1)
        ]
        windows = WindowOptions.of(self.bundle_, length=self.length, truncate=self.truncate)
        sequences = encode_words(self.bundle_, examples, head.config, windows).sequences
        counts = words_read(sequences)
        scores = score_sequences(model, sequences, predictor.scoring)
        return np.split(tag_probabilities(head, scores, counts), np.cumsum(counts)[:-1]) if len(counts) else []

    def score(self, X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> float:
        """Entity F1 as `conlleval` has it, or accuracy of words where tags spell no entities (parts of speech).

        Args:
            X: Lists of words.
            y: Lists of their tags.
        """
        scheme = tagger_of(self._predictor().bundle.network).config.scheme
        gold = convert_scheme(_tagged(X, y), scheme, source=self.written_, repair=self.repair)
        tags, predicted = [example.tags or () for example in gold], self.predict(X)
        if scheme != "none":
            return tag_f1(tags, predicted, scheme, reading="lenient").micro.f1
        pairs = zip(chain.from_iterable(tags), chain.from_iterable(predicted), strict=True)
        return float(np.mean([tag == guess for tag, guess in pairs]))


def _tagged(X: Sequence[Sequence[str]], y: Sequence[Sequence[str]]) -> Dataset[TaggedExample]:
    sentences, tags = _sentences(X), list(y)
    if len(sentences) != len(tags):
        raise DataError(f"{len(sentences)} sentences, but tags of {len(tags)}; give the tags of each")
    examples = (
        TaggedExample(tuple(words), tuple(map(str, of_words)), InputPlace("text", number))
        for number, (words, of_words) in enumerate(zip(sentences, tags, strict=True), start=1)
    )
    return Dataset(tuple(examples), "X")


def _sentences(given: Any) -> list[Sequence[str]]:
    """Lists of words."""
    sentences, _ = checked_texts_or_words(given, "X")
    for at, words in enumerate(sentences):
        if isinstance(words, str):
            raise UsageError(f"X[{at}] is one text, not a list of words; cut it into words, as its tags are")
    return sentences
