"""Triton kernels of the feedforward layer between its two products: bias and GELU, and their gradients, for NVIDIA
GPUs.

    y = z Φ(z)        z = h + b        dz = dy (Φ(z) + z φ(z))        db = Σ dz over the rows
    y = z Φ(z) g      gated, without a bias: z and g are the two halves of h        dg = dy z Φ(z)

Backward recomputes y instead of storing it, and sums db at the same time, so that neither is another pass over the
wider space. Each number is summed by a single program in a fixed order: results are equal bit for bit.

N rows, F columns (the wider space). A program computes a block of columns and rows.
"""

# Triton has no types, and its functions take plain numbers and addresses.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# fmt: off

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _normal(z):
    """Φ(z) to 1e-7 (Abramowitz & Stegun 1964, 7.1.26), and exp(−z²/2), from which it and the density are computed."""
    t = 1.0 / (1.0 + 0.23164190 * tl.abs(z))
    power = tl.exp2(-0.72134752 * z * z)
    tail = t * (0.127414796 + t * (-0.142248368 + t * (0.71070687 + t * (-0.726576014 + t * 0.530702715)))) * power
    return tl.where(z >= 0.0, 1.0 - tail, tail), power


@triton.jit
def forward(h_ptr, bias, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """h [N, F], bias [F] → y [N, F]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    here = (row < rows)[:, None] & (column < columns)[None, :]
    places = row[:, None] * columns + column[None, :]
    b = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    z = tl.load(h_ptr + places, mask=here, other=0.0).to(tl.float32) + b[None, :]
    share, _ = _normal(z)
    tl.store(y_ptr + places, (z * share).to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def backward(
    h_ptr, bias, dy_ptr, y_ptr, sums, rows, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
):
    """dy [N, F] becomes dz in place; y [N, F] again; sums [N / (ROWS · BLOCKS), F] of dz over that many rows."""
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = (column < columns)[None, :]
    b = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for block in range(BLOCKS):
        row = (tl.program_id(0).to(tl.int64) * BLOCKS + block) * ROWS + tl.arange(0, ROWS)
        here = (row < rows)[:, None] & there
        places = row[:, None] * columns + column[None, :]
        z = tl.load(h_ptr + places, mask=here, other=0.0).to(tl.float32) + b[None, :]
        dy = tl.load(dy_ptr + places, mask=here, other=0.0).to(tl.float32)
        share, power = _normal(z)
        dz = dy * (share + z * (0.39894228 * power))
        total += dz
        tl.store(y_ptr + places, (z * share).to(y_ptr.dtype.element_ty), mask=here)
        tl.store(dy_ptr + places, dz.to(dy_ptr.dtype.element_ty), mask=here)
    into = sums + tl.program_id(0).to(tl.int64) * columns + column
    tl.store(into, tl.sum(total, 0), mask=column < columns)


@triton.jit
def gated_forward(h_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """h [N, 2F] → y [N, F]."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    here = (row < rows)[:, None] & (column < columns)[None, :]
    halves = row[:, None] * (2 * columns) + column[None, :]
    z = tl.load(h_ptr + halves, mask=here, other=0.0).to(tl.float32)
    gate = tl.load(h_ptr + halves + columns, mask=here, other=0.0).to(tl.float32)
    share, _ = _normal(z)
    tl.store(y_ptr + row[:, None] * columns + column[None, :], (z * share * gate).to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def gated_backward(h_ptr, dy_ptr, dh_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """h [N, 2F], dy [N, F] → dh [N, 2F], and y [N, F] again."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    here = (row < rows)[:, None] & (column < columns)[None, :]
    halves = row[:, None] * (2 * columns) + column[None, :]
    places = row[:, None] * columns + column[None, :]
    z = tl.load(h_ptr + halves, mask=here, other=0.0).to(tl.float32)
    gate = tl.load(h_ptr + halves + columns, mask=here, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + places, mask=here, other=0.0).to(tl.float32)
    share, power = _normal(z)
    active = z * share
    dz = dy * gate * (share + z * (0.39894228 * power))
    tl.store(dh_ptr + halves, dz.to(dh_ptr.dtype.element_ty), mask=here)
    tl.store(dh_ptr + halves + columns, (dy * active).to(dh_ptr.dtype.element_ty), mask=here)
    tl.store(y_ptr + places, (active * gate).to(y_ptr.dtype.element_ty), mask=here)
