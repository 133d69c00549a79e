"""Measure the packaged English model again, step by step, and write its card from the results.

    python packages/english_card.py --results results --data DATA                      # what has no result yet
    python packages/english_card.py --results results --data DATA --only winobias work # these, again
    python packages/english_card.py --results results                                  # the card only
    python packages/english_card.py --results results --add suite.json                 # and what was measured elsewhere

A step is a command of Larvatus (`STEPS`), run without a model's name: the packaged one is taken. Its JSON is kept as
`results/STEP.json`, and its claims take the place of all older claims of the same command, task and data: a figure that
a newer Larvatus names otherwise leaves none behind. DATA is where the published sets and the text lie. The card and the
manifest of src/larvatus_english/model change together; a claim of other weights is refused.

The suite wants a GPU: larvatus evaluate src/larvatus_english/model --suite english --data DATA --json > suite.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from larvatus.core.errors import DataError, UsageError
from larvatus.core.files import read_json
from larvatus.interfaces.api.cards import ModelCard, card
from larvatus.models.bundle.claims import Claim, collect_claims
from larvatus.models.bundle.partial_updates import card_state, write_card

HERE = Path(__file__).resolve().parent
PLACE = HERE.parent / "src" / "larvatus_english" / "model"
OWN = "packages/english_audit"
STEPS: Mapping[str, tuple[str, ...]] = {
    "crows": ("audit", "bias", "--pairs", "data/bias/crows_pairs.csv.xz"),
    "winobias": ("audit", "bias", "--winobias", "data/bias/winobias"),
    "work": ("audit", "bias", "--templates", f"{OWN}/work.toml"),
    "faith": ("audit", "bias", "--templates", f"{OWN}/faith.toml"),
    "words": ("audit", "bias", "--associations", f"{OWN}/words.toml"),
    "neutral": ("audit", "toxicity", "--words", f"{OWN}/unkind.txt"),
    "loaded": ("audit", "toxicity", "--words", f"{OWN}/unkind.txt", "--prompts", f"{OWN}/loaded.tsv"),
    "leaks": (
        *("audit", "leaks", "--members", "data/text/en_wiki.1.txt.xz", "--members", "data/text/en_wiki.2.txt.xz"),
        *("--held-out", "data/text/en_wiki.valid.txt.xz", "--documents", "250", "--draws", "5", "--words", "100"),
        *("--masks", "3", "--spans", "3", "--seed", "0"),
    ),
}
"""Commands in the order of the card, by the name of their result; CrowS-Pairs takes 17 minutes of a core, leaks 24."""
Group = tuple[str, str, tuple[str, ...]]


def measured(name: str, data: Path, out: Path) -> None:
    """Run a step in a folder where `data` and `packages` stand, so that the card names no path of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").symlink_to(data.resolve())
        (Path(folder) / "packages").symlink_to(HERE)
        command = [sys.executable, "-m", "larvatus", *STEPS[name], "--json", "--device", "cpu"]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
        run = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    json.loads(run.stdout)
    out.write_bytes(run.stdout)


def group_of(claim: Claim) -> Group:
    """One measurement: its claims are replaced together."""
    return (claim.command, str(claim.settings.get("task", "")), tuple(sorted(data.sha256 for data in claim.data)))


def replaced(older: Iterable[Claim], newer: Iterable[Claim]) -> list[Claim]:
    """Newer measurements where their older ones stood, and at the end those that are new."""
    groups: dict[Group, list[Claim]] = {}
    for claim in newer:
        groups.setdefault(group_of(claim), []).append(claim)
    claims: list[Claim] = []
    placed: set[Group] = set()
    for claim in older:
        group = group_of(claim)
        if group not in groups:
            claims.append(claim)
        elif group not in placed:
            placed.add(group)
            claims += groups[group]
    return claims + [claim for group, members in groups.items() if group not in placed for claim in members]


def write(results: Sequence[Path], place: Path = PLACE) -> ModelCard | None:
    """Card and claims of the packaged model from these results; None where nothing changed."""
    state = card_state(place)
    newer = [claim for path in results for claim in collect_claims(read_json(path, DataError), path)]
    for claim in newer:
        if claim.model != state.manifest.digest:
            raise DataError(f"{claim.label} was measured on other weights than those of {place}; measure again")
    changed = write_card(place, replaced(state.claims, newer))
    return card(place) if changed else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, help="where the published sets and the text lie; none: no step is run")
    parser.add_argument("--only", nargs="+", choices=[*STEPS], help="steps to measure again; default: those to do")
    parser.add_argument("--add", nargs="+", type=Path, default=[], help="results that were measured elsewhere")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    if given.only and given.data is None:
        raise UsageError("--only measures: give --data, where the sets lie")
    paths = {name: given.results / f"{name}.json" for name in STEPS}
    todo = given.only or [name for name, path in paths.items() if not path.exists()]
    for name in todo if given.data is not None else []:
        print(f"{name}: larvatus {' '.join(STEPS[name])}", flush=True)
        measured(name, given.data, paths[name])
    made = write([*(path for path in paths.values() if path.exists()), *given.add])
    print(f"{PLACE / 'README.md'}: {'unchanged' if made is None else f'{len(made.claims)} claims'}")


if __name__ == "__main__":
    main()
