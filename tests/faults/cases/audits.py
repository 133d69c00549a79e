"""Hostile files of audits and cards: nested without end, of odd types, pipes, figures of hundreds of digits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from larvatus.core.files import sha256
from larvatus.models.bundle.checksums import model_digest
from tests.faults.cases import Case, Place
from tests.faults.cases.made import own

NESTED = "x = " + "[" * 5_000
LISTS = "[" * 40 + "]" * 40
TEST = 'attributes = {a = ["a", "b"], b = ["c", "d"]}\n'
TABLE = "text\tlabel\nthe river was wide\twet\nhe turned his homework in\tdry\n"


def bias(option: str, contents: str | bytes, name: str = "mine.toml", *more: object) -> Callable[[Place], list[object]]:
    return lambda place: ["audit", "bias", "--model", place.model, option, place.write(name, contents), *more]


def claim(place: Place, change: Callable[[Path, dict[str, Any]], Any]) -> Path:
    """A copy of the model whose card claims one thing, as `change` has it."""
    model = own(place, place.model)
    manifest = json.loads((model / "larvatus.json").read_text())
    made: dict[str, Any] = {"metric": "accuracy", "value": 0.9, "command": "evaluate", "model": "0" * 64}
    change(model, made)
    (model / "larvatus.json").write_text(json.dumps({**manifest, "claims": [made]}))
    return model


def card(**values: Any) -> Callable[[Place], list[object]]:
    return lambda place: ["card", claim(place, lambda _, made: made.update(values)), "--verify"]


def rendered(**values: Any) -> Callable[[Place], list[object]]:
    return lambda place: ["card", claim(place, lambda _, made: made.update(values))]


def added(text: str) -> Callable[[Place], list[object]]:
    return lambda place: ["card", own(place, place.model), "--add", place.write("result.json", text)]


def measured_on(**data: str) -> Callable[[Place], list[object]]:
    """A claim of text by this name, and a pipe that nobody writes into; only README.md is not as it should be."""

    def command(place: Place) -> list[object]:
        said = {"name": "pipe", "sha256": sha256(place.text), "kind": "corpus", **data}
        model = signed(place, command="evaluate text", settings={"tokens": 100}, data=[said])
        (place.here / "in").mkdir()
        os.mkfifo(place.here / "in" / "pipe")
        return ["card", model, "--verify", "--data", place.here / "in", "--json"]

    return command


def signed(place: Place, **values: Any) -> Path:
    """With the checksum of the model, so that the claim is worked out again."""
    return claim(place, lambda path, made: made.update(model=model_digest(path), **values))


def pipe(place: Place) -> list[object]:
    os.mkfifo(place.here / "pipe")
    return ["card", signed(place), "--verify", "--data", place.here / "pipe"]


CASES = [
    Case("templates nested without end", bias("--templates", NESTED), 4, ("mine.toml",)),
    Case("association tests nested without end", bias("--associations", NESTED), 4, ("mine.toml",)),
    Case(
        "sentences of templates that are nested lists", bias("--templates", f"sentences = {LISTS}"), 4, ("sentences",)
    ),
    Case("a number of 5,000 digits in templates", bias("--templates", f"x = {'9' * 5_000}"), 4, ("mine.toml",)),
    Case(
        "an association test whose name is nested lists",
        bias("--associations", f'[[tests]]\nname = {LISTS}\ntargets = {{x = ["a", "b"], y = ["c", "d"]}}\n{TEST}'),
        4,
        ("name must be a text",),
    ),
    Case("a template whose groups are numbers", bias("--templates", 'sentences = ["[GROUP] [MASK]"]\ngroups = 3'), 4),
    Case("an audit of a column that is not there", bias("--pairs", "a,b\n1,2\n", "x.csv"), 4, ("sent_more",)),
    Case("a figure of 400 digits in a card", card(value=10**400), 5, ("18 digits",)),
    Case("a figure of 400 digits in a card to render", rendered(value=-(10**400)), 5, ("18 digits",)),
    Case("an interval of 400 digits in a card", card(low=-(10**400), high=10**400), 5, ("claim 1",)),
    Case("a seed of 400 digits in a card", card(seed=10**400), 5, ("claim 1",)),
    Case(
        "a figure of 400 digits to add",
        added(f'{{"claims": [{{"metric": "x", "value": {"9" * 400}, "command": "evaluate"}}]}}'),
        4,
        ("18 digits",),
    ),
    Case("a figure of 5,000 digits to add", added(f'{{"claims": [{{"value": {"9" * 5_000}}}]}}'), 4, ("result.json",)),
    Case("a pipe as the data of a card", pipe, 2, ("neither a file nor a directory",)),
    Case("a claim whose text is a pipe", measured_on(), 5, ("1 of its figures",)),
    Case("a claim whose file is a pipe", measured_on(kind="file"), 5, ("1 of its figures",)),
    Case("a claim whose data is this directory", measured_on(name="."), 5, ("1 of its figures",)),
    Case("a claim whose data has no name", measured_on(name=""), 5, ("1 of its figures",)),
]
