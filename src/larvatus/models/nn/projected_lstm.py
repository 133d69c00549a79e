"""An LSTM whose state is projected to a smaller size (Sak et al. 2014), over packed sequences: nothing is padded.

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
