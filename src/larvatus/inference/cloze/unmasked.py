"""All-unmasked likelihood (AUL, Kaneko & Bollegala 2022, *Unmasking the mask*): a text scored with nothing masked.

    AUL(x) = 1/|x| Σ_t log p(x_t | x)

    [scores.mean() for scores in unmasked_scores(predictor, tokenizer, tokenizer.encode_many(texts))]

A text is read once, not once for each of its tokens. Its tokens see themselves, so this says less about how expected a
text is than pseudo-log-likelihood does, and it depends less on which tokens happen to be masked. A text longer than the
model's window is read in overlapping windows, and each token is scored in the one where it has the most context.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from larvatus.core.arrays import Doubles
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges, runs
from larvatus.core.errors import ArtefactError
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.windows import windows
from larvatus.inference.cloze.pseudo_likelihood import BUDGETS
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import MaskedLM


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
    template, room = tokenizer.template.single, predictor.room(tokenizer)
    answers = [np.zeros(len(text), np.float64) for text in texts]
    pieces = []  # text, its window, the tokens that are taken from it
    for number, text in enumerate(texts):
        cut = windows(len(text), size=room)
        for window, (start, end) in enumerate(zip(cut.starts.tolist(), cut.ends.tolist(), strict=True)):
            pieces.append((number, start, end, np.flatnonzero(cut.chosen == window)))
    pieces = sorted((piece for piece in pieces if len(piece[3])), key=lambda piece: piece[2] - piece[1])
    lengths = np.array([end - start + template.special_count for _, start, end, _ in pieces], np.int64)
    for first, last in runs(lengths, budget or BUDGETS.get(predictor.device.type, BUDGETS["cuda"])):
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
