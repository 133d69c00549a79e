"""A complete benchmark: matrix ceiling, training on full and ragged rows, embedding, loading.

result = measure(subject, runtime, BenchmarkPlan(length=512, tokens=65_536, seconds=3.0), say=print)
"""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.core.run_identity import VERSION
from larvatus.data.corpus.loader import Cursor
from larvatus.evaluation.speed.results import (
    Benchmark,
    LoaderSpeed,
    Machine,
    MeasuredThroughput,
    RuntimeSpeed,
    SpeedResult,
)
from larvatus.evaluation.speed.runtimes import runtime_speeds
from larvatus.evaluation.speed.timing import Ceiling, Timing, matrix_ceiling, peak_bytes, time_in_turns
from larvatus.evaluation.speed.training import (
    BenchmarkModel,
    LarvatusTraining,
    TimedTraining,
    TransformersTraining,
    flops_of,
    mean_length,
    recomputes,
)
from larvatus.inference.model import load
from larvatus.inference.vectors.pooling import Precision
from larvatus.models.bundle.directory import architecture_of
from larvatus.models.bundle.huggingface import Native, layout_for
from larvatus.models.nn.device import processor_name
from larvatus.models.nn.transformer import Transformer
from larvatus.training.engine.settings import Runtime

TRAINING_PEER, EMBEDDING_PEER = "transformers", "sentence-transformers"
WARM = 3
"""Warm-up steps, which also compile."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan:
    """Sizes and duration of a benchmark."""

    length: int
    """Tokens of the longest sequence."""
    tokens: int
    """Tokens per step."""
    seconds: float = 3.0
    """Approximate seconds per figure."""
    peers: bool = True
    """Whether to measure installed peers too."""
    workers: tuple[int, ...] = (0,)
    """Worker counts of the loader."""


def measure(subject: BenchmarkModel, runtime: Runtime, plan: BenchmarkPlan, *, say: Callable[[str], None]) -> Benchmark:
    """Measure all figures, one after the other."""
    say("matrix products …")
    ceiling = matrix_ceiling(runtime.device, runtime.precision, seconds=plan.seconds)
    trains, embeds = (
        (why_no_training_peer(subject), why_no_embedding_peer(subject)) if plan.peers else ("not asked", "not asked")
    )
    notes = [f"no peer in training: {trains}", f"no peer in embedding: {embeds}"] if plan.peers else []
    notes = [note for note, why in zip(notes, (trains, embeds), strict=False) if why]
    if recomputes(subject, runtime):
        notes.append("larvatus computes layers again in the backward pass (--activation-checkpointing)")
    measured = []
    with silence_peers():
        for what, make in (("full rows", subject.full_rows), ("ragged rows", subject.ragged_rows)):
            say(f"training on {what} …")
            batches = make(length=plan.length, tokens=plan.tokens)
            measured.append(_training(what, subject, runtime, plan, batches, ceiling, peer=not trains))
        say("embedding …")
        measured.append(_embedding(subject, runtime, plan, ceiling, peer=not embeds))
        runtimes: tuple[RuntimeSpeed, ...] = ()
        if not runtime.cuda and isinstance(subject.network.encoder, Transformer):
            say("embedding in each runtime …")
            sentences, _ = subject.sentences(2 * plan.tokens)
            runtimes = runtime_speeds(subject.directory, sentences, seconds=plan.seconds)
    say("packing and corrupting …")
    loading = loading_rates(subject, length=plan.length, tokens=plan.tokens, workers=plan.workers, seconds=plan.seconds)
    return Benchmark(
        machine=describe_machine(runtime),
        model=subject.name,
        parameters=sum(parameter.numel() for parameter in subject.network.parameters()),
        vocabulary=len(subject.network.encoder.word_vectors),
        text=subject.text,
        ceiling=ceiling,
        measured=tuple(measured),
        loading=loading,
        runtimes=runtimes,
        notes=tuple(notes),
    )


def why_no_training_peer(subject: BenchmarkModel) -> str:
    """Why `transformers` is not measured in training; empty if it is."""
    if find_spec("transformers") is None:
        return f"{TRAINING_PEER} is not installed"
    if _model_type(subject) == Native.model_type:
        return f"{TRAINING_PEER} has no such model"
    masked = [head for head in subject.network.objectives.values() if getattr(head, "needs", None) is MaskedTokens]
    return "" if masked else f"it is not trained only by masked words, as {TRAINING_PEER} would"


def why_no_embedding_peer(subject: BenchmarkModel) -> str:
    """Why `sentence-transformers` is not measured in embedding; empty if it is."""
    if find_spec("sentence_transformers") is None:
        return f"{EMBEDDING_PEER} is not installed"
    if not isinstance(subject.network.encoder, Transformer) or _model_type(subject) == Native.model_type:
        return f"{EMBEDDING_PEER} is made for transformers that read both ways"
    return ""


def _model_type(subject: BenchmarkModel) -> str:
    """Model type of the directory that the model is saved as."""
    architecture = architecture_of(subject.network, subject.recipe.objectives)
    layout = layout_for(architecture, pad=subject.corpus.tokenizer.padding_id, vocabulary=subject.corpus.tokenizer.kind)
    return str(layout.model_type)


def describe_machine(runtime: Runtime) -> Machine:
    name = torch.cuda.get_device_name(runtime.device) if runtime.cuda else processor_name()
    return Machine(
        name=name,
        device=runtime.device,
        precision=runtime.precision,
        compiled=runtime.compile,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        larvatus=VERSION,
    )


def _training(
    what: str,
    subject: BenchmarkModel,
    runtime: Runtime,
    plan: BenchmarkPlan,
    batches: list[TrainingBatch[Ints]],
    ceiling: Ceiling,
    *,
    peer: bool,
) -> SpeedResult:
    """Time Larvatus and the peer in turn on the same batches; then measure the memory of a step of each."""
    reset_compiler(runtime)
    contenders: dict[str, TimedTraining] = {
        "larvatus": LarvatusTraining(subject, runtime, batches, length=plan.length),
    }
    if peer:
        contenders[TRAINING_PEER] = TransformersTraining(subject.directory, runtime, batches, length=plan.length)
    works = {name: contender.step for name, contender in contenders.items()}
    times = time_in_turns(works, device=runtime.device, seconds=plan.seconds, warm=WARM if runtime.compile else 1)
    tokens = sum(batch.tokens.size for batch in batches) / len(batches)
    flops = flops_of(subject.network, subject.recipe, batches)
    memory = {
        name: contender.held_bytes + peak_bytes(contender.step, runtime.device)
        for name, contender in contenders.items()
    }
    rates = {
        name: throughput(times[name], tokens, flops=flops, ceiling=ceiling, peak_bytes=memory[name]) for name in works
    }
    contenders.clear()
    works.clear()
    gc.collect()
    return SpeedResult(
        what=f"training, {what}",
        tokens=round(tokens),
        longest=max(int(batch.tokens.lengths.max()) for batch in batches),
        mean_length=mean_length(batches),
        larvatus=rates["larvatus"],
        peer=TRAINING_PEER if peer else None,
        theirs=rates.get(TRAINING_PEER),
    )


def _embedding(
    subject: BenchmarkModel, runtime: Runtime, plan: BenchmarkPlan, ceiling: Ceiling, *, peer: bool
) -> SpeedResult:
    sentences, tokens = subject.sentences(2 * plan.tokens)
    works = {"larvatus": larvatus_embedding(subject, runtime, sentences)}
    if peer:
        works[EMBEDDING_PEER] = sentence_transformers_embedding(subject, runtime, sentences)
    times = time_in_turns(works, device=runtime.device, seconds=plan.seconds)
    lengths = [len(ids) + 2 for ids in subject.corpus.tokenizer.encode_fast(sentences)]
    flops = sum(length * subject.network.encoder.flops(length) for length in lengths) / 3 / sum(lengths)
    rates = {name: throughput(times[name], tokens, flops=flops, ceiling=ceiling) for name in works}
    return SpeedResult(
        what="embedding sentences",
        tokens=tokens,
        longest=max(lengths),
        mean_length=sum(lengths) / len(lengths),
        larvatus=rates["larvatus"],
        peer=EMBEDDING_PEER if peer else None,
        theirs=rates.get(EMBEDDING_PEER),
    )


def reset_compiler(runtime: Runtime) -> None:
    """Drop compiled code: earlier code counts towards torch's limit of recompilations."""
    if runtime.compile:
        torch.compiler.reset()


def throughput(
    timed: Timing, tokens: float, *, flops: float, ceiling: Ceiling, peak_bytes: int | None = None
) -> MeasuredThroughput:
    """Tokens per second and utilisation, from the time of `tokens` tokens with `flops` operations each."""
    rate = tokens / timed.median
    return MeasuredThroughput(
        tokens_per_second=rate,
        low=tokens / timed.high,
        high=tokens / timed.low,
        mfu=rate * flops / ceiling.flops,
        mfu_of_datasheet=rate * flops / ceiling.datasheet if ceiling.datasheet else None,
        peak_bytes=peak_bytes,
    )


@contextmanager
def silence_peers() -> Iterator[None]:
    """Suppress progress bars and warnings of peers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if find_spec("transformers") is not None:
            from transformers.utils import logging

            logging.set_verbosity_error()
            logging.disable_progress_bar()
        yield


def worker_counts(most: int) -> Sequence[int]:
    """0, 1, 2, 4 … up to `most`.

    >>> worker_counts(6)
    (0, 1, 2, 4, 6)
    """
    powers = [1 << power for power in range(max(most, 0).bit_length()) if 1 << power <= most]
    return tuple(dict.fromkeys([0, *powers, *([most] if most > 0 else [])]))


def larvatus_embedding(subject: BenchmarkModel, runtime: Runtime, sentences: Sequence[str]) -> Callable[[], Any]:
    model = load(subject.directory, device=runtime.device)
    precision: Precision = "bf16" if runtime.precision == "bf16" else "fp32"
    return lambda: model.embed(list(sentences), unit="sentence", precision=precision)


def sentence_transformers_embedding(
    subject: BenchmarkModel, runtime: Runtime, sentences: Sequence[str]
) -> Callable[[], Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(subject.directory), device=runtime.device)
    if runtime.precision == "bf16":
        model = model.to(torch.bfloat16)
    return lambda: model.encode(list(sentences), show_progress_bar=False, convert_to_tensor=True)


def loading_rates(
    subject: BenchmarkModel, *, length: int, tokens: int, workers: Sequence[int], seconds: float
) -> tuple[LoaderSpeed, ...]:
    return tuple(
        LoaderSpeed(workers=count, tokens_per_second=_rate(subject, length, tokens, count, seconds))
        for count in workers
    )


def _rate(subject: BenchmarkModel, length: int, tokens: int, workers: int, seconds: float) -> float:
    """Rate over at least twice as many blocks as may be prepared ahead, and for at least `seconds`."""
    loader = subject.loader(length=length, tokens=tokens, workers=workers)
    steps = loader.steps()
    least, blocks, read = 2 * workers + 1, 0, 0
    began: float | None = None
    place = Cursor()
    try:
        for batch, cursor in steps:
            if began is not None:
                read += batch.tokens.size
            if (cursor.epoch, cursor.block) != (place.epoch, place.block):  # a block has been used up
                now = time.perf_counter()
                if began is None:
                    began = now
                else:
                    blocks += 1
                    if blocks >= least and now - began >= seconds:
                        return read / (now - began)
            place = cursor
    finally:
        loader.close()
        close = getattr(steps, "close", None)
        if close is not None:
            close()
    raise AssertionError("steps have no end")
