"""The process that trains for Learn: an order on standard input, what happens on standard output, a line of JSON each.

    python -m larvatus.interfaces.studio.learn_child < order.json

It stops, and saves what it has, when standard input says anything more or ends: so it never outlives the studio.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import LarvatusError, Preempted
from larvatus.interfaces.api import finetune
from larvatus.interfaces.studio.learn_order import LearnOrder
from larvatus.tasks.fit.choosing import Epoch
from larvatus.tasks.fit.finetune import Watch
from larvatus.training.engine.reporter import Reporter

Tell = Callable[..., None]
NICENESS = 5
"""The page is to stay quick while this computes."""
ENOUGH = 2**20
"""Bytes of an order."""


def main() -> int:
    tell = _channel()
    order = msgspec.json.decode(_first_line(), type=LearnOrder)
    threading.Thread(target=_end_when_told, daemon=True).start()
    os.nice(NICENESS)
    try:
        carry_out(order, tell)
    except LarvatusError as fault:
        tell(error=str(fault), stopped=isinstance(fault, Preempted))
        return fault.exit_code
    except Exception as fault:
        traceback.print_exc()
        tell(error=f"nobody foresaw this: {type(fault).__name__}: {fault}", stopped=False)
        return 70
    tell(done=True)
    return 0


def carry_out(order: LearnOrder, tell: Tell) -> None:
    """Train, and tell how it goes; the curve is in `metrics.jsonl` of the folder, as of every run."""
    with Reporter().metrics(Path(order.out)) as metrics:

        def progress(step: int, steps: int, loss: float, speed: float) -> None:
            metrics.write("train", step, {"loss": loss, "texts/s": round(speed, 1)})
            tell(step=step, steps=steps, loss=loss, speed=round(speed, 1))

        def evaluated(seed: int, epoch: Epoch) -> None:
            metrics.write("valid", epoch.step, {"seed": seed, **epoch.figures()})
            scores = epoch.scores
            tell(epoch=epoch.epoch, metric=scores.metric if scores else None, figures=epoch.figures())

        finetune(
            order.task,
            order.model,
            train=order.train,
            out=order.out,
            resume=order.resume,
            device=order.device,
            errors=order.errors,
            watch=Watch(say=lambda line: tell(said=line), epoch=evaluated, progress=progress),
            **order.choices.settings(),
        )


def _channel() -> Tell:
    """Standard output for what is told; what libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**values: Any) -> None:
        print(json.dumps(values), file=out, flush=True)

    return tell


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < ENOUGH:
        byte = os.read(0, 1)  # no more than the line: what follows it means to stop
        if not byte:
            break
        line += byte
    return line


def _end_when_told() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
