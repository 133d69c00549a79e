"""What it takes to prepare a text: vocabulary and shards, in a process of its own, whose memory holds nothing else.

    cost = preparing(recipe, Path("text"), Path("run"))
    cost.seconds, cost.bytes

Shards are encoded by worker processes, whose memory does not depend on the size of the text; what is told is that of
the process which reads, counts and writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from larvatus.benchmark.timing import process_peak
from larvatus.engine.watch import Watcher
from larvatus.errors import LarvatusError
from larvatus.pretraining.prepare import TextOptions, prepare
from larvatus.recipes import Recipe, recipe_of, recipe_table

WARM = "The river ran past the bank of the town, and nobody knew why the boat lay there. It was number {}.\n\n"


class Cost(Struct, frozen=True, kw_only=True):
    seconds: float
    bytes: int | None
    """None where the system does not say."""


def preparing(recipe: Recipe, text: Path, out: Path) -> Cost:
    """Prepare a text in a new process, and say what that took."""
    given = json.dumps({"recipe": recipe_table(recipe), "text": str(text), "out": str(out)})
    source = str(Path(__file__).parents[2])
    places = {"PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **places},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise LarvatusError(f"{text} could not be prepared: {last[0]}; give other text with --corpus")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Cost)


def main() -> None:
    """A small text first, so that what is only loaded once does not count."""
    given = json.load(sys.stdin)
    recipe = recipe_of(given["recipe"], where="recipe")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.txt"
        small.write_text("".join(WARM.format(number) for number in range(200)), encoding="utf-8")
        _prepare(recipe, small, Path(folder) / "run")
    began = time.perf_counter()
    taken = process_peak(lambda: _prepare(recipe, Path(given["text"]), Path(given["out"])))
    cost = Cost(seconds=time.perf_counter() - began, bytes=taken)
    print(msgspec.json.encode(cost).decode())


def _prepare(recipe: Recipe, text: Path, out: Path) -> None:
    prepare(recipe, [str(text)], out=out, valid=None, options=TextOptions(), watcher=Watcher())


if __name__ == "__main__":
    main()
