"""How threads wait for each other, said before torch is loaded.

A matrix product is cut among as many threads as there are cores, and ends when the last of them does. OpenMP has those
that are done wait by spinning, which is quickest where nothing else runs. Where other programs want the cores, a
spinning thread keeps a core from the very thread that it waits for: a small model on two busy cores lost most of its
speed that way. Asleep, it leaves the core to it. What is computed, and by how many threads, stays the same to the bit.

Libraries read these variables when they are loaded; what the user has set stands.
"""

from __future__ import annotations

import os
import sys

SETTINGS = {
    "OMP_WAIT_POLICY": "passive",  # of any OpenMP: sleep at once
    "KMP_BLOCKTIME": "0",  # of Intel's and LLVM's, in milliseconds
}


def wait_asleep() -> bool:
    """Have threads sleep while they wait; False where it is too late, or the user has said otherwise."""
    if "torch" in sys.modules or "GOMP_SPINCOUNT" in os.environ or SETTINGS.keys() & os.environ.keys():
        return False
    os.environ.update(SETTINGS)
    return True
