"""Likelihoods of sentences and words by a masked language model, with and without masks.

reader = LikelihoodReader.of(model, what="score sentence pairs")
reader.masked(["The poor are kind."])[0].sum()         # pseudo-log-likelihood
reader.unmasked(["The poor are kind."])[0].mean()      # AUL
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from larvatus.core.arrays import Doubles
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.bulk import Scorer
from larvatus.inference.cloze.pseudo_likelihood import score_texts
from larvatus.inference.cloze.slots import Rest, Slot, SlotScore, slot_scores
from larvatus.inference.cloze.unmasked import reads_unmasked, unmasked_scores
from larvatus.models.masked_prediction import MaskedPredictor, require_predictor
from larvatus.models.network import Network

Progress = Callable[[str, int, int], None]
"""Callback with what is counted, how many are done, and the total."""
TEXTS, SLOTS = 240, 1_920
"""Sentences and blanks per block; multiples of pairs and triples, which share masked copies."""


@dataclass(frozen=True, eq=False)
class LikelihoodReader:
    network: Network
    tokenizer: Tokenizer
    predictor: MaskedPredictor
    name: str = "the model"
    progress: Progress = field(default=lambda what, done, total: None)

    @classmethod
    def of(cls, model: Scorer, *, what: str, progress: Progress = lambda what, done, total: None) -> LikelihoodReader:
        """Refuse a model without a masked-LM head; `what` completes "no masked-lm head to … with"."""
        name = str(model.bundle.path)
        predictor = require_predictor(model.network, model.tokenizer, what=what, name=name)
        return cls(model.network, model.tokenizer, predictor, name, progress)

    @property
    def reads_unmasked(self) -> bool:
        return reads_unmasked(self.predictor)

    def masked(self, texts: Sequence[str], labels: Sequence[str] | None = None) -> list[Doubles]:
        """log p of each token of each text, with that token masked."""
        scores: list[Doubles] = []
        for first in range(0, len(texts), TEXTS):  # a block at a time: progress is told, memory stays bounded
            block = slice(first, first + TEXTS)
            named = None if labels is None else labels[block]
            part = score_texts(self.network, self.tokenizer, texts[block], labels=named, name=self.name)
            scores += [score.log_probabilities for score in part]
            self.progress("sentences", len(scores), len(texts))
        return scores

    def unmasked(self, texts: Sequence[str]) -> list[Doubles]:
        """log p of each token of each text, with nothing masked."""
        return unmasked_scores(self.predictor, self.tokenizer, self.tokenizer.encode_many(texts))

    def slots(self, slots: Sequence[Slot], *, rest: Rest = "masked") -> list[SlotScore]:
        """log p of words in their positions."""
        scores: list[SlotScore] = []
        for first in range(0, len(slots), SLOTS):
            scores += slot_scores(self.predictor, self.tokenizer, slots[first : first + SLOTS], rest=rest)
            self.progress("blanks", len(scores), len(slots))
        return scores
