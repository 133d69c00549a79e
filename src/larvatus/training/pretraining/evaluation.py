"""Held-out evaluation: loss, perplexity and accuracy with fixed masks, compared with a guess by unigram counts.

Counts are kept, never logits. Text is packed and masked as in the recipe, with the masks of epoch 0 of the stream
"valid": the same at every evaluation of every run, so perplexities compare.

Text that has no pairs (a single document, or one sentence in each) is read in single segments, and objectives of pairs
are not measured on it; those of tokens are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens, TextTargets
from larvatus.data.corpus import Corpus
from larvatus.data.corpus.loader import Loader, LoaderOptions
from larvatus.data.corpus.packing import PackingConfig, SingleSegmentConfig
from larvatus.data.corruption import Corruption, CorruptionConfig, MaskVocabulary, RunPosition, packed_length
from larvatus.data.text.special_tokens import sentinel_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import WordObjective
from larvatus.models.recipes import Recipe
from larvatus.training.engine.settings import Runtime
from larvatus.training.engine.step import autocast

MASKED_LM = "masked-lm"
USUAL = ("words", MASKED_LM)


@dataclass(frozen=True, kw_only=True)
class ObjectiveScore:
    """One objective on held-out text."""

    loss: float
    accuracy: float
    count: int
    guess_accuracy: float | None = None
    """Majority baseline of a yes-or-no objective: the share of the more frequent answer."""
    guess_loss: float | None = None
    """Loss of always giving the share of yes as its probability: the entropy of the answers."""

    def __str__(self) -> str:
        if self.guess_accuracy is None or self.guess_loss is None:
            return f"loss {self.loss:.3f}, right {self.accuracy:.1%}"
        return (
            f"loss {self.loss:.3f} (constant guess {self.guess_loss:.3f}), "
            f"right {self.accuracy:.1%} (constant guess {self.guess_accuracy:.1%})"
        )

    @classmethod
    def of(cls, *, loss: float, right: float, count: int, positive: float | None) -> ObjectiveScore:
        """From sums over `count` predictions; `positive` says how many answers were yes, where that is the question."""
        count = max(count, 1)
        sound = cls(loss=loss / count, accuracy=right / count, count=count)
        if positive is None:
            return sound
        shares = (positive / count, 1 - positive / count)
        entropy = -sum(share * math.log(share) for share in shares if share > 0)
        return replace(sound, guess_accuracy=max(shares), guess_loss=entropy)


@dataclass(frozen=True, kw_only=True)
class HeldOutScores:
    """All objectives on held-out text."""

    scores: dict[str, ObjectiveScore]
    tokens: int
    guess_accuracy: float | None = None
    """Share of hidden tokens that the most frequent token of the training text would get right."""
    guess_loss: float | None = None
    """Loss of predicting every hidden token from the unigram counts of the training text."""
    languages: dict[str, HeldOutScores] = field(default_factory=dict)
    """The same language by language, where there are several."""
    words: str = MASKED_LM
    """The objective that predicts the words that are guessed."""

    def to_dict(self) -> dict[str, Any]:
        return _without_usual(asdict(self))

    def __str__(self) -> str:
        words = []
        masked = MASKED_LM in self.scores
        name, predicted = ("masked", "masked tokens") if masked else (self.words, "words")
        if score := self.scores.get(MASKED_LM if masked else self.words):
            guess = f" (unigram guess {self.guess_accuracy:.1%})" if self.guess_accuracy is not None else ""
            words.append(f"{name} loss {score.loss:.3f}")
            words.append(f"perplexity {perplexity(score.loss):,.1f}")
            words.append(f"{predicted} right {score.accuracy:.1%}{guess}")
        if pairs := self.scores.get("next-sentence"):
            words.append(f"next sentence right {pairs.accuracy:.1%}")
        others = {n: s for n, s in self.scores.items() if n not in (MASKED_LM, self.words, "next-sentence")}
        words += [f"{name} {score}" for name, score in others.items()]
        return " · ".join(words)


def perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def merge_languages(languages: Mapping[str, HeldOutScores]) -> HeldOutScores:
    """Results of several languages as one: means over all their predictions."""
    scores = {}
    for name in sorted({name for result in languages.values() for name in result.scores}):
        parts = [result.scores[name] for result in languages.values() if name in result.scores]
        count = sum(part.count for part in parts)
        scores[name] = ObjectiveScore(
            loss=math.fsum(part.loss * part.count for part in parts) / count,
            accuracy=math.fsum(part.accuracy * part.count for part in parts) / count,
            count=count,
        )
    guessed = [r for r in languages.values() if r.guess_loss is not None and r.words in r.scores]
    weights = [result.scores[result.words].count for result in guessed]

    def mean(values: Sequence[float | None]) -> float | None:
        if not weights:
            return None
        return math.fsum(w * v for w, v in zip(weights, values, strict=True) if v is not None) / sum(weights)

    return HeldOutScores(
        scores=scores,
        tokens=sum(result.tokens for result in languages.values()),
        guess_accuracy=mean([result.guess_accuracy for result in guessed]),
        guess_loss=mean([result.guess_loss for result in guessed]),
        languages=dict(languages),
        words=next((result.words for result in languages.values()), MASKED_LM),
    )


def _without_usual(result: dict[str, Any]) -> dict[str, Any]:
    """Files of masked-lm say nothing of the objective, as ever."""
    languages = {name: _without_usual(inner) for name, inner in result["languages"].items()}
    return {name: value for name, value in {**result, "languages": languages}.items() if (name, value) != USUAL}


def _predicts_words(model: Network) -> str:
    """The objective whose words are compared with the unigram guess: masked-lm, or the first that predicts words."""
    predicting = [name for name, head in model.heads.items() if isinstance(head.config, WordObjective)]
    return MASKED_LM if MASKED_LM in predicting or not predicting else predicting[0]


def evaluate(
    model: Network,
    batches: Iterable[TrainingBatch[Ints]],
    *,
    runtime: Runtime,
    limit: int,
    counts: npt.NDArray[np.int64] | None = None,
    smoothing: float = 1.0,
    known: Collection[int] = (),
) -> HeldOutScores:
    """Every batch once, dropout off. `counts` are the unigram counts that the guess is made from, smoothed.

    Tokens that are `known` (sentinels, closings: no words) are guessed as one kind.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    tokens = 0
    guess = UnigramBaseline(counts, smoothing, known) if counts is not None else None
    words = _predicts_words(model)
    kind = model.heads[words].needs if words in model.heads else MaskedTokens
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(runtime):
            for batch in batches:
                tokens += batch.tokens.size
                if guess and kind in batch.targets:
                    guess.see(batch.targets[kind].ids)
                for name, loss in model(on_device(batch, runtime.device), accuracy=True, limit=limit).items():
                    totals[f"{name}/loss"] += float(loss.total)
                    totals[f"{name}/count"] += int(loss.count)
                    totals[f"{name}/right"] += int(loss.correct)
                    if loss.positive is not None:
                        totals[f"{name}/positive"] += int(loss.positive)
    finally:
        model.train(was_training)
    names = sorted({key.partition("/")[0] for key in totals})
    scores = {
        name: ObjectiveScore.of(
            loss=totals[f"{name}/loss"],
            right=totals[f"{name}/right"],
            count=int(totals[f"{name}/count"]),
            positive=totals.get(f"{name}/positive"),
        )
        for name in names
    }
    return HeldOutScores(
        scores=scores,
        tokens=tokens,
        guess_accuracy=guess.accuracy if guess and guess.seen else None,
        guess_loss=guess.loss if guess and guess.seen else None,
        words=words,
    )


class UnigramBaseline:
    """The baseline that knows only how frequent each token was in some text (add-one smoothed, or as is given).

    Tokens that are `known` (sentinels) count as one kind: which of them it is, is known, but not where they come. They
    are guessed by their share of all that is seen here.
    """

    def __init__(self, counts: npt.NDArray[np.int64], smoothing: float = 1.0, known: Collection[int] = ()) -> None:
        self._known = np.zeros(len(counts), dtype=np.bool_)
        self._known[list(known)] = True
        self._best = int(np.argmax(counts))
        with np.errstate(divide="ignore"):  # without smoothing, what never came is infinitely surprising
            self._surprise = -np.log((counts + smoothing) / (counts.sum() + smoothing * len(counts)))
        self._surprise[self._known] = 0.0
        self.seen = self._right = self._seen_known = 0
        self._loss = 0.0

    def see(self, ids: Ints) -> None:
        self.seen += len(ids)
        self._seen_known += int(self._known[ids].sum())
        self._right += int((ids == self._best).sum())
        self._loss += float(self._surprise[ids].sum())

    @property
    def accuracy(self) -> float:
        return self._right / max(self.seen, 1)

    @property
    def loss(self) -> float:
        kinds = (self._seen_known, self.seen - self._seen_known)
        of_kinds = -sum(count * math.log(count / self.seen) for count in kinds if count)
        return (self._loss + of_kinds) / max(self.seen, 1)


HELD_OUT_SEED = 0  # pairs and masks of held-out text are the same for every run


def build_corruption(
    config: CorruptionConfig | None, tokenizer: Tokenizer, seed: int, *, limit: int, course: RunPosition | None = None
) -> Corruption | None:
    """Corruption with a tokenizer's vocabulary, of sequences of at most `limit` tokens; None where there is none.

    `course`: which steps of a run the text is for; held-out text has none, and always the same share.
    """
    if config is None:
        return None
    vocabulary = MaskVocabulary(
        mask_id=tokenizer.id(tokenizer.special.mask),
        size=tokenizer.size,
        special_ids=tokenizer.special_ids,
        counts=tokenizer.counts,
        sentinels=sentinel_ids(tokenizer),
    )
    return Corruption(config, vocabulary, seed, limit=limit, course=course)


def packing_for(corpus: Corpus, packing: PackingConfig, language: str | None = None) -> PackingConfig:
    """The packing, where the text (of one language) has the pairs that it makes; else single segments."""
    counts = corpus.manifest.counts if language is None else corpus.manifest.languages[language]
    without_pairs = counts.documents < packing.different_documents or counts.sentences <= counts.documents
    return SingleSegmentConfig() if packing.gives and without_pairs else packing


def measurable_network(model: Network, packing: PackingConfig, corruption: CorruptionConfig | None) -> Network:
    """The model, or the same weights with only those objectives whose targets packing and corruption give.

    Where that is none of a model that has a generator, the generator.
    """
    given = {*packing.gives, *(corruption.gives if corruption is not None else ())}
    objectives: dict[str, Any] = dict(model.objectives.items())
    kept = {
        name: head for name, head in objectives.items() if head.needs in given or issubclass(head.needs, TextTargets)
    }
    if len(kept) == len(objectives):
        return model
    if not kept and model.generator is not None:
        return measurable_network(model.generator, packing, corruption)
    return network_part(model, kept, generator=model.generator)


def network_part(model: Network, heads: Mapping[str, nn.Module], *, generator: Network | None = None) -> Network:
    """The encoder of a model with some of its heads; weights are shared, not copied."""
    part = Network.__new__(Network)
    nn.Module.__init__(part)
    part.encoder, part.objectives, part.generator = model.encoder, nn.ModuleDict(heads), generator
    return part.train(model.training)


def held_out_batches(
    corpus: Corpus,
    packing: PackingConfig,
    corruption: CorruptionConfig | None,
    *,
    length: int,
    tokens: int,
    microbatch: int,
    language: str | None = None,
    from_text: tuple[type[TextTargets], ...] = (),
) -> Iterator[TrainingBatch[Ints]]:
    """Up to `tokens` tokens of the corpus, or of one of its languages, in sequences of at most `length`."""
    loader = Loader(
        corpus,
        packing=packing_for(corpus, packing, language),
        length=packed_length(corruption, length),
        corruption=build_corruption(corruption, corpus.tokenizer, HELD_OUT_SEED, limit=length),
        tokens=max(microbatch, length),
        seed=HELD_OUT_SEED,
        reading=LoaderOptions(purpose="valid", language=language, from_text=from_text),
    )
    return loader.evaluation(tokens)


def evaluate_held_out(
    model: Network, corpus: Corpus, recipe: Recipe, *, length: int, tokens: int, runtime: Runtime
) -> HeldOutScores:
    """All objectives on up to `tokens` tokens of the corpus; of each language as many where there are several."""

    def scored(language: str | None, tokens: int) -> HeldOutScores:
        batches = held_out_batches(
            corpus,
            recipe.packing,
            recipe.corruption,
            length=length,
            tokens=tokens,
            microbatch=runtime.microbatch,
            language=language,
            from_text=recipe.from_text,
        )
        part = measurable_network(model, packing_for(corpus, recipe.packing, language), recipe.corruption)
        return evaluate(
            part,
            batches,
            runtime=runtime,
            limit=length,
            counts=corpus.tokenizer.counts,
            known=corpus.tokenizer.special_ids,
        )

    names = corpus.languages
    if len(names) < 2:
        return scored(None, tokens)
    return merge_languages({name: scored(name, tokens // len(names)) for name in names})
