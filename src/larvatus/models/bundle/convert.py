"""From one layout of model directories to another: ours, and those of Hugging Face.

    done = convert_bundle("runs/mine", Path("as-bert"), to="bert")
    done.kept, done.left_out                                # heads that the layout has a place for, and others

The encoder must fit the layout whole, or nothing is written. A head may be left out, which is said. Numbers never
change, but for their precision where another one is asked for; in int8 (`int8_file.py`) how much they change is said.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from larvatus.core import files
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.regular_files import cached_blob
from larvatus.core.version import VERSION
from larvatus.models.bundle.card import figures_section, with_figures
from larvatus.models.bundle.claims import Claim, claim_dicts, read_claims
from larvatus.models.bundle.directory import (
    CONFIG,
    Bundle,
    check_model_directory,
    load_bundle,
    read_card,
    weights_name,
    write_bundle,
)
from larvatus.models.bundle.huggingface import LAYOUTS, Architecture, Layout, layout_for, layout_named, refusal
from larvatus.models.bundle.huggingface.native import Native
from larvatus.models.bundle.weight_files import Reconstruction
from larvatus.models.bundle.weights import find_weights
from larvatus.models.network import ObjectiveConfig, tag

Precision = Literal["float32", "bfloat16", "float16", "int8"]
PRECISIONS: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "int8": torch.int8,
}
UNROUNDED = ("model", "pretrain", "finetune", "energy", "corpus")
"""Commands whose claims hold of rounded weights too: what went into them, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class ConversionResult:
    """What was written."""

    path: Path
    layout: str
    architecture: str
    """The class of `transformers` that loads it."""
    dtype: Precision
    kept: tuple[str, ...]
    """Heads."""
    left_out: tuple[str, ...]
    fits: tuple[str, ...]
    """Layouts that can express the encoder, this one among them."""
    unused: tuple[str, ...]
    """Tensors of the source that no model of ours has a place for."""
    bytes: int
    reconstruction: Reconstruction | None = None
    """Of int8: how far the weights that are read back are from those of the source."""

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "path": str(self.path)}


def convert_bundle(
    source: str | Path,
    out: Path,
    *,
    to: str | None = None,
    dtype: Precision = "float32",
    revision: str | None = None,
    online: bool = False,
    overwrite: bool = False,
    card: str | None = None,
) -> ConversionResult:
    """Read any directory or hub model that loads and write it in the layout `to`; None: the one that fits best.

    `overwrite`: files of a model that stand in `out` may be replaced. `card`: its README.md; None: that of the source,
    and what was done.
    """
    check_model_directory(out, overwrite=overwrite, inputs=[source])
    asked = layout_named(to) if to is not None else None
    if dtype not in PRECISIONS:
        raise UsageError(f"dtype {dtype!r} is not one of {', '.join(PRECISIONS)}")
    bundle = load_bundle(source, revision=revision, online=online)
    check_model_directory(out, overwrite=overwrite, inputs=[bundle.path])  # a model of the hub, by where it lies
    architecture = bundle.architecture
    pad = bundle.tokenizer.padding_id
    layout = asked or layout_for(architecture, pad=pad, vocabulary=bundle.tokenizer.kind)
    kept = fitting_heads(layout, architecture, pad=pad)
    if kept is None:
        raise ArtefactError(_refused(layout, architecture, pad=pad, source=bundle.path))
    left_out = tuple(tag(config) for config in bundle.objectives if config not in kept)
    note = {
        "from": os.fspath(source),
        "revision": bundle.path.name if cached_blob(bundle.path / CONFIG) else None,
        "layout": layout.model_type,
        "dtype": dtype,
        "left_out": list(left_out),
        "weights": {path.name: files.sha256(path) for path in find_weights(bundle.path)},
    }
    claims = _claims(bundle, left_out=left_out, rounded=dtype == "int8")
    converted = dataclasses.replace(
        bundle, objectives=kept, lineage={**bundle.lineage, "converted": note}, claims=claim_dicts(claims)
    )
    card = _card(bundle, claims, note, name=out.name) if card is None else card
    write_bundle(out, converted, layout=layout, dtype=PRECISIONS[dtype], card=card)
    config = layout.config(converted.architecture, pad=pad)
    return ConversionResult(
        path=out,
        layout=layout.model_type,
        architecture=config["architectures"][0],
        dtype=dtype,
        kept=tuple(tag(config) for config in kept),
        left_out=left_out,
        fits=_fitting(architecture, pad=pad),
        unused=bundle.unused,
        bytes=(out / weights_name(PRECISIONS[dtype])).stat().st_size,
        reconstruction=Reconstruction.of(bundle.network.own_state(), load_bundle(out).network.own_state())
        if dtype == "int8"
        else None,
    )


def fitting_heads(layout: Layout, architecture: Architecture, *, pad: int | None) -> tuple[ObjectiveConfig, ...] | None:
    """The most heads with which a layout can express a model; None where it cannot express the encoder alone."""
    return next(
        (
            heads
            for heads in _fewer(architecture.objectives)
            if refusal(layout, msgspec.structs.replace(architecture, objectives=heads), pad=pad) is None
        ),
        None,
    )


def _fewer(heads: tuple[ObjectiveConfig, ...]) -> Iterator[tuple[ObjectiveConfig, ...]]:
    for count in range(len(heads), -1, -1):
        yield from itertools.combinations(heads, count)


def _refused(layout: Layout, architecture: Architecture, *, pad: int | None, source: Path) -> str:
    """Why the encoder does not fit, and which layouts it does fit."""
    why = refusal(layout, _alone(architecture), pad=pad)
    fit = ", ".join(_fitting(architecture, pad=pad))
    return f"{source} cannot be written in the layout {layout.model_type}: {why}; it fits {fit}"


def _fitting(architecture: Architecture, *, pad: int | None) -> tuple[str, ...]:
    return tuple(layout.model_type for layout in LAYOUTS if refusal(layout, _alone(architecture), pad=pad) is None)


def _alone(architecture: Architecture) -> Architecture:
    return msgspec.structs.replace(architecture, objectives=())


def _claims(bundle: Bundle, *, left_out: tuple[str, ...], rounded: bool) -> list[Claim]:
    """The figures go with the numbers; how many there are changes where a head is left out.

    Of rounded numbers nothing was measured yet: what remains is how they came about.
    """
    claims = read_claims(bundle.claims, bundle.path)
    kept = [claim for claim in claims if not (left_out and claim.command == "model")]
    if rounded:
        kept = [claim for claim in kept if claim.command in UNROUNDED]
    return [msgspec.structs.replace(claim, model="") for claim in kept]


def _card(bundle: Bundle, claims: Sequence[Claim], note: dict[str, Any], *, name: str) -> str:
    """The source's card, which says what the model has read and under which licence, and what was done here."""
    card = read_card(bundle) or f"# {name}\n"
    card = with_figures(card, claims) if figures_section(card) is not None else card
    native = note["layout"] == Native.model_type
    before, after = ("transformers", "larvatus") if native else ("larvatus", "transformers")
    card = card.replace(f"\nlibrary_name: {before}\n", f"\nlibrary_name: {after}\n", 1)  # of the front matter
    loads = "Larvatus alone loads it" if native or note["dtype"] == "int8" else "`transformers` loads it too"
    heads = f" without its head for {', '.join(note['left_out'])}" if note["left_out"] else ""
    return (
        f"{card.rstrip()}\n\n## Converted\n\nBy Larvatus {VERSION} from `{note['from']}`, of which the card above "
        f"speaks, to the layout `{note['layout']}` in {note['dtype']}{heads}. {loads}.\n"
    )
