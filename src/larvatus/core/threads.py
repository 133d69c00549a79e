"""Threads: how they wait for each other, set before torch is loaded, and what becomes of them in forked children.

A matrix product is cut among as many threads as there are cores, and ends when the last of them does. By default OpenMP
threads that are done wait by spinning, which is quickest where nothing else runs. Where other programs want the cores,
a spinning thread keeps a core from the very thread that it waits for: a small model on two busy cores lost most of its
speed that way. Asleep, it leaves the core to it. What is computed, and by how many threads, stays the same to the bit.
Libraries read these variables when they are loaded; variables that the user has set are kept.

A child process has one thread, the one that forked. The parent's other threads are missing there:

- OpenMP. GNU's runtime keeps a pool of threads for each thread that ran a parallel product. The child inherits the
  description of the pool without its threads and waits for them for ever. The pool is therefore ended before the fork;
  parent and child start another with their next product, with as many threads as before. A runtime too old to end its
  pool computes in the child with one thread. Intel's and LLVM's runtimes handle forks themselves.
- Our own threads and locks (the server's queue, the connections of a client): objects that have them are listed here,
  and each is reset in the child.

The tokenizers library notices a fork by itself and continues without its threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from typing import Protocol

SETTINGS = {
    "OMP_WAIT_POLICY": "passive",  # of any OpenMP: sleep at once
    "KMP_BLOCKTIME": "0",  # of Intel's and LLVM's, in milliseconds
}


def use_passive_waiting() -> bool:
    """Have threads sleep while they wait; False where it is too late, or the user has set otherwise."""
    if "torch" in sys.modules or "GOMP_SPINCOUNT" in os.environ or SETTINGS.keys() & os.environ.keys():
        return False
    os.environ.update(SETTINGS)
    return True


MAPS = "/proc/self/maps"
GNU_OPENMP = "libgomp"
PAUSE_HARD = 2
"""omp_pause_hard of OpenMP 5.0: end the threads."""


class ResetInChild(Protocol):
    def reset_in_child(self) -> None:
        """Forget threads and locks of the parent. It runs in the child before anything else does."""


_listed: weakref.WeakSet[ResetInChild] = weakref.WeakSet()
_pools_ended = True


def reset_after_fork(each: ResetInChild) -> None:
    """Have an object reset in children that are forked while it exists."""
    _listed.add(each)


def prepare_for_forks() -> None:
    """Register the handlers; called once, when Larvatus is imported."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_child=_in_child)


def end_openmp_pools() -> bool:
    """End the OpenMP threads that belong to this thread; False where a runtime cannot."""
    ended = [_end_pool(path) for path in _loaded_runtimes()]  # every one, whatever the first says
    return all(ended)


def _before() -> None:
    global _pools_ended
    _pools_ended = "torch" not in sys.modules or end_openmp_pools()


def _in_child() -> None:
    if not _pools_ended:
        sys.modules["torch"].set_num_threads(1)
    for each in list(_listed):
        each.reset_in_child()


def _loaded_runtimes() -> set[str]:
    """Paths of GNU's OpenMP in this process: torch brings one, scikit-learn another."""
    try:
        with open(MAPS, encoding="utf-8", errors="surrogateescape") as lines:
            return {line[line.index("/") :].rstrip("\n") for line in lines if GNU_OPENMP in line and "/" in line}
    except OSError:  # no such file on macOS, where torch comes with LLVM's runtime
        return set()


def _end_pool(path: str) -> bool:
    try:
        pause = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY).omp_pause_resource_all
    except (OSError, AttributeError):
        return False
    return bool(pause(PAUSE_HARD) == 0)
