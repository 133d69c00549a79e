"""A program for `test_hangs.py`: commands that get a SIGTERM in the middle of a stage, one after the other.

Each stage is made to wait after the signal, and then continues, so that a signal which is only noted is noticed.
It prints a line of JSON for each: the stage, the exit code, whether the stage went on before the command ended, what
was said.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from larvatus.interfaces.cli.main import run
from tests.patience import WATCHDOG_S
from tests.shared import SMALL

LONG_S = WATCHDOG_S / 4
went_on = False
over = threading.Event()
"""The command of the stage has ended: a thread of it that still waits, which the process would wait for, ends too."""


def cut_short(real: Callable[..., Any], *, calls: int, whole: bool) -> Callable[..., Any]:
    """The same function, in the n-th call of which the signal comes; `whole`: it must still do its work."""
    left = calls

    def called(*arguments: Any, **more: Any) -> Any:
        nonlocal left
        global went_on
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            if not whole:
                went_on = not over.wait(LONG_S)
        return real(*arguments, **more)

    return called


def stage(name: str, where: str, arguments: list[str], *, calls: int = 1, whole: bool = False) -> None:
    module, _, attribute = where.partition(":")
    holder: Any = importlib.import_module(module)
    *parents, attribute = attribute.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    real = getattr(holder, attribute)
    setattr(holder, attribute, cut_short(real, calls=calls, whole=whole))
    global went_on
    said, code, went_on = io.StringIO(), None, False
    over.clear()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            run(arguments)
    except SystemExit as ended:
        code = ended.code
    finally:
        setattr(holder, attribute, real)
        over.set()
    print(json.dumps({"stage": name, "code": code, "went_on": went_on, "said": said.getvalue()}), flush=True)


def main(train: str, valid: str, model: str) -> None:
    Path("text.txt").write_text("The river was wide and deep. Turn your homework in, please.\n\n" * 4000)
    Path("labelled.tsv").write_text("text\tlabel\n" + "the river\ta\nyour homework\tb\n" * 40)
    Path("pairs.jsonl").write_text('{"sentence_good": "the river was", "sentence_bad": "was the river"}\n' * 40)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    pretrain = ["pretrain", "bert", *settings, "--steps", "6", "--workers", "0", "--out", "run", "--corpus"]
    text = [*pretrain, "text.txt", "--set", "tokenizer.size=60"]
    shards = [*pretrain, train, "--valid", valid, "--evaluate-every", "2"]
    tune = ["finetune", "classify", "--model", model, "--train", "labelled.tsv", "--epochs", "2", "--out", "tuned"]
    stage("vocabulary", "larvatus.training.pretraining.prepare:train_mixed_vocabulary", text)
    stage("shards", "larvatus.data.corpus.build:_Build._take", text)
    stage("waiting", "larvatus.data.corpus.loader:BlockMaker.make", shards)
    shutil.rmtree("run")
    stage("evaluating", "larvatus.training.pretraining.run:evaluate_held_out", shards)
    stage("saving", "larvatus.training.pretraining.run:save_checkpoint", [*shards, "--resume"], whole=True)
    stage("at the end", "larvatus.training.pretraining.run:PretrainingRun._final", [*shards, "--resume"])
    stage("examples", "larvatus.tasks.classify.task:labelled_texts", tune)
    shutil.rmtree("tuned")
    stage("scoring", "larvatus.tasks.classify.task:TextValidation.scores", tune, calls=2)
    stage("continuing", "larvatus.tasks.trainer.finetune:train_seeds", [*tune, "--resume"])
    finished("finetuned", tune, "tuned", [*tune, "--resume"])
    finished("pretrained", shards, "run", [*shards, "--resume"])
    own = ["--model", model, "--out"]
    build = ["corpus", "build", "text.txt", "--tokenizer", model, "--out", "c"]
    stage("building", "larvatus.data.corpus.build:_Build._take", build)
    stage("embedding", "larvatus.inference.vectors.bulk:embed_texts", ["embed", "text.txt", *own, "v.parquet"])
    stage(
        "pairs",
        "larvatus.evaluation.compare.minimal_pairs:PairRun.to_file",
        ["score", "--pairs", "pairs.jsonl", *own, "s.jsonl"],
    )
    stage("filling", "larvatus.inference.model:Model.fill", ["fill", "the [MASK] was", "--model", model])


def finished(name: str, command: list[str], out: str, again: list[str]) -> None:
    """Let a command that was stopped go on to its end, and compare with one that was not."""
    codes = []
    for arguments in (again, [*command, "--out", "whole"]):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run(arguments)
        except SystemExit as ended:
            codes.append(ended.code)
    same = [Path(folder, "model.safetensors").read_bytes() for folder in (out, "whole")]
    shutil.rmtree("whole")
    print(json.dumps({"stage": name, "codes": codes, "same": same[0] == same[1]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
