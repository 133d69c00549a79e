"""What each layer would fill into a blank, when the blank is decided, and which word of its context changes it most.

    result = read_lens(Lens(predictor), tokenizer, "The keys to the cabinet [MASK] on the table.")
    result.blanks[0].decided                     # the layer from which on the top word stays
    result.blanks[0].context[0].text             # the word whose masking changes that layer's distribution most

The distributions are those of `tuned_lens.py`, over the whole vocabulary; at the last layer they are the model's own,
bit for bit. Candidates are those of `fill`: whole words, unless subwords are requested. The effect of a context word is
KL(p ‖ p without the word) at the deciding layer, where all tokens of the word are masked (leave one word out).

T tokens, M blanks, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges, runs
from larvatus.core.errors import UsageError
from larvatus.core.ranges import short_repr, whole
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.fill import BlankReader, Blanks, Candidates, read_blanks
from larvatus.inference.interpret.lens_results import ContextWord, LensBlank, LensLayer, LensResult, LensWord
from larvatus.inference.interpret.tuned_lens import Lens, kl_to
from larvatus.models.network import Network
from larvatus.models.nn.device import forward_budget, on_device
from larvatus.tasks.outcome import TextTooLong


@torch.inference_mode()
def read_lens(
    lens: Lens, network: Network, tokenizer: Tokenizer, text: str, *, top: int = 3, candidates: Candidates = "words"
) -> LensResult:
    """The lens on every layer at every blank of a text that fits into the model's window."""
    if top not in whole(1, tokenizer.size):
        size = f"{tokenizer.size:,}, the size of the vocabulary"
        raise UsageError(f"top must be a whole number from 1 to {size}, not {short_repr(top)}")
    blanks, depth = read_blanks(text, tokenizer), lens.predictor.encoder.depth
    check_window(len(blanks.ids), lens.predictor.longest_text(tokenizer))
    reader = BlankReader.of(network, tokenizer, blanks, candidates=candidates)
    states = _states(lens, tokenizer, blanks, [blanks.ids], range(depth + 1))
    logs = [lens.log_probabilities(layer, z_MD) for layer, z_MD in enumerate(states)]
    if candidates == "words":
        reader.leave_out_abbreviations(blanks, logs[-1], count=top, joint=False)
    made = []
    for number, word in enumerate(blanks.words[list(blanks.places)].tolist()):
        shown = [log_MV[number].masked_fill(~reader.allowed_BV[number], -math.inf) for log_MV in logs]
        best = [int(log_V.argmax()) for log_V in shown]
        decided = max((layer + 1 for layer, id in enumerate(best) if id != best[-1]), default=0)
        layers = tuple(
            LensLayer(
                layer=layer,
                top=tuple(
                    LensWord(reader.token(id), math.exp(float(log_V[id])))
                    for id in log_V.topk(min(top, reader.candidates(number))).indices.tolist()
                ),
                final=math.exp(float(log_V[best[-1]])),
                kl=float(kl_to(logs[-1][number], logs[layer][number])),
            )
            for layer, log_V in enumerate(shown)
        )
        context = _context(lens, tokenizer, blanks, (number, best[-1]), decided, logs[decided][number])
        start, end = blanks.word_spans[word].tolist()
        made.append(LensBlank(start=start, end=end, layers=layers, decided=decided, context=context))
    return LensResult(text=text, blanks=tuple(made), tuned=None if lens.tuned is None else lens.tuned.name)


def check_window(tokens: int, longest: int) -> None:
    if tokens > longest:
        raise TextTooLong(f"the text has {tokens:,} tokens and the model's window has {longest:,}; shorten it")


def _states(
    lens: Lens, tokenizer: Tokenizer, blanks: Blanks, rows: Sequence[Ints], layers: Iterable[int]
) -> list[Tensor]:
    """States of layers at the blanks of several versions of the text: [rows · M, D] each."""
    wanted, opening = list(layers), tokenizer.template.single.opening
    lengths = np.full(len(rows), len(blanks.ids) + tokenizer.template.single.special_count)
    parts: list[list[Tensor]] = []
    device = lens.predictor.device
    for first, last in runs(lengths, forward_budget(device)):
        starts = edges(lengths[first:last])[:-1]
        places = torch.from_numpy((starts[:, None] + opening + np.array(blanks.places)).ravel()).to(device)
        batch = on_device(wrap_batch(tokenizer, [[(ids, blanks.words)] for ids in rows[first:last]]), device)
        parts.append([z_ND[places] for z_ND in lens.predictor.encoder(batch, layers=wanted)])
    return [torch.cat(each) for each in zip(*parts, strict=True)]


def _context(
    lens: Lens, tokenizer: Tokenizer, blanks: Blanks, blank: tuple[int, int], layer: int, log_V: Tensor
) -> tuple[ContextWord, ...]:
    """The words of the context, that with the strongest effect on a layer first; none where no layer read them."""
    number, final = blank
    open_words = set(blanks.words[list(blanks.places)].tolist())
    words = [word for word in np.unique(blanks.words[blanks.words >= 0]).tolist() if word not in open_words]
    if not layer or not words:
        return ()
    rows = [np.where(blanks.words == word, tokenizer.mask_id, blanks.ids) for word in words]
    (z_RD,) = _states(lens, tokenizer, blanks, rows, [layer])
    effects = []
    for word, z_D in zip(words, z_RD[number :: len(blanks.places)], strict=True):
        without_V = lens.log_probabilities(layer, z_D[None])[0]
        start, end = blanks.word_spans[word].tolist()
        change = float(log_V[final] - without_V[final])
        effects.append(ContextWord(blanks.text[start:end], start, end, float(kl_to(log_V, without_V)), change))
    return tuple(sorted(effects, key=lambda effect: -effect.kl))
