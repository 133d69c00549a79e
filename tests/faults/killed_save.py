"""Run by test_artefacts.py: save a model over and over, killing the saver, and check after each kill what is there.

python killed_save.py DIRECTORY steps      kill at the 1st, 2nd, … operation that makes something durable
python killed_save.py DIRECTORY moments    kill 50 times after a random delay
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers

from larvatus.core import files, rng
from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.network import Network
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
HEADS = (MaskedLMConfig(),)


def tokenizer() -> Tokenizer:
    library = Library(models.WordPiece({token: id for id, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(TOKENS[:5])
    return Tokenizer.from_library(library)


def save(directory: Path, number: int, hidden: int = 8) -> None:
    """A model whose every weight, and whose lineage, is its number."""
    model = TransformerConfig(layers=1, hidden=hidden, heads=2, max_positions=8)
    network = Network.build(model, HEADS, len(TOKENS), seed=0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(float(number))
    save_bundle(
        directory,
        network=network,
        objective_configs=HEADS,
        tokenizer=tokenizer(),
        recipe=None,
        lineage={"number": number},
        card=f"# number {number}\n",
    )


def everything(directory: Path) -> list[tuple[Path, int, int]]:
    """All that stands there, as far as writing would change it."""
    found = [(path, os.lstat(path)) for path in sorted(directory.rglob("*"))]
    return [(path, status.st_ino, status.st_mtime_ns) for path, status in found]


def check(directory: Path, allowed: set[int | None], *, whole: bool = False) -> int | None:
    """Which model stands there; reading it writes nothing. `whole`: a save has finished, so nothing is left of one."""
    number: int | None
    before = everything(directory)
    try:
        bundle = load_bundle(directory)
    except ArtefactError:
        number = None
    else:
        number = bundle.lineage["number"]
        assert all(bool((p == number).all()) for p in bundle.network.parameters()), "weights of another model"
        assert (files.standing(directory) / "README.md").read_text() == f"# number {number}\n"
    assert number in allowed, f"found {number}, expected one of {allowed}"
    assert everything(directory) == before, "loading wrote something"
    left = [path.name for path in directory.iterdir() if path.name.startswith(".")] if directory.is_dir() else []
    assert not whole or not left, f"left behind: {left}"
    return number


def killed(directory: Path, number: int, *, step: int | None, delay: float | None) -> bool:
    """Save in a child that is killed; whether it was killed before it had finished."""
    child = os.fork()
    if child == 0:
        if step is not None:
            die_at(step)
        save(directory, number)
        os._exit(0)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


DURABLE = ("fsync", "replace", "rename", "mkdir", "rmdir", "unlink", "link")


def die_at(step: int, operations: tuple[str, ...] = DURABLE) -> None:
    """Kill this process just before the step-th operation that makes something durable or visible."""
    left = [step]

    def counted(real: Any) -> Any:
        def operation(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return operation

    for name in operations:
        setattr(os, name, counted(getattr(os, name)))


def by_steps(directory: Path) -> int:
    number: int | None = None
    for step in range(1, 1000):
        if not killed(directory, step, step=step, delay=None):
            assert check(directory, {step}, whole=True) == step
            return step
        number = check(directory, {number, step})
    raise AssertionError("the save never came to its end")


def by_moments(directory: Path) -> int:
    start = time.perf_counter()
    assert not killed(directory, 0, step=None, delay=None)
    took = time.perf_counter() - start
    number: int | None = 0
    stopped = 0
    for attempt, wait in enumerate(rng.stream(11, "kill").uniform(0, 1.3 * took, 50), start=1):
        stopped += killed(directory, attempt, step=None, delay=float(wait))
        number = check(directory, {number, attempt})
    save(directory, 51)
    check(directory, {51}, whole=True)
    return stopped


if __name__ == "__main__":
    torch.set_num_threads(1)  # a forked child has none of its parent's threads
    save(Path(f"{sys.argv[1]} before"), 0)  # what the first save imports would be imported by every child
    print(by_steps(Path(sys.argv[1])) if sys.argv[2] == "steps" else by_moments(Path(sys.argv[1])))
