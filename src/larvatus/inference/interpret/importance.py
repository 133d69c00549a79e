"""Importance of attention heads (Michel et al. 2019, *Are sixteen heads really better than one?*, §3), and pruning.

    MultiHead(x) = Σ_h ξ_h Head_h(x)            ξ = 1 for all; importance of h: loss with ξ_h = 0 − loss with ξ = 1

The loss is masked-LM loss on held-out text with the same masked tokens each time, or next-token loss of a left-to-right
model, so that the difference is due to the head only. Its standard error is over batches. If the change is negative,
the model is better without the head. In this file, a masked *head* is one whose output is multiplied by ξ_h = 0; masked
*tokens* are those that the model predicts.

    importance = head_importance(network, batches)              # held-out batches with their targets
    importance.rows[0].change, importance.rows[0].error         # of layer 1, head 1

`prune_heads` masks heads permanently: it sets their columns of the output projection to zero and saves the model. A
head's output reaches the rest of the model only through its K columns of W^O, so that the saved model computes exactly
what the masked one did. Shapes stay the same: `transformers` loads the model like any other, and it is no smaller or
faster.

    prune_heads(bundle, [(1, 2), (3, 1)], Path("pruned"), source="runs/mine")
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core.arrays import Doubles, Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.outputs import check_directory
from larvatus.core.ranges import digits
from larvatus.core.run_identity import VERSION
from larvatus.core.settings import Settings
from larvatus.inference.interpret.attention import check_head
from larvatus.models.bundle.card import without_marks
from larvatus.models.bundle.directory import Bundle, write_bundle
from larvatus.models.bundle.huggingface import layout_for
from larvatus.models.bundle.partial_updates import read_card
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder import Encoder

MEASURED = ("masked-lm", "causal-lm")
"""Objectives whose loss can be measured."""
Head = tuple[int, int]
"""Layer and head, both counted from 1."""


NOT_MEASURED = (
    "has no masked-lm or causal-lm head, whose loss measures the importance of attention heads; use a model "
    "pretrained with masked-lm or causal-lm"
)


class HeadImportance(Settings):
    """Importance of one head."""

    layer: int
    """Counted from 1."""
    head: int
    loss: float
    """Loss of the model with this head masked."""
    change: float
    """Increase of the loss over the whole model, in nats per predicted token: the importance of the head."""
    error: float
    """Standard error of the change, over batches; NaN with one batch."""


class Importance(Settings, omit_defaults=True):
    """Importance of all heads of a model."""

    loss: float
    """Loss of the whole model."""
    hidden: int
    """Predicted tokens: masked ones, or in a left-to-right model all but the first."""
    tokens: int
    """Tokens read."""
    rows: tuple[HeadImportance, ...]
    """Layer by layer."""
    pruned: float | None = None
    """Loss without the pruned heads."""
    objective: str = "masked-lm"
    """Objective of the loss."""


def head_importance(
    network: Network, held_out: Sequence[TrainingBatch[Ints]], progress: Callable[[], None] = lambda: None
) -> Importance:
    """Mask every head by itself, on the same batches. `progress` is called after each pass over them."""
    encoder = network.encoder
    whole, counts = masked_losses(network, held_out)
    progress()
    rows = []
    for layer in range(1, encoder.depth + 1):
        for head in range(1, encoder.heads + 1):
            losses, _ = masked_losses(network, held_out, [(layer, head)])
            rows.append(_row(layer, head, losses, whole, counts))
            progress()
    return Importance(
        loss=float(whole.sum() / counts.sum()),
        hidden=int(counts.sum()),
        tokens=sum(batch.tokens.size for batch in held_out),
        rows=tuple(rows),
        objective=measured_objective(network) or "",
    )


def measured_objective(network: Network) -> str | None:
    """The objective of a model whose loss measures importance; None if it has none."""
    return next((name for name in MEASURED if name in network.objectives), None)


def _row(layer: int, head: int, losses: Doubles, whole: Doubles, counts: Doubles) -> HeadImportance:
    """The change is a ratio of sums over batches, Σ differences / Σ tokens; its error is that of a ratio estimator."""
    total, size = counts.sum(), len(counts)
    change = float((losses - whole).sum() / total)
    residuals = losses - whole - change * counts
    error = math.sqrt(float((residuals**2).sum()) * size / (size - 1)) / total if size > 1 else math.nan
    return HeadImportance(layer=layer, head=head, loss=float(losses.sum() / total), change=change, error=float(error))


@torch.inference_mode()
def masked_losses(
    network: Network, held_out: Sequence[TrainingBatch[Ints]], masked: Sequence[Head] = ()
) -> tuple[Doubles, Doubles]:
    """Summed loss and number of predicted tokens of each batch, with these heads masked."""
    objective = measured_objective(network)
    if objective is None:
        raise ArtefactError(f"the model {NOT_MEASURED}")
    head: Any = network.heads[objective]
    if not any(batch.targets[head.needs].count for batch in held_out):
        raise DataError("there is no masked token to predict; give more text")
    encoder = network.encoder
    device = encoder.device
    kept = keep_all_but(masked, layers=encoder.depth, heads=encoder.heads, device=device)
    totals, counts = [], []
    for batch in held_out:
        moved = on_device(batch, device)
        z_ND = encoder(moved.tokens) if kept is None else encoder.with_heads(moved.tokens, kept)
        loss = head.loss(z_ND, moved, encoder)
        totals.append(float(loss.total))
        counts.append(int(loss.count))
    return np.array(totals), np.array(counts, dtype=np.float64)


def keep_all_but(masked: Sequence[Head], *, layers: int, heads: int, device: torch.device) -> Tensor | None:
    """ξ [L, H]: 0 for masked heads, else 1; None if none is masked."""
    if not masked:
        return None
    kept = torch.ones(layers, heads)
    for layer, head in masked:
        check_head(layer, head, layers=layers, heads=heads)
        kept[layer - 1, head - 1] = 0
    return kept.to(device)


def read_heads(text: str) -> list[Head]:
    """Parse ``1:2,3:1`` (layer:head, both counted from 1).

    >>> read_heads("1:2, 3:1")
    [(1, 2), (3, 1)]
    """
    heads = []
    for name in text.split(","):
        layer, colon, head = name.strip().partition(":")
        if not colon or digits(layer) is None or digits(head) is None:
            raise UsageError(f"{name.strip()!r} names no head; use layer:head, such as 1:2,3:1")
        heads.append((int(layer), int(head)))
    return heads


def zero_heads(encoder: Encoder, heads: Sequence[Head]) -> None:
    """Mask these heads in the weights."""
    for layer, head in heads:
        check_head(layer, head, layers=encoder.depth, heads=encoder.heads)
    encoder.zero_heads(heads)


def prune_heads(bundle: Bundle, heads: Sequence[Head], out: Path, *, source: str) -> None:
    """Write the model without the output of these heads. `source` names the model in its lineage and card."""
    check_directory(out, (), inputs=[bundle.path])
    network = copy.deepcopy(bundle.network)
    zero_heads(network.encoder, heads)
    names = [f"{layer}:{head}" for layer, head in heads]
    pruned = dataclasses.replace(
        bundle,
        path=out,
        network=network,
        lineage={**bundle.lineage, "pruned": {"from": source, "heads": names}},
        claims=(),  # figures of the whole model are not those of the pruned one
    )
    layout = layout_for(bundle.architecture, pad=bundle.tokenizer.padding_id, vocabulary=bundle.tokenizer.kind)
    write_bundle(out, pruned, layout=layout, card=_card(bundle, names, source=source, name=out.name))


def _card(bundle: Bundle, names: Sequence[str], *, source: str, name: str) -> str:
    card = without_marks(read_card(bundle)) or f"# {name}\n"
    return (
        f"{card.rstrip()}\n\n## Attention heads masked\n\nBy Larvatus {VERSION} in `{source}`, of which the card "
        f"above speaks: heads {', '.join(names)} (layer:head, from 1). Their columns of the output projection are 0.\n"
    )
