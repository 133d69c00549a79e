"""The training process of Learn: a job on standard input, events on standard output, each a line of JSON.

    python -m larvatus.interfaces.studio.learn_process < job.json

It stops and saves its state when standard input has more data or ends, so that it never outlives the studio.
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
from typing import Any, TypeVar

import msgspec

from larvatus.core.errors import LarvatusError, Preempted
from larvatus.data.labelled.split import hold_out
from larvatus.interfaces.api.finetuning import FineTunedModel, finetune
from larvatus.interfaces.studio.learn_request import LearnJob
from larvatus.tasks.candidates.baseline import MOST, bag_of_words
from larvatus.tasks.candidates.report import BaselineComparison, compare_with_baseline
from larvatus.tasks.candidates.search import is_searchable
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import parse_file_options
from larvatus.tasks.trainer.checkpoint import Epoch
from larvatus.tasks.trainer.config import Callbacks
from larvatus.training.engine.reporter import Reporter

Send = Callable[..., None]
NICENESS = 5
"""Priority: the page stays responsive while this trains."""
ENOUGH = 2**20
"""Most bytes of a job."""


Job = TypeVar("Job", bound=LearnJob)


def main() -> int:
    return run_job(LearnJob, learn)


def run_job(kind: type[Job], work: Callable[[Job, Send], None]) -> int:
    """Read the job and run it; its events and how it ends go to standard output."""
    send = _channel()
    job = msgspec.json.decode(_first_line(), type=kind)
    threading.Thread(target=_stop_on_input, daemon=True).start()
    os.nice(NICENESS)
    try:
        work(job, send)
    except LarvatusError as fault:
        send(error=str(fault), stopped=isinstance(fault, Preempted))
        return fault.exit_code
    except Exception as fault:
        traceback.print_exc()
        send(error=f"unexpected error: {type(fault).__name__}: {fault}", stopped=False)
        return 70
    send(done=True)
    return 0


def learn(job: LearnJob, send: Send) -> None:
    """Train, then compare what was trained with a bag of words."""
    model = train(job, send)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the model is saved: it is too late to stop
    compare(job, model, send)


def train(job: LearnJob, send: Send) -> FineTunedModel:
    """Train, and report progress. The metrics are in `metrics.jsonl` of the folder, as for every run."""
    with Reporter().metrics(Path(job.out)) as metrics:

        def progress(step: int, steps: int, loss: float, speed: float) -> None:
            metrics.write("train", step, {"loss": loss, "texts/s": round(speed, 1)})
            send(stage="training", step=step, steps=steps, loss=loss, speed=round(speed, 1))

        def evaluated(seed: int, epoch: Epoch) -> None:
            metrics.write("valid", epoch.step, {"seed": seed, **epoch.figures()})
            scores = epoch.scores
            send(epoch=epoch.epoch, metric=scores.metric if scores else None, figures=epoch.figures())

        send(stage="searching" if job.choices.searches else "reading")
        return finetune(
            job.task,
            job.model,
            train=job.train,
            out=job.out,
            resume=job.resume,
            device=job.device,
            errors=job.errors,
            watch=Callbacks(say=lambda line: send(said=line), epoch=evaluated, progress=progress),
            **job.choices.settings(),
        )


def compare(job: LearnJob, model: FineTunedModel, send: Send) -> None:
    """Report the candidates of a search, and the model next to a bag of words."""
    if model.search is not None:
        send(
            candidates=[msgspec.to_builtins(each) for each in model.search.candidates],
            chosen=model.search.chosen,
            not_tried=list(model.search.skipped),
        )
    try:
        compared = compare_with_bag_of_words(job, model, send)
    except Exception as fault:  # also out of memory: the model is saved whatever becomes of the comparison
        traceback.print_exc()
        send(said=f"not compared with a bag of words: {type(fault).__name__}: {fault}")
    else:
        if compared is not None:
            send(comparison=compared.to_dict())


def compare_with_bag_of_words(job: LearnJob, model: FineTunedModel, send: Send) -> BaselineComparison | None:
    """Scores of both on texts that neither was trained on; None where a bag of words cannot answer.

    After a search these are all texts, cross-validated; otherwise those that fine-tuning has held out.
    """
    if model.search is not None:
        return model.search.comparison
    if job.task != "classify":
        return None
    examples = read_examples(job.task, job.train, parse_file_options(job.task, {}), errors=job.errors)
    if not is_searchable(examples):
        return None
    if len(examples) > MOST:
        send(said=f"a bag of words is compared on up to {MOST:,} examples, and here are {len(examples):,}")
        return None
    send(stage="comparing")
    parts = hold_out(examples)
    gold = [str(example.label) for example in parts.held_out]
    predictions = model.predict([example.text for example in parts.held_out])
    answers = [str(each.to_dict()["label"]) for each in predictions]
    labels = examples.label_names()
    baseline = bag_of_words(parts.train, parts.held_out)
    return compare_with_baseline(gold, baseline, answers, labels=labels, metric=model.metric)


def _channel() -> Send:
    """Standard output for events; what libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(**values: Any) -> None:
        print(json.dumps(values), file=out, flush=True)

    return send


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < ENOUGH:
        byte = os.read(0, 1)  # no more than the line: any further byte means stop
        if not byte:
            break
        line += byte
    return line


def _stop_on_input() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
