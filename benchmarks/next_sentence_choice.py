"""Multiple choice from plain text: which of four sentences of a document comes next?

    python benchmarks/next_sentence_choice.py build --text wiki.txt.xz --train 8000 --dev 2000 --out swag-like/
    python benchmarks/next_sentence_choice.py shortcuts --data swag-like/
    larvatus finetune choose --model DIR --train swag-like/train.jsonl --dev swag-like/dev.jsonl --out runs/next

The form is SWAG's (Zellers et al. 2018): a context and four endings, of which one is right. The context is a sentence
of a paragraph, the right ending the one after it, and the others are drawn at random from the rest of the same
document, neither the context itself nor its neighbours. Train and dev have different documents, at most eight examples
each. `shortcuts` says what those endings give away by themselves: the longest, the one with the most words of the
context, the highest TF-IDF cosine, and trees over such cues that are learnt on train.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from larvatus.data.text.words import split_sentences

SHORTEST, LONGEST = 30, 300
"""Characters of a sentence that is used; titles and endless ones are left out."""
EACH = 8
"""Examples of a document at most."""


def documents(path: Path) -> Iterator[list[list[str]]]:
    """Documents as paragraphs of sentences; blank lines stand between documents, a paragraph is a line."""
    open_text: Any = lzma.open if path.suffix == ".xz" else open
    with open_text(path, "rt", encoding="utf-8") as file:
        paragraphs: list[list[str]] = []
        for line in file:
            if line.strip():
                paragraphs.append([sentence.strip() for sentence in split_sentences(line.strip(), "en")])
            elif paragraphs:
                yield paragraphs
                paragraphs = []
        if paragraphs:
            yield paragraphs


def usable(sentence: str) -> bool:
    return SHORTEST <= len(sentence) <= LONGEST and sentence[-1] in '.!?"'


def examples(paragraphs: list[list[str]], rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Examples of a document, at random places of it."""
    everything = [sentence for paragraph in paragraphs for sentence in paragraph if usable(sentence)]
    pairs = [
        (paragraph[number], paragraph[number + 1], paragraph[max(0, number - 1) : number + 2])
        for paragraph in paragraphs
        for number in range(len(paragraph) - 1)
        if usable(paragraph[number]) and usable(paragraph[number + 1])
    ]
    for chosen in rng.permutation(len(pairs))[:EACH].tolist():
        context, right, near = pairs[chosen]
        others = sorted(set(everything) - set(near))
        if len(others) < 3:
            continue
        wrong = [others[number] for number in rng.permutation(len(others))[:3].tolist()]
        place = int(rng.integers(4))
        yield {"context": context, "endings": [*wrong[:place], right, *wrong[place:]], "label": place}


def build(text: Path, out: Path, *, train: int, dev: int) -> None:
    """Dev comes from the first documents, train from those after them."""
    rng = np.random.default_rng(0)
    out.mkdir(parents=True, exist_ok=True)
    source = documents(text)
    for name, count in (("dev", dev), ("train", train)):
        rows: list[dict[str, Any]] = []
        while len(rows) < count:
            rows += examples(next(source), rng)
        with (out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[:count])


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def cues(rows: list[dict[str, Any]], tfidf: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """[E, 4, cues] of each ending, and [E] the right one."""
    vectors = [tfidf.transform([row["context"], *row["endings"]]) for row in rows]
    table = [
        [
            [
                len(ending),
                abs(len(ending) - len(row["context"])),
                len(words(ending) & words(row["context"])) / max(1, len(words(ending))),
                float((matrix[0] @ matrix[number + 1].T).toarray()[0, 0]),
                ending.split()[0].lower() in ("he", "she", "it", "they", "this", "these", "his", "her", "their", "its"),
                ending[0].isupper(),
                sum(character.isdigit() for character in ending),
            ]
            for number, ending in enumerate(row["endings"])
        ]
        for row, matrix in zip(rows, vectors, strict=True)
    ]
    return np.array(table, dtype=np.float64), np.array([row["label"] for row in rows])


def shortcuts(data: Path) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer

    parts = {
        name: [json.loads(line) for line in (data / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("train", "dev")
    }
    tfidf = TfidfVectorizer(sublinear_tf=True).fit([ending for row in parts["train"] for ending in row["endings"]])
    (x_train, y_train), (x_dev, y_dev) = (cues(parts[name], tfidf) for name in ("train", "dev"))
    print(f"{len(y_dev)} examples; chance 0.250; commonest place {np.bincount(y_dev).max() / len(y_dev):.3f}")
    for name, column in (("longest", 0), ("most words of the context", 2), ("TF-IDF cosine", 3)):
        print(f"{name:28} {np.mean(x_dev[:, :, column].argmax(1) == y_dev):.3f}")
    right = np.arange(4)[None] == y_train[:, None]
    trees = HistGradientBoostingClassifier(random_state=0).fit(x_train.reshape(-1, x_train.shape[2]), right.ravel())
    scores = trees.predict_proba(x_dev.reshape(-1, x_dev.shape[2]))[:, 1].reshape(-1, 4)
    print(f"{'trees over all seven cues':28} {np.mean(scores.argmax(1) == y_dev):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build")
    making.add_argument("--text", type=Path, required=True)
    making.add_argument("--out", type=Path, required=True)
    making.add_argument("--train", type=int, default=8_000)
    making.add_argument("--dev", type=int, default=2_000)
    cheap = commands.add_parser("shortcuts")
    cheap.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "build":
        build(given.text, given.out, train=given.train, dev=given.dev)
    else:
        shortcuts(given.data)


if __name__ == "__main__":
    main()
