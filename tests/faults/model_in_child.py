"""Models used with two threads, then again in a forked child: a program of its own, since it forks.

    python -m tests.faults.model_in_child FOLDER [compiled | old | onnx]

FOLDER holds a model for each head. Each call prints a line, `fill equal`; one that takes longer than `LIMIT_S` in the
child prints `fill hangs`, and one that is refused there `fill refused: …`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import larvatus as lv
from larvatus.core import threads
from larvatus.core.errors import LarvatusError
from tests.patience import WATCHDOG_S

LIMIT_S = min(120.0, WATCHDOG_S)
"""For a call of milliseconds, on a machine however busy."""
TEXT = "the river bank was wide and deep . " * 12
CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "fill": ("plain", lambda model: [fill.probability for fill in model.fill(f"the [MASK] {TEXT}")]),
    "embed": ("plain", lambda model: model.embed([TEXT] * 8, unit="word")),
    "score": ("plain", lambda model: model.score(TEXT).total),
    "attention": ("plain", lambda model: model.attention("the river bank").weights),
    "classify": ("classify", lambda model: model.predict(TEXT).to_dict()),
    "tag": ("tag", lambda model: model.predict(TEXT).to_dict()),
    "spans": ("spans", lambda model: model.predict(TEXT).to_dict()),
    "answer": ("answer", lambda model: model.predict(("the river ?", TEXT)).to_dict()),
    "generate": ("writer", lambda model: model.generate("the river", max_tokens=8).text),
}


def main(folder: Path, how: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    if how == "old":
        threads._end_pool = lambda path: False  # type: ignore[assignment]  # a runtime that cannot end its pool
    torch.ones(2**22).exp_()  # a parallel loop, whatever the size of the model
    if how == "compiled":
        compiled = torch.compile(lambda x: (x.exp() + 1).sum())
        print("compiled", in_child(lambda: float(compiled(torch.ones(2**22)))), flush=True)
        return
    if how == "onnx":
        in_onnx = lv.load(folder / "plain", runtime="onnx")
        print("embed", in_child(lambda: in_onnx.embed("the river")), flush=True)
        return
    models = {name: lv.load(folder / name, device="cpu") for name in {model for model, _ in CALLS.values()}}
    for name, (model, call) in CALLS.items():
        print(name, said := in_child(lambda call=call, model=model: call(models[model])), flush=True)
        if said == "hangs":  # so would the others
            return
    whole_numbers = lv.load(folder / "plain", quantise="int8")
    print("int8", in_child(lambda: whole_numbers.embed("the river")), flush=True)


def in_child(call: Callable[[], Any]) -> str:
    """How the call ends in a child that is forked after the parent has made the same call."""
    wanted = call()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.ones(2**22).exp_()
            said = "equal" if _equal(call(), wanted) else "different"
        except LarvatusError as fault:
            said = f"refused: {fault}"
        except BaseException as fault:
            said = f"failed: {fault!r}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    latest = time.monotonic() + LIMIT_S
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > latest:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hangs"
        time.sleep(0.005)
    with os.fdopen(reader, "rb") as end:
        return end.read().decode()


def _equal(given: Any, wanted: Any) -> bool:
    """Texts the same, numbers to the rounding of another number of threads."""
    if isinstance(wanted, dict):
        return given.keys() == wanted.keys() and all(_equal(given[name], each) for name, each in wanted.items())
    if isinstance(wanted, list | tuple):
        return len(given) == len(wanted) and all(map(_equal, given, wanted))
    if isinstance(wanted, float | np.ndarray):
        return bool(np.allclose(given, wanted, atol=1e-5))
    return bool(given == wanted)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
