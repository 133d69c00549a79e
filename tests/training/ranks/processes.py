"""Starts gloo processes that each carry out a function of this folder: `launch(2,
"tests.training.ranks.runs:pretrain", …)`."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests import warm
from tests.patience import WATCHDOG_S

ROOT = Path(__file__).parents[3]


def launch(count: int, function: str, given: Any, out: Path, *, timeout_s: float = WATCHDOG_S) -> Any:
    """Call `function(group, given)` in so many processes; what the main one returned."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    environment[warm.NESTED] = "all"
    done = warm.run(
        [*command, "-m", "tests.training.ranks.processes", function, json.dumps(given), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(out.read_text())


def main(function: str, given: str, out: str) -> None:
    from larvatus.training.engine.ranks import ranks

    module, _, name = function.partition(":")
    with ranks("cpu", timeout_s=120) as group:
        result = getattr(importlib.import_module(module), name)(group, json.loads(given))
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("rank watch")]
    assert not left, f"{left} would abort the process, should they talk to the store when Python ends"
    if group.main:
        Path(out).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
