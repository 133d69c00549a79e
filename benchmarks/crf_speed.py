"""The CRF against `pytorch-crf` (module torchcrf): loss with its gradient, and decoding; same scores, same run.

    python benchmarks/crf_speed.py [--batch 64] [--length 128] [--tags 17] [--rounds 15] [--device cpu]

Both get the same emissions and parameters, and must give the same log-likelihoods, gradients and best tags. The peer
reads padded rows with a mask, ours the flat batch; neither pays for the conversion. The contenders take turns in each
round; times are medians, ratios medians of the rounds' own ratios. JSON comes last.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torchcrf
from arguments import arguments
from torch import Tensor

from larvatus.core.rng import stream
from larvatus.models.nn.crf import CRF


def seconds(work: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def compare(lengths: list[int], tags: int, rounds: int, device: str) -> dict[str, Any]:
    random = stream(1, "crf speed")
    rows, longest = len(lengths), max(lengths)
    mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    padded = torch.from_numpy(random.normal(0, 2, (rows, longest, tags))).float()
    gold = torch.from_numpy(random.integers(0, tags, (rows, longest)))
    ours, theirs = CRF(tags), torchcrf.CRF(tags, batch_first=True)
    with torch.no_grad():
        ours.transitions.copy_(theirs.transitions)
        ours.start.copy_(theirs.start_transitions)
        ours.end.copy_(theirs.end_transitions)
    flat, flat_gold, sizes = (one.to(device) for one in (padded[mask], gold[mask], torch.tensor(lengths)))
    padded, gold, mask, ours, theirs = (one.to(device) for one in (padded, gold, mask, ours, theirs))
    flat.requires_grad_()
    padded.requires_grad_()

    def our_loss() -> Tensor:
        flat.grad = None
        loss: Tensor = -ours(flat, flat_gold, sizes).sum()
        loss.backward()
        return loss

    def their_loss() -> Tensor:
        padded.grad = None
        loss: Tensor = -theirs(padded, gold, mask)
        loss.backward()
        return loss

    torch.testing.assert_close(our_loss(), their_loss(), rtol=1e-4, atol=0)
    torch.testing.assert_close(flat.grad, padded.grad[mask], rtol=0, atol=1e-3)
    best = [tag for row in theirs.decode(padded, mask) for tag in row]
    assert ours.viterbi(flat, sizes).tolist() == best, "the best tags differ"
    found = {}
    for name, mine, peer in (
        ("loss and gradient", our_loss, their_loss),
        ("decoding", lambda: ours.viterbi(flat, sizes).tolist(), lambda: theirs.decode(padded, mask)),
    ):
        times = [(seconds(mine, device), seconds(peer, device)) for _ in range(rounds)]
        found[name] = {
            "ours_ms": round(1e3 * statistics.median(a for a, _ in times), 2),
            "pytorch_crf_ms": round(1e3 * statistics.median(b for _, b in times), 2),
            "ratio": round(statistics.median(b / a for a, b in times), 2),
        }
    return found


def main() -> None:
    options = arguments(__doc__, batch=64, length=128, tags=17, rounds=15, device="cpu")
    ragged = stream(1, "crf lengths").integers(1, options.length + 1, options.batch).tolist()
    results = {}
    for name, lengths in (("full", [options.length] * options.batch), ("ragged", [options.length, *ragged[1:]])):
        results[name] = compare(lengths, options.tags, options.rounds, options.device)
        for what, figures in results[name].items():
            print(
                f"{name:>6} lengths, {what}: ours {figures['ours_ms']} ms, pytorch-crf {figures['pytorch_crf_ms']} ms,"
                f" {figures['ratio']}× as fast"
            )
    print(json.dumps({**vars(options), "results": results}))


if __name__ == "__main__":
    main()
