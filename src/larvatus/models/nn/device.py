"""Devices and their limits: copies to a device, features of the processor, memory.

    batch = on_device(step, torch.device("cuda"))       # pinned and asynchronous on CUDA
    check_fits(8 * rows * size, device, what="a beam of 1,000", lower="lower --beam")
    with explain_out_of_memory("lower --microbatch"): ...

Memory is checked before anything is allocated, and only what certainly cannot fit is refused: a lower bound of the need
against all memory and swap, the limit of a control group or of `ulimit -v`, or all memory of the GPU.

>>> has_bf16() in (True, False)
True
"""

from __future__ import annotations

import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from larvatus.core.arrays import is_constant
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import LarvatusError, UsageError, is_out_of_memory
from larvatus.core.ranges import short_repr

B = TypeVar("B", TokenBatch[Any], TrainingBatch[Any])


def choose_device(device: str | torch.device) -> torch.device:
    """The requested device, if it exists; "auto" is a GPU if there is one."""
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as fault:
        raise UsageError(f"--device {short_repr(device)} is not a device; use auto, cpu or cuda") from fault
    if chosen.type == "cuda" and (chosen.index or 0) >= cuda:
        here = f"there are {cuda}, starting at cuda:0" if cuda else "no CUDA device here"
        raise UsageError(f"--device {chosen}: {here}; use --device {'cuda' if cuda else 'cpu'}")
    usable = chosen.type == "cuda" or (chosen.type == "mps" and torch.backends.mps.is_available())
    if not usable and (chosen.type != "cpu" or chosen.index):
        raise UsageError(f"--device {chosen} is not supported; use --device cpu")
    return chosen


def forward_budget(device: torch.device) -> int:
    """Tokens of a batch that goes through an encoder once, without gradients."""
    return 4_096 if device.type == "cpu" else 65_536


def on_device(batch: B, device: torch.device | str) -> B:
    """The same batch of tensors on the device. `lengths` is copied too: no layout on CUDA needs it on the host."""
    target = torch.device(device)
    moved: B = batch.map(lambda array: to_device(array, target))
    return moved


def to_device(array: npt.NDArray[Any], target: torch.device) -> Tensor:
    """An array as a tensor on the device; the host does not wait for a GPU."""
    if is_constant(array) and target.type == "cuda":  # one repeated number: nothing to copy
        return torch.full((len(array),), int(array[0]), dtype=torch.int64, device=target)
    if not array.flags.writeable:  # a view into a shard: torch warns about read-only memory
        array = array.copy()
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if target.type == "cuda":
        return tensor.pin_memory().to(target, non_blocking=True)
    return tensor.to(target)


_INT8 = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})
_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@cache
def _flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, words = line.partition(":")
        if name.strip() in ("flags", "Features"):  # on x86, on ARM
            return frozenset(words.split())
    return frozenset()


def processor_name() -> str:
    """The name of the processor, as the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def has_int8_products() -> bool:
    """Whether it multiplies 8-bit integers and adds them in 32 bits (VNNI, AMX, dot products of ARM)."""
    return bool(_flags() & _INT8)


def check_bf16(device: str) -> None:
    """Refuse bf16 on a CPU that would only emulate it, which is slower than float32."""
    if device == "cpu" and not has_bf16():
        raise UsageError("--precision bf16 needs a GPU, or a CPU with bf16 (AVX-512 BF16, AMX); leave it out here")


def has_bf16() -> bool:
    """Whether it multiplies bf16 numbers natively (AVX-512 BF16, AMX, ARM's BF16)."""
    return bool(_flags() & _BF16)


def check_fits(need: int, device: str | torch.device, *, what: str, lower: str) -> None:
    """Refuse work that needs more bytes than there are."""
    if need > (available := memory_of(device)):
        raise UsageError(
            f"{what} needs at least {format_bytes(need)}, more than the "
            f"{format_bytes(available)} of memory here; {lower}"
        )


def memory_of(device: str | torch.device) -> int:
    """All bytes that a program may ever use here, including swap."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    memory, swap = _total_memory()
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    given = min([memory, *_cgroup_limits()]) + swap  # a group may use swap on top of its memory
    return given if address_space == resource.RLIM_INFINITY else min(given, address_space)


def limit_memory(device: str | torch.device, limit: int) -> None:
    """Limit the memory of a GPU that torch may use; a CPU has no such limit."""
    if torch.device(device).type == "cuda":
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / memory_of(device)), device)


@contextmanager
def explain_out_of_memory(advice: str) -> Iterator[None]:
    """Turn an out-of-memory error, of the machine or of a GPU, into one line."""
    try:
        yield
    except LarvatusError:
        raise
    except (MemoryError, RuntimeError, OSError) as fault:
        if not is_out_of_memory(fault):
            raise
        raise LarvatusError(f"memory ran out; {advice}") from fault


def _total_memory() -> tuple[int, int]:
    """Bytes of memory and of swap; practically unlimited if the system does not report them."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines}
        return 1024 * kilobytes["MemTotal"], 1024 * kilobytes.get("SwapTotal", 0)
    except (OSError, ValueError, IndexError, KeyError):
        return 1 << 62, 0


def _cgroup_limits() -> list[int]:
    """Memory limits of the control groups of this process, of either version."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    limits = []
    for line in lines:
        _, kinds, place = (*line.split(":", 2), "", "")[:3]
        if kinds == "" or "memory" in kinds.split(","):
            name = "memory.limit_in_bytes" if kinds else "memory.max"
            root = Path("/sys/fs/cgroup/memory" if kinds else "/sys/fs/cgroup")
            inner = root / place.lstrip("/")
            limits += [
                _number(folder / name) for folder in (inner, *inner.parents) if root in (folder, *folder.parents)
            ]
    return [limit for limit in limits if limit is not None]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # absent, or "max"
        return None


def format_bytes(count: int) -> str:
    """Bytes for people.

    >>> format_bytes(5 * 10**9)
    '5 GB'
    """
    for unit, name in ((10**15, "PB"), (10**12, "TB"), (10**9, "GB")):
        if count >= unit:
            return f"{count / unit:,.0f} {name}"
    return f"{count / 10**6:,.0f} MB"
