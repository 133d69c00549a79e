"""The search for the recipe of the English model: variants of `modern` at equal tokens, measured alike, and their plot.

    python packages/english_search.py run muon muon-words --corpus BUILT --data DATA --out runs/search [--seed 1]
    python packages/english_search.py table
    python packages/english_search.py plot docs/pictures/english_search.png

`run` trains each by `larvatus compare` (85 million tokens) and measures it by the parts masked and blimp of
`larvatus evaluate --suite english --quick`; what it reached is added to `english_search.jsonl`, the log of the search,
from which docs/english.md has its table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LOG = HERE / "english_search.jsonl"
TOKENS = 85_000_000

ROWS_OF_128 = {
    "batch": "1024", "phases": "[{share = 1.0, length = 128}]", "tokenizer.size": "12288",
    "schedule.warmup_floor": "100", "schedule.cooldown": "0.2",
}  # fmt: skip
"""`modern` has since taken over what the search and the first run found; the search began from what it had before."""
SHAPE = {"model.layers": "8", "model.hidden": "384", "model.heads": "6", "model.init": "0.03"}
ADAMW = {
    "optimizer.type": "adamw", "optimizer.rate": "2.5e-3",
    "optimizer.beta2": "0.98", "optimizer.epsilon": "1e-8", "optimizer.decay": "0.0125",
}  # fmt: skip
MUON = ADAMW | {"optimizer.type": "muon", "optimizer.muon_rate": "0.02", "optimizer.muon_decay": "0.05"}


def hidden(rate: str, *, first_rate: str | None = None, mask: str, random: str, keep: str) -> dict[str, str]:
    """Settings of the masks; a first rate that is not given is the rate, which then stays."""
    shares = {"first_rate": first_rate or rate, "rate": rate, "mask": mask, "random": random, "keep": keep}
    return {f"corruption.{name}": value for name, value in shares.items()}


ALL_MASKED = hidden("0.3", mask="1", random="0", keep="0")
AS_BERT = hidden("0.15", mask="0.8", random="0.1", keep="0.1")

VARIANTS: dict[str, dict[str, str]] = {
    "adamw": ADAMW,
    "muon": MUON,
    "muon-half": MUON | {"batch": "512"},
    "muon-large": MUON | {"model.layers": "12", "model.hidden": "448", "model.heads": "7"},
    "muon-deep12": MUON | {"model.layers": "12", "model.hidden": "320", "model.heads": "5"},
    "muon-wide6": MUON | {"model.layers": "6", "model.hidden": "448", "model.heads": "7"},
    "muon-adam5": MUON | {"optimizer.rate": "5e-3"},
    "muon-rate04": MUON | {"optimizer.muon_rate": "0.04"},
    "muon-cool60": MUON | {"schedule.cooldown": "0.6"},
    "muon-mask15": MUON | AS_BERT,
    "muon-40to15": MUON | AS_BERT | {"corruption.first_rate": "0.4"},
    "muon-words": MUON | {"corruption.type": "whole-words"},
}


def settings_of(name: str) -> list[str]:
    """What makes a variant of `modern`, as `--set` takes it."""
    fields = ROWS_OF_128 | SHAPE | ALL_MASKED | VARIANTS[name]
    types_first = sorted(fields, key=lambda field: not field.endswith(".type"))  # another type begins without fields
    return [f"{field}={fields[field]}" for field in types_first]


def figures_in(suite: Any) -> dict[str, float]:
    """The figures of a suite's JSON by their names."""
    parts = next(iter(suite["models"].values()))["parts"].values()
    return {figure["id"]: figure["value"] for part in parts for figure in part["figures"]}


def run(name: str, *, corpus: Path, data: Path, out: Path, seed: int) -> None:
    place = out / f"{name}-{seed}"
    larvatus = [sys.executable, "-m", "larvatus"]
    settings = [word for setting in settings_of(name) for word in ("--set", setting)]
    budget = ["--tokens", str(TOKENS), "--seed", str(seed), "--valid", str(data / "text" / "en_wiki.valid.txt")]
    subprocess.run(
        [*larvatus, "compare", "modern", "--corpus", str(corpus), "--out", str(place), *settings, *budget], check=True
    )
    results = json.loads((place / "results.json").read_text(encoding="utf-8"))["runs"][0]
    parts = ["--suite", "english", "--data", str(data), "--only", "masked,blimp", "--quick", "--json"]
    done = subprocess.run(
        [*larvatus, "evaluate", str(place / "modern"), *parts, "--out", str(place / "suite")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    row = {"name": name, "seed": seed, "curve": [(at["tokens"], at["loss"]) for at in results["curve"]]}
    row |= {"figures": figures_in(json.loads(done.stdout))}
    with LOG.open("a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in LOG.read_text(encoding="utf-8").splitlines()]


def table() -> None:
    """Markdown: of several seeds each."""
    wanted = {"masked/words": ".3f", "masked/accuracy": ".3f", "blimp": ".3f"}
    print("| variant | nats a word | hidden tokens right | BLiMP |\n| --- | ---: | ---: | ---: |")
    for name in VARIANTS:
        figures = [row["figures"] for row in rows() if row["name"] == name]
        cells = [" · ".join(format(each[of], how) for each in figures) for of, how in wanted.items()]
        print(f"| {name} | {' | '.join(cells)} |")


def plot(path: Path) -> None:
    """Losses over tokens of those with the same masks, and nats a word of all."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    first = [row for row in rows() if row["seed"] == 0]
    for row in first:
        if not any(word in row["name"] for word in ("words", "15")):
            tokens, losses = zip(*row["curve"], strict=True)
            left.plot([n / 1e6 for n in tokens[1:]], losses[1:], label=row["name"])
    left.set(xlabel="million tokens", ylabel="held-out loss, 30% of the tokens hidden", title="Same masks")
    left.legend(frameon=False, fontsize=8)
    for place, name in enumerate(reversed(VARIANTS)):
        values = [row["figures"]["masked/words"] for row in rows() if row["name"] == name]
        right.plot(values, [place] * len(values), "o", color="C0")
    right.set_yticks(range(len(VARIANTS)), list(reversed(VARIANTS)))
    right.set(xlabel="nats a word (whole words hidden)", title="All variants; a point for each seed")
    right.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "plot"])
    parser.add_argument("names", nargs="*", help="variants; of plot, the picture's file")
    parser.add_argument("--corpus", type=Path, help="a built corpus")
    parser.add_argument("--data", type=Path, help="the folder of the suite's files")
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.what == "table":
        table()
    elif given.what == "plot":
        plot(Path(given.names[0]))
    elif given.corpus is None or given.data is None:
        parser.error("run wants --corpus and --data")
    else:
        for name in given.names or VARIANTS:
            run(name, corpus=given.corpus, data=given.data, out=given.out, seed=given.seed)


if __name__ == "__main__":
    main()
