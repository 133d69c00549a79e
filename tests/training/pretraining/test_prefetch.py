"""The thread that makes batches ahead of their use, where the process ends before it does."""

from __future__ import annotations

import os
import sys

from tests import warm
from tests.patience import WATCHDOG_S

ENDS_WHILE_A_BLOCK_IS_MADE = """
import torch
from larvatus.training.pretraining import loop

loop.JOIN_S = 0.01

def items():
    yield 0
    for _ in range(400):
        torch.randn(300, 300) @ torch.randn(300, 300)
    print("made")
    yield 1

batches = loop.prefetch(items())
next(batches)
batches.close()
"""


def test_a_process_that_ends_while_a_block_is_made_waits_for_it() -> None:
    """torch's code aborts where Python takes the thread down: a finished run ended with exit code 134."""
    done = warm.run(
        [sys.executable, "-c", ENDS_WHILE_A_BLOCK_IS_MADE],
        env={**os.environ, warm.FULL_END: "1"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    assert (done.returncode, done.stdout) == (0, "made\n"), done.stderr
