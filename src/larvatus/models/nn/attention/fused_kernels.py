"""Triton kernels of attention over concatenated sequences, for NVIDIA GPUs (Dao 2023, equations of section 3).

Forward, and backward in two passes, one for keys and values and one for queries: each number is summed by a single
program in a fixed order, so that results are equal bit for bit. The dropout mask is not stored but recomputed: a hash
of the query's position and one of the key's are multiplied and compared with a threshold.

    out = softmax(Q Kᵀ / √K) ∘ kept / (1 − p) · V           inside each sequence of each head

N tokens, H heads, K size of a head; edges [B + 1] are the offsets of the sequences. A program computes one block of
rows.
"""

# Triton has no types, and its functions take plain numbers and addresses.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
"""Weights are powers of 2 here, so scores are multiplied by this; their gradients are not."""


@triton.jit
def _mixed(x):
    """A 32-bit hash (Wellons's lowbias32)."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _seed(seed_ptr, sequence, head, heads):
    """Two seeds for one head in one sequence, for queries and for keys."""
    base = tl.load(seed_ptr).to(tl.uint32, bitcast=False)
    first = _mixed((sequence * heads + head).to(tl.uint32) * 0x9E3779B9 ^ base)
    return first, _mixed(first ^ 0x85EBCA6B)


@triton.jit
def _places(seed, rows):
    """A hash of each position; odd, so that multiplying by it loses nothing."""
    return _mixed(rows.to(tl.uint32) * 0x9E3779B9 ^ seed) | 1


@triton.jit
def _seen(row, column, length, LEFT: tl.constexpr, RIGHT: tl.constexpr):
    """Whether a query attends to a key: of the same sequence, and within the window on that side."""
    seen = column < length
    if LEFT >= 0:
        seen = seen & (column >= row - LEFT)
    if RIGHT >= 0:
        seen = seen & (column <= row + RIGHT)
    return seen


@triton.jit
def _range(begin, length, SIZE: tl.constexpr, BLOCK: tl.constexpr, BEFORE: tl.constexpr, AFTER: tl.constexpr):
    """The keys of the positions from `begin` on: first, end of the part without a mask, end."""
    first = 0
    last = length
    whole = (length // BLOCK) * BLOCK
    if BEFORE >= 0:
        first = (tl.maximum(begin - BEFORE, 0) // BLOCK) * BLOCK
    if AFTER >= 0:
        last = tl.minimum(length, begin + SIZE + AFTER)
    if BEFORE >= 0 or AFTER >= 0:
        whole = first  # none
    return first, whole, last


@triton.jit
def _extent(edges, sequence):
    """Start and length of a sequence."""
    start = tl.load(edges + sequence).to(tl.int64)
    return start, (tl.load(edges + sequence + 1) - start).to(tl.int32)


@triton.jit
def _block_at(pointer, places, at, length, MASKED: tl.constexpr):
    """A block of keys or values; masked, zeros past the end of the sequence."""
    if MASKED:
        block = tl.load(pointer + places, mask=(at < length)[:, None], other=0.0)
    else:
        block = tl.load(pointer + places)
    return block


@triton.jit
def _forward_blocks(
    acc, total, highest, q, k_ptr, v_ptr, first, last, length, drawn_q, seed_k, threshold,
    stride: tl.constexpr, scale: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr,
    MASKED: tl.constexpr, rows, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):
    columns = tl.arange(0, BLOCK)
    dims = tl.arange(0, SIZE)
    for begin in range(first, last, BLOCK):
        at = begin + columns
        places = at[:, None] * stride + dims[None, :]
        k = _block_at(k_ptr, places, at, length, MASKED)
        scores = tl.dot(q, tl.trans(k)) * scale
        if MASKED:
            scores = tl.where(_seen(rows[:, None], at[None, :], length, LEFT, RIGHT), scores, -float("inf"))
        newest = tl.maximum(highest, tl.max(scores, 1))
        if LEFT >= 0 or RIGHT >= 0:  # a row may attend to nothing in this block
            newest = tl.where(newest == -float("inf"), 0.0, newest)
        weights = tl.exp2(scores - newest[:, None])
        shrink = tl.exp2(highest - newest)
        total = total * shrink + tl.sum(weights, 1)
        if DROPS:
            kept = drawn_q[:, None] * _places(seed_k, at)[None, :] >= threshold.to(tl.uint32)
            weights = tl.where(kept, weights, 0.0)
        acc = acc * shrink[:, None]
        v = _block_at(v_ptr, places, at, length, MASKED)
        acc = tl.dot(weights.to(v.dtype), v, acc)
        highest = newest
    return acc, total, highest


@triton.jit
def forward(
    qkv, edges, seed_ptr, out, lse, tokens, threshold, kept_share,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SCALE: tl.constexpr, DROPS: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    """qkv [N, 3, H, K] → out [N, H, K]; lse [H, N], the log (base 2) of the softmax's normaliser."""
    block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, length = _extent(edges, sequence)
    if block * ROWS >= length:
        return
    stride: tl.constexpr = 3 * HEADS * SIZE
    rows = block * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, SIZE)
    here = (rows < length)[:, None]
    base = qkv + start * stride + head * SIZE
    q = tl.load(base + rows[:, None] * stride + dims[None, :], mask=here, other=0.0)
    seed_q, seed_k = _seed(seed_ptr, sequence, head, HEADS)
    drawn = _places(seed_q, rows)
    acc = tl.zeros([ROWS, SIZE], dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    highest = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    first, whole, last = _range(block * ROWS, length, ROWS, COLUMNS, LEFT, RIGHT)
    keys, values = base + HEADS * SIZE, base + 2 * HEADS * SIZE
    acc, total, highest = _forward_blocks(
        acc, total, highest, q, keys, values, first, whole, length, drawn, seed_k, threshold,
        stride, SCALE, COLUMNS, SIZE, DROPS, False, rows, LEFT, RIGHT,
    )
    if whole < last:
        acc, total, highest = _forward_blocks(
            acc, total, highest, q, keys, values, whole, last, length, drawn, seed_k, threshold,
            stride, SCALE, COLUMNS, SIZE, DROPS, True, rows, LEFT, RIGHT,
        )
    y = acc / (total * kept_share)[:, None]
    places = (start + rows[:, None]) * (HEADS * SIZE) + head * SIZE + dims[None, :]
    tl.store(out + places, y.to(out.dtype.element_ty), mask=here)
    tl.store(lse + head * tokens + start + rows, highest + tl.log2(total), mask=rows < length)


@triton.jit
def dots(out, grad, delta, tokens, HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """delta [H, N]: the sum over a head's dimensions of out ∘ grad."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)
    dims = tl.arange(0, SIZE)
    places = rows.to(tl.int64)[:, None] * (HEADS * SIZE) + head * SIZE + dims[None, :]
    here = (rows < tokens)[:, None]
    a = tl.load(out + places, mask=here, other=0.0).to(tl.float32)
    b = tl.load(grad + places, mask=here, other=0.0).to(tl.float32)
    tl.store(delta + head.to(tl.int64) * tokens + rows, tl.sum(a * b, 1), mask=rows < tokens)


@triton.jit
def backward_keys(
    qkv, grad, edges, seed_ptr, lse, delta, dqkv, sums, tokens, threshold, kept_share,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SCALE: tl.constexpr, DROPS: tl.constexpr, BIASED: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Gradients of a block of keys and values, over all queries of the sequence.

    sums [B · blocks, 2, H, K]: those gradients summed over the block, for the bias that was added to all tokens.
    """
    block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, length = _extent(edges, sequence)
    if block * COLUMNS >= length:
        return
    stride: tl.constexpr = 3 * HEADS * SIZE
    width: tl.constexpr = HEADS * SIZE
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    dims = tl.arange(0, SIZE)
    here = (columns < length)[:, None]
    base = qkv + start * stride + head * SIZE
    places = columns[:, None] * stride + dims[None, :]
    k = tl.load(base + width + places, mask=here, other=0.0)
    v = tl.load(base + 2 * width + places, mask=here, other=0.0)
    seed_q, seed_k = _seed(seed_ptr, sequence, head, HEADS)
    drawn_k = _places(seed_k, columns)
    dk = tl.zeros([COLUMNS, SIZE], dtype=tl.float32)
    dv = tl.zeros([COLUMNS, SIZE], dtype=tl.float32)
    grads = grad + start * width + head * SIZE
    logs = lse + head * tokens + start
    deltas = delta + head * tokens + start
    offsets = tl.arange(0, ROWS)
    first, _, last = _range(block * COLUMNS, length, COLUMNS, ROWS, RIGHT, LEFT)
    for begin in range(first, last, ROWS):
        rows = begin + offsets
        real = rows < length
        q = tl.load(base + rows[:, None] * stride + dims[None, :], mask=real[:, None], other=0.0)
        do = tl.load(grads + rows[:, None] * width + dims[None, :], mask=real[:, None], other=0.0)
        log = tl.load(logs + rows, mask=real, other=float("inf"))  # weights of rows past the end become 0
        dot = tl.load(deltas + rows, mask=real, other=0.0) * kept_share
        weights = tl.exp2(tl.dot(k, tl.trans(q)) * SCALE - log[None, :])  # [COLUMNS, ROWS]
        if LEFT >= 0 or RIGHT >= 0:
            weights = tl.where(_seen(rows[None, :], columns[:, None], length, LEFT, RIGHT), weights, 0.0)
        dw = tl.dot(v, tl.trans(do))
        if DROPS:
            kept = drawn_k[:, None] * _places(seed_q, rows)[None, :] >= threshold.to(tl.uint32)
            dv = tl.dot(tl.where(kept, weights, 0.0).to(do.dtype), do, dv)
            dw = tl.where(kept, dw, 0.0)
        else:
            dv = tl.dot(weights.to(do.dtype), do, dv)
        ds = weights * (dw - dot[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    out = dqkv + start * stride + head * SIZE + places
    dk = tl.where(here, dk * (SCALE / LOG2_E / kept_share), 0.0)
    dv = tl.where(here, dv / kept_share, 0.0)
    tl.store(out + width, dk.to(dqkv.dtype.element_ty), mask=here)
    tl.store(out + 2 * width, dv.to(dqkv.dtype.element_ty), mask=here)
    if BIASED:
        into = sums + (sequence * tl.num_programs(0) + block) * 2 * width + head * SIZE + dims
        tl.store(into, tl.sum(dk, 0))
        tl.store(into + width, tl.sum(dv, 0))


@triton.jit
def _queries_blocks(
    dq, q, do, log, dot, k_ptr, v_ptr, first, last, length, drawn_q, seed_k, threshold,
    stride: tl.constexpr, scale: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr, DROPS: tl.constexpr,
    MASKED: tl.constexpr, rows, LEFT: tl.constexpr, RIGHT: tl.constexpr,
):
    offsets = tl.arange(0, BLOCK)
    dims = tl.arange(0, SIZE)
    for begin in range(first, last, BLOCK):
        at = begin + offsets
        places = at[:, None] * stride + dims[None, :]
        k = _block_at(k_ptr, places, at, length, MASKED)
        v = _block_at(v_ptr, places, at, length, MASKED)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * scale - log[:, None])
        if MASKED:
            weights = tl.where(_seen(rows[:, None], at[None, :], length, LEFT, RIGHT), weights, 0.0)
        dw = tl.dot(do, tl.trans(v))
        if DROPS:
            kept = drawn_q[:, None] * _places(seed_k, at)[None, :] >= threshold.to(tl.uint32)
            dw = tl.where(kept, dw, 0.0)
        ds = weights * (dw - dot[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def backward_queries(
    qkv, grad, edges, seed_ptr, lse, delta, dqkv, sums, tokens, threshold, kept_share,
    HEADS: tl.constexpr, SIZE: tl.constexpr, SCALE: tl.constexpr, DROPS: tl.constexpr, BIASED: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Gradients of a block of queries, over all keys of the sequence. sums [B · blocks, H, K], as above."""
    block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, length = _extent(edges, sequence)
    if block * ROWS >= length:
        return
    stride: tl.constexpr = 3 * HEADS * SIZE
    width: tl.constexpr = HEADS * SIZE
    rows = block * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, SIZE)
    real = rows < length
    base = qkv + start * stride + head * SIZE
    q = tl.load(base + rows[:, None] * stride + dims[None, :], mask=real[:, None], other=0.0)
    do = tl.load(grad + (start + rows[:, None]) * width + head * SIZE + dims[None, :], mask=real[:, None], other=0.0)
    log = tl.load(lse + head * tokens + start + rows, mask=real, other=float("inf"))
    dot = tl.load(delta + head * tokens + start + rows, mask=real, other=0.0) * kept_share
    seed_q, seed_k = _seed(seed_ptr, sequence, head, HEADS)
    drawn = _places(seed_q, rows)
    dq = tl.zeros([ROWS, SIZE], dtype=tl.float32)
    first, whole, last = _range(block * ROWS, length, ROWS, COLUMNS, LEFT, RIGHT)
    dq = _queries_blocks(
        dq, q, do, log, dot, base + width, base + 2 * width, first, whole, length, drawn, seed_k, threshold,
        stride, SCALE, COLUMNS, SIZE, DROPS, False, rows, LEFT, RIGHT,
    )
    if whole < last:
        dq = _queries_blocks(
            dq, q, do, log, dot, base + width, base + 2 * width, whole, last, length, drawn, seed_k, threshold,
            stride, SCALE, COLUMNS, SIZE, DROPS, True, rows, LEFT, RIGHT,
        )
    out = dqkv + (start + rows[:, None]) * stride + head * SIZE + dims[None, :]
    dq = tl.where(real[:, None], dq * (SCALE / LOG2_E / kept_share), 0.0)
    tl.store(out, dq.to(dqkv.dtype.element_ty), mask=real[:, None])
    if BIASED:
        into = sums + (sequence * tl.num_programs(0) + block) * width + head * SIZE + dims
        tl.store(into, tl.sum(dq, 0))
