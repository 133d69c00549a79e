"""A model as one ONNX file, for other programs to run: padded sequences in, vectors or scores out.

    difference = write_onnx(bundle.network, Path("model.onnx"), output="vectors")

The inputs are `input_ids`, `attention_mask` and `token_type_ids`, [batch, length] of int64, with both dimensions free.
The output is `vectors` [batch, length, hidden] of the last layer, or `logits`: those of the head of a fine-tuned model,
else of every word of the vocabulary at every position. A file is compared with the flat network before it is saved.

ONNX has no flat batches, so `PaddedEncoder` runs the transformer on padded sequences with the same weights:

    states_BLD = PaddedEncoder(encoder)(ids_BL, mask_BL, segments_BL)

It gives the same numbers at every token; those at padding mean nothing. Sequences shorter than the longest of their
batch are computed to its length. B sequences of L positions, H heads, K size of a head.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TokenBatch, edges, ranges
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.models.heads.head import Head
from larvatus.models.network import Network
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.layout import AttentionMask
from larvatus.models.nn.encoder_base import Encoder
from larvatus.models.nn.transformer import Transformer
from larvatus.models.objectives import MaskedLM


class PaddedEncoder(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        if not isinstance(encoder, Transformer):
            raise UsageError(
                f"a {type(encoder).__name__} has no padded form to export; bidirectional transformers such as bert have"
            )
        self.encoder = encoder

    def forward(self, ids_BL: Tensor, mask_BL: Tensor, segments_BL: Tensor) -> Tensor:
        """[B, L] ids, 1 at tokens and 0 at padding, segments → [B, L, D]."""
        count, length = ids_BL.shape
        positions_N = torch.arange(length, device=ids_BL.device).expand(count, -1).reshape(-1)
        batch = TokenBatch(
            ids=ids_BL.reshape(-1),
            lengths=mask_BL.sum(1),
            positions=positions_N,
            segments=segments_BL.reshape(-1),
            words=positions_N,
        )
        x_ND: Tensor = self.encoder.embeddings(batch)
        masks = self.encoder.attention_masks(positions_N, longest=length)
        for layer, mask in enumerate(masks):
            block = self.encoder.block(layer)
            x_ND = block.through(x_ND, partial(_attend, block.attention, mask, visible_mask(mask_BL, mask)))
        z_BLD: Tensor = self.encoder.final_norm(x_ND).reshape(count, length, -1)
        return z_BLD


def visible_mask(mask_BL: Tensor, mask: AttentionMask) -> Tensor:
    """Mask that is added to the scores, [B, 1 or H, 1 or L, L]: so low where masked that no weight is left."""
    seen = mask_BL[:, None, None, :] > 0
    if mask.window:
        places_L = torch.arange(mask_BL.shape[1], device=mask_BL.device)
        seen = seen & ((places_L[:, None] - places_L[None, :]).abs() <= mask.window)
    low = torch.finfo(torch.float32).min
    added = torch.where(seen, 0.0, low)
    return added if mask.bias is None else added + mask.bias


def _attend(attention: Attention, mask: AttentionMask, added: Tensor, x_ND: Tensor) -> Tensor:
    count, length = added.shape[0], added.shape[3]
    qkv_N3HK = attention.project(x_ND, mask)
    q, k, v = qkv_N3HK.reshape(count, length, 3, attention.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    y_BHLK = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    out_ND: Tensor = attention.out(y_BHLK.transpose(1, 2).reshape(count * length, -1))
    return out_ND


Output = Literal["vectors", "logits"]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NEEDED = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-3
"""Largest difference from torch, relative to the largest value (at least 1)."""
OPSET = 18
MOST_PADDED, FEWEST = 1.2, 256
"""How many times its tokens a padded batch may have, and the fewest tokens that make a separate batch worthwhile."""
_LENGTHS = (3, 17, 9, 32, 1)
"""Lengths of the sequences that a file is tested on, cut to what the model reads."""


def check_onnx() -> None:
    """Refuse if the extra is not installed."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UsageError(f"ONNX needs {' and '.join(missing)}; install the extra: pip install 'larvatus[onnx]'")


class _ExportedModel(nn.Module):
    """The computation of the file."""

    def __init__(self, network: Network, output: Output) -> None:
        super().__init__()
        self.padded = PaddedEncoder(network.encoder)
        self.head = find_scorer(network) if output == "logits" else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        z_BLD: Tensor = self.padded(input_ids, attention_mask, token_type_ids)
        if self.head is None:
            return z_BLD
        if isinstance(self.head, MaskedLM):
            return self.head.logits(z_BLD, self.padded.encoder.word_vectors)
        return self.head.padded_logits(z_BLD, attention_mask)


def find_scorer(network: Network) -> Head | MaskedLM | None:
    """The module that gives scores: the head of a fine-tuned model, or masked-lm."""
    heads = list(network.objectives.values())
    tuned = next((head for head in heads if isinstance(head, Head)), None)
    return tuned or next((head for head in heads if isinstance(head, MaskedLM)), None)


@torch.no_grad()
def write_onnx(network: Network, path: Path, *, output: Output) -> float:
    """Write the file and return the largest difference from torch; a file that differs too much is refused."""
    check_onnx()
    if output == "logits" and find_scorer(network) is None:
        raise UsageError("the model has no head that gives scores; export its vectors: --output vectors")
    heads = [name for name, head in network.heads.items() if isinstance(head, Head)]
    if output == "logits" and len(heads) > 1:
        way = "save a model of one task: lv.load(DIR).for_task(NAME).save(OTHER)"
        raise UsageError(f"a file has the scores of one head, and the model has {', '.join(heads)}; {way}")
    model = _ExportedModel(network, output).eval()
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in INPUTS)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with quiet_export():
        torch.onnx.export(
            model, example, path, input_names=list(INPUTS), output_names=[output], opset_version=OPSET,
            dynamic_shapes=(free,) * len(INPUTS), external_data=False, dynamo=True, verbose=False, optimize=True,
        )  # fmt: skip
    difference, largest = _difference(network, model, path)
    if not difference <= TOLERANCE * max(1.0, largest):
        raise ArtefactError(f"the exported model differs from torch by {difference:.1e}; it was not saved")
    return difference


def open_session(path: Path | bytes) -> Any:
    """A session that runs the file, on as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # leave the cores to other programs while idle
    source = path if isinstance(path, bytes) else str(path)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def similar_lengths(lengths_B: Ints) -> Iterator[Ints]:
    """Groups of sequences to pad together: of similar length, so that padding adds little, or few in number."""
    order = np.argsort(lengths_B, kind="stable")
    first = tokens = 0
    for place, length in enumerate(lengths_B[order].tolist()):
        if tokens >= FEWEST and length * (place - first + 1) > MOST_PADDED * (tokens + length):
            yield order[first:place]
            first, tokens = place, 0
        tokens += length
    yield order[first:]


def run_flat(session: Any, batch: TokenBatch[Ints]) -> Floats:
    """The vectors of a flat batch, from a file that gives vectors: [N, D]."""
    starts = edges(batch.lengths)[:-1]
    out: Floats | None = None
    for chosen in similar_lengths(batch.lengths):
        lengths = batch.lengths[chosen]
        rows = np.repeat(starts[chosen], lengths) + ranges(lengths)
        part = dataclasses.replace(batch, ids=batch.ids[rows], segments=batch.segments[rows], lengths=lengths)
        inputs = padded_inputs(part)
        padded: Floats = session.run(None, inputs)[0]
        out = np.empty((batch.size, padded.shape[-1]), np.float32) if out is None else out
        out[rows] = padded[inputs[INPUTS[1]] > 0]
    assert out is not None
    return out


def padded_inputs(batch: TokenBatch[Ints]) -> dict[str, Ints]:
    """A flat batch as the padded inputs of the file."""
    mask = np.arange(int(batch.lengths.max(initial=1))) < batch.lengths[:, None]
    ids, segments = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.int64)
    ids[mask], segments[mask] = batch.ids, batch.segments
    return dict(zip(INPUTS, (ids, mask.astype(np.int64), segments), strict=True))


def _difference(network: Network, model: _ExportedModel, path: Path) -> tuple[float, float]:
    """Largest difference at tokens between the file and the network on flat batches; and the largest value."""
    reach, words = network.encoder.reach, len(network.encoder.word_vectors)
    draw = np.random.default_rng(0)
    sequences = [draw.integers(0, words, min(length, reach)).tolist() for length in _LENGTHS]
    batch = TokenBatch.of(sequences)
    inputs = padded_inputs(batch)
    given: Floats = open_session(path).run(None, inputs)[0]
    mask = inputs[INPUTS[1]] > 0
    flat = batch.map(torch.from_numpy)
    z_ND: Tensor = network.encoder(flat)
    if isinstance(model.head, Head):  # it pools over padded sequences in its own way
        z_BLD = z_ND.new_zeros(*mask.shape, z_ND.shape[1])
        z_BLD[torch.from_numpy(mask)] = z_ND
        wanted = model.head.padded_logits(z_BLD, torch.from_numpy(mask.astype(np.int64)))
    else:
        wanted = z_ND if model.head is None else model.head.logits(z_ND, network.encoder.word_vectors)
    if given.ndim == 3:
        given = given[mask]
        wanted = wanted[torch.from_numpy(mask)] if wanted.ndim == 3 else wanted
    return float(np.abs(given - wanted.numpy()).max()), float(wanted.abs().max())


@contextmanager
def quiet_export() -> Iterator[None]:
    """Silence the exporter's progress and deprecation messages, which do not concern the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
