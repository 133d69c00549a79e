"""Allocator settings that keep the memory of a long-lived server flat.

    keep_little_memory()          # before the first request; True if the allocator took them

glibc gives each thread an arena, keeps freed memory there for that thread, and raises by itself the size from which it
maps a block of its own. The threads of a server take turns with blocks of every size, so each arena grows to the
largest of them, and the process grows for an hour or more although nothing leaks. One arena and a fixed threshold keep
it flat, at the price of some speed: the system clears mapped blocks each time. To trade memory for speed, set glibc's
own variable (`MALLOC_ARENA_MAX=16 larvatus serve …`); it is then left unchanged. Other allocators are not touched.
"""

from __future__ import annotations

import ctypes
import os

# mallopt(3); the numbers are part of glibc's interface
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
ARENAS = 1
APART_BYTES = 1 << 20
USER_VARIABLES = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_little_memory() -> bool:
    """Limit arenas and mapped blocks. False if the allocator is not glibc's, or the user has set it up."""
    if any(name in os.environ for name in USER_VARIABLES):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # mallopt of another library may number its options differently
        mallopt = library.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    accepted = [mallopt(_ARENA_MAX, ARENAS), mallopt(_MMAP_THRESHOLD, APART_BYTES)]
    return all(accepted)
