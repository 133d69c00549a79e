"""A bidirectional LSTM over the words of each sequence, end to end in a flat batch; no padding outside the kernel.

    h_i = [LSTM→(x_1 … x_i); LSTM←(x_n … x_i)]

The feature-based way to use an encoder (Devlin et al. 2019, §5.3): its vectors are frozen features, which this reads.

    >>> BiLSTM(size=8, hidden=6)(torch.zeros(5, 8), torch.tensor([3, 2])).shape
    torch.Size([5, 12])
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


class BiLSTM(nn.Module):
    def __init__(self, *, size: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, hidden, layers, bidirectional=True, dropout=dropout if layers > 1 else 0.0)

    @property
    def width(self) -> int:
        """Of a word's vector: both directions."""
        return 2 * self.lstm.hidden_size

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """As torch does, uniform within 1 / √hidden, but from a generator of its own."""
        bound = 1 / math.sqrt(self.lstm.hidden_size)
        for parameter in self.lstm.parameters():
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))

    def forward(self, x_WD: Tensor, counts_B: Tensor) -> Tensor:
        """Words of all sequences end to end, and how many each has: [W, D] → [W, 2 × hidden]."""
        if not len(x_WD):
            return x_WD.new_zeros(0, self.width)
        rows_W, sizes = _by_step(counts_B)
        packed = PackedSequence(x_WD.index_select(0, rows_W), sizes)
        out: PackedSequence = self.lstm(packed)[0]
        return torch.empty_like(out.data).index_copy(0, rows_W, out.data)


def _by_step(counts_B: Tensor) -> tuple[Tensor, Tensor]:
    """The order in which a packed sequence wants its rows: first words of all sequences, then second words, …

    Longest sequence first; [W] rows of the flat batch and, on the CPU, how many sequences are still there at each step.
    """
    counts = counts_B.cpu()
    starts = counts.cumsum(0) - counts
    order = torch.argsort(counts, descending=True, stable=True)
    longest = int(counts.max())
    there = counts[order][None, :] > torch.arange(longest)[:, None]  # [steps, B]
    rows = (starts[order][None, :] + torch.arange(longest)[:, None])[there]
    return rows.to(counts_B.device), there.sum(1)
