"""Contextual vectors (chapter §11.3): one `Vectors` for each text, in the order of the texts.

    for vectors in embed_texts(encoder, tokenizer, texts, EmbedOptions(unit="word", layers="last4")):
        vectors.units, vectors.vectors             # ('The', 'bank', 'of', …), and a vector for each

Texts go through the encoder in batches of nearly equal length under a budget of tokens, unpadded; only the layers that
are used are computed. A text longer than the model's window is read in several (`plan.py`); nothing is truncated.

A static model gives the mean row of each text (`embed_static`), many thousand texts a second: the same numbers as the
general way, with less work for each text. It has no contexts, so it has vectors of whole texts only: other units,
layers and poolings are refused. B texts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from larvatus.core import notebook
from larvatus.core.arrays import Floats, Integers, Ints
from larvatus.core.batch import NO_WORD, TokenBatch, edges, ranges, runs
from larvatus.core.errors import UsageError
from larvatus.core.tables import Tabular
from larvatus.data.text.align import join_words
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.vectors.layers import PARTS, LayerWeights, Unit, layers_label, layers_name
from larvatus.inference.vectors.plan import EncodedUnits, PoolingPlan, Spans, Text, check_texts, encode_units, make_plan
from larvatus.inference.vectors.pooling import EmbedOptions
from larvatus.models.heads.embedding import Embedding
from larvatus.models.nn.device import check_bf16, forward_budget, on_device
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.static import TokenTable

_SHOWN = 12


@dataclass(frozen=True, eq=False, repr=False)
class Vectors(Tabular):
    """The U units of one text, in order of the text (spans in the order given)."""

    text: str
    unit: Unit
    spans: Ints
    """[U, 2] characters of each unit in `text`."""
    vectors: Floats
    """[U, D], or [layers + 1, U, D] for all layers. Units in `missing` are NaN."""
    tokens: int
    """Tokens of the text, all of which were read …"""
    windows: int
    """… in this many windows."""
    layers: str = "last"
    """Layers that the vectors are of."""

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def array(self) -> Floats:
        """The vectors as an array: like `vectors`, but [D] for a sentence or document."""
        whole: Floats = self.vectors if self.unit in PARTS else self.vectors[..., 0, :]
        return whole

    @property
    def units(self) -> tuple[str, ...]:
        """The text of each unit."""
        return tuple(self.text[start:end] for start, end in self.spans.tolist())

    @property
    def missing(self) -> tuple[int, ...]:
        """Units without a vector: the vocabulary deletes all their characters (a lone accent, a control)."""
        column = self.vectors[..., 0] if self.vectors.ndim == 2 else self.vectors[0, :, 0]
        return tuple(np.flatnonzero(np.isnan(column)).tolist())

    def _repr_html_(self) -> str:
        top = self.vectors if self.vectors.ndim == 2 else self.vectors[-1]
        rows = [
            (text, *(f"{number:.3f}" for number in vector[:4].tolist()), "…")
            for text, vector in zip(self.units, top, strict=True)
        ]
        shape = " × ".join(map(str, self.vectors.shape))
        return notebook.table((self.unit, "1", "2", "3", "4", ""), rows, note=f"{shape}, {self.tokens:,} tokens read")

    def to_dict(self) -> dict[str, Any]:
        """For JSON: a missing vector is None."""
        missing = set(self.missing)
        by_unit = self.vectors if self.vectors.ndim == 2 else self.vectors.swapaxes(0, 1)
        return {
            "text": self.text,
            "unit": self.unit,
            "layers": self.layers,
            "tokens": self.tokens,
            "windows": self.windows,
            "units": [
                {"text": text, "start": start, "end": end, "vector": None if index in missing else vector.tolist()}
                for index, (text, (start, end), vector) in enumerate(
                    zip(self.units, self.spans.tolist(), by_unit, strict=True)
                )
            ],
        }

    def to_dicts(self) -> list[dict[str, Any]]:
        """A row for each unit; `vector` is a list (a list of lists for all layers), or None if it is missing."""
        return list(self.to_dict()["units"])

    def __str__(self) -> str:
        shape = " × ".join(map(str, self.vectors.shape))
        read = f"{self.tokens:,} tokens read" + (f" in {self.windows:,} windows" if self.windows > 1 else "")
        read += "" if self.layers == "last" else f" · {layers_label(self.layers)}"
        lines = [f"{len(self):,} {self.unit}{'s' if len(self) != 1 else ''} · {shape} · {read}"]
        top = self.vectors if self.vectors.ndim == 2 else self.vectors[-1]
        for text, vector in zip(self.units[:_SHOWN], top, strict=False):
            some = " ".join(f"{number:7.3f}" for number in vector[:4].tolist())
            lines.append(f"  {_short(text):<20}  {some} …")
        return "\n".join([*lines, *(["  …"] if len(self) > _SHOWN else [])])

    def __repr__(self) -> str:
        return f"<Vectors of {len(self):,} × {self.unit}, {' × '.join(map(str, self.vectors.shape))}>"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 20 else line[:19] + "…"


# Static models.


def check_static(options: EmbedOptions) -> None:
    """Refuse what a table of tokens does not have."""
    if options.unit in PARTS:
        raise UsageError(
            f"a static model has vectors of texts, not of a {options.unit} in its context; use unit sentence or "
            "document, or the model that it was distilled from"
        )
    if options.layers != "last" or options.pool != "mean" or options.standardise is not None:
        raise UsageError("a static model has one layer, whose mean is a text; leave out layers, pool and standardise")


def static_matrix(
    table: TokenTable, tokenizer: Tokenizer, texts: Sequence[Text], options: EmbedOptions, head: Embedding | None
) -> Floats:
    """The vectors of the texts, a row for each: [B, size]."""
    ids, lengths = tokenizer.encode_lengths(_plain(texts))
    return mean_rows(table, ids, lengths, options, head)


def embed_static(
    table: TokenTable, tokenizer: Tokenizer, texts: Sequence[Text], options: EmbedOptions, head: Embedding | None
) -> Iterator[Vectors]:
    """The vectors of each text."""
    plain = _plain(texts)
    ids, lengths = tokenizer.encode_lengths(plain)
    vectors_BD = mean_rows(table, ids, lengths, options, head)
    ends_B = np.fromiter(map(len, plain), np.int64, len(plain))
    spans_B12 = np.stack([np.zeros_like(ends_B), ends_B], axis=1)[:, None]
    for number, (text, count) in enumerate(zip(plain, lengths.tolist(), strict=True)):
        yield Vectors(
            text=text,
            unit=options.unit,
            spans=spans_B12[number],
            vectors=vectors_BD[number : number + 1],
            tokens=count,
            windows=1,
        )


def _plain(texts: Sequence[Text]) -> list[str]:
    return [text if isinstance(text, str) else join_words(text)[0] for text in texts]


@torch.inference_mode()
def mean_rows(table: TokenTable, ids: Integers, lengths: Ints, options: EmbedOptions, head: Embedding | None) -> Floats:
    """The vector of each text from its tokens, texts end to end: [B, size]; NaN for a text without tokens."""
    starts_B = torch.from_numpy(edges(lengths)[:-1]).to(table.device)
    x_BD = table.means(torch.from_numpy(ids.astype(np.int64)).to(table.device), starts_B)
    if options.projected and head is not None:
        x_BD = head.project(x_BD)
    if options.normalise:
        x_BD = torch.nn.functional.normalize(x_BD, dim=-1)
    x_BD[torch.from_numpy(lengths == 0).to(table.device)] = torch.nan
    vectors: Floats = x_BD.cpu().numpy()
    return vectors


# Encoders.

TEXTS_AT_ONCE = 8_192
CHARACTERS_AT_ONCE = 1 << 20
"""Most characters that are tokenised, sorted and pooled together."""


def embed_texts(
    encoder: Encoder,
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    options: EmbedOptions | None = None,
    *,
    spans: Sequence[Spans] | None = None,
    head: Embedding | None = None,
) -> Iterator[Vectors]:
    """The vectors of each text, computed lazily, some thousand texts at a time.

    `spans` gives (start, end) in characters for unit "span"; without it, the texts mark them with stars. `head` has the
    linear layers of a sentence encoder, for options that are `projected`.
    """
    options = options or EmbedOptions()
    mix = _checked_layers(encoder, texts, options, head)
    if spans is not None and len(spans) != len(texts):
        raise UsageError(f"{len(texts)} texts, but spans of {len(spans)}; give a list of spans for each text")
    return _embed(encoder, tokenizer, texts, options, mix, spans, head)


def embed_matrix(
    encoder: Encoder,
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    options: EmbedOptions,
    *,
    head: Embedding | None = None,
) -> Floats | None:
    """Vectors of whole texts, a row for each: [n, D], or [n, layers + 1, D] for all layers; None without texts."""
    if not isinstance(encoder, TokenTable):
        arrays = [vectors.array for vectors in embed_texts(encoder, tokenizer, texts, options, head=head)]
        return np.stack(arrays) if arrays else None
    _checked_layers(encoder, texts, options, head)
    chunks = [static_matrix(encoder, tokenizer, texts[a:b], options, head) for a, b in _chunks(texts)]
    return np.concatenate(chunks) if chunks else None


def _checked_layers(
    encoder: Encoder, texts: Sequence[Text], options: EmbedOptions, head: Embedding | None
) -> LayerWeights:
    """The layers that are used; options that do not fit the encoder, and inputs that are no text, are refused."""
    if isinstance(encoder, TokenTable):
        check_static(options)
    mix = LayerWeights.read(options.layers, layers=encoder.depth)
    if options.precision == "bf16":
        check_bf16(encoder.device.type)
    check_texts(texts)
    if options.projected and head is None:
        raise UsageError("the model has no linear layers for sentences")
    return mix


def _embed(
    encoder: Encoder,
    tokenizer: Tokenizer,
    texts: Sequence[Text],
    options: EmbedOptions,
    mix: LayerWeights,
    spans: Sequence[Spans] | None,
    head: Embedding | None,
) -> Iterator[Vectors]:
    template = tokenizer.template.single
    for first, last in _chunks(texts):
        if isinstance(encoder, TokenTable):
            yield from embed_static(encoder, tokenizer, texts[first:last], options, head)
            continue
        chosen = None if spans is None else spans[first:last]
        encoded = encode_units(tokenizer, texts[first:last], options.unit, chosen, before=first)
        size = encoder.reach
        made = make_plan(encoded, pool=options.pool, size=size, overlap=options.overlap, template=template)
        vectors = run_plan(encoder, made, mix, options, head if options.projected else None)
        yield from _results(encoded, made, vectors, options)


def _chunks(texts: Sequence[Text]) -> Iterator[tuple[int, int]]:
    sizes = np.array([len(text) if isinstance(text, str) else sum(map(len, text)) for text in texts], dtype=np.int64)
    for first, last in runs(sizes, CHARACTERS_AT_ONCE):
        for start in range(first, last, TEXTS_AT_ONCE):
            yield start, min(last, start + TEXTS_AT_ONCE)


@torch.inference_mode()
def run_plan(
    encoder: Encoder, made: PoolingPlan, mix: LayerWeights, options: EmbedOptions, head: Embedding | None = None
) -> Floats:
    """Vectors of all units of a plan: [U, D], or [layers + 1, U, D] for a stack; NaN for units without a token."""
    device = encoder.device
    stack = (len(mix.weights),) if mix.stacked else ()
    start = -torch.inf if options.pool == "max" else 0.0
    out = torch.full((*stack, made.total, encoder.width), start, device=device)
    budget = options.tokens or forward_budget(device)
    borders = edges(made.lengths)
    for first, last in runs(made.lengths, budget):
        low, high = int(borders[first]), int(borders[last])
        batch = _batch(made.ids[low:high], made.lengths[first:last])
        limit = int(made.lengths[last - 1])
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            states: list[Tensor] = encoder(on_device(batch, device), layers=mix.layers, limit=limit)
        triples = slice(*np.searchsorted(made.rows, [low, high]).tolist())
        _pool(out, mix.mix(states), made, triples, low, maximum=options.pool == "max")
    if options.standardise is not None:
        out = options.standardise.apply(out, mix)
    if head is not None:
        out = head.project(out)
    if options.normalise:
        out = torch.nn.functional.normalize(out, dim=-1)
    out[..., torch.from_numpy(made.empty).to(device), :] = torch.nan
    vectors: Floats = out.cpu().numpy()
    return vectors


def _batch(ids: Ints, lengths: Ints) -> TokenBatch[Ints]:
    """One sequence for each window. The encoder does not need the words of tokens; the plan has them."""
    positions = ranges(lengths)
    nothing = np.zeros_like(positions)
    return TokenBatch(ids=ids, lengths=lengths, positions=positions, segments=nothing, words=nothing + NO_WORD)


def _pool(out: Tensor, z: Tensor, made: PoolingPlan, triples: slice, low: int, *, maximum: bool) -> None:
    """Add the states z [N, D] of a batch (or a stack of them) to its units; `low` is its first row."""
    rows, units, weights = (
        torch.from_numpy(array[triples]).to(out.device) for array in (made.rows, made.units, made.weights)
    )
    chosen = z.index_select(-2, rows - low)
    if maximum:
        index = units[:, None].expand(chosen.shape)
        out.scatter_reduce_(-2, index, chosen, "amax")
    else:
        out.index_add_(-2, units, chosen * weights[:, None])


def _results(
    encoded: Sequence[EncodedUnits], made: PoolingPlan, vectors: Floats, options: EmbedOptions
) -> Iterator[Vectors]:
    borders = edges(np.array([len(text.places) for text in encoded], dtype=np.int64)).tolist()
    ends = iter(zip(borders, islice(borders, 1, None), strict=False))
    for text, (first, last), count in zip(encoded, ends, made.windows.tolist(), strict=True):
        yield Vectors(
            text=text.text,
            unit=options.unit,
            spans=text.spans,
            vectors=vectors[..., first:last, :],
            tokens=len(text.ids),
            windows=count,
            layers=layers_name(options.layers),
        )
