"""A bidirectional LSTM over the words of each sequence, end to end in a flat batch; no padding outside the kernel.

    h_i = [LSTM→(x_1 … x_i); LSTM←(x_n … x_i)]

The feature-based way to use an encoder (Devlin et al. 2019, §5.3): its vectors are frozen features, which this reads.

    >>> BiLSTM(size=8, hidden=6)(torch.zeros(5, 8), torch.tensor([3, 2])).shape
    torch.Size([5, 12])

An LSTM whose state is projected to a smaller size (Sak et al. 2014), over packed sequences: nothing is padded.

    i, f, o = σ(W x_t + U r_{t−1} + b)        g = tanh(W_g x_t + U_g r_{t−1} + b_g)
    c_t = clip(f c_{t−1} + i g)               r_t = clip(W_r (o tanh(c_t)))

ELMo clips cells and projections at 3. The kernel of CUDA cannot: with a clip, steps are taken one by one. On a CPU they
always are: the backward pass of torch's own LSTM, which adds up weights step by step, takes longer.
W words in the order of a packed sequence, P size of input and output, H cells.

    >>> lstm = ProjectedLSTM(size=4, cells=8)
    >>> lstm(torch.zeros(5, 4), torch.tensor([2, 2, 1])).shape
    torch.Size([5, 4])
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
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


class ProjectedLSTM(nn.Module):
    def __init__(self, *, size: int, cells: int, clip: float = 0.0) -> None:
        """`clip`: the largest value of a cell and of a projection; 0: any."""
        super().__init__()
        self.clip = clip
        self.lstm = nn.LSTM(size, cells, proj_size=size)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Uniform within 1 / √cells, as torch does; biases 0 but those of forget gates 1 (as released)."""
        cells = self.lstm.hidden_size
        bound = 1 / math.sqrt(cells)
        into, back, bias_in, bias_back, down = self.lstm.parameters()
        for weight in (into, back, down):
            weight.copy_(torch.empty(weight.shape).uniform_(-bound, bound, generator=generator))
        for bias in (bias_in, bias_back):
            bias.zero_()
        bias_in[cells : 2 * cells] = 1.0  # gates stand in the order i, f, g, o

    def forward(self, x_WP: Tensor, sizes_T: Tensor) -> Tensor:
        """[W, P] → [W, P]; `sizes` on the CPU says how many sequences have an i-th word, longest first."""
        if not len(x_WP):
            return x_WP
        if self.clip or x_WP.device.type == "cpu":
            return self._by_steps(x_WP, sizes_T.tolist(), self.clip or math.inf)
        self.lstm.flatten_parameters()
        with torch.autocast(x_WP.device.type, enabled=False):  # the kernel wants weights and input of one kind
            out: PackedSequence = self.lstm(PackedSequence(x_WP.to(next(self.lstm.parameters()).dtype), sizes_T))[0]
        return out.data

    def _by_steps(self, x_WP: Tensor, sizes: list[int], clip: float) -> Tensor:
        into, back, bias_in, bias_back, down = self.lstm.parameters()
        inputs = F.linear(x_WP, into, bias_in + bias_back).split(sizes)
        r = inputs[0].new_zeros(sizes[0], self.lstm.proj_size)
        c = inputs[0].new_zeros(sizes[0], self.lstm.hidden_size)
        states = []
        for gates in inputs:
            here = len(gates)
            i, f, g, o = (gates + F.linear(r[:here], back)).chunk(4, dim=-1)
            c = (torch.sigmoid(f) * c[:here] + torch.sigmoid(i) * torch.tanh(g)).clamp(-clip, clip)
            r = F.linear(torch.sigmoid(o) * torch.tanh(c), down).clamp(-clip, clip)
            states.append(r)
        return torch.cat(states)
