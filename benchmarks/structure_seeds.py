"""Trees, coreference and semantic roles, fine-tuned from one model with several seeds: the tables of the docs.

    python benchmarks/structure_seeds.py DATA --out runs/structure --jobs 6 --minutes 9.5      # repeat until it is done
    python benchmarks/structure_seeds.py DATA --out runs/tiny --examples 20 --epochs 1 --device cpu --only ParTUT

Each run is `larvatus finetune` with default settings, then `larvatus evaluate`; `--jobs` runs share the device. After
`--minutes` all runs are stopped, and save where they are; the same command continues them. The figures of a run
that is finished are a line of `figures.jsonl` in --out, and its model is deleted (`--keep` keeps it). To continue on a
bare machine, take that file along. The first seed of every set comes first, so a table is useful early.

Parsers, OntoGUM and PropBank are scored on the development set that also selects their checkpoint. LitBank has five
folds: every fifth document is test, half of the next fold's validation, the rest training (56, 8 and 16 of 80). Figures
are means of its folds, and GAP is scored by the models of OntoGUM.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from larvatus.core.errors import Preempted
from larvatus.data.text.streams import numbered_lines
from larvatus.tasks.trainer.run import has_finished_run, has_unfinished_run

FOLDS = 5
FIGURES = "figures.jsonl"
DEVELOPMENT = "dev"
"""Name of figures of the set that selects the checkpoint."""
METRICS = {
    "parse": ("uas", "las", "clas", "upos", "ufeats", "lemmas", "raw-las"),
    "coref": ("conll-f1", "muc-f1", "b3-f1", "ceafe-f1", "lea-f1", "mention-f1"),
    "gap": ("gap-f1", "gap-f1-masculine", "gap-f1-feminine", "gap-bias"),
    "roles": ("argument-f1", "found-argument-f1", "predicate-f1", "sense-accuracy"),
}


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Training and development files below the data folder, or one file that is divided into folds."""

    task: str
    train: str
    dev: str = ""
    gap: str = ""
    """File of pronouns that the models are also scored on."""
    french: bool = False
    more: tuple[str, ...] = ()
    """Further options of `larvatus finetune`."""
    default: bool = True
    """Part of a run without --only."""


CORPORA = {
    "EWT": Corpus(task="parse", train="pos/ewt/train.conllu.xz", dev="pos/ewt/dev.conllu.xz"),
    "LinES": Corpus(task="parse", train="ud/English-LinES-train.conllu.xz", dev="ud/English-LinES-dev.conllu.xz"),
    "ParTUT": Corpus(task="parse", train="ud/English-ParTUT-train.conllu.xz", dev="ud/English-ParTUT-dev.conllu.xz"),
    "Sequoia": Corpus(
        task="parse", train="ud/French-Sequoia-train.conllu.xz", dev="ud/French-Sequoia-dev.conllu.xz", french=True,
        more=("--language", "fr"),
    ),
    "OntoGUM": Corpus(
        task="coref", train="coref/ontogum.train.conllu.xz", dev="coref/ontogum.dev.conllu.xz",
        gap="coref/gap-validation.tsv.xz",
    ),
    "LitBank": Corpus(task="coref", train="coref/litbank.conll.xz"),
    "PropBank": Corpus(task="roles", train="srl/propbank_ewt.train.jsonl.xz", dev="srl/propbank_ewt.dev.jsonl.xz"),
    "PropBank-spans": Corpus(
        task="roles", train="srl/propbank_ewt.train.jsonl.xz", dev="srl/propbank_ewt.dev.jsonl.xz",
        more=("--decoder", "spans"), default=False,
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """One model: its corpus, fold and seed, and the files it reads."""

    corpus: str
    seed: int
    fold: int | None
    train: Path
    dev: Path
    tests: Mapping[str, Path]
    """Files that it is scored on, by the name of their figures."""

    @property
    def name(self) -> str:
        return f"{self.corpus}{'' if self.fold is None else f'-fold{self.fold}'}-seed{self.seed}"


def parts_of(path: Path) -> Iterator[str]:
    """Sentences of CoNLL-U, documents of CoNLL-2012 and of CoNLL-U that marks them, lines of other files."""
    lines = [line for _, line in numbered_lines(str(path))]
    kind = Path(path.name.removesuffix(".xz")).suffix
    if kind not in (".conll", ".conllu"):
        yield from (f"{line}\n" for line in lines)
        return
    marked = {".conll": "#begin document", ".conllu": "# newdoc"}[kind]
    documents = "coref" in path.parts
    part: list[str] = []
    for line in lines:
        if documents and line.startswith(marked) and part:
            yield "".join(part)
            part = []
        part.append(f"{line}\n")
        if not documents and not line:
            yield "".join(part)
            part = []
    if "".join(part).strip():
        yield "".join(part)


def written(path: Path, parts: Sequence[str]) -> Path:
    """A file with these parts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(parts), encoding="utf-8")
    return path


def planned(given: argparse.Namespace) -> list[Run]:
    """All runs, the first seed of every corpus first; files of subsets and folds are written where needed."""
    names = given.only.split(",") if given.only else [name for name, corpus in CORPORA.items() if corpus.default]
    if unknown := [name for name in names if name not in CORPORA]:
        sys.exit(f"there is no corpus {unknown[0]}; choose from {', '.join(CORPORA)}")
    runs = []
    for name in names:
        corpus = CORPORA[name]
        source = given.data / corpus.train
        files = {part: given.data / getattr(corpus, part) for part in ("train", "dev", "gap") if getattr(corpus, part)}
        if given.examples and corpus.dev:
            for part, file in files.items():
                path = given.out / "data" / f"{name}-{part}{Path(file.name.removesuffix('.xz')).suffix}"
                files[part] = written(path, list(parts_of(file))[: given.examples + (part == "gap")])  # a row of names
        for seed in map(int, given.seeds.split(",")):
            if corpus.dev:
                tests = {DEVELOPMENT: files["dev"]} | ({"gap": files["gap"]} if corpus.gap else {})
                paths = {"train": files["train"], "dev": files["dev"], "tests": tests}
                runs.append(Run(corpus=name, seed=seed, fold=None, **paths))
            else:
                documents = list(parts_of(source))[: given.examples or None]
                runs += [folded(given.out / "data", name, documents, fold, seed) for fold in range(FOLDS)]
    return sorted(runs, key=lambda run: run.seed)


def folded(folder: Path, name: str, documents: Sequence[str], fold: int, seed: int) -> Run:
    """A fold: every fifth document is test, the first half of the next fold's validation."""
    held = list(documents[(fold + 1) % FOLDS :: FOLDS])
    parts = {"test": documents[fold::FOLDS], "dev": held[: max(1, len(held) // 2)]}
    rest = {*parts["test"], *parts["dev"]}
    parts["train"] = [document for document in documents if document not in rest]
    files = {part: written(folder / f"{name}-{fold}-{part}.conll", own) for part, own in parts.items()}
    return Run(corpus=name, seed=seed, fold=fold, train=files["train"], dev=files["dev"], tests={"test": files["test"]})


@dataclass(eq=False)
class Queue:
    """Runs in several processes, until all are finished or time is up."""

    given: argparse.Namespace
    deadline: float
    live: set[subprocess.Popen[str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False
    failed: list[str] = field(default_factory=list)

    def work(self, run: Run) -> None:
        """Train a model and evaluate it; leave it where it is if time is up."""
        folder = self.given.out / "models" / run.name
        trained = has_finished_run(folder) and not has_unfinished_run(folder)
        if not trained and self.command(run, "finetune", self.training(run, folder)) is None:
            return
        figures = {}
        for name, path in run.tests.items():
            words = ["evaluate", str(folder), "--data", str(path), "--device", self.given.device, "--json"]
            if (printed := self.command(run, name, words)) is None:
                return
            scores = json.loads(printed)
            figures[name] = {metric: value["value"] for metric, value in scores["metrics"].items()}
        record = {"corpus": run.corpus, "fold": run.fold, "seed": run.seed, "figures": figures}
        with self.lock, (self.given.out / FIGURES).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if not self.given.keep:
            shutil.rmtree(folder)
        print(f"{run.name}: finished", flush=True)

    def training(self, run: Run, folder: Path) -> list[str]:
        corpus, given = CORPORA[run.corpus], self.given
        model = given.french if corpus.french and given.french else given.model
        words = ["finetune", corpus.task, "--model", model, "--train", run.train, "--dev", run.dev, "--out", folder]
        words += ["--seed", run.seed, "--device", given.device, "--resume", "--quiet", *corpus.more]
        return [str(word) for word in words + (["--epochs", given.epochs] if given.epochs else [])]

    def command(self, run: Run, step: str, words: Sequence[str]) -> str | None:
        """Standard output of a command of larvatus; None if it was stopped, or failed, which is reported."""
        threads = str(max(1, (os.cpu_count() or 1) // self.given.jobs))
        with self.lock:
            if self.stopped:
                return None
            log = (self.given.out / f"{run.name}-{step}.log").open("w", encoding="utf-8")
            process = subprocess.Popen(
                [sys.executable, "-m", "larvatus", *words],
                stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "OMP_NUM_THREADS": threads},
            )  # fmt: skip
            self.live.add(process)
        began = time.monotonic()
        printed, _ = process.communicate()
        log.close()
        with self.lock:
            self.live.discard(process)
        if process.returncode == 0:
            print(f"{run.name}: {step} in {time.monotonic() - began:.0f} s", flush=True)
            return printed
        if not (self.stopped or process.returncode == Preempted.exit_code):
            print(f"{run.name}: {step} failed, exit code {process.returncode}; see {log.name}", flush=True)
            self.failed.append(run.name)
        return None

    def watch(self, finished: threading.Event) -> None:
        """Stop all runs at the deadline; they save and exit."""
        if not finished.wait(max(0.0, self.deadline - time.monotonic())):
            with self.lock:
                self.stopped = True
                for process in self.live:
                    process.terminate()


def read_figures(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tables(records: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """A table of Markdown for each task: mean and standard deviation over seeds, in per cent."""
    values: dict[tuple[str, str], dict[int, list[Mapping[str, float]]]] = {}
    for record in records:
        figures: Mapping[str, Mapping[str, float]] = record["figures"]  # type: ignore[assignment]
        for name, metrics in figures.items():
            by_seed = values.setdefault((str(record["corpus"]), name), {})
            by_seed.setdefault(int(str(record["seed"])), []).append(metrics)
    for kind, metrics in METRICS.items():
        rows = []
        for (corpus, name), by_seed in values.items():
            if kind != ("gap" if name == "gap" else CORPORA[corpus].task):
                continue
            folds = 1 if CORPORA[corpus].dev else FOLDS
            whole = {seed: own for seed, own in by_seed.items() if len(own) == folds}  # a seed has all its folds
            if whole:
                cells = [spread(metric, list(whole.values())) for metric in metrics]
                rows.append(f"| {corpus} {name} | {len(whole)} | {' | '.join(cells)} |")
        if rows:
            yield "\n".join([f"| | seeds | {' | '.join(metrics)} |", "| --- |" + " --- |" * (1 + len(metrics)), *rows])


def spread(metric: str, seeds: Sequence[Sequence[Mapping[str, float]]]) -> str:
    """Mean over seeds of the mean over folds, and its deviation; a bias is a ratio and no share."""
    if any(fold.get(metric) is None for folds in seeds for fold in folds):  # a bias without an F1 is undefined
        return ""
    scale, digits = (1, 3) if metric == "gap-bias" else (100, 1)
    means = [scale * statistics.fmean(fold[metric] for fold in folds) for folds in seeds]
    deviation = f" ± {statistics.stdev(means):.{digits}f}" if len(means) > 1 else ""
    return f"{statistics.fmean(means):.{digits}f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with pos/ewt, ud, coref and srl")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="english")
    parser.add_argument("--french", help="model that the parser of Sequoia starts from; default: --model")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", help=f"some of {','.join(CORPORA)}")
    parser.add_argument("--jobs", type=int, default=4, help="processes at once")
    parser.add_argument("--minutes", type=float, default=9.5, help="stop after this time, 20 s of it for saving")
    parser.add_argument("--examples", type=int, default=0, help="most sentences or documents of a file; 0: all")
    parser.add_argument("--epochs", type=int, default=0, help="default: as the task has it")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--keep", action="store_true", help="keep the models")
    given = parser.parse_args()
    began = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    done = {(each["corpus"], each["fold"], each["seed"]) for each in read_figures(given.out / FIGURES)}
    left = [run for run in planned(given) if (run.corpus, run.fold, run.seed) not in done]
    print(f"{len(done)} runs are finished, {len(left)} are left", flush=True)
    queue, finished = Queue(given, began + 60 * given.minutes - 20), threading.Event()
    watcher = threading.Thread(target=queue.watch, args=(finished,))
    watcher.start()
    with ThreadPoolExecutor(given.jobs) as pool:
        for result in [pool.submit(queue.work, run) for run in left]:
            result.result()
    finished.set()
    watcher.join()
    for table in tables(records := read_figures(given.out / FIGURES)):
        print(f"\n{table}")
    settings = {name: str(value) for name, value in vars(given).items() if name not in ("data", "out", "keep")}
    print(f"\n{json.dumps(settings)}")
    known = {(each["corpus"], each["fold"], each["seed"]) for each in records}
    missing = [run.name for run in left if (run.corpus, run.fold, run.seed) not in known]
    if queue.failed:
        sys.exit(f"{len(queue.failed)} runs failed: {' '.join(queue.failed)}")
    if missing:
        print(f"{len(missing)} runs are left; the same command continues: {' '.join(missing)}")
        sys.exit(Preempted.exit_code)


if __name__ == "__main__":
    main()
