"""Convert model directories from one layout to another: ours, and those of Hugging Face.

    result = convert_bundle("runs/mine", Path("as-bert"), to="bert")
    result.kept, result.left_out                            # heads that the layout has a place for, and others

The encoder must fit the layout completely, or nothing is written. A head may be left out, and the result reports it.
Weights do not change, except for the precision if another one is requested; for int8 (`weight_files.py`) the result
reports how much they change.
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
from larvatus.core.run_identity import VERSION
from larvatus.models.bundle.card import figures_section, with_figures
from larvatus.models.bundle.claims import Claim, claim_dicts, read_claims
from larvatus.models.bundle.directory import (
    CONFIG,
    Bundle,
    check_model_directory,
    load_bundle,
    weights_name,
    write_bundle,
)
from larvatus.models.bundle.huggingface import (
    LAYOUTS,
    Architecture,
    ModelLayout,
    Native,
    get_layout,
    layout_for,
    stated_architecture,
    unsupported_reason,
)
from larvatus.models.bundle.partial_updates import read_card, store_adapter
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
"""Commands whose claims stay true for rounded weights: how they were trained, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class ConversionResult:
    """Description of the written directory."""

    path: Path
    layout: str
    architecture: str
    """The class of `transformers` that loads it."""
    dtype: Precision
    kept: tuple[str, ...]
    """Heads that were written."""
    left_out: tuple[str, ...]
    fits: tuple[str, ...]
    """Layouts that can express the encoder, including this one."""
    unused: tuple[str, ...]
    """Tensors of the source that no model of ours has a place for."""
    bytes: int
    reconstruction: Reconstruction | None = None
    """For int8: how far the stored weights are from those of the source."""

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
    """Read a directory or hub model and write it in the layout `to`; None chooses the one that fits best.

    `overwrite` allows replacing the files of a model in `out`. `card` is its README.md; None takes that of the source
    and adds what was done.
    """
    check_model_directory(out, overwrite=overwrite, inputs=[source])
    requested = get_layout(to) if to is not None else None
    if dtype not in PRECISIONS:
        raise UsageError(f"dtype {dtype!r} is not one of {', '.join(PRECISIONS)}")
    bundle = load_bundle(source, revision=revision, online=online)
    check_model_directory(out, overwrite=overwrite, inputs=[bundle.path])  # for a hub model, its directory in the cache
    architecture = bundle.architecture
    pad = bundle.tokenizer.padding_id
    layout = requested or layout_for(architecture, pad=pad, vocabulary=bundle.tokenizer.kind)
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
    if bundle.adapter is not None:
        store_adapter(out, bundle.adapter, dtype="float16" if dtype == "bfloat16" else dtype)
    config = layout.config(stated_architecture(converted.architecture), pad=pad)
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


def fitting_heads(
    layout: ModelLayout, architecture: Architecture, *, pad: int | None
) -> tuple[ObjectiveConfig, ...] | None:
    """The largest set of heads with which a layout can express a model; None if it cannot express the encoder."""
    return next(
        (
            heads
            for heads in _fewer(architecture.objectives)
            if unsupported_reason(layout, msgspec.structs.replace(architecture, objectives=heads), pad=pad) is None
        ),
        None,
    )


def _fewer(heads: tuple[ObjectiveConfig, ...]) -> Iterator[tuple[ObjectiveConfig, ...]]:
    for count in range(len(heads), -1, -1):
        yield from itertools.combinations(heads, count)


def _refused(layout: ModelLayout, architecture: Architecture, *, pad: int | None, source: Path) -> str:
    """Why the encoder does not fit, and which layouts it fits."""
    why = unsupported_reason(layout, _alone(architecture), pad=pad)
    fit = ", ".join(_fitting(architecture, pad=pad))
    return f"{source} cannot be written in the layout {layout.model_type}: {why}; it fits {fit}"


def _fitting(architecture: Architecture, *, pad: int | None) -> tuple[str, ...]:
    return tuple(
        layout.model_type for layout in LAYOUTS if unsupported_reason(layout, _alone(architecture), pad=pad) is None
    )


def _alone(architecture: Architecture) -> Architecture:
    return msgspec.structs.replace(architecture, objectives=())


def _claims(bundle: Bundle, *, left_out: tuple[str, ...], rounded: bool) -> list[Claim]:
    """Claims that still hold for the converted model; the number of weights changes if a head is left out.

    Nothing was measured on rounded weights yet, so only claims about their training remain.
    """
    claims = read_claims(bundle.claims, bundle.path)
    kept = [claim for claim in claims if not (left_out and claim.command == "model")]
    if rounded:
        kept = [claim for claim in kept if claim.command in UNROUNDED]
    return [msgspec.structs.replace(claim, model="") for claim in kept]


def _card(bundle: Bundle, claims: Sequence[Claim], note: dict[str, Any], *, name: str) -> str:
    """The source's card, which states training data and licence, and what the conversion did."""
    card = read_card(bundle) or f"# {name}\n"
    card = with_figures(card, claims) if figures_section(card) is not None else card
    native = note["layout"] == Native.model_type
    before, after = ("transformers", "larvatus") if native else ("larvatus", "transformers")
    card = card.replace(f"\nlibrary_name: {before}\n", f"\nlibrary_name: {after}\n", 1)  # in the front matter
    loads = "Only Larvatus loads it" if native or note["dtype"] == "int8" else "`transformers` loads it too"
    heads = f" without its head for {', '.join(note['left_out'])}" if note["left_out"] else ""
    return (
        f"{card.rstrip()}\n\n## Converted\n\nBy Larvatus {VERSION} from `{note['from']}`, of which the card above "
        f"speaks, to the layout `{note['layout']}` in {note['dtype']}{heads}. {loads}.\n"
    )
