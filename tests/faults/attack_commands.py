"""Hostile invocations of every command, generated from a seed, and what became of them, counted by class.

    python -m tests.faults.attack_commands --count 1000 --seed 7

Each takes a command line that works and replaces some of it: paths by what is no such file, numbers by odd ones, words
by odd Unicode; or adds options with such values. None may end in a traceback, in exit code 70, or not at all. Commands
run in children of one warm interpreter (`forked.py`), in a folder that is made for the attack.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from larvatus.interfaces.cli.main import app
from tests.faults.forked import Done, Forked

CLASSES = {0: "success", 2: "usage", 3: "recipe", 4: "data", 5: "artefact", 6: "numerics", 75: "stopped, resumable"}
FELL = ("traceback", "hang", "killed", "several lines")
NUMBERS = ("-1", "0", "1", "2", "0.5", "1e308", "nan", "inf", "9" * 400, "0x10", "٣", "", " ", "1.5", "-0", "1e-320")
WORDS = ("", " ", "\ud800", "\u202e", "[MASK]" * 50, "a" * 70_000, "%s%n", "$(id)", "\x1b[2J", "é" * 300, "{blank}")
_NEVER = ("serve", "studio", "bench", "demo", "doctor")
"""Commands that wait for requests, or work for minutes without an input."""


_LEFT_OUT = {"--help", "--version", "--debug", "--ray"}
"""Options that end a command at once, or begin a cluster, which takes half a minute."""


class Attack(NamedTuple):
    words: tuple[str, ...]
    outcome: str
    done: Done


def odd_paths(folder: Path) -> list[str]:
    """Files, folders and names that are not what a command wants."""
    write: dict[str, bytes] = {
        "empty.txt": b"",
        "blank.csv": b"\n\n\n",
        "binary.txt": bytes(range(256)) * 50,
        "nul.jsonl": b'{"text": "a\\u0000b"}\n\0\n',
        "deep.json": b"[" * 50_000,
        "digits.txt": b"1234567890" * 2_000,
        "huge-number.json": b'{"text": ' + b"9" * 5_000 + b"}",
        "list.jsonl": b"[1, 2]\n[3]\n",
        "nan.jsonl": b'{"text": NaN, "label": Infinity}\n',
        "ragged.csv": b'text,label\n"a,b\nc,d,e,f\n,,\n',
        "utf16.txt": "The bank.".encode("utf-16"),
        "cut.txt.gz": b"\x1f\x8b\x08\x00\x00",
        "cut.parquet": b"PAR1aaaaPAR1",
        "cut.safetensors": b"\xff" * 16,
        "half.toml": b"[model\nlayers = ",
        "tokenizer.json": b'{"model": {"type": "WordPiece", "vocab": 3}}',
        "surrogate.jsonl": b'{"text": "\\ud800"}\n',
    }
    for name, contents in write.items():
        (folder / name).write_bytes(contents)
    pq.write_table(pa.table({"number": [1, 2], "text": [None, "a"]}), folder / "nulls.parquet")
    os.mkfifo(folder / "fifo.txt")
    os.mkfifo(folder / "fifo.jsonl")
    (folder / "folder").mkdir()
    (folder / "circle").symlink_to("circle")
    (folder / "nowhere").symlink_to("not/there")
    (folder / "odd").mkdir()
    (folder / "odd" / "config.json").write_text(json.dumps({"model_type": ["bert"], "vocab_size": "many"}))
    (folder / "odd" / "larvatus.json").write_text("[]")
    names = [*write, "nulls.parquet", "fifo.txt", "fifo.jsonl", "folder", "circle", "nowhere", "odd"]
    return [*names, ".", "/dev/zero", "missing", "a\nb", "x" * 300, "*", "**/[", "s3://x/y"]


def working(folder: Path, model: Path) -> list[list[str]]:
    """Command lines that are understood; most of them work."""
    text, rows, pairs = folder / "text.txt", folder / "rows.csv", folder / "pairs.jsonl"
    text.write_text("The river ran past the bank of the town.\n\nThe bank lent money to the town.\n" * 10)
    rows.write_text("text,label\n" + "the river ran,wet\nthe bank lent,dry\n" * 10)
    pairs.write_text(json.dumps({"sentence_good": "the river ran", "sentence_bad": "river the ran"}) + "\n")
    tuning = f"--train {rows} --model {model} --epochs 1 --out o --device cpu"
    lines = [
        f"fill The|[MASK]|ran. --model {model}",
        f"score the|river --model {model}",
        f"score --pairs {pairs} --model {model}",
        f"embed {text} --model {model} --out v.npy --unit word",
        f"similar the|*bank* --in {text} --model {model}",
        f"similar index {text} --word bank --out i --model {model}",
        f"search build {text} --out s --model {model} --device cpu",
        f"search the|river --index s --model {model}",
        f"map bank --corpus {text} --out m.html --model {model} --method pca",
        f"attention the|bank --model {model} --out a.html",
        f"isotropy show --corpus {text} --model {model}",
        f"patch the|[MASK]|ran a|[MASK]|ran --answers river,bank --model {model}",
        f"knockout --corpus {text} --tokens 500 --greedy 0 --model {model}",
        f"features train --corpus {text} --layer 1 --out f --size 32 --k 4 --model {model}",
        f"probe {rows} --model {model}",
        f"tokenizer train {text} --size 48 --out t",
        f"tokenizer show {model} the|river",
        f"corpus check {text} --workers 1 --against {text}",
        f"corpus build {text} --tokenizer {model} --out c --workers 1",
        f"corpus contamination missing {rows}",
        f"data check {rows} --for classify",
        f"finetune classify {tuning}",
        f"finetune tag {tuning}",
        f"predict {model} the|river",
        f"evaluate {model} --corpus {text}",
        f"prompt the|river --model {model} --verbaliser a=river --verbaliser b=bank",
        f"audit bias --model {model}",
        f"audit leaks --model {model} --members {text} --held-out {text}",
        f"convert {model} n",
        f"card {model}",
        "recipes show bert --set model.layers=1",
        f"pretrain bert --corpus {text} --out r --steps 1 --size tiny --device cpu --set tokenizer.size=40",
        f"compare bert --corpus {text} --tokens 1000 --size tiny --device cpu --out p --set tokenizer.size=40",
        f"generate the --model {model}",
        f"senses show bank --wordnet {folder}",
        f"export onnx {model} --out x.onnx",
    ]
    return [[word.replace("|", " ") for word in line.split()] for line in lines]


def options() -> dict[str, list[str]]:
    """The options of each command, by its name."""
    found: dict[str, list[str]] = {}

    def walk(command: object, name: str) -> None:
        own = [option for parameter in getattr(command, "params", []) for option in parameter.opts]
        found[name] = sorted({option for option in own if option.startswith("--")} - _LEFT_OUT)
        for inner, below in getattr(command, "commands", {}).items():
            walk(below, f"{name} {inner}".strip())

    walk(typer.main.get_command(app), "")
    return found


def attacks(folder: Path, model: Path, *, count: int, seed: int) -> list[list[str]]:
    """Command lines with one to three words that are not what was wanted."""
    draw = random.Random(seed)
    lines, flags, paths = working(folder, model), options(), odd_paths(folder)
    chosen = [draw.choice(lines) for _ in range(count)]
    return [_spoilt(draw, line, flags.get(" ".join(line[:2])) or flags[line[0]], paths) for line in chosen]


def _spoilt(draw: random.Random, line: Sequence[str], flags: Sequence[str], paths: Sequence[str]) -> list[str]:
    words = list(line)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        value = draw.choice(draw.choice((NUMBERS, WORDS, paths)))
        places = [at for at, word in enumerate(words) if "/" in word]
        kind = draw.choices(("path", "value", "option", "less"), (5, 2, 5, 1))[0]
        if kind == "path" and places:
            words[draw.choice(places)] = draw.choice(paths)
        elif kind == "option" and flags:
            words += [draw.choice(flags), value]
        elif kind == "less" and len(words) > 2:
            del words[draw.randrange(1, len(words))]
        elif len(words) > 1:
            words[draw.randrange(1, len(words))] = value
    return words


def outcome(done: Done) -> str:
    """The class of what became of a command."""
    if done.code == 124:
        return "hang"
    if "Traceback (most recent call last)" in done.said or done.code == 70:
        return "traceback"
    if done.code < 0:
        return "killed"
    complaints = [line for line in done.said.splitlines() if line.startswith("larvatus: ") and "warning" not in line]
    if done.code not in (0, 75) and len(complaints) > 1:
        return "several lines"
    return CLASSES.get(done.code, f"exit {done.code}")


def run_attacks(lines: Sequence[Sequence[str]], folder: Path, say: Callable[[Attack], None]) -> Counter[str]:
    """Run each in the folder; `say` is called with those that fell."""
    counts: Counter[str] = Counter()
    here = os.getcwd()
    os.chdir(folder)
    try:
        with Forked() as larvatus:
            for words in lines:
                if words[0] in _NEVER:
                    continue
                done = larvatus(*words)
                attack = Attack(tuple(words), outcome(done), done)
                counts[attack.outcome] += 1
                if attack.outcome in FELL:
                    say(attack)
    finally:
        os.chdir(here)
    return counts


def _shown(attack: Attack) -> None:
    words = " ".join(word if len(word) < 60 else f"{word[:40]}…({len(word)})" for word in attack.words)
    print(f"{attack.outcome}: {words!r}\n    {attack.done.said.strip()[-800:]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    from tests.tiny import make_tiny

    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    try:
        model = make_tiny(folder / "model")
        lines = attacks(folder, model, count=given.count, seed=given.seed)
        counts = run_attacks(lines, folder, _shown)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)
    for name, count in counts.most_common():
        print(f"{count:6,} {name}")


if __name__ == "__main__":
    main()
