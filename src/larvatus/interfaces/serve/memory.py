"""Memory that a long-lived server gives back: glibc's allocator is told to keep little of what was freed.

    keep_little_memory()          # before the first request; True where the allocator understood

glibc gives each thread an arena of its own, keeps what is freed there for that thread, and raises by itself the size
from which it asks the system for a block apart. The threads of a server take turns with blocks of every size, so each
arena grows to the largest of them, and the process for an hour or more, although nothing leaks. One arena and a fixed
threshold keep it flat, at the price of some speed: blocks apart are cleared by the system each time. Who has the memory
and wants the speed sets glibc's own variable (`MALLOC_ARENA_MAX=16 larvatus serve …`), which is then left as it is.
Other systems have other allocators and are left alone, too.
"""

from __future__ import annotations

import ctypes
import os

# mallopt(3); the numbers are part of glibc's interface
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
ARENAS = 1
APART_BYTES = 1 << 20
OF_THE_USER = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_little_memory() -> bool:
    """Whether the allocator of this process is glibc's, took both settings, and had none from the user."""
    if any(name in os.environ for name in OF_THE_USER):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # mallopt of another library may number its settings otherwise
        mallopt = library.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    taken = [mallopt(_ARENA_MAX, ARENAS), mallopt(_MMAP_THRESHOLD, APART_BYTES)]
    return all(taken)
