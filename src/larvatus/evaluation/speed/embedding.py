"""Sentence embedding by Larvatus, and by `sentence-transformers` from the same directory.

ours = larvatus_embedding(subject, runtime, sentences)
theirs = sentence_transformers_embedding(subject, runtime, sentences)
ours(); theirs()                     # both return the mean over tokens of each sentence
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from larvatus.evaluation.speed.model import BenchmarkModel
from larvatus.inference.model import load
from larvatus.inference.vectors.options import Precision
from larvatus.training.engine.settings import Runtime


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
