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
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from larvatus.core.errors import LarvatusError
from larvatus.data.text.embedded import embedded_documents
from larvatus.evaluation.speed.timing import process_peak
from larvatus.models.recipes import Recipe, parse_recipe, recipe_table
from larvatus.training.engine.reporter import Reporter
from larvatus.training.pretraining.prepare import TextOptions, prepare

DOCUMENTS, PIECES = 60, 1000
"""Of the small text that is prepared first."""


class PreparationCost(Struct, frozen=True, kw_only=True):
    seconds: float
    bytes: int | None
    """None where the system does not say."""


def measure_preparation(recipe: Recipe, text: Path, out: Path) -> PreparationCost:
    """Prepare a text in a new process, and say what that took."""
    given = json.dumps({"recipe": recipe_table(recipe), "text": str(text), "out": str(out)})
    source = str(Path(__file__).parents[3])
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
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=PreparationCost)


def main() -> None:
    """A small text first, so that what is only loaded once does not count."""
    given = json.load(sys.stdin)
    recipe = parse_recipe(given["recipe"], where="recipe")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.txt"
        few = [document.text for document in islice(embedded_documents(), DOCUMENTS)]
        small.write_text("\n\n".join(few), encoding="utf-8")
        with suppress(LarvatusError):  # too little text for some vocabularies: all is loaded by then
            _prepare(_with_few_pieces(recipe), small, Path(folder) / "run")
    began = time.perf_counter()
    taken = process_peak(lambda: _prepare(recipe, Path(given["text"]), Path(given["out"])))
    cost = PreparationCost(seconds=time.perf_counter() - began, bytes=taken)
    print(msgspec.json.encode(cost).decode())


def _with_few_pieces(recipe: Recipe) -> Recipe:
    if getattr(recipe.tokenizer, "size", 0) <= PIECES:
        return recipe
    return msgspec.structs.replace(recipe, tokenizer=msgspec.structs.replace(recipe.tokenizer, size=PIECES))


def _prepare(recipe: Recipe, text: Path, out: Path) -> None:
    prepare(recipe, [str(text)], out=out, valid=None, options=TextOptions(), reporter=Reporter())


if __name__ == "__main__":
    main()
