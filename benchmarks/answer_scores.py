"""Scores of answers against the official script of SQuAD 2, run as its authors publish it.

    python benchmarks/answer_scores.py --script evaluate-v2.0.py --data dev.json [--seed 1]

Predictions are made up from the data itself: right answers, changed ones (articles, case, punctuation, words dropped or
added), words of the passage, nothing; a third of the questions are made impossible to answer. Every figure that the
script prints must be the one that `metrics/squad.py` gives; above a difference of 1e-9 the exit is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from larvatus.core.rng import stream

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.squad_scores import squad2_scores


def changed(answer: str, context: str, draw: Any) -> str:
    """A prediction: right, nearly right, or wrong."""
    words = answer.split()
    ways = (
        answer,
        f"the {answer.upper()}.",
        " ".join(words[1:]),
        f"{answer} {' '.join(context.split()[:2])}",
        " ".join(context.split()[5:8]),
        " ".join(reversed(words)),
        "",
    )
    return ways[int(draw.integers(len(ways)))]


def made_up(path: Path, seed: int) -> tuple[dict[str, Any], dict[str, str], dict[str, list[str]]]:
    """The data with impossible questions, predictions, and right answers by question."""
    data = json.loads(path.read_text(encoding="utf-8"))
    draw, predictions, golds = stream(seed, "answer scores"), {}, {}
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            for number, question in enumerate(paragraph["qas"]):
                name = f"{question['id']}-{len(golds)}"
                question["id"], question["is_impossible"] = name, bool(draw.random() < 1 / 3)
                answers = [one["text"] for one in question["answers"]] or [str(number)]
                predictions[name] = changed(answers[0], paragraph["context"], draw)
                question["answers"] = [] if question["is_impossible"] else question["answers"]
                golds[name] = [one["text"] for one in question["answers"]]
    return data, predictions, golds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data, predictions, golds = made_up(options.data, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("data.json", "predictions.json")]
        for file, content in zip(files, (data, predictions), strict=True):
            file.write_text(json.dumps(content), encoding="utf-8")
        run = subprocess.run([sys.executable, options.script, *files], capture_output=True, text=True, check=True)
    theirs = json.loads(run.stdout)
    ours = squad2_scores(golds, predictions)
    pairs = {"exact": (theirs["exact"], 100 * ours.exact), "f1": (theirs["f1"], 100 * ours.f1)}
    if ours.has_answer is not None and ours.no_answer is not None:
        pairs["HasAns_exact"] = (theirs["HasAns_exact"], 100 * ours.has_answer.exact)
        pairs["HasAns_f1"] = (theirs["HasAns_f1"], 100 * ours.has_answer.f1)
        pairs["NoAns_f1"] = (theirs["NoAns_f1"], 100 * ours.no_answer.f1)
    for name, (official, own) in pairs.items():
        print(f"{name:13} official {official:.6f}  ours {own:.6f}")
    worst = max(abs(official - own) for official, own in pairs.values())
    print(f"{len(golds):,} questions; largest difference {worst:.2g}")
    sys.exit(worst > 1e-9)


if __name__ == "__main__":
    main()
