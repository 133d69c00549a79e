"""The sentence adapter of the English model: LoRA and a linear layer that give a teacher's vectors.

    L = 4 · mean_i (1 - s_i · t_i) + mean_i KL( softmax_j(t_i · t_j / τ) ‖ softmax_j(s_i · s_j / τ) )        τ = 0.05

s_i are the student's unit vectors of the texts in a batch, t_i the teacher's, reduced by PCA (`english_rows.py`). A
batch has a fixed number of tokens and sequences, filled up with empty ones, so that the encoder is compiled once. Half
of the batches are of near neighbours: groups of one k-means cluster of the teacher's vectors. Up to four texts of a
group are in a batch, and each epoch takes half of the texts over 80 tokens. `english_train.py` calls it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from english_rows import Rows
from torch import Tensor, nn

from larvatus.core.batch import NO_WORD, TokenBatch
from larvatus.models.nn.encoder import Encoder
from larvatus.models.nn.linear import LoRALinear
from larvatus.models.nn.lora import TARGETS, LoRAConfig, add_lora

Ints = npt.NDArray[np.int64]
RANK, ALPHA, SIZE = 40, 80.0, 512
TEMPERATURE, COSINE_WEIGHT = 0.05, 4.0
LIMIT, LONG = 256, 80
"""Longest text, and the length from which a text is in every second epoch only; in tokens."""
TOKENS, SEQUENCES = 163_840, 8_192
"""Of a batch. At least SEQUENCES / 12 of the sequences are filling, which can take all its tokens."""


@dataclass(frozen=True)
class Texts:
    """Tokenized texts, one after the other, and the group of each."""

    ids: Tensor
    starts: Ints
    lengths: Ints
    groups: Ints
    known: Ints
    """The row of each text."""
    tokens: int
    sequences: int

    @classmethod
    def of(cls, rows: Rows, known: Ints, device: str, *, tokens: int = TOKENS) -> Texts:
        """Those of the rows `known` that are not too long."""
        starts = np.cumsum(rows.lengths) - rows.lengths
        known = known[rows.lengths[known] <= LIMIT]
        ids = torch.from_numpy(rows.ids.astype(np.int32)).to(device)
        sequences = max(24, SEQUENCES * tokens // TOKENS)
        numbers = np.unique(rows.groups[known], return_inverse=True)[1]
        return cls(ids, starts[known], rows.lengths[known], numbers, known, tokens, sequences)

    def batch(self, rows: Ints) -> tuple[TokenBatch[Tensor], Tensor]:
        """The batch of these texts and of filling, and the sequence of each of its tokens."""
        device, left = self.ids.device, self.sequences - len(rows)
        rest = self.tokens - int(self.lengths[rows].sum())
        filling = np.full(left, rest // left)
        filling[: rest % left] += 1
        lengths_S = torch.from_numpy(np.concatenate([self.lengths[rows], filling])).to(device)
        starts = np.concatenate([self.starts[rows], np.zeros(left, np.int64)])
        sequence_N = torch.repeat_interleave(
            torch.arange(self.sequences, device=device), lengths_S, output_size=self.tokens
        )
        position_N = torch.arange(self.tokens, device=device) - (lengths_S.cumsum(0) - lengths_S)[sequence_N]
        place_N = (torch.from_numpy(starts).to(device)[sequence_N] + position_N).clamp(max=len(self.ids) - 1)
        zeros_N = torch.zeros_like(position_N)
        ids_N = torch.where(sequence_N < len(rows), self.ids[place_N].long(), zeros_N)
        batch = TokenBatch(
            ids=ids_N, lengths=lengths_S, positions=position_N, segments=zeros_N, words=zeros_N + NO_WORD
        )
        return batch, sequence_N

    def rows(self, clusters: Ints | None, seed: int) -> Iterator[Ints]:
        """Texts of batches, epoch after epoch: of random groups, or of those of a cluster."""
        random = np.random.default_rng(seed)
        while True:
            order = self._order(clusters, random)
            spent = np.cumsum(self.lengths[order] - 1)  # a text takes the place of a filling sequence of one token
            most, first, cuts = self.sequences - self.sequences // 12, 0, []
            while first < len(order):
                budget = (spent[first - 1] if first else 0) + self.tokens - self.sequences
                last = min(int(np.searchsorted(spent, budget, side="right")), first + most)
                if last >= len(order):
                    break
                cuts.append(order[first:last])
                first = last
            if not cuts:
                raise SystemExit("there are too few texts for a batch; give more")
            yield from (cuts[number] for number in random.permutation(len(cuts)))

    def _order(self, clusters: Ints | None, random: np.random.Generator) -> Ints:
        """All texts of an epoch; runs of up to four of a group stay together, those of a cluster side by side."""
        taken = np.flatnonzero((self.lengths <= LONG) | (random.random(len(self.lengths)) < 0.5))
        taken = taken[np.lexsort((random.random(len(taken)), self.groups[taken]))]
        groups, places = self.groups[taken], np.arange(len(taken))
        new = np.concatenate([[True], groups[1:] != groups[:-1]])
        run = (places - np.maximum.accumulate(np.where(new, places, 0))) // 4
        number = np.cumsum(np.concatenate([[True], new[1:] | (run[1:] != run[:-1])])) - 1
        rank = random.permutation(number[-1] + 1)
        if clusters is not None:
            first = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1])
            rank = np.argsort(np.lexsort((rank, random.permutation(clusters.max() + 1)[clusters[groups[first]]])))
        return taken[np.argsort(rank[number], kind="stable")]


def cluster(vectors: Tensor, groups: Ints, count: int) -> Ints:
    """The k-means cluster of each group, by the mean of its vectors."""
    numbers = torch.from_numpy(groups).to(vectors.device)
    means = torch.zeros(int(groups.max()) + 1, vectors.shape[1], device=vectors.device)
    means = F.normalize(means.index_add_(0, numbers, vectors.float()), dim=-1)
    centres = means[torch.randperm(len(means), generator=torch.Generator().manual_seed(3))[:count].to(vectors.device)]
    for _ in range(8):
        nearest = torch.cat([(part @ centres.T).argmax(1) for part in means.split(100_000)])
        centres = F.normalize(torch.zeros_like(centres).index_add_(0, nearest, means) + 1e-6 * centres, dim=-1)
    return np.asarray(nearest.cpu().numpy())


def merged_product(layer: LoRALinear, x: Tensor) -> Tensor:
    """One product with W + (α / r) B A: faster than two where thousands of tokens share the sum."""
    return F.linear(x, layer.full_weight(), layer.bias)


class Student(nn.Module):
    """The English encoder with LoRA, mean pooling and a linear layer."""

    def __init__(self, encoder: Encoder, dense: Tensor, device: str, *, compiled: bool) -> None:
        super().__init__()
        LoRALinear.forward = merged_product  # type: ignore[method-assign]
        self.encoder = encoder.train()
        add_lora(self.encoder, LoRAConfig(rank=RANK, alpha=ALPHA, targets=TARGETS), seed=1)
        self.dense = nn.Linear(self.encoder.width, SIZE, bias=False)
        with torch.no_grad():
            self.dense.weight.copy_(dense)
        self.to(device)
        self._encode: Any = torch.compile(self.encoder, dynamic=False) if compiled else self.encoder

    def forward(self, batch: TokenBatch[Tensor], sequence_N: Tensor, count: int) -> Tensor:
        """[count, SIZE] unit vectors of the first sequences."""
        with torch.autocast(sequence_N.device.type, torch.bfloat16, enabled=sequence_N.is_cuda):
            states_NH = self._encode(batch, limit=LIMIT)
        sums_SH = torch.zeros(len(batch.lengths), states_NH.shape[1], device=sequence_N.device)
        means_SH = sums_SH.index_add(0, sequence_N, states_NH.float()) / batch.lengths[:, None]
        return F.normalize(self.dense(means_SH[:count]), dim=-1)

    def tensors(self) -> dict[str, Tensor]:
        pairs = {name: tensor for name, tensor in self.encoder.state_dict().items() if ".lora." in name}
        return {name: t.half().cpu().contiguous() for name, t in {**pairs, "dense.weight": self.dense.weight}.items()}


def loss(s_BD: Tensor, t_BD: Tensor) -> tuple[Tensor, Tensor]:
    """The two terms of L."""
    same = torch.eye(len(s_BD), dtype=torch.bool, device=s_BD.device)
    wanted, given = (F.log_softmax((v @ v.T / TEMPERATURE).masked_fill(same, -1e4), 1) for v in (t_BD, s_BD))
    return (1 - (s_BD * t_BD).sum(1)).mean(), F.kl_div(given, wanted, log_target=True, reduction="batchmean")


def train(
    student: Student, texts: Texts, vectors: Tensor, *, steps: int, rate: float, clusters: int, until: float = math.inf
) -> None:
    """The learning rate falls linearly with the steps or the time, after 300 steps of warm-up."""
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    vectors = vectors[torch.from_numpy(texts.known).to(vectors.device)]
    kinds = [texts.rows(None, 1), texts.rows(cluster(vectors, texts.groups, clusters), 2)]
    start, step = time.monotonic(), 0
    while (spent := max(step / steps, (time.monotonic() - start) / until)) < 1:
        rows = next(kinds[step % 2])
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 300) * max(0.01, 1 - spent)
        batch, sequence_N = texts.batch(rows)
        wanted = vectors[torch.from_numpy(rows).to(vectors.device)].float()
        cosine, divergence = loss(student(batch, sequence_N, len(rows)), wanted)
        (COSINE_WEIGHT * cosine + divergence).backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 200 == 1 or step == steps:
            print(f"{step:,} {spent:.0%} cosine {1 - cosine.item():.4f} KL {divergence.item():.4f}", flush=True)
