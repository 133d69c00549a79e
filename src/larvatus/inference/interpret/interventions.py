"""Interventions on an encoder: read or edit what its blocks compute, layer by layer (Geiger et al. 2021).

    states = capture(encoder, batch, [("residual", 3), ("attention", 4)])     # [N, D] each, in the batch's order
    swapped = edited(encoder, [Edit("residual", 3, rows=rows, values=states_of_another_run)], batch)
    without = edited(encoder, [Edit("heads", 4, columns=slice(0, 64))])       # layer 4 without its first head

    residual      [N, D] what a layer hands to the next one; layer 0 is the embeddings
    attention     [N, D] what attention adds to the residual stream, before any dropout or norm after it
    feedforward   [N, D] what the feedforward layer adds
    heads         [N, H·K] the outputs of all heads, next to each other, before they are projected
    neurons       [N, inner] the inner activations of the feedforward layer

An edited encoder is a view: a new encoder over the same weights, so that other threads keep using the model as it was.
It is an encoder like any other: `Network.view(encoder=…)` fills, scores and predicts with it. Blocks may reorder the
tokens of a batch (`GroupedLayout`); rows are always those of the batch. Layers are counted from 1.

N tokens in the flat batch, D hidden size, H heads of K numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import UsageError
from larvatus.inference.interpret.attention import check_head
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.encoder_base import AttentionEncoder

Site = Literal["residual", "attention", "feedforward", "heads", "neurons"]
Tap = Callable[[Tensor], Tensor]
"""What replaces a tensor, given in the order of the block."""
M = TypeVar("M", bound=nn.Module)
_LINEAR: dict[Site, tuple[str, str, bool]] = {
    "attention": ("attention", "out", False),
    "heads": ("attention", "out", True),
    "feedforward": ("feedforward", "down", False),
    "neurons": ("feedforward", "down", True),
}
"""The linear layer of each site, and whether the site is its input."""


@dataclass(frozen=True, eq=False)
class Edit:
    """Values that replace some of a site's: of all tokens or of some, in all columns or in some."""

    site: Site
    layer: int
    values: Tensor | float = 0.0
    """What is put there: anything that broadcasts to [rows, columns]."""
    rows: Tensor | None = None
    """Tokens, by their index in the flat batch; None: all."""
    columns: slice | Tensor | None = None
    """None: all."""

    def apply(self, x_ND: Tensor, places_N: Tensor | None) -> Tensor:
        """`places` is where each token of the batch is in the block; None: where it is in the batch."""
        values = self.values.to(x_ND.dtype) if isinstance(self.values, Tensor) else self.values
        columns = slice(None) if self.columns is None else self.columns
        if self.rows is None:
            x_ND[:, columns] = values
        else:
            rows = self.rows if places_N is None else places_N[self.rows]
            x_ND[(rows[:, None] if isinstance(columns, Tensor) else rows), columns] = values
        return x_ND


def block_encoder(encoder: Encoder) -> AttentionEncoder:
    """The encoder, if it has blocks to intervene in."""
    if not isinstance(encoder, AttentionEncoder):
        raise UsageError(
            f"{type(encoder).__name__} has no attention blocks to intervene in; use a model with attention, such as "
            "bert"
        )
    return encoder


def without_heads(encoder: Encoder, heads: Iterable[tuple[int, int]]) -> AttentionEncoder:
    """The encoder with the output of these heads, (layer, head) from 1, set to zero (Michel et al. 2019)."""
    return edited(encoder, [Edit("heads", layer, columns=head_columns(encoder, layer, head)) for layer, head in heads])


def head_columns(encoder: Encoder, layer: int, head: int) -> slice:
    """Columns of a head in `heads`."""
    check_head(layer, head, layers=encoder.depth, heads=block_encoder(encoder).heads)
    size = getattr(encoder.config, "size_of_heads", encoder.config.hidden // encoder.heads)
    return slice((head - 1) * size, head * size)


def edited(encoder: Encoder, edits: Iterable[Edit], batch: TokenBatch[Tensor] | None = None) -> AttentionEncoder:
    """The encoder with edits. Those of some rows hold for this batch only, and need it."""
    by_place: dict[tuple[Site, int], list[Edit]] = {}
    for edit in edits:
        if edit.rows is not None and batch is None:
            raise ValueError("edits of some rows need the batch whose rows they are")
        by_place.setdefault((edit.site, edit.layer), []).append(edit)
    places_N = None if batch is None else _places(block_encoder(encoder), batch)

    def put(those: Sequence[Edit], x_ND: Tensor) -> Tensor:
        y_ND = x_ND.clone()
        for edit in those:
            y_ND = edit.apply(y_ND, places_N)
        return y_ND

    whole = batch is not None or any(site == "residual" for site, _ in by_place)
    return tapped(encoder, {place: partial(put, those) for place, those in by_place.items()}, whole=whole)


@torch.inference_mode()
def capture(
    encoder: Encoder, batch: TokenBatch[Tensor], places: Iterable[tuple[Site, int]]
) -> dict[tuple[Site, int], Tensor]:
    """What the blocks compute at these sites and layers, one row for each token of the batch."""
    held: dict[tuple[Site, int], Tensor] = {}

    def keep(place: tuple[Site, int], x_ND: Tensor) -> Tensor:
        held[place] = x_ND
        return x_ND

    tapped(encoder, {place: partial(keep, place) for place in places})(batch)
    places_N = _places(block_encoder(encoder), batch)
    return {place: x_ND if places_N is None else x_ND[places_N] for place, x_ND in held.items()}


def tapped(encoder: Encoder, taps: Mapping[tuple[Site, int], Tap], *, whole: bool = True) -> AttentionEncoder:
    """A view of the encoder whose blocks pass what they compute at these sites and layers through functions.

    `whole`: the functions always get all tokens of a batch; else, where few tokens of the last layer are needed
    (`Encoder.at`), only those.
    """
    view = _copied(block_encoder(encoder))
    whole = whole or isinstance(encoder.__dict__.get("at"), partial)  # edits of an edited encoder
    for name in [name for name in view.__dict__ if callable(getattr(type(view), name, None))]:
        del view.__dict__[name]  # a served encoder passes its calls on to an encoder without the edits
    for site, layer in taps:
        if not (site != "residual") <= layer <= view.depth:
            raise UsageError(f"there is no layer {layer}: the model has layers 1 to {view.depth}")
    blocks = []
    for layer in range(1, view.depth + 1):
        here = {site: tap for (site, at), tap in taps.items() if at == layer}
        block = cast(nn.Module, view.block(layer - 1))
        if here or (layer == 1 and ("residual", 0) in taps):
            block = _tapped(block, here)
        if layer == 1 and ("residual", 0) in taps:
            block.register_forward_pre_hook(partial(_first, taps["residual", 0]))
        blocks.append(block)
    view.blocks = nn.ModuleList(blocks)  # one for each layer, where layers share their weights too
    if whole:
        view.__dict__["at"] = partial(Encoder.at, view)
    return view


def _tapped(block: nn.Module, taps: Mapping[Site, Tap]) -> nn.Module:
    view = _copied(block)
    if hasattr(view, "rows_at_once"):  # a tap gets all rows of a batch
        view.__dict__["rows_at_once"] = None
    for site, tap in taps.items():
        if site == "residual":
            view.register_forward_hook(partial(_output, tap))
            continue
        part, name, is_input = _LINEAR[site]
        owner = _own(view, block, part)
        linear = _own(owner, getattr(block, part), name)
        if is_input:
            linear.register_forward_pre_hook(partial(_first, tap))
        else:
            linear.register_forward_hook(partial(_output, tap))
    return view


def _own(view: nn.Module, whole: nn.Module, name: str) -> nn.Module:
    """A part of a view that is a view itself; made if the view still has the part of the whole."""
    part = cast(nn.Module, getattr(view, name))
    if part is getattr(whole, name):
        part = _copied(part)
        setattr(view, name, part)
    return part


def _first(tap: Tap, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tap(inputs[0]), *inputs[1:]


def _output(tap: Tap, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    return tap(output)


def _copied(module: M) -> M:
    """The module with hooks and a list of parts of its own, and the same weights."""
    view = copy.copy(module)
    for name in ("_modules", "_forward_hooks", "_forward_pre_hooks"):
        view.__dict__[name] = copy.copy(module.__dict__[name])
    return view


def _places(encoder: AttentionEncoder, batch: TokenBatch[Tensor]) -> Tensor | None:
    """[N] where each token of the batch is in the blocks; None if the order is the same."""
    order_N = encoder.layout(batch.lengths).arrange(torch.arange(batch.size, device=batch.ids.device))
    places_N = torch.empty_like(order_N)
    places_N[order_N] = torch.arange(batch.size, device=order_N.device)
    return None if bool((places_N[1:] > places_N[:-1]).all()) else places_N
