"""Texts, marks and ranges of the command line, and options that make no sense together."""

from __future__ import annotations

from tests.faults.cases import Case, Place
from tests.faults.cases.made import PRETRAIN

ODD = "a \udcff [MASK]"


def finetune(task: str, place: Place, *more: str) -> list[object]:
    return ["finetune", task, "--model", place.model, "--train", place.text, "--out", "o", *more]


CASES = [
    Case("a text that is not UTF-8, to fill", lambda place: ["fill", ODD, "--model", place.model], 4, ("surrogate",)),
    Case("a text that is not UTF-8, to score", lambda place: ["score", ODD, "--model", place.model], 4, ("surrogate",)),
    Case("a text that is not UTF-8, for heads", lambda place: ["attention", ODD, "--model", place.model], 4),
    Case(
        "a text that is not UTF-8, for the lens", lambda place: ["lens", ODD, "--model", place.model], 4, ("surrogate",)
    ),
    Case("a text that is not UTF-8, to explain", lambda place: ["explain", ODD, "--model", place.model], 4),
    Case("the lens without a blank", lambda place: ["lens", "the bank", "--model", place.model], 2, ("[MASK]",)),
    Case("an empty text to explain", lambda place: ["explain", "", "--model", place.model], 2),
    Case(
        "a method that there is not",
        lambda place: ["explain", "a [MASK]", "--method", "lime", "--model", place.model],
        2,
        ("lime", "leave-one-out"),
    ),
    Case("a text without a blank", lambda place: ["fill", "the bank", "--model", place.model], 2, ("[MASK]",)),
    Case("an empty text", lambda place: ["fill", "", "--model", place.model], 2),
    Case("a text of spaces", lambda place: ["score", "   ", "--model", place.model], 4),
    Case("heads of an empty text", lambda place: ["attention", "", "--model", place.model], 2),
    Case(
        "layers of all for an index",
        lambda place: [
            "similar",
            "index",
            place.text,
            "--word",
            "bank",
            "--layers",
            "all",
            "--out",
            "i",
            "--model",
            place.model,
        ],
        2,
        ("all",),
    ),
    Case(
        "layers that are not there",
        lambda place: ["embed", place.text, "--layers", 99, "--out", "v.npy", "--model", place.model],
        2,
        ("layer 99",),
    ),
    Case(
        "layers that are a word",
        lambda place: ["embed", place.text, "--layers", "top", "--out", "v.npy", "--model", place.model],
        2,
    ),
    Case(
        "a span of 5,000 digits",
        lambda place: ["similar", "the bank", "--span", "9" * 5_000 + ":1", "--in", place.text, "--model", place.model],
        2,
        ("START:END",),
    ),
    Case(
        "a span of superscripts",
        lambda place: ["similar", "the bank", "--span", "⁴:⁸", "--in", place.text, "--model", place.model],
        2,
        ("START:END",),
    ),
    Case(
        "a span outside its text",
        lambda place: ["similar", "the bank", "--span", "4:99", "--in", place.text, "--model", place.model],
        2,
    ),
    Case(
        "a head of 5,000 digits",
        lambda place: [
            "attention",
            "importance",
            "--corpus",
            place.text,
            "--prune",
            "9" * 5_000 + ":1",
            "--out",
            "o",
            "--model",
            place.model,
        ],
        2,
    ),
    Case(
        "a head that is not there",
        lambda place: ["attention", "the bank", "--layer", 1, "--head", 9, "--model", place.model],
        2,
    ),
    Case("a layer without a head", lambda place: ["attention", "the bank", "--layer", 1, "--model", place.model], 2),
    Case(
        "two texts for one search",
        lambda place: ["similar", "a *bank*", "a *bank*", "--in", place.text, "--model", place.model],
        2,
    ),
    Case("a text without a mark", lambda place: ["similar", "a bank", "a bank", "--model", place.model], 2),
    Case("a command that is not there", lambda place: ["fil"], 2, ("fil",)),
    Case("an option that is not there", lambda place: ["fill", "a [MASK]", "--modle", place.model], 2, ("--modle",)),
    Case("an ablation that is not there", lambda place: ["ablate", "nosuch"], 2, ("nosuch",)),
    Case("a size that is not there", lambda place: [*PRETRAIN, "--corpus", place.text, "--size", "huge"], 3, ("huge",)),
    Case("a layout that is not there", lambda place: ["convert", place.model, "o", "--to", "gpt"], 2),
    Case("a resume of nothing", lambda place: ["score", "a", "--resume", "--model", place.model], 2, ("--pairs",)),
    Case("words to add without a model", lambda place: [*PRETRAIN, "--corpus", place.text, "--add-words", 5], 2),
    Case(
        "words to index from nowhere",
        lambda place: ["similar", "index", place.text, "--words", "no", "--out", "o", "--model", place.model],
        4,
    ),
    Case(
        "a class weight that is not UTF-8",
        lambda place: finetune("classify", place, "--class-weight", "\udcff=1"),
        4,
        ("--class-weight",),
    ),
    Case(
        "a setting of spans that is not UTF-8",
        lambda place: finetune("spans", place, "--set", "longest=\udcff"),
        4,
        ("--set",),
    ),
]
