"""From a trained run to the packaged English model: int8 weights, a card with a datasheet, and what rounding cost.

    python packages/package_english.py runs/english --data DATA --valid DATA/text/en_wiki.valid.txt.xz
    python packages/package_english.py runs/fourth/int8 --log log.jsonl --word-layers 7 --data DATA --valid …

The second is for weights that came back in int8 (`english_train.py`, with its log): the card has no row of the weights
before rounding, and steps, tokens and seconds are those of the log; what the lineage said of the run before it becomes
its parent.

DATA is where the files of `english_sources.toml` lie: their sizes, words and hashes go into the card; list there what
the run has read, no more. The directory is written to src/larvatus_english/model, which the wheel of larvatus carries.
Weights that change too much, a directory that is too large, or a manifest that names a path of this machine: refused.
The sentence adapter is not part of a run: larvatus adapter add FILE --model src/larvatus_english/model puts it there.
"""

from __future__ import annotations

import argparse
import json
import lzma
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
from larvatus.core.files import sha256, write_json
from larvatus.data.text.readers import read_documents
from larvatus.inference.vectors.word_layers import set_word_layers
from larvatus.models.bundle.convert import convert_bundle
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.manifest import NAME, plain, read_manifest
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
    "Decisions about people: it repeats the biases of an encyclopaedia, of old novels and of talk. Measure it first.",
    "Other languages than English: it answers, and a warning says that the text looks foreign to its vocabulary.",
    "Code, law, clinical notes: its sources have little of them. `larvatus pretrain --from` adapts it.",
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

An encoder of {parameters:,} parameters, pretrained on the text below. It comes with Larvatus:
`larvatus fill`, `larvatus.load()` and other commands take it where no model is named.

```python
import larvatus as lv

lv.load().fill("Paris is the [MASK] of France.")
```

## As shipped

Matrices are int8 with a float32 scale a row, and are read as float32: {mebibytes:.1f} MiB of weights{moved}.
Held-out text (`{valid}`, {after.tokens:,} tokens, rows of {after.length}, the same masks):

| weights | masked loss | masked accuracy |
| --- | ---: | ---: |
{scores}

## Datasheet

{sources}

{read}

The weights are under {licence}; the text has licences of its own, and none of it is in the package.

## Overlap with evaluation sets

{overlap}

## What it is not fit for

{unfit}
"""
OWN = "\n## The card of the training run\n\n{own}\n"
"""What the run itself wrote, if it wrote a card."""


RUNS = {"fourth_run": "english_fourth.jsonl", "second_edition": "english_third.jsonl"}
"""What runs of `english_train.py` add to the lineage, the latest first, and the log of each."""


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

    def row(self, name: str) -> str:
        return f"| {name} | {self.loss:.4f} | {self.accuracy:.4f} |"


def counted(path: Path) -> tuple[int, int]:
    """Documents and words of a source: of pairs, lines; of questions, passages."""
    if ".json" in path.suffixes:
        articles = json.loads(lzma.decompress(path.read_bytes()))["data"]
        passages = [passage for article in articles for passage in article["paragraphs"]]
        texts = [text for each in passages for text in (each["context"], *(q["question"] for q in each["qas"]))]
        return len(passages), sum(len(text.split()) for text in texts)
    if ".tsv" in path.suffixes:
        texts = lzma.decompress(path.read_bytes()).decode().splitlines()
    else:
        texts = [document.text for document in read_documents([str(path)])]
    return len(texts), sum(len(text.split()) for text in texts)


def source_rows(sources: list[dict[str, str]], data: Path) -> list[str]:
    """The files that were read: a line of a table each."""
    rows = ["| source | licence | documents | words | bytes | SHA-256 |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for source in sources:
        path = data / source["file"]
        documents, words = counted(path)
        cells = [f"{source['what']} (`{path.name}`)", source["licence"], f"{documents:,}", f"{words:,}"]
        rows.append(f"| {' | '.join([*cells, f'{path.stat().st_size:,}', f'`{sha256(path)}`'])} |")
    return rows


def overlap_of(report: dict[str, Any]) -> str:
    """What evaluation sets share with the text, before and after the removal (`english_overlap.json`)."""
    sources, sets = report["sources"].values(), report["sets"]
    removed = sum(source["overlapping_paragraphs"] for source in sources)
    shared = {name: counts for name, counts in sets.items() if counts["shared"]}
    left = [name for name, counts in sets.items() if counts["shared_after"]]
    listed = ", ".join(
        f"{name} {counts['shared']:,} of {counts['examples']:,}"
        for name, counts in sorted(shared.items(), key=lambda each: -each[1]["shared"] / each[1]["examples"])
    )
    return (
        f"Of {sum(source['paragraphs'] for source in sources):,} paragraphs, {removed:,} share a run of "
        f"{report['run_of_words']} words with an evaluation set. The last run did not read them: no set shares a run "
        f"with what it read as text{', except ' + ', '.join(left) if left else ''}. The passages and questions of "
        "SQuAD-shifts were read as pairs. **The runs before it had read Wikipedia and novels without this removal**, "
        f"and their weights are where it began. Examples that share a run with the text before the removal: {listed}; "
        f"none of the other {len(sets) - len(shared)} sets ({', '.join(name for name in sets if name not in shared)})."
    )


def card_of(rounded: Path, valid: str, sources: dict[str, Any], data: Path, *, moved: str, scores: Any) -> str:
    """The README.md of the packaged model."""
    before, after = scores
    bundle = load_bundle(rounded)
    own = re.sub(r"\A---\n.*?\n---\n", "", read_card(bundle), flags=re.DOTALL)  # the front matter
    own = re.sub(r"^#", "###", own, flags=re.MULTILINE)
    own = re.sub(r"^#+ How to use it\n.*?(?=^<!--|^#)", "", own, flags=re.DOTALL | re.MULTILINE)
    rows = [*([before.row("as trained")] if before else []), after.row("as shipped")]
    overlap = json.loads((HERE / "english_overlap.json").read_text(encoding="utf-8"))
    text = CARD.format(
        licence=sources["weights_licence"],
        parameters=sum(parameter.numel() for parameter in bundle.network.parameters()),
        mebibytes=sum(path.stat().st_size for path in find_weights(rounded)) / 2**20,
        moved=moved,
        valid=Path(valid).name,
        after=after,
        scores="\n".join(rows),
        overlap=overlap_of(overlap),
        sources="\n".join(source_rows(sources["source"], data)),
        read=sources["read"],
        unfit="\n".join(f"- {line}" for line in UNFIT),
    )
    return text + (OWN.format(own=own.strip()) if "## Training" in own else "")


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


def place(rounded: Path, out: Path, card: str, log: Path | None, word_layers: str) -> None:
    """The directory as it is shipped: card and claims again, all else as it is."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(rounded, out)
    (out / "README.md").write_text(card, encoding="utf-8")
    if log is not None:
        manifest = read_manifest(out)
        assert manifest is not None
        trained = msgspec.structs.replace(manifest, lineage=lineage_of(manifest.lineage, log))
        write_json(out / NAME, plain(trained))
    write_card(out, [msgspec.structs.replace(claim, model="") for claim in card_state(out).claims])
    lv.card(out)  # sizes and facts of training, where the run wrote none
    set_word_layers(out, word_layers)


def lineage_of(lineage: dict[str, Any], log: Path) -> dict[str, Any]:
    """The lineage of a run of `english_train.py`: what is said of the run before it becomes its parent's."""
    name = next(name for name in RUNS if name in lineage)
    last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    before = {key: value for key, value in lineage.items() if key not in (name, "converted")}
    if earlier := next((HERE / path for key, path in RUNS.items() if key in before), None):
        before = lineage_of(before, earlier)
    steps = last["step"] + 1
    return {
        **({"converted": lineage["converted"]} if "converted" in lineage else {}),
        name: {**lineage[name], "steps": steps},
        "steps": steps,
        "tokens": steps * lineage[name]["tokens"],
        "hardware": lineage["hardware"],
        "training seconds": last["seconds"],
        "parent": {"directory": "english", "lineage": before},
    }


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
    parser.add_argument("--log", type=Path, help="log of english_train.py: the weights are in int8 already")
    parser.add_argument("--word-layers", default="last", help="layers that vectors of words are of")
    given = parser.parse_args()
    sources = tomllib.loads(given.sources.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        rounded = given.run if given.log else Path(folder) / "int8"
        moved = "" if given.log else rounded_from(given.run, rounded)
        check(rounded)
        after = Measured.of(rounded, given.valid, given.tokens)
        before = None if given.log else Measured.of(given.run, given.valid, given.tokens)
        if before and (before.accuracy - after.accuracy > MOST_LOST or before.tokens != after.tokens):
            raise ArtefactError(f"before rounding {before}, after {after}")
        scores = (before, after)
        card = card_of(rounded, given.valid, sources, given.data, moved=moved, scores=scores)
        place(rounded, given.out, card, given.log, given.word_layers)
    size = check(given.out)
    print(f"{given.out}: {size / 2**20:.1f} MiB; masked accuracy as shipped {after.accuracy:.4f}")


if __name__ == "__main__":
    main()
