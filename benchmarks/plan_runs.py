"""Small pretraining runs on texts of some thousand words: what `larvatus plan` predicts a loss from.

    python benchmarks/plan_runs.py runs --texts DIR --jobs fit --out fit.csv         # trains what is not in fit.csv yet
    python benchmarks/plan_runs.py fit fit.csv      # writes runs.csv and fit.json of the package (needs scipy)
    python benchmarks/plan_runs.py test test.csv    # predictions for runs that the fit has not seen, as a table

`--texts` is a folder with `LANGUAGE_NAME.txt.xz` (or plain). A text is cut into pieces of 20 lines. Every tenth piece,
up to 15,000 words of them, is held out; the first pieces in a random order, the same every time, are trained on. The
loss is word-level masked NLL on the held-out pieces, next to that of token frequencies only. `DOCUMENTED` and `UNSEEN`
are runs of the same recipe whose losses docs/ has; their frequencies were measured later, on the same kind of text.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import lzma
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import larvatus as lv
from larvatus.core.rng import stream
from larvatus.data.corpus import Corpus
from larvatus.data.text.readers import read_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation import planning
from larvatus.evaluation.compare.word_nll import MaskedPassages, measure_word_nll
from larvatus.evaluation.planning.loss import LossFit, PlanRun, unigram_word_nll
from larvatus.evaluation.planning.scan import count_words
from larvatus.training.pretraining.checkpoint import newest_checkpoint

LINES, EVERY, HELD_OUT = 20, 10, 15_000


@dataclass(frozen=True)
class Job:
    """A run: text, words of it, budget, and the settings that are not the recipe's."""

    text: str
    words: int
    budget: int
    """Tokens to train on, repeated ones included."""
    recipe: str = "modern"
    size: str = "tiny"
    vocabulary: int = 2_000
    batch: int = 8
    rate: float = 0.3
    dropout: float = 0.0
    seed: int = 0

    @property
    def settings(self) -> list[str]:
        settings = [f"tokenizer.size={self.vocabulary}", f"batch={self.batch}"]
        settings += [f"corruption.rate={self.rate}"]
        settings += [f"corruption.first_rate={self.rate}"] if self.recipe == "modern" else []
        settings += [f"model.dropout={self.dropout}", f"model.attention_dropout={self.dropout}"]
        settings += [f"phases.{number}.length=64" for number in range(1 if self.recipe == "roberta" else 2)]
        return settings


@dataclass(frozen=True)
class Result:
    """What a run gave."""

    parameters: int
    tokens: int
    """Tokens of the training text."""
    seen: int
    """Tokens that were trained on."""
    steps: int
    unigram: float
    loss: float
    error: float
    accuracy: float
    seconds: float


def lines_in_pieces(path: Path) -> Iterator[str]:
    """A file in pieces of 20 lines; a blank line ends a piece."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        part: list[str] = []
        for line in file:
            if line.strip():
                part.append(line.strip())
            if part and (len(part) == LINES or not line.strip()):
                yield "\n".join(part)
                part = []
        if part:
            yield "\n".join(part)


def split(path: Path, words: int, folder: Path) -> tuple[Path, Path]:
    """Training and held-out text, as files."""
    training: list[str] = []
    held_out: list[str] = []
    held = have = 0
    for number, piece in enumerate(lines_in_pieces(path)):
        size = count_words(piece)
        if number % EVERY == EVERY // 2 and held < HELD_OUT:
            held_out.append(piece)
            held += size
        else:
            training.append(piece)
            have += size
        if have > 12 * max(words, HELD_OUT) and held >= HELD_OUT:  # a large text is not read to its end
            break
    chosen: list[str] = []
    total = 0
    for place in stream(0, "plan runs").permutation(len(training)).tolist():
        if total >= words:
            break
        chosen.append(training[place])
        total += count_words(training[place])
    if total < 0.9 * words:
        raise SystemExit(f"{path} has {total:,} words to train on, not {words:,}")
    files = folder / "train.txt", folder / "valid.txt"
    for file, texts in zip(files, (chosen, held_out), strict=True):
        file.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return files


def run(job: Job, texts: Path) -> Result:
    """Train in a temporary folder and measure."""
    found = sorted(texts.glob(f"{job.text}.txt*"))
    if not found:
        raise SystemExit(f"there is no {job.text}.txt in {texts}")
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside)
        train, valid = split(found[0], job.words, folder)
        out, began = folder / "run", time.monotonic()
        model = lv.pretrain(
            job.recipe, corpus=str(train), valid=str(valid), out=out, size=job.size, tokens=job.budget, seed=job.seed,
            settings=job.settings, evaluate_every=1_000_000, save_every=1_000_000, device="cpu", quiet=True,
        )  # fmt: skip
        seconds = time.monotonic() - began
        tokenizer = Tokenizer.load(out / "vocabulary")
        passages = MaskedPassages.of(read_documents([str(valid)]), language=job.text[:2])
        network = model.bundle.network
        score = measure_word_nll(network, tokenizer, passages, room=tokenizer.template.single.text_length(64))
        unigram = unigram_word_nll(tokenizer, passages)
        checkpoint = newest_checkpoint(out, warn=lambda line: None)
        assert score is not None
        assert unigram is not None
        assert checkpoint is not None
        progress = checkpoint.state.progress
        return Result(
            parameters=sum(weights.numel() for weights in network.parameters()),
            tokens=Corpus.open(out / "corpus" / "train").tokens,
            seen=progress.tokens,
            steps=progress.step,
            unigram=round(unigram, 4),
            loss=round(score.loss, 4),
            error=round(score.error, 4),
            accuracy=round(score.accuracy, 4),
            seconds=round(seconds, 1),
        )


def pieces_for(words: int) -> int:
    """Vocabulary of a small text: 2,000 tokens need up to 13,000 words, in Ewe for one."""
    return 1_000 if words < 15_000 else 2_000


JOBS = {
    "fit": [
        ("sw_bible", 5_000, 30_720), ("lv_bible", 15_000, 92_160), ("uk_bible", 45_000, 276_480),
        ("sw_bible", 15_000, 358_400), ("lv_bible", 60_000, 358_400), ("sw_bible", 5_000, 256_000),
    ],
    "test": [
        ("zu_bible", 20_000, 256_000), ("en_children", 50_000, 256_000), ("wo_bible", 30_000, 204_800),
        ("de_drama", 40_000, 256_000), ("eu_bible", 25_000, 256_000), ("ee_bible", 12_000, 204_800),
        ("en_chat", 60_000, 307_200), ("fr_novels", 12_000, 256_000),
    ],
}  # fmt: skip
"""Text, words and tokens of the runs, in the order in which they are worth having."""


def jobs(name: str) -> list[Job]:
    if name not in JOBS:
        raise SystemExit(f"there is no table of runs {name}; there are: {', '.join(JOBS)}")
    return [Job(text, words, budget, vocabulary=pieces_for(words)) for text, words, budget in JOBS[name]]


def documented(
    text: str, size: str, parameters: int, *, words: int, tokens: int, seen: int, unigram: float, loss: float, page: str
) -> PlanRun:
    return PlanRun(
        text=text, words=words, recipe="modern", size=size, parameters=parameters, tokens=tokens, seen=seen,
        unigram=unigram, loss=loss, error=0.1, source=page,
    )  # fmt: skip


WIKI_4000, WIKI_12288 = 13.361, 11.760
"""Token frequencies on Wikipedia, by a vocabulary of 4,000 and one of 12,288 that were trained on 3 MB of it."""
SEARCH = {"words": 31_600_000, "tokens": 48_700_000, "seen": 84_900_000, "unigram": WIKI_12288}
DOCUMENTED = [
    documented("en_wiki", "tiny", 959_136, words=1_600_000, tokens=3_300_000, seen=1_228_800, unigram=WIKI_4000,
               loss=12.20, page="docs/english.md, tiny, 300 steps"),
    documented("en_wiki", "tiny", 959_136, words=3_200_000, tokens=6_600_000, seen=6_144_000, unigram=WIKI_4000,
               loss=11.17, page="docs/comparing.md, modern"),
    documented("embedded", "tiny", 959_136, words=270_751, tokens=391_962, seen=675_840, unigram=9.731,
               loss=9.21, page="docs/english.md, tiny, 165 steps"),
    documented("en_wiki", "8 x 384", 19_000_000, **SEARCH, loss=7.248, page="docs/english.md, search, muon"),
    documented("en_wiki", "8 x 384", 19_000_000, **SEARCH, loss=7.106, page="docs/english.md, search, muon-half"),
    documented("en_wiki", "9 x 512", 35_000_000, words=90_000_000, tokens=139_000_000, seen=3_130_000_000,
               unigram=WIKI_12288, loss=5.81, page="docs/english.md, second run"),
]  # fmt: skip
UNSEEN = [
    documented("en_wiki", "12 x 448", 34_000_000, **SEARCH, loss=7.143, page="docs/english.md, search, muon-large"),
]  # fmt: skip


# Tables.


def read(path: Path) -> list[tuple[Job, Result]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [(_struct(Job, row), _struct(Result, row)) for row in csv.DictReader(file)]


def _struct(kind: type, row: dict[str, str]) -> Any:
    types = {"str": str, "int": int, "float": float}
    return kind(**{each.name: types[str(each.type)](row[each.name]) for each in dataclasses.fields(kind)})


def append(path: Path, job: Job, result: Result) -> None:
    row = dataclasses.asdict(job) | dataclasses.asdict(result)
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def made_here(path: Path) -> list[PlanRun]:
    """The runs of a table of this script."""
    return [
        PlanRun(
            text=job.text, words=job.words, recipe=job.recipe, size=job.size, parameters=result.parameters,
            tokens=result.tokens, seen=result.seen, unigram=result.unigram, loss=result.loss, error=result.error,
            source="plan_runs.py",
        )
        for job, result in read(path)
    ]  # fmt: skip


FIELDS = ("floor", "slope", "middle", "size")


def fitted(runs: list[PlanRun]) -> dict[str, float]:
    """Coefficients by least squares on L / U, from several starting points."""
    from scipy.optimize import least_squares

    def residuals(values: Any) -> list[float]:
        curve = LossFit(**dict(zip(FIELDS, map(float, values), strict=True)), deviation=0.0, runs=0, ranges={})
        return [curve.share(run.amount) - run.loss / run.unigram for run in runs]

    bounds = (0.0, 0.05, 5.0, 0.0), (0.6, 3.0, 60.0, 1.5)
    starts = [(0.2, slope, middle, size) for slope in (0.2, 0.5, 1.0) for middle in (15, 25) for size in (0.1, 0.5)]
    exact = {"xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12}
    tried = [least_squares(residuals, start, bounds=bounds, **exact) for start in starts]
    best = min(tried, key=lambda each: float(each.cost))
    return dict(zip(FIELDS, map(float, best.x), strict=True))


def fit(path: Path) -> None:
    """Fit, and write `runs.csv` and `fit.json` of the package."""
    runs = [*DOCUMENTED, *made_here(path)]
    apart = []
    for number, run in enumerate(runs):
        others = fitted([*runs[:number], *runs[number + 1 :]])
        curve = LossFit(**others, deviation=0.0, runs=0, ranges={})
        apart.append(curve.share(run.amount) - run.loss / run.unigram)
    columns = {"words": "words", "tokens seen": "seen", "parameters": "parameters"}
    values = {name: [getattr(run, column) for run in runs] for name, column in columns.items()}
    made = LossFit(
        **fitted(runs),
        deviation=math.sqrt(sum(residual**2 for residual in apart) / len(apart)),
        runs=len(runs),
        ranges={name: (min(each), max(each)) for name, each in values.items()},
    )
    folder = Path(planning.__file__).parent
    (folder / "fit.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")
    with (folder / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(PlanRun.__struct_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.to_builtins(run) for run in runs)
    show(runs, made)


def show(runs: list[PlanRun], curve: LossFit) -> None:
    """Predicted and measured losses, as a Markdown table."""
    print("| text | words | size | tokens seen | frequencies only | predicted | measured | difference | from |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = []
    for run in runs:
        said = curve.predict(run.amount, unigram=run.unigram)
        errors.append(said.loss - run.loss)
        band = f"{said.loss:.2f} ({said.low:.2f} to {said.high:.2f})" + (" *" if said.outside else "")
        print(
            f"| {run.text} | {run.words:,} | {run.size} | {run.seen:,} | {run.unigram:.2f} | {band} | {run.loss:.2f} | "
            f"{said.loss - run.loss:+.2f} | {run.source} |"
        )
    inside = sum(abs(error) <= 2 * curve.deviation * run.unigram for error, run in zip(errors, runs, strict=True))
    print(
        f"mean absolute difference {sum(map(abs, errors)) / len(errors):.2f}; {inside} of {len(runs)} within the band"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("runs")
    runs.add_argument("--texts", type=Path, required=True)
    runs.add_argument("--jobs", required=True, choices=list(JOBS))
    runs.add_argument("--out", type=Path, required=True)
    for name in ("fit", "test"):
        commands.add_parser(name).add_argument("table", type=Path)
    given = parser.parse_args()
    if given.command == "fit":
        fit(given.table)
    elif given.command == "test":
        show([*UNSEEN, *made_here(given.table)], LossFit.packaged())
    else:
        done = {job for job, _ in read(given.out)}
        for job in jobs(given.jobs):
            if job not in done:
                result = run(job, given.texts)
                append(given.out, job, result)
                print(job, result, flush=True)


if __name__ == "__main__":
    main()
