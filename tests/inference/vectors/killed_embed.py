"""Run by test_bulk.py: python -m tests.inference.vectors.killed_embed 6,12 ARGUMENTS…: `larvatus ARGUMENTS` in a child
that is killed at its 6th durable step, then in one killed at its 12th, …; prints how many parts stood after each."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from larvatus.inference.vectors import bulk
from larvatus.interfaces.cli.main import run
from tests.faults.killed_save import die_at

torch.set_num_threads(1)
bulk.CHARACTERS = 400  # so that a small text has many parts


out = Path(sys.argv[sys.argv.index("--out") + 1])
for step in sys.argv[1].split(","):
    child = os.fork()
    if child == 0:
        die_at(int(step), ("fsync", "replace"))
        run(sys.argv[2:])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not out.exists()
    print(len(list(Path(f"{out}.parts").glob("0*.arrow"))))
