"""Words of several tokens, filled in turn (PET with multiple masks, Schick & Schütze 2021b, §3.1): as many blanks as
the word has tokens; of those still open, the blank whose token is likeliest is filled next, and the text read again.

    s(y | x) = Σ_j log q(t_{k_j} | P(x) with t_{k_1} … t_{k_{j-1}} filled in)        k_j: the likeliest of those open

So a word is scored as it stands, given its other tokens, and words of different lengths compare. A word of n tokens
costs n passes; of one token there is nothing to fill, and `score_sequences` gives the same order of labels.
E examples, n tokens of a word, W words, K labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.data.labelled.records import TextExample
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.verbaliser import Verbaliser
from larvatus.models.masked_prediction import MaskedPredictor, TokenQueries
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.prompt.encode import encode_prompts
from larvatus.tasks.scoring import ScoringOptions, batches_by_length, head_as


@torch.inference_mode()
def multi_mask_scores(
    model: Network, tokenizer: Tokenizer, examples: Sequence[TextExample], *, limit: int, scoring: ScoringOptions
) -> Floats:
    """[E, K] scores of the labels."""
    model.eval()
    head = head_as(model, Verbaliser, "classify through a blank")
    predictor = MaskedPredictor(model.encoder, head.words)
    by_size: dict[int, Sequences] = {}
    columns = []
    for word in head.config.tokens():
        if len(word) not in by_size:
            prompts = encode_prompts(tokenizer, head.config, examples, limit=limit, blanks=len(word))
            by_size[len(word)] = prompts.sequences
        columns.append(_word(predictor, by_size[len(word)], np.array(word), mask=head.config.mask, scoring=scoring))
    scores_EW = torch.from_numpy(np.stack(columns, 1)).to(torch.float32)
    return np.asarray(head.of_labels(scores_EW).numpy(), np.float32)


def _word(
    predictor: MaskedPredictor, sequences: Sequences, word: Ints, *, mask: int, scoring: ScoringOptions
) -> npt.NDArray[np.float64]:
    """[E] of one word."""
    count, size = len(sequences), len(word)
    ids = sequences.ids.copy()
    places_En = np.flatnonzero(ids == mask).reshape(count, size)
    open_En = np.ones((count, size), np.bool_)
    totals = np.zeros(count)
    for _ in range(size):
        filled = dataclasses.replace(sequences, ids=ids)
        log_En = _log_probabilities(predictor, filled, places_En, word, scoring)
        best = np.where(open_En, log_En, -np.inf).argmax(1)
        rows = np.arange(count)
        totals += log_En[rows, best]
        ids[places_En[rows, best]] = word[best]
        open_En[rows, best] = False
    return totals


def _log_probabilities(
    predictor: MaskedPredictor, sequences: Sequences, places_En: Ints, word: Ints, scoring: ScoringOptions
) -> npt.NDArray[np.float64]:
    """[E, n] of each token of the word at its blank, as the text stands."""
    firsts = np.cumsum(sequences.lengths) - sequences.lengths
    within_En = places_En - firsts[:, None]
    result = np.zeros(places_En.shape)
    for chosen in batches_by_length(sequences, scoring.budget):
        tokens = sequences.batch(chosen)
        starts = np.cumsum(tokens.lengths) - tokens.lengths
        at = torch.from_numpy((starts[:, None] + within_En[chosen]).ravel()).to(scoring.device)
        asked = torch.from_numpy(np.tile(word, len(chosen))).to(scoring.device)
        with scoring.autocast():
            questions = TokenQueries(torch.arange(len(at), device=at.device), asked)
            states_ND = predictor.encoder(on_device(tokens, scoring.device), limit=int(tokens.lengths.max()))
            log_Q = predictor.of_vectors(states_ND.index_select(0, at), questions)
        result[chosen] = log_Q.double().cpu().numpy().reshape(len(chosen), -1)
    return result
