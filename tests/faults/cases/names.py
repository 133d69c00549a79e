"""Names of files that cannot be, or that are hard to write down: too long, looping, not UTF-8, with line breaks."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.faults.cases import Case, Place
from tests.faults.cases.made import PRETRAIN, vocabulary, wordnet

LONG = "x" * 300
ODD = os.fsdecode(b"caf\xe9.txt")

READS: dict[str, tuple[Callable[[Place, str], list[object]], int]] = {
    "text of pretrain": (lambda place, name: [*PRETRAIN, "--corpus", name], 4),
    "held-out text": (lambda place, name: [*PRETRAIN, "--corpus", place.text, "--valid", name], 4),
    "a recipe": (lambda place, name: ["recipes", "show", f"{name}.toml"], 3),
    "a model": (lambda place, name: ["fill", "a [MASK]", "--model", name], 5),
    "text to embed": (lambda place, name: ["embed", name, "--model", place.model, "--out", "v.npy"], 4),
    "a standardiser": (
        lambda place, name: ["embed", place.text, "--model", place.model, "--out", "v.npy", "--standardise", name],
        5,
    ),
    "text of a vocabulary": (lambda place, name: ["tokenizer", "train", name, "--size", 60, "--out", "v"], 4),
    "a vocabulary": (lambda place, name: ["tokenizer", "show", name], 5),
    "text of a corpus": (
        lambda place, name: ["corpus", "build", name, "--tokenizer", vocabulary(place), "--out", "c", "--workers", 1],
        4,
    ),
    "a corpus": (lambda place, name: ["corpus", "show", name], 4),
    "pairs": (lambda place, name: ["score", "--pairs", name, "--model", place.model], 4),
    "tagged words": (lambda place, name: ["data", "check", name, "--for", "tag"], 4),
    "spans": (lambda place, name: ["data", "check", name, "--for", "spans"], 4),
    "what is to be guessed": (lambda place, name: ["data", "check", name], 4),
    "GLUE": (lambda place, name: ["data", "check", name, "--task", "rte"], 4),
    "WordNet": (lambda place, name: ["senses", "show", "bank", "--wordnet", name], 4),
    "sense vectors": (
        lambda place, name: ["senses", "show", "bank", "--wordnet", wordnet(place), "--senses", name],
        5,
    ),
    "SCWS": (lambda place, name: ["similar", "evaluate", "scws", name, "--model", place.model], 4),
    "a place to search": (lambda place, name: ["similar", "the *bank*", "--in", name, "--model", place.model], 4),
    "text for a tuned lens": (
        lambda place, name: ["lens", "train", "--corpus", name, "--model", place.model, "--out", "l.safetensors"],
        4,
    ),
    "texts to explain": (lambda place, name: ["explain", "--data", name, "--model", place.model], 4),
    "text for heads": (lambda place, name: ["attention", "--corpus", name, "--model", place.model], 4),
}
"""Commands that read one path, and the exit code where it is not there."""
WRITES: dict[str, Callable[[Place, str], list[object]]] = {
    "a run": lambda place, name: [*PRETRAIN[:6], "--corpus", place.text, "--out", name],
    "vectors": lambda place, name: ["embed", place.text, "--model", place.model, "--out", f"{name}.npy"],
    "a vocabulary": lambda place, name: ["tokenizer", "train", place.text, "--size", 60, "--out", name],
    "a converted model": lambda place, name: ["convert", place.model, name],
    "an index": lambda place, name: [
        "similar",
        "index",
        place.text,
        "--word",
        "bank",
        "--out",
        name,
        "--model",
        place.model,
    ],
    "a page": lambda place, name: ["attention", "the bank", "--model", place.model, "--out", name],
    "a picture": lambda place, name: ["attention", "the bank", "--model", place.model, "--png", f"{name}.png"],
}


def loop(place: Place) -> str:
    os.symlink("x", place.here / "x")
    return "x"


def _reading(label: str, name: Callable[[Place], str], **codes: int) -> list[Case]:
    """`codes` where they differ from those of a file that is not there; `others` for all that are not said."""
    return [
        Case(
            f"{label}: {what}",
            lambda place, read=read: read(place, name(place)),
            codes.get(what.replace(" ", "_"), codes.get("others", own)),
        )
        for what, (read, own) in READS.items()
    ]


def _writing(label: str, name: Callable[[Place], str], without: tuple[str, ...] = ()) -> list[Case]:
    return [
        Case(f"{label}: {what}", lambda place, write=write: write(place, name(place)), 5)
        for what, write in WRITES.items()
        if what not in without
    ]


CASES = [
    *_reading(
        "a name over 255 bytes", lambda place: LONG, others=5, a_recipe=3, a_corpus=4, pairs=4, texts_to_explain=4
    ),
    *_reading("a link to itself", loop, a_place_to_search=5),
    *_reading("a missing name with a line break", lambda place: "two\nlines\x1b[31m", a_standardiser=2),
    *_reading("a missing name that is not UTF-8", lambda place: ODD, a_standardiser=2),
    *_writing("an output over 255 bytes", lambda place: LONG),
    *_writing("an output below a file", lambda place: f"{place.text}/x", ("a page", "a picture", "vectors")),
    Case("vectors below a file", lambda place: WRITES["vectors"](place, f"{place.text}/x"), 2, ("is no directory",)),
]
