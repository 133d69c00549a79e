"""A model as one ONNX file, for programs that run those: padded sequences in, vectors or scores out.

    difference = write_onnx(bundle.network, Path("model.onnx"), output="vectors")

Inputs `input_ids`, `attention_mask` and `token_type_ids`, [batch, length] of int64, both dimensions free. The output is
`vectors` [batch, length, hidden] of the last layer, or `logits`: of the head of a fine-tuned model, else of every word
of the vocabulary at every place. A file is held against the flat network before anyone sees it.

A transformer over padded sequences, with the weights of one that reads flat batches: for ONNX, which has no others.

    states_BLD = PaddedEncoder(encoder)(ids_BL, mask_BL, segments_BL)

The same numbers at every token; what stands at padding means nothing. It costs what padding costs: sequences shorter
than the longest of their batch are computed to its length.
B sequences of L places, H heads, K size of a head.
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
from larvatus.models.nn.attention.attention_mask import AttentionMask
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
        sights = self.encoder.sights(positions_N, longest=length)
        for layer, sight in enumerate(sights):
            block = self.encoder._block(layer)
            x_ND = block.through(x_ND, partial(_attend, block.attention, sight, _seen(mask_BL, sight)))
        z_BLD: Tensor = self.encoder.final_norm(x_ND).reshape(count, length, -1)
        return z_BLD


def _seen(mask_BL: Tensor, sight: AttentionMask) -> Tensor:
    """What is added to the scores, [B, 1 or H, 1 or L, L]: a number so low that no weight is left where nothing is
    seen."""
    seen = mask_BL[:, None, None, :] > 0
    if sight.window:
        places_L = torch.arange(mask_BL.shape[1], device=mask_BL.device)
        seen = seen & ((places_L[:, None] - places_L[None, :]).abs() <= sight.window)
    low = torch.finfo(torch.float32).min
    added = torch.where(seen, 0.0, low)
    return added if sight.bias is None else added + sight.bias


def _attend(attention: Attention, sight: AttentionMask, added: Tensor, x_ND: Tensor) -> Tensor:
    count, length = added.shape[0], added.shape[3]
    qkv_N3HK = attention.project(x_ND, sight)
    q, k, v = qkv_N3HK.reshape(count, length, 3, attention.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    y_BHLK = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    out_ND: Tensor = attention.out(y_BHLK.transpose(1, 2).reshape(count * length, -1))
    return out_ND


Output = Literal["vectors", "logits"]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NEEDED = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-3
"""By which a number may differ from torch's, times the largest there is (1 at least)."""
OPSET = 18
MOST_PADDED, FEWEST = 1.2, 256
"""How many times the tokens a padded batch may have, and how many tokens are not worth a batch of their own."""
_LENGTHS = (3, 17, 9, 32, 1)
"""Of the sequences that a file is tried on, where the model reads so many tokens."""


def check_onnx() -> None:
    """Refuse where the extra is not installed."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise UsageError(f"ONNX wants {' and '.join(missing)}; install the extra: pip install 'larvatus[onnx]'")


class _ExportedModel(nn.Module):
    """What the file computes."""

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
    """What gives scores: the head of a fine-tuned model, or masked-lm's."""
    heads = list(network.objectives.values())
    tuned = next((head for head in heads if isinstance(head, Head)), None)
    return tuned or next((head for head in heads if isinstance(head, MaskedLM)), None)


@torch.no_grad()
def write_onnx(network: Network, path: Path, *, output: Output) -> float:
    """Write the file, and say by how much its numbers differ from torch's at most; one that differs is refused."""
    check_onnx()
    if output == "logits" and find_scorer(network) is None:
        raise UsageError("the model has no head to give scores; export its vectors: --output vectors")
    model = _ExportedModel(network, output).eval()
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in INPUTS)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with _quietly():
        torch.onnx.export(
            model, example, path, input_names=list(INPUTS), output_names=[output], opset_version=OPSET,
            dynamic_shapes=(free,) * len(INPUTS), external_data=False, dynamo=True, verbose=False, optimize=True,
        )  # fmt: skip
    difference, largest = _difference(network, model, path)
    if not difference <= TOLERANCE * max(1.0, largest):
        raise ArtefactError(f"the exported model differs from torch by {difference:.1e}; it was not kept")
    return difference


def open_session(path: Path | bytes) -> Any:
    """The file ready to run, on as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other programs want the cores too
    source = path if isinstance(path, bytes) else str(path)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def similar_lengths(lengths_B: Ints) -> Iterator[Ints]:
    """Sequences that are padded together: neighbours in length, of which padding adds little, or which are few."""
    order = np.argsort(lengths_B, kind="stable")
    first = tokens = 0
    for place, length in enumerate(lengths_B[order].tolist()):
        if tokens >= FEWEST and length * (place - first + 1) > MOST_PADDED * (tokens + length):
            yield order[first:place]
            first, tokens = place, 0
        tokens += length
    yield order[first:]


def run_flat(session: Any, batch: TokenBatch[Ints]) -> Floats:
    """What a file that gives vectors makes of a flat batch: [N, D]."""
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
    """A flat batch as the file wants it."""
    mask = np.arange(int(batch.lengths.max(initial=1))) < batch.lengths[:, None]
    ids, segments = np.zeros(mask.shape, np.int64), np.zeros(mask.shape, np.int64)
    ids[mask], segments[mask] = batch.ids, batch.segments
    return dict(zip(INPUTS, (ids, mask.astype(np.int64), segments), strict=True))


def _difference(network: Network, model: _ExportedModel, path: Path) -> tuple[float, float]:
    """Of the file from the network that reads flat batches, at tokens; and the largest number there is."""
    reach, words = network.encoder.reach, len(network.encoder.word_vectors)
    draw = np.random.default_rng(0)
    sequences = [draw.integers(0, words, min(length, reach)).tolist() for length in _LENGTHS]
    batch = TokenBatch.of(sequences)
    inputs = padded_inputs(batch)
    given: Floats = open_session(path).run(None, inputs)[0]
    mask = inputs[INPUTS[1]] > 0
    flat = batch.map(torch.from_numpy)
    z_ND: Tensor = network.encoder(flat)
    if isinstance(model.head, Head):  # its own way to pool, over padding that is there
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
def _quietly() -> Iterator[None]:
    """The exporter speaks of its steps and of what it deprecates; nothing of that is the user's."""
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
