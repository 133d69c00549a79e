"""A new vocabulary for an old model against the old vocabulary and against training from scratch, on small languages.

    python benchmarks/new_vocabulary.py DATA                                   # eight languages; hours on a GPU
    python benchmarks/new_vocabulary.py DATA --model runs/en --languages sw --steps 100 --size 4000 --old old.txt

`DATA` has `text/xx_bible.txt.xz` for each language and `text/en_wiki.valid.txt.xz`, of which the first 1.4 MB are
replayed and the last 60 kB measure the old domain, unless --replay-text and --old name other files. Every run of a
language takes equally many steps with the same batch and lengths. Nats per word are those of hidden whole words of
held-out text, which compare across vocabularies. "steps to scratch" is the step of the first evaluation whose loss is
at most the final one of training from scratch, which has the same vocabulary.

WECHSEL is measured where --dictionary names a folder with xx.tsv (a word, a tab, its English translation).
JSON of all rows comes last.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import larvatus as lv
from larvatus.core.tables import Cell, Column, Table
from larvatus.data.corpus import Corpus
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.bundle.model_names import model_path
from larvatus.models.recipes import Recipe, parse_recipe, recipe_toml
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime
from larvatus.training.pretraining.domains import word_loss

LANGUAGES = ("sw", "eu", "uk", "zu", "wo", "lv", "gu", "ee")
INITIALISATIONS = ("random", "copy", "mean", "focus", "wechsel")
OLD_CHARACTERS, REPLAY_CHARACTERS = 60_000, 1_400_000


@dataclass(frozen=True)
class Row:
    """One run."""

    language: str
    run: str
    seed: int
    nats: float
    """Nats per hidden word of held-out text in the new language."""
    tokens_per_word: float
    old_before: float | None
    old_after: float | None
    """Nats per hidden word of the old domain."""
    steps_to_scratch: int | None
    seconds: float


@dataclass(frozen=True)
class Texts:
    """Files that the runs read."""

    new: Path
    old: Path
    replay: Path


def main() -> None:
    given = _arguments()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        for language in given.languages:
            texts = _texts(given, language, Path(folder))
            for seed in given.seeds:
                for row in _runs(given, language, seed, texts, Path(folder) / f"{language}-{seed}"):
                    rows.append(row)
                    print(json.dumps(asdict(row)), flush=True)
    Reporter.on_stream().show(_table(rows, given))
    print(json.dumps([asdict(row) for row in rows]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="english", help="model to start from; its recipe is that of every run")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--initialise", nargs="*", default=INITIALISATIONS)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32, help="sequences of a step")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--size", type=int, default=8000, help="tokens of the new vocabulary")
    parser.add_argument("--share", type=float, default=0.1, help="of the steps that train only embeddings first")
    parser.add_argument("--replay", type=float, default=0.1, help="share of replayed text in the last run")
    parser.add_argument("--old", type=Path, help="text that measures the old domain")
    parser.add_argument("--replay-text", type=Path)
    parser.add_argument("--dictionary", type=Path, help="folder of xx.tsv")
    parser.add_argument("--characters", type=int, help="of the new text at most")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="settings of every run, as in pretrain")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, help="where runs are kept while they are needed")
    return parser.parse_args()


def _texts(given: argparse.Namespace, language: str, folder: Path) -> Texts:
    new = folder / f"{language}.txt"
    new.write_text(_unpacked(given.data / "text" / f"{language}_bible.txt.xz")[: given.characters], encoding="utf-8")
    old, replay = given.old, given.replay_text
    if old is None or replay is None:
        english = _unpacked(given.data / "text" / "en_wiki.valid.txt.xz")
        for name, text in (("old", english[-OLD_CHARACTERS:]), ("replay", english[:REPLAY_CHARACTERS])):
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        old, replay = old or folder / "old.txt", replay or folder / "replay.txt"
    return Texts(new, old, replay)


def _unpacked(path: Path) -> str:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def _runs(given: argparse.Namespace, language: str, seed: int, texts: Texts, folder: Path) -> Iterator[Row]:
    """Scratch first, whose final loss the others are to reach."""
    settings = [
        f"batch={given.batch}",
        *(f"phases.{number}.length={given.length}" for number in range(len(_recipe(given.model).phases))),
        *given.settings,
    ]
    how: dict[str, Any] = {
        "corpus": texts.new,
        "language": language,
        "steps": given.steps,
        "seed": seed,
        "evaluate_every": max(1, given.steps // 20),
        "save_every": given.steps,
        "device": given.device,
        "quiet": True,
    }
    size = f"tokenizer.size={given.size}"
    recipe = folder.with_suffix(".toml")
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(recipe_toml(_recipe(given.model)), encoding="utf-8")
    goal: float | None = None
    for name, more in _variants(given, language, texts):
        out, began = folder / name, time.monotonic()
        if name == "scratch":
            lv.pretrain(recipe, out=out, settings=[*settings, size], **how)
        else:
            new = [] if name == "old-vocabulary" else [size]
            options = {"start": given.model, "old": texts.old, **more}
            lv.pretrain(out=out, settings=[*settings, *new], **options, **how)
        goal = _curve(out)[-1][1] if name == "scratch" else goal
        seconds = round(time.monotonic() - began, 1)
        yield _row(out, _parent(given.model), name, goal, language=language, seed=seed, seconds=seconds)


def _parent(model: str) -> Bundle:
    return load_bundle(Path(model_path(model)))


def _recipe(model: str) -> Recipe:
    return parse_recipe(dict(_parent(model).recipe or {}), where=model)


def _variants(given: argparse.Namespace, language: str, texts: Texts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of the runs, with their options."""
    yield "scratch", {}
    yield "old-vocabulary", {}
    new = {"vocabulary": "new", "embedding_share": given.share}
    for initialise in given.initialise:
        options = {**new, "initialise": initialise}
        if initialise == "wechsel":
            if given.dictionary is None:
                continue
            options |= {"dictionary": given.dictionary / f"{language}.tsv", "replay_text": texts.replay}
        yield initialise, options
    if given.replay:
        yield "focus+replay", {**new, "replay": given.replay, "replay_text": texts.replay}


def _curve(out: Path) -> list[tuple[int, float]]:
    """(step, held-out loss per token) of the evaluations along the way, and of the last one."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["kind"] in ("valid", "final")]
    return [(line["step"], line.get("scores/masked-lm/loss") or line["scores"]["masked-lm"]["loss"]) for line in kept]


def _row(out: Path, parent: Bundle, name: str, goal: float | None, **known: Any) -> Row:
    bundle, lines = load_bundle(out), (out / "metrics.jsonl").read_text().splitlines()
    records = [line for line in map(json.loads, lines) if line["kind"] == "domain"]
    old = next((line for line in records if (line["domain"], line["objective"]) == ("old", "masked-lm")), {})
    valid = Corpus.open(out / "corpus" / "valid")
    reached = [step for step, loss in _curve(out) if goal is not None and loss <= goal]
    if name == "old-vocabulary":  # the same tokens before and after, so pretrain gives no nats per word
        shards = Corpus.open(out / "corpus" / "old")
        old = {"nats a word before": _nats(parent, shards), "nats a word after": _nats(bundle, shards)}
    comparable = name not in ("scratch", "old-vocabulary")  # losses per token of the same tokens
    return Row(
        run=name,
        nats=_nats(bundle, valid),
        tokens_per_word=valid.tokens / valid.words,
        old_before=old.get("nats a word before"),
        old_after=old.get("nats a word after"),
        steps_to_scratch=min(reached, default=None) if comparable else None,
        **known,
    )


def _nats(bundle: Bundle, valid: Corpus) -> float:
    recipe = parse_recipe(dict(bundle.recipe or {}), where=str(bundle.path))
    return word_loss(bundle.network, valid, recipe, length=recipe.phases[-1].length, runtime=Runtime())


def _table(rows: list[Row], given: argparse.Namespace) -> Table:
    columns = [Column("language", right=False), Column("run", right=False), Column("seed"), Column("nats per word")]
    columns += [Column(name) for name in ("tokens per word", "old before", "old after", "steps to scratch")]
    lines = []
    for row in rows:
        figures = [row.nats, row.tokens_per_word, row.old_before, row.old_after]
        shown = ["–" if figure is None else f"{figure:.3f}" for figure in figures]
        reached = "–" if row.steps_to_scratch is None else f"{row.steps_to_scratch:,}"
        lines.append([Cell(text) for text in (row.language, row.run, str(row.seed), *shown, reached)])
    title = (
        f"{given.steps:,} steps of {given.batch * given.length:,} tokens from {given.model}, {given.size:,} new tokens"
    )
    return Table(title=title, columns=columns, rows=lines)


if __name__ == "__main__":
    main()
