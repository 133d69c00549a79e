"""A transformer as one ONNX file for a page in the browser: every layer, every attention head, words at any layer.

    difference = write_page_graph(network, Path("model.onnx"))    # largest difference from torch

    input_ids [B, L], places [M]  →  states [layers + 1, B, L, D], attention_1 … attention_n [B, H, L, L],
                                     log_probabilities [M, V] (models with a masked-LM head)

`places` are rows of the stacked states: (layer · B + b) · L + position. The head reads each after the final norm, so a
lower layer gives its logit lens (nostalgebraist 2020), and the last one what the model predicts. Sequences of a batch
have equal lengths, so that there is no padding.

Weights are integers with a scale for each row, as in `model.int8.safetensors`, and are multiplied out when the file is
loaded: products stay in float32. With rounded activations (dynamic int8), probabilities were up to 0.2 off.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.models.bundle.onnx_file import OPSET, check_onnx, open_session, quiet_export, visible_mask
from larvatus.models.bundle.weight_files import LARGEST, SHORTEST_ROW
from larvatus.models.network import Network
from larvatus.models.nn.attention.attention import Attention
from larvatus.models.nn.attention.layout import AttentionMask
from larvatus.models.nn.transformer import Transformer
from larvatus.models.objectives import MaskedLM

TOLERANCE = 1e-3
"""Largest difference of a probability or an attention weight from torch, with the same rounded weights."""


def masked_head(network: Network) -> MaskedLM | None:
    """The masked-LM head of the network's own encoder; that of a generator reads other states."""
    return next((head for head in network.objectives.values() if isinstance(head, MaskedLM)), None)


def page_bytes(network: Network) -> int:
    """About the size of the file: a byte for each weight of a matrix, four for each other."""
    parts = [network.encoder, *filter(None, [masked_head(network)])]
    return sum(p.numel() * (1 if p.ndim == 2 else 4) for part in parts for p in part.parameters())


class RoundedRows(nn.Module):
    """A matrix of 8-bit integers with a scale for each row: a linear layer, or an embedding."""

    whole_OI: Tensor
    scale_O: Tensor
    bias_O: Tensor | None

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, *, rows: bool) -> None:
        super().__init__()
        scale_O = (weight_OI.abs().amax(1) / LARGEST).clamp_min(torch.finfo(torch.float32).tiny)
        self.register_buffer("whole_OI", (weight_OI / scale_O[:, None]).round().to(torch.int8))
        self.register_buffer("scale_O", scale_O)
        self.register_buffer("bias_O", None if bias_O is None else bias_O.detach())
        self.rows = rows
        self.num_embeddings = len(weight_OI)

    @property
    def weight(self) -> Tensor:
        return self.whole_OI.float() * self.scale_O[:, None]

    def forward(self, given: Tensor) -> Tensor:
        if self.rows:
            return self.whole_OI[given].float() * self.scale_O[given][..., None]
        return F.linear(given, self.weight, self.bias_O)


TABLES = (nn.Linear, nn.Embedding)


def rounded(module: nn.Module) -> nn.Module:
    """The same module with linear layers and embeddings rounded to 8 bits, in place; short rows stay."""
    for name, part in module.named_children():
        if isinstance(part, TABLES) and part.weight.shape[1] >= SHORTEST_ROW:
            bias = part.bias if isinstance(part, nn.Linear) else None
            rows = not isinstance(part, nn.Linear)
            setattr(module, name, RoundedRows(part.weight.detach().float(), bias, rows=rows))
        else:
            rounded(part)
    return module


class PageGraph(nn.Module):
    """The computation of the file."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        encoder = network.encoder
        if not isinstance(encoder, Transformer):
            raise UsageError(
                f"a {type(encoder).__name__} has no page; bidirectional transformers such as bert and modern have one"
            )
        parts = nn.ModuleList([copy.deepcopy(encoder), copy.deepcopy(masked_head(network)) or nn.Identity()])
        self.encoder, self.head = rounded(parts.float().eval()).children()

    def forward(self, input_ids: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        count, length = input_ids.shape
        encoder: Transformer = self.encoder  # type: ignore[assignment]
        ids_N = input_ids.reshape(-1)
        positions_N = torch.arange(length).expand(count, -1).reshape(-1)
        batch = TokenBatch(
            ids=ids_N, lengths=input_ids[:, 0], positions=positions_N, segments=ids_N * 0, words=positions_N
        )
        weights: list[Tensor] = []
        states = [encoder.embeddings(batch)]
        everything_BL = torch.ones_like(input_ids)
        for layer, mask in enumerate(encoder.attention_masks(positions_N, longest=length)):
            block = encoder.block(layer)
            attend = partial(_attend, block.attention, mask, visible_mask(everything_BL, mask), weights.append)
            states.append(block.through(states[-1], attend))
        raw_AND = torch.stack(states)
        last_ND = encoder.final_norm(states[-1])
        shown = torch.cat([raw_AND[:-1], last_ND[None]]).reshape(len(states), count, length, -1)
        if not isinstance(self.head, MaskedLM):
            return shown, *weights, places
        z_MD = encoder.final_norm(raw_AND.flatten(0, 1).index_select(0, places))
        return shown, *weights, torch.log_softmax(self.head.logits(z_MD, encoder.word_vectors), dim=-1)


def _attend(
    attention: Attention, mask: AttentionMask, added: Tensor, seen: Callable[[Tensor], None], x_ND: Tensor
) -> Tensor:
    """Attention with its weights, which `seen` gets: [B, H, L, L]."""
    count, length = added.shape[0], added.shape[3]
    qkv_N3HK = attention.project(x_ND, mask)
    q, k, v = qkv_N3HK.reshape(count, length, 3, attention.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    weights_BHLL = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + added, dim=-1)
    seen(weights_BHLL)
    out_ND: Tensor = attention.out((weights_BHLL @ v).transpose(1, 2).reshape(count * length, -1))
    return out_ND


def output_names(depth: int) -> list[str]:
    return ["states", *(f"attention_{layer}" for layer in range(1, depth + 1)), "log_probabilities"]


@torch.no_grad()
def write_page_graph(network: Network, path: Path) -> float:
    """Write the file and return its largest difference from torch; a file that differs too much is refused."""
    check_onnx()
    graph = PageGraph(network).eval()
    names = output_names(network.encoder.depth)
    example = (torch.ones(2, 8, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    free = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}, {0: torch.export.Dim("places")})
    with quiet_export():
        torch.onnx.export(
            graph, example, path, input_names=["input_ids", "places"], output_names=names, opset_version=OPSET,
            dynamic_shapes=free, external_data=False, dynamo=True, verbose=False, optimize=True,
        )  # fmt: skip
    difference = _difference(graph, network, path)
    if not difference <= TOLERANCE:
        raise ArtefactError(f"the exported model differs from torch by {difference:.1e}; it was not saved")
    return difference


def _difference(graph: PageGraph, network: Network, path: Path) -> float:
    """Largest difference of probabilities and attention weights from the flat network with the same rounded weights."""
    encoder = rounded(copy.deepcopy(network.encoder).float().eval())
    assert isinstance(encoder, Transformer)
    sampler, session, most = np.random.default_rng(0), open_session(path), 0.0
    for length in {min(length, encoder.reach) for length in (1, 7, 150)}:
        ids_BL = sampler.integers(0, len(encoder.word_vectors), (2, length))
        batch = TokenBatch.of(ids_BL.tolist()).map(torch.from_numpy)
        places = np.arange(2 * length) + 2 * length * encoder.depth
        given = dict(
            zip(output_names(encoder.depth), session.run(None, {"input_ids": ids_BL, "places": places}), strict=True)
        )
        for layer, weights in enumerate(encoder.attention(batch), start=1):
            most = max(most, float(np.abs(given[f"attention_{layer}"] - torch.stack(weights).numpy()).max()))
        if isinstance(graph.head, MaskedLM):
            wanted = graph.head.logits(encoder(batch), encoder.word_vectors).softmax(-1).numpy()
            most = max(most, float(np.abs(np.exp(given["log_probabilities"]) - wanted).max()))
    return most
