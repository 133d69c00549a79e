"""Row 11 for recipes that are no transformer encoder: killed inside a step, stopped between two, resumed to the bit.

Each in this process, without signals, has its quick test in tests/pretraining/.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import warm
from tests.faults.killed_recipes import SETTINGS
from tests.faults.test_runs import environment
from tests.patience import WATCHDOG_S


@pytest.mark.proof
@pytest.mark.parametrize("recipe", SETTINGS)
def test_11_killed_in_a_step_stopped_and_resumed_ends_bit_equal(recipe: str, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.faults.killed_recipes", str(tmp_path), recipe]
    done = warm.run(program, env=environment(), capture_output=True, text=True, check=False, timeout=WATCHDOG_S)
    assert done.returncode == 0, done.stdout + done.stderr
