"""Attention heads masked for good: their columns of the output projection are set to zero, and the model is saved.

    prune_heads(bundle, [(1, 2), (3, 1)], Path("pruned"), source="runs/mine")

A head's output reaches the rest of the model through its K columns of W^O alone, so that the saved model computes
exactly what the masked one did. Shapes stay: `transformers` loads it like any other, and it is no smaller or faster.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_directory
from larvatus.core.ranges import digits
from larvatus.core.version import VERSION
from larvatus.inference.interpret.attention import check_head
from larvatus.inference.interpret.importance import Head
from larvatus.models.bundle.card import without_marks
from larvatus.models.bundle.directory import Bundle, read_card, write_bundle
from larvatus.models.bundle.huggingface import layout_for
from larvatus.models.nn.encoder import Encoder


def read_heads(asked: str) -> list[Head]:
    """From ``1:2,3:1`` (layer:head, both counted from 1).

    >>> read_heads("1:2, 3:1")
    [(1, 2), (3, 1)]
    """
    heads = []
    for asked_head in asked.split(","):
        layer, colon, head = asked_head.strip().partition(":")
        if not colon or digits(layer) is None or digits(head) is None:
            raise UsageError(f"{asked_head.strip()!r} names no head; say layer:head, such as 1:2,3:1")
        heads.append((int(layer), int(head)))
    return heads


def zero_heads(encoder: Encoder, heads: Sequence[Head]) -> None:
    """Mask these heads in the weights themselves."""
    for layer, head in heads:
        check_head(layer, head, layers=encoder.depth, heads=encoder.heads)
    encoder.zero_heads(heads)


def prune_heads(bundle: Bundle, heads: Sequence[Head], out: Path, *, source: str) -> None:
    """Write the model without these heads' output. `source` names the model for its lineage and card."""
    check_directory(out, (), inputs=[bundle.path])
    network = copy.deepcopy(bundle.network)
    zero_heads(network.encoder, heads)
    names = [f"{layer}:{head}" for layer, head in heads]
    pruned = dataclasses.replace(
        bundle,
        path=out,
        network=network,
        lineage={**bundle.lineage, "pruned": {"from": source, "heads": names}},
        claims=(),  # they are of the whole model
    )
    layout = layout_for(bundle.architecture, pad=bundle.tokenizer.padding_id, vocabulary=bundle.tokenizer.kind)
    write_bundle(out, pruned, layout=layout, card=_card(bundle, names, source=source, name=out.name))


def _card(bundle: Bundle, names: Sequence[str], *, source: str, name: str) -> str:
    card = without_marks(read_card(bundle)) or f"# {name}\n"
    return (
        f"{card.rstrip()}\n\n## Attention heads masked\n\nBy Larvatus {VERSION} in `{source}`, of which the card "
        f"above speaks: heads {', '.join(names)} (layer:head, from 1). Their columns of the output projection are 0.\n"
    )
