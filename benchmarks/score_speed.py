"""Minimal pairs on this CPU: our scorer against loops over `BertForMaskedLM` of `transformers`, same weights.

    python benchmarks/score_speed.py --model runs/mine --pairs blimp.jsonl.xz [--count 200] [--rounds 3] [--threads 1]

Two loops: one sentence at a time, its masked copies as one batch (what Salazar et al.'s and minicons' scorers do), and
one masked copy at a time. Both, like ours, run under inference mode; they take the softmax at masked places only, but
the model computes logits at all. Pairs are every so-many-th of the file. Rounds alternate; ratios are of the medians,
of wall-clock time and of the time that the CPU gave to this process (which is fairer on a machine that others use too).
The totals of all sentences must agree to 1e-3 (they are sums of some ten numbers that agree to 1e-4).
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import larvatus as lv
from larvatus.evaluation.compare.minimal_pairs import read_pairs


def their_total(model: Any, tokenizer: Any, text: str, at_once: int | None) -> float:
    """The pseudo-log-likelihood of a sentence; `at_once` copies go through the model together (all by default)."""
    ids = tokenizer(text, return_tensors="pt")["input_ids"][0]
    places = torch.arange(1, len(ids) - 1)
    copies = ids.repeat(len(places), 1)
    copies[torch.arange(len(places)), places] = tokenizer.mask_token_id
    total = 0.0
    size = at_once or len(places)
    for first in range(0, len(places), size):
        own = places[first : first + size]
        logits = model(input_ids=copies[first : first + size]).logits[torch.arange(len(own)), own]
        total += float(torch.log_softmax(logits, dim=-1)[torch.arange(len(own)), ids[own]].sum())
    return total


def timed(work: Callable[[], list[float]]) -> tuple[float, float, list[float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="a directory in the BERT layout, with its masked-lm head")
    parser.add_argument("--pairs", required=True, help="minimal pairs, such as BLiMP's")
    parser.add_argument("--count", type=int, default=200, help="pairs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    ours = lv.load(asked.model, device="cpu")
    theirs = transformers.BertForMaskedLM.from_pretrained(asked.model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.model)
    pairs = read_pairs([asked.pairs])
    pairs = pairs[:: max(1, len(pairs) // asked.count)][: asked.count]
    texts = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]

    ways: dict[str, Callable[[], list[float]]] = {
        "larvatus": lambda: [score.total for score in ours.score(texts)],
        "transformers, sentence by sentence": lambda: [their_total(theirs, tokenizer, t, None) for t in texts],
        "transformers, copy by copy": lambda: [their_total(theirs, tokenizer, t, 1) for t in texts],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    results: dict[str, list[float]] = {}
    with torch.inference_mode():
        ours.score(texts[:20])  # warm up
        their_total(theirs, tokenizer, texts[0], None)
        for turn in range(asked.rounds):
            for name in list(ways)[:: 1 if turn % 2 else -1]:
                wall, cpu, results[name] = timed(ways[name])
                times[name].append((wall, cpu))
    tokens = sum(len(score.pieces) for score in ours.score(texts))
    print(f"{len(pairs):,} pairs, {tokens / len(texts):.1f} tokens a sentence, {asked.threads} threads")
    wall, cpu = ({name: statistics.median(t[which] for t in seen) for name, seen in times.items()} for which in (0, 1))
    for name in ways:
        more = (
            f"   ratio {wall[name] / wall['larvatus']:.1f} by the clock, {cpu[name] / cpu['larvatus']:.1f} of CPU time"
        )
        rates = f"{len(pairs) / wall[name]:8.1f} pairs/s   {len(pairs) / cpu[name]:8.1f} per second of CPU time"
        print(f"{name:<36}{rates}{'' if name == 'larvatus' else more}")
    apart = max(abs(a - b) for own in results.values() for a, b in zip(own, results["larvatus"], strict=True))
    print(f"largest difference of a sentence's total {apart:.1e}")
    if apart > 1e-3:
        raise SystemExit("the totals differ by more than 1e-3")


if __name__ == "__main__":
    main()
