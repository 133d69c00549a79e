"""One pass of the encoder for several heads: what one head has read, the next does not read again.

    encoder = share_passes(network.encoder, network.heads.values())
    tagger.states(encoder, batch.tokens)          # runs the encoder
    classifier.states(encoder, batch.tokens)      # takes the states of the same sequences

Tasks encode texts themselves, and need not agree: states are kept by sequence. Two tasks share those of a text if they
read it as the same tokens in the same windows, as most do. Where one reads a text in another way (with a space between
words that share a token, or together with a question), the encoder runs for that sequence again.
N tokens, B sequences.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core.batch import TokenBatch, edges
from larvatus.models.heads.head import Head
from larvatus.models.nn.encoder import Encoder
from larvatus.tasks.encoding.sequences import run_indices

States = dict[int, Tensor]
"""[L, D] states of a sequence, by layer."""


def share_passes(encoder: Encoder, heads: Iterable[Any]) -> Encoder:
    """A view of an encoder that keeps the states of every sequence it reads, of all layers that these heads read.

    It is for one block of texts: what it keeps is freed with it.
    """
    mixes = [head.mix.layers for head in heads if isinstance(head, Head) and head.mix is not None]
    kept = sorted({encoder.depth, *(layer for mix in mixes for layer in mix)})
    view, known = copy.copy(encoder), dict[bytes, States]()

    def forward(
        batch: TokenBatch[Tensor], *, layers: Sequence[int] | None = None, limit: int | None = None
    ) -> Tensor | list[Tensor]:
        keys = _keys(batch)
        _read(encoder, batch, keys, known, kept, limit)
        wanted = [encoder.depth] if layers is None else layers
        states = [torch.cat([known[key][layer] for key in keys]) for layer in wanted]
        return states[0] if layers is None else states

    def at(batch: TokenBatch[Tensor], places_B: Tensor, *, limit: int | None = None) -> Tensor:
        states_ND: Tensor = view(batch, limit=limit)
        return states_ND.index_select(0, places_B)

    view.__dict__.update(forward=forward, at=at)  # before the methods of its class
    return view


def _keys(batch: TokenBatch[Tensor]) -> list[bytes]:
    """All that the encoder reads of each sequence, and its length."""
    rows_2N = torch.stack([batch.ids, batch.segments]).cpu().numpy()
    border = edges(batch.lengths.cpu().numpy()).tolist()
    return [rows_2N[:, first:last].tobytes() for first, last in pairwise(border)]


def _read(
    encoder: Encoder,
    batch: TokenBatch[Tensor],
    keys: Sequence[bytes],
    known: dict[bytes, States],
    layers: Sequence[int],
    limit: int | None,
) -> None:
    """Run the encoder on the sequences whose states are not known, each once."""
    new = {key: number for number, key in reversed([*enumerate(keys)]) if key not in known}
    if not new:
        return
    chosen = np.sort(np.array([*new.values()], np.int64))
    lengths = batch.lengths.cpu().numpy()
    rows = torch.from_numpy(run_indices(edges(lengths)[:-1][chosen], lengths[chosen])).to(batch.ids.device)
    names = ("ids", "positions", "segments", "words")
    part: TokenBatch[Any] = TokenBatch(
        lengths=batch.lengths[torch.from_numpy(chosen).to(batch.lengths.device)],
        **{name: getattr(batch, name)[rows] for name in names},
    )
    states = dict(zip(layers, encoder(part, layers=layers, limit=limit), strict=True))
    border = edges(lengths[chosen]).tolist()
    for number, (first, last) in zip(chosen.tolist(), pairwise(border), strict=True):
        known[keys[number]] = {layer: x_ND[first:last] for layer, x_ND in states.items()}
