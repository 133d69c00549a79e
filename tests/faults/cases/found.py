"""Attacks that fell once: resumed corpora, deep folders, odd tokenizers, missing columns, FIFOs, bombs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from larvatus.interfaces.cli.main import run
from tests.faults.cases import Case, Place
from tests.faults.cases.made import own, vocabulary

DEEP = 1_100
WORDS = "The river ran past the bank of the town and the people of the town came to see it run every day of the week."


def deep(place: Place) -> Path:
    """Folders in folders, more than Python's stack has frames, with a text in the innermost."""
    here = os.getcwd()
    (place.here / "deep").mkdir()
    try:
        os.chdir(place.here / "deep")
        for _ in range(DEEP):
            os.mkdir("d")
            os.chdir("d")
        Path("text.txt").write_text(f"{WORDS}\n" * 20)
    finally:
        os.chdir(here)
    return place.here / "deep"


def fifo(place: Place, name: str = "pipe.txt") -> Path:
    """A FIFO that nobody writes to: whoever opens it waits for ever."""
    os.mkfifo(place.here / name)
    return place.here / name


def resumed(place: Place) -> list[object]:
    """A build that was stopped in its first pass, and whose text then changed."""
    text = place.write("text.txt", "".join(f"{WORDS} {number}.\n\n" for number in range(50)))
    build = ["corpus", "build", text, "--tokenizer", vocabulary(place), "--out", "corpus", "--workers", 1]
    build += ["--filter", "exact"]
    with pytest.raises(SystemExit) as ended:
        run([str(word) for word in build])
    assert not ended.value.code
    for name in ("manifest.json", "journal.jsonl"):
        (place.here / "corpus" / name).unlink(missing_ok=True)
    for shard in (place.here / "corpus").glob("*.arrow"):
        shard.unlink()
    text.write_text("Other words than there were, and fewer of them.\n")
    return build


def tokenizer(change: Callable[[dict[str, object]], None]) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, vocabulary(place))
        settings = json.loads((path / "tokenizer.json").read_text())
        change(settings)
        (path / "tokenizer.json").write_text(json.dumps(settings))
        return ["tokenizer", "show", path, "The river ran."]

    return command


def model_field(key: str, value: object) -> Callable[[Place], list[object]]:
    return tokenizer(lambda settings: settings["model"].update({key: value}))  # type: ignore[attr-defined]


def config_field(key: str, value: object) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        path = own(place, vocabulary(place))
        config = json.loads((path / "tokenizer_config.json").read_text())
        (path / "tokenizer_config.json").write_text(json.dumps(config | {key: value}))
        return ["tokenizer", "show", path, "The river ran."]

    return command


def labelled(*more: object) -> Callable[[Place], list[object]]:
    def command(place: Place) -> list[object]:
        rows = "".join(f"{WORDS},{label}\n" for label in ("good", "bad") * 10)
        train = place.write("train.csv", f"text,label\n{rows}")
        return ["finetune", "classify", "--train", train, "--model", place.model, "--out", "o", "--epochs", 1, *more]

    return command


def prompt(*more: object) -> Callable[[Place], list[object]]:
    return lambda place: ["prompt", WORDS, "--model", place.model, *more]


def command(*words: object) -> Callable[[Place], list[object]]:
    """A command whose words may be functions of the place."""
    return lambda place: [word(place) if callable(word) else word for word in words]


def model(place: Place) -> Path:
    return place.model


def text(place: Place) -> Path:
    return place.text


def newlines(place: Place) -> Path:
    """4 GB of newlines in a few hundred kB: their time is that of 4 billion lines."""
    packer = zstandard.ZstdCompressor(level=3)
    frame = packer.compress(b"\n" * (64 << 20))
    return place.write("newlines.txt.zst", frame * 64)


def repeated(rows: int, size: int) -> Callable[[Place], Path]:
    """A Parquet file whose dictionary holds one text, which all rows repeat."""

    def write(place: Place) -> Path:
        words = (WORDS + " ") * (size // len(WORDS))
        column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([words]))
        pq.write_table(pa.table({"text": column}), place.here / "text.parquet", compression="zstd")
        return place.here / "text.parquet"

    return write


TOKENIZER_FIELDS: list[tuple[str, object]] = [
    ("unk_token", "nowhere"),
    ("unk_token", 7),
    ("vocab", 7),
    ("vocab", {"a": "b"}),
    ("vocab", [1, 2]),
    ("vocab", {"a": -1}),
    ("vocab", {"a": 10**40}),
    ("vocab", {}),
    ("type", 7),
    ("type", "Unigram"),
    ("max_input_chars_per_word", -1),
    ("continuing_subword_prefix", 7),
]
CONFIG_FIELDS: list[tuple[str, object]] = [
    ("unk_token", "nowhere"),
    ("unk_token", 7),
    ("unk_token", [1]),
    ("mask_token", {"content": 3}),
]
BLANK = "{text} It was {blank}."
CHECK = ("corpus", "check", text, "--workers", 1)
CASES = [
    Case("a filtered corpus resumed over other text", resumed, 5, ("other text",)),
    Case("a corpus of 1,100 nested folders", command("corpus", "check", deep, "--workers", 1), 0),
    Case(
        "a pattern over 1,100 nested folders",
        lambda place: ["tokenizer", "train", f"{deep(place)}/**/*.txt", "--size", 48, "--out", "v"],
        4,
        ("nested too deep",),
    ),
    Case("data check of 1,100 nested folders", command("data", "check", deep), 4),
    Case(
        "a corpus into 1,100 nested folders",
        command("corpus", "build", text, "--tokenizer", vocabulary, "--out", deep),
        5,
    ),
    Case("a model in 1,100 nested folders", command("fill", "a [MASK]", "--model", deep), 5),
    *(Case(f"{key} {value!r} of a tokenizer", model_field(key, value), 5) for key, value in TOKENIZER_FIELDS),
    *(Case(f"{key} {value!r} in a tokenizer's config", config_field(key, value), 5) for key, value in CONFIG_FIELDS),
    Case("added tokens that are a number", tokenizer(lambda s: s.update(added_tokens=7)), 5),
    Case("added tokens that are numbers", tokenizer(lambda s: s.update(added_tokens=[7])), 5),
    Case("a normaliser that is a list", tokenizer(lambda s: s.update(normalizer=[1])), 5),
    Case("a post-processor of another type", tokenizer(lambda s: s.update(post_processor={"type": "X"})), 5),
    Case("a group that is no column", labelled("--group", "nowhere"), 4, ("nowhere",)),
    Case("a text that is no column", labelled("--text", "nowhere"), 4, ("nowhere",)),
    Case("a label that is no column", labelled("--label", "nowhere"), 4, ("nowhere",)),
    Case(
        "training data that are a folder",
        command("finetune", "classify", "--train", ".", "--model", model, "--out", "o"),
        4,
    ),
    Case("data check of a folder", command("data", "check", "."), 4),
    Case("data check of a folder for a task", command("data", "check", ".", "--for", "classify"), 4),
    Case("a prompt without labels", prompt("--pattern", BLANK), 2, ("--verbaliser",)),
    Case("a prompt with an empty label", prompt("--pattern", BLANK, "--verbaliser", "="), 2),
    Case("a FIFO against a corpus", command(*CHECK, "--against", fifo), 4, ("FIFO",)),
    Case("a FIFO as a word list", command(*CHECK, "--word-list", fifo), 4, ("FIFO",)),
    Case("a FIFO as text", command("corpus", "check", fifo, "--workers", 1), 4, ("FIFO",)),
    Case("a FIFO as labelled data", lambda place: ["data", "check", fifo(place, "p.csv")], 4, ("FIFO",)),
    Case("a FIFO as pairs", lambda place: ["score", "--pairs", fifo(place, "p.jsonl"), "--model", model(place)], 4),
    Case("a FIFO as texts to embed", command("embed", fifo, "--model", model, "--out", "v.npy"), 4, ("FIFO",)),
    Case("a surrogate as text", command("corpus", "check", "\ud800", "--workers", 1), 4, ("surrogate",)),
    Case(
        "a surrogate as text to train on",
        command("pretrain", "bert", "--corpus", "\ud800", "--out", "r", "--steps", 1, "--device", "cpu"),
        4,
        ("surrogate",),
    ),
    Case("a device as text", command("corpus", "check", "/dev/zero", "--workers", 1), 4, ("device",)),
    Case("4 GB of newlines", command("corpus", "check", newlines, "--workers", 1), 4, ("unpack to more than",)),
    Case(
        "a Parquet file that repeats one text",
        command("corpus", "check", repeated(800, 100_000), "--workers", 1),  # 80 MB, of which 64 are not looked at
        4,
        ("unpack to more than",),
    ),
    Case(
        "labelled data that repeat one text",
        command("data", "check", repeated(20_000, 100_000), "--for", "classify"),
        4,
        ("unpack to more than",),
    ),
    Case(
        "a cell of 80 MB",
        command("corpus", "check", repeated(2, 80 << 20), "--workers", 1),
        4,
        ("more than 67,108,864",),
    ),
]
