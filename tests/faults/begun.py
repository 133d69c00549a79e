"""Runs of every kind, each interrupted where it has much on the disk: what rows 73 and 74 edit before it continues.

begun = RUNS["pretrain"](place, call, monkeypatch)
begun.again                         # the same command, with --resume
begun.kept                          # the folder with all that the interrupted run left
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from larvatus.data.corpus import build as corpus_build
from larvatus.evaluation.compare import minimal_pairs
from larvatus.inference.vectors import bulk
from larvatus.tasks.trainer import checkpoint as task_checkpoint
from tests import made_up as labelled
from tests.shared import SMALL
from tests.tiny import HEADS, WORDS

Call = Callable[..., tuple[int, str, str]]
PLAIN = [word for word in WORDS.split() if word.isalpha()]


class Interrupted(BaseException):
    """Stands for a kill: what is on the disk stays as it is."""


@dataclass(frozen=True)
class Begun:
    command: list[Any]
    kept: Path
    """What the interrupted run left."""
    inputs: tuple[Path, ...]
    """What it was given: an edit of any of them must be noticed."""
    unread: tuple[str, ...] = ()
    """Files of `kept` that the resume does not read, as globs."""
    flags: tuple[str, ...] = ("--resume",)

    @property
    def again(self) -> list[Any]:
        """The command that continues."""
        return [*self.command, *self.flags]


def after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int) -> None:
    """Have a function do its work `count` times, and then be interrupted."""
    real, seen = getattr(owner, name), []

    def counted(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        seen.append(name)
        if len(seen) >= count:
            raise Interrupted
        return found

    monkeypatch.setattr(owner, name, counted)


def prose(path: Path, sentences: int, seed: int = 0) -> Path:
    draw = random.Random(seed)
    lines = [" ".join(draw.choices(PLAIN, k=draw.randint(4, 9))) + " ." for _ in range(sentences)]
    path.write_text("\n\n".join(" ".join(lines[k : k + 3]) for k in range(0, sentences, 3)) + "\n")
    return path


def edit(path: Path) -> None:
    """Change one word for another of the same length, and put the time back: neither size nor time tells."""
    before = path.stat()
    text = path.read_bytes()
    assert b"wide" in text, path
    path.write_bytes(text.replace(b"wide", b"deep", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def settings(*more: str) -> list[str]:
    return [word for setting in (*SMALL, *more) for word in ("--set", setting)]


def interrupted(call: Call, *command: Any) -> None:
    with pytest.raises(Interrupted):
        pytest.fail(f"ended by itself: {call(*command)}")


def pretrain(place: Path, call: Call, patch: pytest.MonkeyPatch, at: str = "checkpoint") -> Begun:
    text, out = prose(place / "text.txt", 900), place / "run"
    command = ["pretrain", "bert", *settings("tokenizer.size=50", "batch=4"), "--corpus", text, "--out", out]
    command += ["--steps", 6, "--save-every", 1, "--evaluate-every", 6, "--device", "cpu"]
    with patch.context() as own:
        _interrupt_pretraining(own, at)
        interrupted(call, *command)
    unread = ("metrics.jsonl", ".lock", "**/.lock", "corpus/*/journal.jsonl", "vocabulary/*", "corpus/split.json")
    return Begun(command, out, (text,), (*unread, "checkpoints/step-00000002/*"))


def _interrupt_pretraining(patch: pytest.MonkeyPatch, at: str) -> None:
    from larvatus.training.pretraining import prepare
    from larvatus.training.pretraining import run as pretrain

    if at == "vocabulary":
        after(patch, prepare, "record_vocabulary", 1)
    elif at == "training shards":
        after(patch, prepare, "build_corpus", 1)
    elif at == "shards":
        after(patch, prepare, "record_text", 1)
    elif at == "before a checkpoint":
        after(patch, pretrain.PretrainingRun, "_begin", 1)
    else:
        after(patch, pretrain, "save_checkpoint", 3)


def adapt(place: Path, call: Call, patch: pytest.MonkeyPatch, at: str = "checkpoint") -> Begun:
    """From a model, with words of a list, text of the old domain, and held-out text of its own."""
    base = base_model(place)
    text, old, valid = (prose(place / f"{name}.txt", 200, seed) for seed, name in enumerate(("text", "old", "valid")))
    (place / "words.txt").write_text("wideriver\nbankrun\n")
    out = place / "run"
    command = ["pretrain", "bert", "--from", base, "--corpus", text, "--valid", valid, "--old", old]
    command += ["--add-words", place / "words.txt", "--out", out, "--steps", 6, "--save-every", 1]
    command += ["--evaluate-every", 6, "--device", "cpu", "--set", "batch=8", "--set", "phases.0.length=16"]
    command += ["--set", "phases.1.length=16"]
    with patch.context() as own:
        _interrupt_pretraining(own, at)
        interrupted(call, *command)
    unread = ("metrics.jsonl", ".lock", "**/.lock", "corpus/*/journal.jsonl")
    unread += tuple(f"vocabulary/{name}" for name in ("tokenizer*.json", "vocab.txt", "unigram_counts.json"))
    inputs = (text, valid, old, place / "words.txt", base / "config.json", base / "tokenizer_config.json")
    return Begun(command, out, inputs, (*unread, "checkpoints/step-00000002/*"))


SAVE: dict[str, Any] = {}
"""`save_tiny` and `tiny_model`, which are fixtures: put here by `_tiny` of conftest.py."""


def base_model(place: Path) -> Path:
    """A directory without a manifest, as Hugging Face's are: nothing but the run itself can notice an edit."""
    save, make = SAVE["tiny"]
    base: Path = save(place / "base", make(), HEADS)
    (base / "larvatus.json").unlink()
    config = base / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "note": "wide"}))
    config = base / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "note": "wide"}))
    return base


def finetune(place: Path, call: Call, patch: pytest.MonkeyPatch, *more: Any, saves: int = 5) -> Begun:
    """In the second of two seeds, with the best weights of the first kept."""
    base = base_model(place)
    train, dev = labelled.classes(place / "train.jsonl"), labelled.classes(place / "dev.jsonl", seed=1)
    command = ["finetune", "classify", "--model", base, "--train", train, "--dev", dev, "--out", place / "run"]
    command += [*labelled.QUICK, "--seeds", 2, *more]
    with patch.context() as own:
        own.setattr(task_checkpoint, "EVERY_S", -1.0)
        after(own, task_checkpoint.CheckpointStore, "save", saves)
        interrupted(call, *command)
    inputs = (train, dev, base / "config.json", base / "tokenizer_config.json")
    older = sorted(path.name for path in (place / "run" / "checkpoints").glob("seed-*"))[:-1]  # the newest is sound
    return Begun(
        command, place / "run", inputs, (".lock", "metrics.jsonl", *(f"checkpoints/{name}/*" for name in older))
    )


def curve(place: Path, call: Call, patch: pytest.MonkeyPatch) -> Begun:
    return finetune(place, call, patch, "--curve", "50", saves=3)


def embed(place: Path, call: Call, patch: pytest.MonkeyPatch) -> Begun:
    base, text = base_model(place), prose(place / "text.txt", 60)
    command = ["embed", text, "--model", base, "--out", place / "v.parquet", "--device", "cpu"]
    patch.setattr(bulk, "CHARACTERS", 400)  # so that a small text has many parts
    with patch.context() as own:
        after(own, bulk, "_after", 4)
        interrupted(call, *command)
    return Begun(
        command, place / "v.parquet.parts", (text, base / "config.json", base / "tokenizer_config.json"), _LOCK
    )


def index(place: Path, call: Call, patch: pytest.MonkeyPatch) -> Begun:
    from larvatus.inference.search import concordance
    from larvatus.inference.search import index as module

    base, text = base_model(place), prose(place / "text.txt", 60)
    patch.setattr(concordance, "CHARACTERS", 400)
    command = ["similar", "index", text, "--model", base, "--word", "all", "--out", place / "idx", "--device", "cpu"]
    with patch.context() as own:
        after(own, module, "_batch", 3)
        interrupted(call, *command)
    return Begun(command, place / "idx.parts", (text, base / "config.json"), _LOCK)


def score(place: Path, call: Call, patch: pytest.MonkeyPatch) -> Begun:
    base, pairs = base_model(place), place / "pairs.jsonl"
    words = ("river", "bank", "homework", "turn")
    made = [
        {"sentence_good": f"the {a} was wide .", "sentence_bad": f"the {b} wide was ."} for a in words for b in words
    ]
    pairs.write_text("".join(json.dumps(pair) + "\n" for pair in made))
    command = ["score", "--pairs", pairs, "--model", base, "--out", place / "s.jsonl", "--device", "cpu"]
    patch.setattr(minimal_pairs, "BLOCK", 4)
    with patch.context() as own:
        after(own, minimal_pairs, "_vouch", 3)
        interrupted(call, *command)
    inputs = (pairs, base / "config.json", base / "tokenizer_config.json")
    return Begun(command, place / "s.jsonl.parts", inputs, _LOCK)


def compare(place: Path, call: Call, patch: pytest.MonkeyPatch) -> Begun:
    """One run finished and measured, the next begun."""
    from larvatus.training.pretraining import run as pretrain

    text, valid = prose(place / "text.txt", 600), prose(place / "valid.txt", 100, seed=1)
    own = [setting for setting in SMALL if not setting.startswith(("batch", "phases.1"))]
    asked = [*own, "tokenizer.size=50", "batch=4", "phases.1.length=48"]
    (place / "more.toml").write_text('base = "bert"\n[corruption]\nrate = 0.3\n')
    command = [
        "compare",
        f"bert,{place / 'more.toml'}",
        *(word for one in asked for word in ("--set", one)),
        "--steps",
        3,
    ]
    command += ["--corpus", text, "--valid", valid, "--out", place / "run", "--device", "cpu"]
    with patch.context() as own:
        after(own, pretrain, "save_checkpoint", 5)
        interrupted(call, *command)
    unread = (".lock", "**/.lock", "*/metrics.jsonl", "texts/*/vocabulary/*", "texts/*/corpus/*/journal.jsonl")
    return Begun(command, place / "run", (text, valid), (*unread, "bert/README.md", *_OLDER))


def corpus(place: Path, call: Call, patch: pytest.MonkeyPatch) -> Begun:
    """Two shards of a build."""
    base, text = base_model(place), prose(place / "text.txt", 2000)
    command = ["corpus", "build", text, "--tokenizer", base, "--out", place / "run", "--workers", 1]
    real = corpus_build.BuildOptions.__init__

    def small(self: Any, **options: Any) -> None:
        real(self, **{**options, "unit_characters": 4000, "shard_bytes": 20_000})

    patch.setattr(corpus_build.BuildOptions, "__init__", small)
    with patch.context() as own:
        after(own, corpus_build.Journal, "append", 2)
        interrupted(call, *command)
    return Begun(command, place / "run", (text, base / "tokenizer_config.json"), _LOCK, ())


_LOCK = (".lock",)
_OLDER = ("bert/checkpoints/**/*", "more/checkpoints/step-00000001/*")
RUNS: dict[str, Callable[..., Begun]] = {
    "pretrain": pretrain,
    "adapt": adapt,
    "finetune": finetune,
    "curve": curve,
    "embed": embed,
    "index": index,
    "score": score,
    "compare": compare,
    "corpus": corpus,
}
