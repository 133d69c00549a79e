"""Likelihoods of sentences and words by a masked language model, with and without masks.

reader = LikelihoodReader.of(model, what="score sentence pairs")
reader.masked(["The poor are kind."])[0].sum()         # pseudo-log-likelihood
reader.unmasked(["The poor are kind."])[0].mean()      # AUL

All-unmasked likelihood (AUL, Kaneko & Bollegala 2022, *Unmasking the mask*) scores a text with nothing masked:

    AUL(x) = 1/|x| Σ_t log p(x_t | x)

A text is read once, not once for each of its tokens. Its tokens see themselves, so this says less about how expected a
text is than pseudo-log-likelihood does, and it depends less on which tokens happen to be masked. A text longer than the
model's window is read in overlapping windows, and each token is scored in the one where it has the most context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges, runs
from larvatus.core.errors import ArtefactError
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import windows
from larvatus.inference.cloze.likelihood import score_texts
from larvatus.inference.cloze.slots import Rest, Slot, SlotScore, slot_scores
from larvatus.models.loaded import LoadedModel
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries, require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import forward_budget, on_device
from larvatus.models.objectives import MaskedLM

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
    def of(
        cls, model: LoadedModel, *, what: str, progress: Progress = lambda what, done, total: None
    ) -> LikelihoodReader:
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
        for first in range(0, len(texts), TEXTS):  # a block at a time: progress is reported, memory stays bounded
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


def reads_unmasked(predictor: MaskedPredictor) -> bool:
    """Whether the model predicts tokens that it sees: XLNet's query stream never sees the token that it predicts."""
    return isinstance(predictor.head, MaskedLM)


@torch.inference_mode()
def unmasked_scores(
    predictor: MaskedPredictor, tokenizer: Tokenizer, texts: Sequence[Alignment], *, budget: int | None = None
) -> list[Doubles]:
    """log p of each token of each text [T], with no token masked; `budget` is the number of tokens of a batch."""
    if not reads_unmasked(predictor):
        raise ArtefactError("the model never sees the token that it predicts, so it has no all-unmasked likelihood")
    template, room = tokenizer.template.single, predictor.longest_text(tokenizer)
    answers = [np.zeros(len(text), np.float64) for text in texts]
    pieces = []  # text, its window, the tokens that are taken from it
    for number, text in enumerate(texts):
        cut = windows(len(text), size=room)
        for window, (start, end) in enumerate(zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)):
            pieces.append((number, start, end, np.flatnonzero(cut.chosen == window)))
    pieces = sorted((piece for piece in pieces if len(piece[3])), key=lambda piece: piece[2] - piece[1])
    lengths = np.array([end - start + template.special_count for _, start, end, _ in pieces], np.int64)
    for first, last in runs(lengths, budget or forward_budget(predictor.device)):
        part, starts = pieces[first:last], edges(lengths[first:last])
        places = [starts[at] + template.opening + taken - start for at, (_, start, _, taken) in enumerate(part)]
        wanted = [texts[number].ids[taken] for number, _, _, taken in part]
        positions = ranges(lengths[first:last])
        nothing = np.zeros_like(positions)
        batch = TokenBatch(
            ids=np.concatenate([template.ids(texts[number].ids[start:end]) for number, start, end, _ in part]),
            lengths=lengths[first:last],
            positions=positions,
            segments=nothing,
            words=nothing + NO_WORD,
        )
        at, ids = (torch.from_numpy(np.concatenate(arrays)).to(predictor.device) for arrays in (places, wanted))
        z_MD = predictor.encoder(on_device(batch, predictor.device), limit=int(lengths[last - 1])).index_select(0, at)
        asked = TokenQueries(torch.arange(len(ids), device=predictor.device), ids)
        scores = predictor.of_vectors(z_MD, asked).double().cpu().numpy()
        borders = np.cumsum([len(taken) for *_, taken in part])[:-1]
        for (number, _, _, taken), of_piece in zip(part, np.split(scores, borders), strict=True):
            answers[number][taken] = of_piece
    return answers
