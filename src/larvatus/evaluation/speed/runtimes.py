"""What runs an encoder fastest on this CPU, in float32 and in int8, and how far its vectors are from torch's float32.

speeds = runtime_speeds("runs/mine", sentences, seconds=3.0)
speeds[0].runtime, speeds[0].tokens_per_second, speeds[0].cosine

Runtimes embed the same sentences in turn. The fastest of each number type is kept for `runtime="auto"`
(`inference/model/runtime.py`). Two figures state what a runtime costs: the smallest cosine of a sentence's vector with
that of torch in float32, and Spearman's ρ between the similarities of all pairs of sentences in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Floats
from larvatus.evaluation.speed.results import RuntimeSpeed
from larvatus.evaluation.speed.timing import time_in_turns
from larvatus.inference.model import load
from larvatus.inference.model.runtime import RuntimeChoice, candidates, choice_key, keep_choice
from larvatus.metrics.ranking import spearman
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Quantise
from larvatus.models.nn.linear import supports_int8

COMPARED = 200
"""Sentences whose vectors are compared."""


def runtime_speeds(directory: str | Path, sentences: Sequence[str], *, seconds: float) -> tuple[RuntimeSpeed, ...]:
    """Measure all runtimes that can run this model here, and keep the fastest for `auto`."""
    bundle, texts = load_bundle(directory), list(sentences)
    kinds: tuple[Quantise | None, ...] = (None, "int8") if supports_int8() else (None,)
    models = {
        (runtime, quantise): load(directory, device="cpu", runtime=runtime, quantise=quantise)
        for quantise in kinds
        for runtime in candidates(bundle, quantise)
    }
    tokens = sum(map(len, bundle.tokenizer.encode_fast(texts)))
    works = {" ".join(filter(None, key)): (lambda model=model: model.embed(texts)) for key, model in models.items()}
    times = time_in_turns(works, device="cpu", seconds=seconds)
    exact = _unit(models["torch", None].embed(texts[:COMPARED]))
    speeds = []
    for (runtime, quantise), name in zip(models, works, strict=True):
        vectors = _unit(models[runtime, quantise].embed(texts[:COMPARED]))
        pairs = np.triu_indices(len(vectors), 1)
        speeds.append(
            RuntimeSpeed(
                runtime=runtime,
                quantise=quantise or "",
                tokens_per_second=tokens / times[name].median,
                low=tokens / times[name].high,
                high=tokens / times[name].low,
                cosine=float((vectors * exact).sum(1).min()),
                agreement=spearman((vectors @ vectors.T)[pairs], (exact @ exact.T)[pairs]),
            )
        )
    for quantise in kinds:
        seconds_of = {
            name: times[" ".join(filter(None, (name, quantise)))].median for name, q in models if q == quantise
        }
        chosen = min(seconds_of, key=lambda name: seconds_of[name])
        if len(seconds_of) > 1:
            key = choice_key(bundle, quantise, list(seconds_of))
            keep_choice(key, RuntimeChoice(chosen=chosen, seconds={str(k): v for k, v in seconds_of.items()}))
    return tuple(speeds)


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled
