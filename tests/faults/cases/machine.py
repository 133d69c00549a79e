"""Devices that are not there, variables of a launcher that are half set, sizes beyond this machine's memory."""

from __future__ import annotations

from tests.faults.cases import Case, Place


def fill_on(device: str, *says: str) -> Case:
    return Case(
        f"fill --device {device!r}",
        lambda place: ["fill", "a [MASK]", "--model", place.model, f"--device={device}"],
        2,
        ("--device", *says),
    )


def pretrain(place: Place, *more: object) -> list[object]:
    """A run that would begin, were it not for what comes with it; the corpus is not there."""
    return ["pretrain", "bert", "--size", "tiny", "--corpus", "absent.txt", "--out", "run", "--device", "cpu", *more]


def launched(says: str, **environment: str) -> Case:
    named = " ".join(f"{name}={value}" for name, value in environment.items())
    return Case(f"variables {named}", pretrain, 2, (says,), environment)


def beyond(*settings: str, says: str, code: int = 3) -> Case:
    words = [word for setting in settings for word in ("--set", setting)]
    return Case(f"memory: {' '.join(settings)}", lambda place: pretrain(place, *words), code, ("memory here", says))


DEVICES = [
    fill_on("cuda:99"),
    fill_on("tpu"),
    fill_on("meta", "--device cpu"),
    fill_on("mps"),
    fill_on("vulkan"),
    fill_on("cpu:7"),
    fill_on("cuda:-1"),
    fill_on("nonsense" * 100),
    fill_on("", "auto, cpu or cuda"),
    Case("pretrain --device tpu", lambda place: pretrain(place, "--device", "tpu"), 2, ("--device",)),
    Case("pretrain --device meta", lambda place: pretrain(place, "--device", "meta"), 2, ("--device",)),
    Case("pretrain --precision fp8", lambda place: pretrain(place, "--precision", "fp8"), 2, ("--precision",)),
    Case(
        "finetune --device cuda:99",
        lambda place: [
            *("finetune", "classify", "--model", place.model, "--out", "run", "--device", "cuda:99", "--train"),
            place.write("train.tsv", "text\tlabel\ngood\tyes\nbad\tno\n" * 10),
        ],
        2,
        ("--device",),
    ),
]

LAUNCHERS = [
    launched("WORLD_SIZE", RANK="0"),
    launched("RANK", WORLD_SIZE="2"),
    launched("MASTER_ADDR", RANK="0", WORLD_SIZE="2"),
    launched("MASTER_PORT", RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1"),
    launched("RANK", RANK="5", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500"),
    launched("WORLD_SIZE", RANK="0", WORLD_SIZE="two"),
    launched("WORLD_SIZE", RANK="0", WORLD_SIZE="0"),
    launched("WORLD_SIZE", RANK="0", WORLD_SIZE="-1"),
    launched("RANK", RANK="first", WORLD_SIZE="1"),
    launched("RANK", RANK="", WORLD_SIZE="2"),
    launched("LOCAL_RANK", RANK="0", WORLD_SIZE="2", LOCAL_RANK="nine"),
    launched("MASTER_PORT", RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="99999"),
]

SIZES = [
    beyond("model.hidden=1048576", "model.heads=16", "model.layers=10000", says="model.hidden"),
    beyond("model.max_positions=16777216", "model.hidden=65536", says="model.max_positions"),
    beyond("batch=16777216", says="lower batch"),
]

CASES: list[Case] = [*DEVICES, *LAUNCHERS, *SIZES]
