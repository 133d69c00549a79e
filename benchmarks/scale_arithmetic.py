"""What large jobs would take, on paper, from measured rates; and a simulation of the step from 8 to 1,024 ranks.

    python benchmarks/scale_arithmetic.py --measure --out docs/scale_simulation.png
    python benchmarks/scale_arithmetic.py --tokens-per-second 585000 --gpu-hour 4.0

`--measure` times reductions and steps of 2 and 4 gloo processes, building and loading, on this machine, and holds the
simulation against them; without it the figures that docs/scale.md names are taken. Rates of other models follow from
the measured one by their operations a token. Nothing here was run on more than one GPU.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from scale_measured import BUCKET_BYTES, BUCKETS, Measured, measure
from scale_simulation import Ring, Step, fitted, simulate

RANKS = (8, 16, 32, 64, 128, 256, 512, 1024)
HOUR = 3600.0
PREDICTED = 0.15
"""Of tokens, whose words the head computes."""


@dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    vocabulary: int
    length: int

    @property
    def weights(self) -> float:
        """Outside the embeddings."""
        return 12 * self.layers * self.hidden**2

    @property
    def parameters(self) -> float:
        return self.weights + (self.vocabulary + 512) * self.hidden

    @property
    def training_operations(self) -> float:
        """A token: two for each weight forward, four backward; attention by the length; the head where it predicts."""
        attention = 2 * self.layers * self.length * self.hidden
        head = PREDICTED * (self.vocabulary + self.hidden) * self.hidden
        return 6 * (self.weights + attention + head)


BERT_BASE = Shape("BERT-base", 12, 768, 30_522, 512)
BERT_LARGE = Shape("BERT-large", 24, 1024, 30_522, 512)
XLM_R_LARGE = Shape("XLM-R large", 24, 1024, 250_002, 512)


@dataclass(frozen=True)
class Rates:
    """What is known of machines; each can be given on the command line."""

    tokens_per_second: float = 585_000
    """Of training BERT-base on one H200: bf16, compiled, shards read along (docs/scale.md)."""
    gpu_hour: float = 4.0
    """Dollars; assumed."""
    core_hour: float = 0.05
    """Dollars; assumed."""
    network: float = 40e9
    """Bytes a second for each GPU: 400 Gbit/s, of which four fifths arrive; assumed."""
    hop: float = 8e-6
    """Seconds; assumed."""
    jitter: float = 0.02
    """Of a rank's step; assumed."""
    cores_per_gpu: int = 8
    build_bytes_s: float = 1.88e6
    """Text into shards, a core, measured with --measure on a busy machine."""
    loader_tokens_s: float = 1.31e6
    """Packed and masked, a core; likewise."""
    fsync_s: float = 0.00125
    """To put a small file on the disk; likewise."""

    @property
    def operations(self) -> float:
        """A second, that a GPU does in training."""
        return self.tokens_per_second * BERT_BASE.training_operations

    def training(self, shape: Shape) -> float:
        """Tokens a second of a shape on one GPU."""
        return self.operations / shape.training_operations

    @property
    def ring(self) -> Ring:
        return Ring(bandwidth=self.network, latency_s=self.hop)


def efficiency(shape: Shape, rates: Rates, ranks: int, *, tokens: float, cores: int | None = None) -> float:
    """The share of a step that is computing; `tokens` are those of a rank."""
    compute = tokens / rates.training(shape)
    load = tokens / (rates.loader_tokens_s * (rates.cores_per_gpu if cores is None else cores))
    step = Step(
        compute_s=compute, gradient_bytes=4 * shape.parameters, bucket_bytes=100e6, jitter=rates.jitter, load_s=load
    )
    return compute / simulate(step, rates.ring, ranks)


def training_case(
    shape: Shape, rates: Rates, *, tokens: float, step: float, gpus: int, text_bytes: float
) -> dict[str, float]:
    """Hours, memory, storage, network and cost of a training run; `step` is in tokens."""
    share = efficiency(shape, rates, gpus, tokens=step / gpus)
    hours = tokens / (rates.training(shape) * gpus * share) / HOUR
    steps = tokens / step
    build = text_bytes / rates.build_bytes_s / HOUR
    ids = 2 if shape.vocabulary <= 1 << 16 else 4
    return {
        "hours": hours,
        "efficiency": share,
        "GPU hours": hours * gpus,
        "cost": hours * gpus * rates.gpu_hour + build * rates.core_hour,
        "weights, gradients, moments GB a GPU, replicated": 16 * shape.parameters / 1e9,
        "the same sharded": 16 * shape.parameters / gpus / 1e9,
        "core hours to build": build,
        "shards GB": text_bytes / 4.2 * (ids + 0.4) / 1e9,
        "network GB a GPU and second": 2 * 4 * shape.parameters * steps / (hours * HOUR) / 1e9,
        "loader tokens/s wanted of a GPU": tokens / (hours * HOUR) / gpus,
    }


def embedding_case(rates: Rates, *, documents: float, tokens: float, gpus: int) -> dict[str, float]:
    """A billion documents: forward alone is a third of training; vectors of 768 halves."""
    shape, text = BERT_BASE, 4.2 * documents * tokens
    hours = documents * tokens / (3 * rates.training(shape) * gpus) / HOUR
    parts = text / (1 << 18)
    return {
        "hours of GPUs": hours,
        "GPU hours": hours * gpus,
        "cost": hours * gpus * rates.gpu_hour,
        "text GB": text / 1e9,
        "vectors GB": documents * shape.hidden * 2 / 1e9,
        "parts": parts,
        "hours of fsync for parts": parts * rates.fsync_s * 2 / HOUR,
        "hours to read text, one process at 150 MB/s": text / 150e6 / HOUR,
        "MB/s into the process that began it": (text + documents * shape.hidden * 4) / (hours * HOUR) / 1e6,
    }


def cases(rates: Rates) -> dict[str, dict[str, float]]:
    published = 0.9e6 * 256 * 128 + 0.1e6 * 256 * 512
    large_batch = 32_768 * 512.0
    return {
        "BERT-large, 64 GPUs, 256 sequences a step": training_case(
            BERT_LARGE, rates, tokens=published, step=256 * 128.0, gpus=64, text_bytes=16e9
        ),
        "BERT-large, 64 GPUs, 32,768 sequences a step (LAMB)": training_case(
            BERT_LARGE, rates, tokens=published, step=large_batch, gpus=64, text_bytes=16e9
        ),
        "XLM-R large, 1 TB once, 128 GPUs": training_case(
            XLM_R_LARGE, rates, tokens=1e12 / 4.2, step=8192 * 512.0, gpus=128, text_bytes=1e12
        ),
        "XLM-R large, as published (1.5M steps of 8,192 sequences), 128 GPUs": training_case(
            XLM_R_LARGE, rates, tokens=1.5e6 * 8192 * 512.0, step=8192 * 512.0, gpus=128, text_bytes=1e12
        ),
        "the same on 512 GPUs": training_case(
            XLM_R_LARGE, rates, tokens=1.5e6 * 8192 * 512.0, step=8192 * 512.0, gpus=512, text_bytes=1e12
        ),
        "a billion documents of 300 tokens, BERT-base, 64 GPUs": embedding_case(
            rates, documents=1e9, tokens=300, gpus=64
        ),
    }


def held_against(measured: Measured, cores: int) -> list[dict[str, float]]:
    """The simulation beside what was measured: the ring is fitted on two processes, and four are foretold."""
    ring = fitted(measured.reductions[2], 2, cores)
    rows = []
    for ranks in (2, 4):
        for size, seconds in measured.reductions[ranks].items():
            rows.append({"ranks": ranks, "bytes": size, "measured": seconds, "simulated": ring.seconds(size, ranks)})
        for compute, load, seconds in measured.steps[ranks]:
            step = Step(
                compute_s=compute, load_s=load, gradient_bytes=BUCKETS * BUCKET_BYTES, bucket_bytes=BUCKET_BYTES
            )
            rows.append({"ranks": ranks, "bytes": 0, "measured": seconds, "simulated": simulate(step, ring, ranks)})
    return rows


def curves(rates: Rates) -> dict[str, list[float]]:
    """Efficiency by ranks."""
    large, step = BERT_LARGE, 32_768 * 512.0

    def line(tokens: dict[int, float], cores: int | None = None) -> list[float]:
        return [efficiency(large, rates, ranks, tokens=tokens[ranks], cores=cores) for ranks in RANKS]

    same = dict.fromkeys(RANKS, 65_536.0)
    return {
        "65,536 tokens a GPU and step": line(same),
        "32,768 sequences of 512 in all": line({ranks: step / ranks for ranks in RANKS}),
        "256 sequences of 512 in all": line({ranks: 256 * 512 / ranks for ranks in RANKS}),
        "8,192 tokens a GPU and step": line(dict.fromkeys(RANKS, 8_192.0)),
    }


def draw(lines: dict[str, list[float]], rows: list[dict[str, float]], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for name, values in lines.items():
        left.plot(RANKS, values, marker="o", markersize=3, label=name)
    left.set(xscale="log", ylim=(0, 1.02), xlabel="GPUs", ylabel="share of a step spent computing")
    left.set_title("BERT-large, simulated", fontsize=10)
    left.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
    left.minorticks_off()
    left.legend(fontsize=8)
    for ranks, mark in ((2, "o"), (4, "s")):
        chosen = [row for row in rows if row["ranks"] == ranks]
        right.scatter(
            [1e3 * row["measured"] for row in chosen],
            [1e3 * row["simulated"] for row in chosen],
            marker=mark,
            label=f"{ranks} gloo processes",
        )
    ends = [1e3 * min(row["measured"] for row in rows) / 1.5, 1e3 * max(row["measured"] for row in rows) * 1.5]
    right.plot(ends, ends, color="grey", linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="simulated, ms")
    right.set_title("reductions and steps on one machine", fontsize=10)
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="time 2 and 4 gloo processes, building and loading here")
    parser.add_argument("--out", type=Path, help="a picture of the simulation (with --measure)")
    for name, default in asdict(Rates()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=None)
    given = vars(parser.parse_args())
    told = {name: given[name] for name in asdict(Rates()) if given[name] is not None}
    rows: list[dict[str, float]] = []
    if given["measure"]:
        measured = measure()
        here = {name: getattr(measured, name) for name in ("build_bytes_s", "loader_tokens_s", "fsync_s")}
        told = {**here, **told}
        rows = held_against(measured, len(os.sched_getaffinity(0)))
    rates = Rates(**told)
    lines = curves(rates)
    print(json.dumps({"rates": asdict(rates), "held against": rows, "cases": cases(rates), "curves": lines}, indent=1))
    if given["out"] and rows:
        draw(lines, rows, given["out"])


if __name__ == "__main__":
    main()
