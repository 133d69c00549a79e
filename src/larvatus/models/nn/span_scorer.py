"""Scores of spans, and of relations between them, without ever building the vectors of spans or pairs.

All spans of up to L words are scored (chapter §11.5.2, eq. 11.21 to 11.27):

    score_ij = W_o relu(W [start_i; end_j; g_ij] + b) + b_o

| representation | boundaries | content g_ij |
| --- | --- | --- |
| mean | z_i, z_j (11.22) | mean of z_i … z_j (11.21) |
| boundaries | FFN_start(z_i), FFN_end(z_j) (11.23 to 11.25) | mean |
| attention | FFN_start(z_i), FFN_end(z_j) | Σ softmax(a_i … a_j)_k z_k, with a_k = w · z_k (Lee et al. 2017) |
| self-attention | FFN_start(z_i), FFN_end(z_j) | mean of SelfAttention(z_i … z_j), with W^Q, W^K and W^V (11.26) |

Self-attention gives a vector for each word of the span, softmax(Q K^T / √H) V over the words of the span only; g is
their mean. `content` is the product of W_c and W^V: two linear maps in a row are one. The scores q · k of the words
near each start are computed once, and the spans that begin there are the corners of that L × L square.

The first layer is linear in the concatenation, so W = [W_s W_e W_c] is applied to words, not to spans, and its three
parts are added: h_ij = S_i + E_j + C_ij. C_ij, a (weighted) mean of projected words, grows with j by sums that run from
each start, so nothing cancels; softmax weights are rescaled as their maximum grows. That is W·L·H additions instead of
W·L·3D·H products (self-attention: W·L²·H, and squares of W·L² scores). Blocks of words bound the memory: a block's
hidden layer is recomputed for the gradient.

`SpanIndex` lists all spans of up to L words of each sequence of a flat batch: S(x) of the chapter, with j − i < L.

    >>> index = SpanIndex.of(torch.tensor([3, 1]), longest=2)       # two sequences, of three words and of one
    >>> index.first_M.tolist(), index.last_M.tolist()
    ([0, 0, 1, 1, 2, 3], [0, 1, 1, 2, 2, 3])

Spans are in the order of their first words, short ones first. A sequence may end with words that only end spans and
begin none: those of a window, whose spans begin in the next window. W words, M spans, B sequences, L longest span, D
hidden size, H size of the scorer's hidden layer, K scores of a span.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class SpanIndex:
    each_W: Tensor
    """Spans that begin at each word."""
    before_W: Tensor
    """Spans that begin at an earlier word."""
    count: int
    """Number of spans (M)."""
    longest: int
    """Words of the longest existing span; at most L."""

    @classmethod
    def of(cls, counts_B: Tensor, *, longest: int, starts_B: Tensor | None = None) -> SpanIndex:
        """From the words of each sequence, and how many of them, from the first, begin spans (default: all)."""
        ends_B = counts_B.cumsum(0)
        first_B = ends_B - counts_B
        ends_W = torch.repeat_interleave(ends_B, counts_B)
        place_W = torch.arange(len(ends_W), device=counts_B.device)
        each_W = (ends_W - place_W).clamp(max=longest)
        if starts_B is not None:
            lowest_W = torch.repeat_interleave(first_B + starts_B, counts_B)
            each_W = torch.where(place_W < lowest_W, each_W, 0)
        before_W = each_W.cumsum(0) - each_W
        empty = len(each_W) == 0
        return cls(
            each_W=each_W,
            before_W=before_W,
            count=0 if empty else int(before_W[-1] + each_W[-1]),
            longest=0 if empty else int(each_W.max()),
        )

    @property
    def first_M(self) -> Tensor:
        """First word of each span."""
        words = torch.arange(len(self.each_W), device=self.each_W.device)
        return torch.repeat_interleave(words, self.each_W, output_size=self.count)

    @property
    def last_M(self) -> Tensor:
        """Last word of each span, inclusive."""
        first_M = self.first_M
        spans = torch.arange(self.count, device=first_M.device)
        return first_M + spans - self.before_W[first_M]

    def number(self, first: Tensor, last: Tensor) -> Tensor:
        """The numbers of these spans; −1 if they are not in the index."""
        inside = (last >= first) & (last - first < self.each_W[first])
        return torch.where(inside, self.before_W[first] + last - first, -1)


Representation = Literal["mean", "boundaries", "attention", "self-attention"]
BUDGET = {"cpu": 1 << 19, "cuda": 1 << 25}
"""Numbers of a block's hidden layer: few on a CPU, so that they stay in its cache."""


class SpanScorer(nn.Module):
    def __init__(
        self, size: int, *, hidden: int, outputs: int, longest: int, representation: Representation, widths: bool
    ) -> None:
        super().__init__()
        self.longest = longest
        plain = representation == "mean"
        self.start_ffn = None if plain else _feed_forward(size, hidden)
        self.end_ffn = None if plain else _feed_forward(size, hidden)
        boundary = size if plain else hidden
        self.start = nn.Linear(boundary, hidden, bias=False)
        self.end = nn.Linear(boundary, hidden, bias=False)
        self.content = nn.Linear(size, hidden)
        self.attention = nn.Linear(size, 1, bias=False) if representation == "attention" else None
        attends = representation == "self-attention"
        self.query = nn.Linear(size, hidden, bias=False) if attends else None
        self.key = nn.Linear(size, hidden, bias=False) if attends else None
        self.width = nn.Embedding(longest, hidden) if widths else None
        self.output = nn.Linear(hidden, outputs)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Matrices keep the scale of their input (σ = 1 / √inputs); attention starts as the mean; the rest is 0."""
        for part in self.modules():
            for name, parameter in part.named_parameters(recurse=False):
                if name == "weight" and isinstance(part, nn.Linear) and part is not self.attention:
                    drawn = torch.empty(parameter.shape).normal_(0, part.in_features**-0.5, generator=generator)
                    parameter.copy_(drawn)
                else:
                    parameter.zero_()

    def forward(self, z_WD: Tensor, index: SpanIndex, *, budget: int | None = None) -> Tensor:
        """Scores of all spans in the order of the index: [W, D] → [M, K]. `budget` as `BUDGET`, for blocks."""
        start_WX = z_WD if self.start_ffn is None else self.start_ffn(z_WD)
        end_WX = z_WD if self.end_ffn is None else self.end_ffn(z_WD)
        parts = _Parts(
            start=_wide(self.start(start_WX)),
            end=_wide(self.end(end_WX)),
            content=_wide(self.content(z_WD)),
            attention=None if self.attention is None else _wide(self.attention(z_WD)),
            query=None if self.query is None else _wide(self.query(z_WD)),
            key=None if self.key is None else _wide(self.key(z_WD)),
            width=None if self.width is None else self.width.weight,
            weight=self.output.weight,
            bias=self.output.bias,
        )
        budget = budget or BUDGET.get(z_WD.device.type, BUDGET["cpu"])
        each = index.longest * self.start.out_features * (1 if self.query is None else index.longest)
        block = max(1, budget // max(1, each))
        with torch.autocast(z_WD.device.type, enabled=False):  # sums over many words need more than 8 bits
            scores_MK: Tensor = _Scores.apply(index, block, *parts)  # type: ignore[no-untyped-call]
        return scores_MK


def _feed_forward(size: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden))


def _wide(x: Tensor) -> Tensor:
    """Sums need more than 8 bits."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _Parts(NamedTuple):
    """The inputs of the scores; of all words W, or of the words of a block."""

    start: Tensor  # [W, H]
    end: Tensor  # [W, H]
    content: Tensor  # [W, H]
    attention: Tensor | None  # [W, 1]
    query: Tensor | None  # [W, H]
    key: Tensor | None  # [W, H]
    width: Tensor | None  # [L, H]
    weight: Tensor  # [K, H]
    bias: Tensor  # [K]


PER_WORD = 6
"""This many parts have a row for each word, of which a block takes its own."""


class _Block(NamedTuple):
    first: int
    last: int
    """Words first … last − 1 begin its spans."""
    reach: int
    """The word after the last one that its spans can end at."""
    rows: slice
    """Its spans."""
    valid: Tensor
    """[last − first, lengths] which lengths exist from each word."""


def _blocks(index: SpanIndex, size: int) -> Iterator[_Block]:
    words = len(index.each_W)
    edge = [*index.before_W[::size].tolist(), index.count]
    lengths = torch.arange(index.longest, device=index.each_W.device)
    for number, first in enumerate(range(0, words, size)):
        last = min(words, first + size)
        yield _Block(
            first=first,
            last=last,
            reach=min(words, last + index.longest - 1),
            rows=slice(edge[number], edge[number + 1]),
            valid=lengths < index.each_W[first:last, None],
        )


def _cut(parts: _Parts, block: _Block) -> _Parts:
    """The inputs of a block's scores."""
    start = parts.start[block.first : block.last]
    rest = [None if part is None else part[block.first : block.reach] for part in parts[1:PER_WORD]]
    return _Parts(start, *rest, *parts[PER_WORD:])  # type: ignore[arg-type]


def _block_scores(parts: _Parts, block: _Block) -> Tensor:
    """Scores of the spans of a block: [spans, K]."""
    by_length = []
    for length, content_nH in enumerate(_contents(parts, lengths=block.valid.shape[1])):
        count = len(content_nH)  # fewer than the block's words at the end of the batch
        hidden_nH = content_nH + parts.start[:count]
        hidden_nH += parts.end[length : length + count]
        if parts.width is not None:
            hidden_nH += parts.width[length]
        scores_nK = F.linear(hidden_nH.relu_(), parts.weight, parts.bias)
        by_length.append(F.pad(scores_nK, (0, 0, 0, len(parts.start) - count)))
    return torch.stack(by_length, 1)[block.valid]


def _contents(parts: _Parts, *, lengths: int) -> Iterator[Tensor]:
    """C of the spans of one word, of two words … from each word: sums that grow by a word at a time."""
    if parts.query is not None and parts.key is not None:
        yield from _self_attention_contents(
            parts.query, parts.key, parts.content, words=len(parts.start), lengths=lengths
        )
        return
    words, reach = len(parts.start), len(parts.content)
    if parts.attention is None:
        total_nH = parts.content[:words]
        yield total_nH
        for length in range(1, lengths):
            count = min(words, reach - length)
            total_nH = total_nH[:count] + parts.content[length : length + count]
            yield total_nH / (length + 1)
        return
    top_n1 = parts.attention[:words].detach()  # any number would do: it cancels
    weight_n1 = torch.exp(parts.attention[:words] - top_n1)
    sum_nH = weight_n1 * parts.content[:words]
    yield sum_nH / weight_n1
    for length in range(1, lengths):
        count = min(words, reach - length)
        new_n1 = parts.attention[length : length + count]
        highest_n1 = torch.maximum(top_n1[:count], new_n1.detach())
        shrink_n1 = torch.exp(top_n1[:count] - highest_n1)
        grow_n1 = torch.exp(new_n1 - highest_n1)
        sum_nH = sum_nH[:count] * shrink_n1 + grow_n1 * parts.content[length : length + count]
        weight_n1 = weight_n1[:count] * shrink_n1 + grow_n1
        top_n1 = highest_n1
        yield sum_nH / weight_n1


def _self_attention_contents(
    query_RH: Tensor, key_RH: Tensor, value_RH: Tensor, *, words: int, lengths: int
) -> Iterator[Tensor]:
    """Means of self-attention over the spans of one word, of two … from each of the first `words` of R words."""
    reach = len(value_RH)
    rest = (0, 0, 0, max(0, words + lengths - 1 - reach))  # so that a square begins at each word
    query_nHL, key_nHL, value_nHL = (
        F.pad(x_RH, rest).unfold(0, lengths, 1)[:words] for x_RH in (query_RH, key_RH, value_RH)
    )
    scores_nLL = query_nHL.transpose(1, 2) @ key_nHL / math.sqrt(query_RH.shape[1])
    for size in range(1, lengths + 1):
        count = max(0, min(words, reach - size + 1))
        weights_nl = scores_nLL[:count, :size, :size].softmax(-1).mean(1)
        yield (value_nHL[:count, :, :size] @ weights_nl[..., None]).squeeze(-1)


class _Scores(torch.autograd.Function):
    """Block by block. Only the inputs are kept for the gradient; each block's hidden layer is recomputed."""

    @staticmethod
    def forward(ctx: Any, index: SpanIndex, size: int, *given: Tensor | None) -> Tensor:
        parts = _Parts(*given)  # type: ignore[arg-type]
        ctx.index, ctx.size = index, size
        ctx.save_for_backward(*given)
        scores_MK = parts.weight.new_empty(index.count, len(parts.weight))
        for block in _blocks(index, size):
            scores_MK[block.rows] = _block_scores(_cut(parts, block), block)
        return scores_MK

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient_MK: Tensor) -> tuple[Tensor | None, ...]:
        parts = _Parts(*ctx.saved_tensors)
        wanted = [n for n, part in enumerate(parts) if part is not None and ctx.needs_input_grad[n + 2]]
        sums = {n: torch.zeros_like(parts[n]) for n in wanted}  # type: ignore[arg-type]
        for block in _blocks(ctx.index, ctx.size):
            with torch.enable_grad():
                cut = _Parts(*(None if part is None else part.detach() for part in _cut(parts, block)))  # type: ignore[arg-type]
                for n in wanted:
                    cut[n].requires_grad_()  # type: ignore[union-attr]
                scores = _block_scores(cut, block)
            gradients = torch.autograd.grad(scores, [cut[n] for n in wanted], gradient_MK[block.rows])  # type: ignore[arg-type]
            for n, gradient in zip(wanted, gradients, strict=True):
                place = slice(block.first, block.first + len(gradient)) if n < PER_WORD else slice(None)
                sums[n][place] += gradient
        return None, None, *(sums.get(n) for n in range(len(parts)))


STEPS = 10
DISTANCES = 1 + 2 * STEPS
"""Spans that share a word; the tail 1, 2 to 3, 4 to 7 … words after the head's end; the same before its start."""


class RelationScorer(nn.Module):
    """Scores of relations: every ordered pair (head, tail) of spans.

    score_ht = W_o relu(W_h s_h + W_t s_t + type_h + type_t + distance_ht + b) + b_o,    s = [z_i; z_j; mean] (11.22)

    The first layer over [s_h; s_t] is linear, so each span is projected twice, as a head and as a tail, and pairs only
    add these: n spans take n · 6D · H products, not n². The types of the two spans (Zhong & Chen 2021) and their
    distance and direction are learned vectors that are added. Scoring needs only the two projections of a span, so
    spans of different windows can be paired. n spans, P pairs, K scores of a pair.
    """

    def __init__(self, size: int, *, hidden: int, types: int, outputs: int) -> None:
        super().__init__()
        self.sides = nn.Linear(3 * size, 2 * hidden, bias=False)  # W_h and W_t
        self.types = nn.Embedding(types, 2 * hidden)
        self.distance = nn.Embedding(DISTANCES, hidden)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.output = nn.Linear(hidden, outputs)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """Matrices keep the scale of their input (σ = 1 / √inputs); embeddings and biases start at 0."""
        for parameter in self.parameters():
            parameter.zero_()
        for part in (self.sides, self.output):
            part.weight.copy_(torch.empty(part.weight.shape).normal_(0, part.in_features**-0.5, generator=generator))

    def project(self, z_WD: Tensor, first_n: Tensor, last_n: Tensor, types_n: Tensor) -> Tensor:
        """Each span as a head and as a tail, concatenated: [n, 2H]. Words first … last, inclusive."""
        s_nC = torch.cat([z_WD[first_n], z_WD[last_n], span_means(z_WD, first_n, last_n)], -1)
        sides_nH: Tensor = self.sides(s_nC) + self.types(types_n)
        return _wide(sides_nH)

    def forward(self, sides_nH: Tensor, heads_P: Tensor, tails_P: Tensor, distances_P: Tensor) -> Tensor:
        """Scores of pairs of projected spans: [P, K]. Distances are those of `distances`."""
        head_nH, tail_nH = sides_nH.chunk(2, -1)
        with torch.autocast(sides_nH.device.type, enabled=False):
            hidden_PH = head_nH[heads_P] + tail_nH[tails_P]
            hidden_PH = hidden_PH + self.distance(distances_P) + self.bias
            return F.linear(hidden_PH.relu(), self.output.weight, self.output.bias)


def span_means(z_WD: Tensor, first_n: Tensor, last_n: Tensor) -> Tensor:
    """The mean vector of the words first … last of each span: [n, D]."""
    lengths_n = last_n - first_n + 1
    owners = torch.repeat_interleave(torch.arange(len(first_n), device=first_n.device), lengths_n)
    before_n = lengths_n.cumsum(0) - lengths_n
    words = first_n[owners] + torch.arange(len(owners), device=first_n.device) - before_n[owners]
    z = _wide(z_WD[words])
    return z.new_zeros(len(first_n), z.shape[-1]).index_add(0, owners, z) / lengths_n[:, None]


def gaps(first_n: Tensor, last_n: Tensor, heads_P: Tensor, tails_P: Tensor) -> Tensor:
    """Words from the head's last to the tail's first; below 0 if the tail comes before; 0: they share a word.

    >>> first, last = torch.tensor([0, 2, 0]), torch.tensor([0, 3, 2])
    >>> gaps(first, last, torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1])).tolist()
    [2, -2, 0]
    """
    after_P = first_n[tails_P] - last_n[heads_P]
    before_P = first_n[heads_P] - last_n[tails_P]
    return after_P.clamp(min=0) - before_P.clamp(min=0)


def distances(gaps_P: Tensor) -> Tensor:
    """Gaps on a scale of powers of two, by direction: 0 … DISTANCES − 1."""
    steps = 2 ** torch.arange(STEPS, device=gaps_P.device)
    step_P = torch.bucketize(gaps_P.abs(), steps, right=True)  # 0 for a gap of 0
    return torch.where(gaps_P < 0, step_P + STEPS, step_P)
