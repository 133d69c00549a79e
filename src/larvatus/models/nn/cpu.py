"""What the processor of this machine can do, as Linux tells it.

>>> has_bf16() in (True, False)
True
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from larvatus.core.errors import UsageError

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
        if name.strip() in ("flags", "Features"):  # of x86, of ARM
            return frozenset(words.split())
    return frozenset()


def has_int8_products() -> bool:
    """Whether it multiplies numbers of 8 bits and adds them up in 32 (VNNI, AMX, dot products of ARM)."""
    return bool(_flags() & _INT8)


def check_bf16(device: str) -> None:
    """Refuse bf16 on a CPU that would only imitate it, which is slower than float32."""
    if device == "cpu" and not has_bf16():
        raise UsageError("--precision bf16 wants a GPU, or a CPU with bf16 (AVX-512 BF16, AMX); leave it out here")


def has_bf16() -> bool:
    """Whether it multiplies bf16 numbers by itself (AVX-512 BF16, AMX, ARM's BF16)."""
    return bool(_flags() & _BF16)
