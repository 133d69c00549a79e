"""From a trained run to the packaged English model: int8 weights, a card with a datasheet, and what rounding cost.

    python packages/package_english.py runs/english --data DATA --valid DATA/text/en_wiki.valid.txt.xz
    python packages/package_english.py int8 --trained metrics.jsonl --data DATA --valid …      # weights rounded before

The second is for weights that were trained elsewhere and came back in int8 (`larvatus convert`): what they scored
before is then the last score of the run itself, on the same text, with the same masks.

DATA is where the files of `english_sources.toml` lie: their sizes, words and hashes go into the card; list there what
the run has read, no more. The directory is written to src/larvatus_english/model, which the wheel of larvatus carries.
Weights that change too much, a directory that is too large, or a manifest that names a path of this machine: refused.
The sentence adapter is not part of a run: larvatus adapter add FILE --model src/larvatus_english/model puts it there.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import larvatus as lv
from larvatus.core.errors import ArtefactError
from larvatus.core.files import sha256
from larvatus.data.text.readers import read_documents
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.partial_updates import card_state, read_card, write_card
from larvatus.models.bundle.weights import find_weights

HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / "src" / "larvatus_english" / "model"
LARGEST = 35 * 2**20
"""Bytes of the directory."""
MOST_LOST = 0.005
"""Of masked accuracy, by rounding."""
UNFIT = (
    "Facts: it fits words into contexts. A likely word is not a true one, and what it read ends when its sources do.",
    "Decisions about people: it repeats the biases of an encyclopaedia and of old novels. Measure it first.",
    "Other languages than English: it answers, and a warning says that the text looks foreign to its vocabulary.",
    "Speech, messages, code, law, medicine: its sources have little of them. `larvatus pretrain --from` adapts it.",
    "Writing: it fills blanks and makes vectors; it does not go on with a text.",
    "The level of models a hundred times its size, in anything.",
)
CARD = """---
language:
- "en"
license: "{licence}"
library_name: larvatus
pipeline_tag: fill-mask
---

# The English model of Larvatus

An encoder of {parameters:,} parameters, trained by `larvatus pretrain` on the text below. It comes with Larvatus:
`larvatus fill`, `larvatus.load()` and other commands take it where no model is named.

```python
import larvatus as lv

lv.load().fill("Paris is the [MASK] of France.")
```

## As shipped

Matrices are int8 with a float32 scale a row, and are read as float32: {mebibytes:.1f} MiB of weights{moved}.
Held-out text (`{valid}`, {before.tokens:,} tokens, rows of {before.length}, the same masks):

| weights | masked loss | masked accuracy |
| --- | ---: | ---: |
| as trained | {before.loss:.4f} | {before.accuracy:.4f} |
| as shipped | {after.loss:.4f} | {after.accuracy:.4f} |

## Datasheet

{sources}

{read}

The weights are under {licence}; the text has licences of its own, and none of it is in the package.

## What it is not fit for

{unfit}

## The card of the training run

{own}
"""


@dataclass(frozen=True)
class Measured:
    """On held-out text."""

    loss: float
    accuracy: float
    tokens: int
    length: int

    @classmethod
    def of(cls, model: Path, valid: str, tokens: int) -> Measured:
        (row,) = lv.evaluate(model, corpus=valid, tokens=tokens).rows()
        return cls(row["loss"], row["accuracy"], row["tokens"], last_length(model))

    @classmethod
    def last_of(cls, metrics: Path, length: int) -> Measured:
        """What a run scored at its end, by its own metrics."""
        rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        final = next(row for row in rows if row["kind"] == "final" and row["length"] == length)
        scores = final["scores"]["masked-lm"]
        return cls(scores["loss"], scores["accuracy"], final["tokens"], length)


def source_rows(sources: list[dict[str, str]], data: Path) -> list[str]:
    """The files that were read: a line of a table each."""
    rows = ["| source | licence | documents | words | bytes | SHA-256 |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for source in sources:
        path = data / source["file"]
        documents = words = 0
        for document in read_documents([str(path)]):
            documents += 1
            words += len(document.text.split())
        cells = [f"{source['what']} (`{path.name}`)", source["licence"], f"{documents:,}", f"{words:,}"]
        rows.append(f"| {' | '.join([*cells, f'{path.stat().st_size:,}', f'`{sha256(path)}`'])} |")
    return rows


def card_of(rounded: Path, valid: str, sources: dict[str, Any], data: Path, *, moved: str, scores: Any) -> str:
    """The README.md of the packaged model."""
    before, after = scores
    bundle = load_bundle(rounded)
    own = re.sub(r"\A---\n.*?\n---\n", "", read_card(bundle), flags=re.DOTALL)  # the front matter
    own = re.sub(r"^#", "###", own, flags=re.MULTILINE)
    own = re.sub(r"^#+ How to use it\n.*?(?=^<!--|^#)", "", own, flags=re.DOTALL | re.MULTILINE)
    return CARD.format(
        licence=sources["weights_licence"],
        parameters=sum(parameter.numel() for parameter in bundle.network.parameters()),
        mebibytes=sum(path.stat().st_size for path in find_weights(rounded)) / 2**20,
        moved=moved,
        valid=Path(valid).name,
        before=before,
        after=after,
        sources="\n".join(source_rows(sources["source"], data)),
        read=sources["read"],
        unfit="\n".join(f"- {line}" for line in UNFIT),
        own=own.strip(),
    )


def last_length(model: Path) -> int:
    """Of the rows of the last phase, in which held-out text is read."""
    recipe = load_bundle(model).recipe
    assert recipe is not None
    return int(recipe["phases"][-1]["length"])


def rounded_from(run: Path, out: Path) -> str:
    """Write a run in int8; what that did to the weights."""
    lost = convert_bundle(run, out, dtype="int8").reconstruction
    assert lost is not None
    return f", rounded by {lost.error:.2%} of their norm (at most {lost.worst_error:.2%}, `{lost.worst}`)"


def place(rounded: Path, out: Path, card: str) -> None:
    """The directory as it is shipped: card and claims again, all else as it is."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(rounded, out)
    (out / "README.md").write_text(card, encoding="utf-8")
    write_card(out, [msgspec.structs.replace(claim, model="") for claim in card_state(out).claims])


def check(directory: Path) -> int:
    """Bytes of what will be shipped."""
    manifest = (directory / "larvatus.json").read_text(encoding="utf-8")
    if path := re.search(r'"(/[\w.-]+/[^"]*|[A-Za-z]:\\[^"]*)"', manifest):
        raise ArtefactError(f"larvatus.json names {path[1]}, a path of this machine; give the run by a relative path")
    size = sum(path.stat().st_size for path in directory.iterdir())
    if size > LARGEST:
        raise ArtefactError(f"{size / 2**20:.1f} MiB are more than {LARGEST / 2**20:.0f}; train a smaller model")
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the trained model directory")
    parser.add_argument("--data", type=Path, required=True, help="where the files of the sources lie")
    parser.add_argument("--valid", required=True, help="held-out text")
    parser.add_argument("--tokens", type=int, default=1_048_576, help="of the held-out text to read")
    parser.add_argument("--sources", type=Path, default=HERE / "english_sources.toml")
    parser.add_argument("--out", type=Path, default=PLACE)
    parser.add_argument("--trained", type=Path, help="metrics.jsonl of the run: its weights are in int8 already")
    given = parser.parse_args()
    sources = tomllib.loads(given.sources.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        rounded = given.run if given.trained else Path(folder) / "int8"
        moved = "" if given.trained else rounded_from(given.run, rounded)
        check(rounded)
        after = Measured.of(rounded, given.valid, given.tokens)
        before = (
            Measured.last_of(given.trained, after.length)
            if given.trained
            else Measured.of(given.run, given.valid, given.tokens)
        )
        if before.accuracy - after.accuracy > MOST_LOST or before.tokens != after.tokens:
            raise ArtefactError(f"before rounding {before}, after {after}")
        scores = (before, after)
        place(rounded, given.out, card_of(rounded, given.valid, sources, given.data, moved=moved, scores=scores))
    size = check(given.out)
    print(
        f"{given.out}: {size / 2**20:.1f} MiB; masked accuracy {before.accuracy:.4f}, as shipped {after.accuracy:.4f}"
    )


if __name__ == "__main__":
    main()
