"""A tagger in the manner of scikit-learn: `fit`, `predict`, `predict_proba`, `score`.

tagger = WordTagger("bert-base", epochs=3).fit(sentences, tags)      # lists of words, lists of their tags
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import checked_texts_or_words
from larvatus.data.labelled.records import Dataset, TaggedExample
from larvatus.metrics.entities import tag_f1
from larvatus.models.bundle.directory import Bundle
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.estimators.base import FineTunedEstimator
from larvatus.tasks.predict import InputPlace
from larvatus.tasks.results import Tagged
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
from larvatus.tasks.trainer.finetune import finetune


class WordTagger(FineTunedEstimator):
    """Tag words. After `fit`: `classes_` (all tags of the scheme), `bundle_`, `held_out_score_`.

    Args:
        model: A model directory, or a hub name.
        epochs: Times over the examples; as suits their number by default.
        rate: Learning rate; as suits what is trained by default.
        batch: Examples of a step.
        seed: Of order, dropout and a new head's weights.
        trained: What learns: `all`, `head`, `last2`, `lora16` and the like.
        crf: Score whole sequences of tags, by a conditional random field.
        repair: Mend tags that their scheme does not allow, rather than refuse them.
        length: Tokens of a window of a long text; as many as the model has positions by default.
        truncate: Read the first window alone.
        hold_out: Keep a tenth of the examples to choose the best weights and to calibrate probabilities.
        device: `auto`, `cpu` or `cuda`.

    Example:
        >>> tagger = WordTagger("runs/mine", epochs=1, device="cpu")
        >>> tagger = tagger.fit([["the", "river"], ["the", "bank"]] * 8, [["O", "B-LOC"], ["O", "O"]] * 8)
        >>> len(tagger.predict([["a", "wide", "river"]])[0])
        3
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
        crf: bool = False,
        repair: bool = False,
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
        self.crf = crf
        self.repair = repair
        self.length = length
        self.truncate = truncate
        self.hold_out = hold_out
        self.device = device

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
