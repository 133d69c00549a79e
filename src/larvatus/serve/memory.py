"""Memory that a long-lived server gives back: glibc's allocator is told to keep little of what was freed.

    keep_little_memory()          # before the first request; True where the allocator understood

glibc gives each thread an arena of its own, keeps what is freed there for that thread, and raises by itself the size
from which it asks the system for a block apart. The threads of a server take turns with blocks of every size, so each
arena grows to the largest of them, and the process for an hour or more, although nothing leaks. One arena and a fixed
threshold keep it flat. Other systems have other allocators and are left alone.
"""

from __future__ import annotations

import ctypes

# mallopt(3); the numbers are part of glibc's interface
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
ARENAS = 1
APART_BYTES = 1 << 20


def keep_little_memory() -> bool:
    """Whether the allocator of this process is glibc's and took both settings."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # mallopt of another library may number its settings otherwise
        mallopt = library.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    taken = [mallopt(_ARENA_MAX, ARENAS), mallopt(_MMAP_THRESHOLD, APART_BYTES)]
    return all(taken)
