"""Planted copies in text: how many duplicates and contaminated examples are noticed, how fast, in how much memory.

    python benchmarks/duplicates.py TEXT --clean OTHER_TEXT [--mb 100] [--copies 300] [--peer]

Of random documents of TEXT, copies are planted further on: exact, with 5% and with 20% of the words replaced by words
of other documents. An evaluation set has passages of 60 words from the text, edited in the same way, and as many from
text that is not in it. One process; seconds are of the processor. Recall is the share of the copies that were noticed;
precision the share of the noticed documents that are copies: natural duplicates of the text count against it, so it is
also said how many of the others resemble what they are said to repeat, by the exact Jaccard similarity.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from larvatus.core.rng import stream
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.corpus.hygiene.check import SharedSet
from larvatus.data.corpus.hygiene.first_pass import FilterVerdicts, MeasuringPass, PassProgress, judge_documents
from larvatus.data.corpus.hygiene.measure import DocumentMeasures
from larvatus.data.corpus.hygiene.overlap import EvaluationSet
from larvatus.data.corpus.hygiene.settings import HygieneSettings
from larvatus.data.corpus.hygiene.shingles import SKETCH, WORDS, ShingleCharacters, Sketch, hashed_words, n_grams
from larvatus.data.text.readers import Document, ReadOptions, read_documents

EDITS = {"exact": 0.0, "5% edited": 0.05, "20% edited": 0.2}
PASSAGE = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--clean", required=True, help="text that is not in TEXT")
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--copies", type=int, default=300, help="of each kind")
    parser.add_argument("--peer", action="store_true", help="measure datasketch by itself too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kinds = plant(given.text, folder, given.mb, given.copies)
        passages(given.clean, folder, given.copies)
        size = (folder / "planted.jsonl").stat().st_size / 1e6
        print(f"{len(kinds):,} documents, {size:.1f} MB, {given.copies} copies of each kind; memory {memory():.0f} MB")
        for near in (0.25, 0.5):
            duplicates(folder, kinds, HygieneSettings(filter=("exact", "near"), near=near))
        everything(folder)
        contaminated(folder)
        if given.peer:
            peer(given.text)


def limited(text: str, mb: float) -> Iterator[Document]:
    size = 0
    for document in read_documents([text]):
        yield document
        size += len(document.text.encode())
        if size >= mb * 1e6:
            return


def plant(text: str, folder: Path, mb: float, copies: int) -> list[str]:
    """Write the text with copies in it; of each document what it is: nothing, or a kind of copy."""
    count = sum(1 for _ in limited(text, mb))
    random = stream(0, "benchmark originals")
    chosen = random.choice(count, 3 * copies, replace=False).tolist()
    kind_of = {number: list(EDITS)[at % 3] for at, number in enumerate(chosen)}
    words = [word for _, document in zip(range(200), limited(text, mb), strict=False) for word in document.text.split()]
    kinds: list[str] = []
    waiting: list[tuple[int, str, str]] = []
    examples: list[tuple[str, str]] = []
    with (folder / "planted.jsonl").open("w") as file:

        def write(kind: str, written: str) -> None:
            file.write(json.dumps({"text": written}, ensure_ascii=False) + "\n")
            kinds.append(kind)

        for number, document in enumerate(limited(text, mb)):
            write("", document.text)
            if kind := kind_of.get(number):
                waiting.append(
                    (int(random.integers(1, 500)) + number, kind, edited(document.text, kind, words, number))
                )
                start = int(random.integers(max(1, len(document.text.split()) - PASSAGE)))
                passage = " ".join(document.text.split()[start : start + PASSAGE])
                examples.append((kind, edited(passage, kind, words, -number - 1)))
            for each in [each for each in waiting if each[0] <= number]:
                write(each[1], each[2])
                waiting.remove(each)
        for _, kind, written in waiting:
            write(kind, written)
    for kind in EDITS:
        lines = [json.dumps({"text": written}) for each, written in examples if each == kind and written.strip()]
        (folder / f"{kind}.jsonl").write_text("\n".join(lines))
    return kinds


def edited(text: str, kind: str, words: list[str], item: int) -> str:
    """Each word replaced with the probability of the kind."""
    if not EDITS[kind]:
        return text
    random = stream(1, "benchmark edits", item=abs(item) * 2 + (item < 0))
    parts = re.split(r"(\s+)", text)
    goes = random.random(len(parts)) < EDITS[kind]
    others = random.integers(len(words), size=len(parts)).tolist()
    return "".join(
        words[other] if go and part.strip() else part for part, go, other in zip(parts, goes, others, strict=True)
    )


def passages(text: str, folder: Path, count: int) -> None:
    made = []
    for document in read_documents([text]):
        words = document.text.split()
        if len(words) >= PASSAGE:
            made.append(json.dumps({"text": " ".join(words[len(words) // 2 - PASSAGE // 2 :][:PASSAGE])}))
        if len(made) == count:
            break
    (folder / "clean.jsonl").write_text("\n".join(made))


def planted(folder: Path) -> Iterator[Document]:
    return read_documents([folder / "planted.jsonl"], options=ReadOptions())


def duplicates(folder: Path, kinds: list[str], settings: HygieneSettings) -> None:
    measures = DocumentMeasures.of(settings, language="en", everything=False)
    (folder / "parts").mkdir(exist_ok=True)
    parts = PartsFolder(folder / "parts", {}, kind=PassProgress, suffix=".npy")
    begun = time.process_time()
    measured = MeasuringPass(measures, parts).run(planted(folder), resume=False)
    halfway = time.process_time()
    judged = judge_documents(measured, settings, measures)
    taken = time.process_time() - begun
    size = (folder / "planted.jsonl").stat().st_size / 1e6
    assert measures.scheme is not None
    bands = f"{measures.scheme.bands} bands of {measures.scheme.rows}"
    print(
        f"near = {settings.near}, runs of {settings.shingle} words, {bands}: {size / taken:.1f} MB/s "
        f"({halfway - begun:.1f} s signatures, {taken - halfway + begun:.1f} s buckets); memory {memory():.0f} MB"
    )
    noticed = judged.verdicts > 0
    is_copy = np.array([kind != "" for kind in kinds])
    for kind in EDITS:
        of_kind = np.array([each == kind for each in kinds])
        print(f"  {kind}: recall {noticed[of_kind].mean():.3f} of {of_kind.sum()}")
    others = np.flatnonzero(noticed & ~is_copy)
    right = sum(exact_jaccard(folder, judged, others, settings))
    print(
        f"  precision {(noticed & is_copy).sum() / noticed.sum():.3f}: {len(others)} of {noticed.sum()} noticed were "
        f"not planted, {right} of these with an exact similarity of {settings.near} or more"
    )
    parts.remove()


def exact_jaccard(
    folder: Path, judged: FilterVerdicts, numbers: np.ndarray, settings: HygieneSettings
) -> Iterator[bool]:
    wanted = {int(number) for number in numbers} | {int(judged.first[number]) for number in numbers}
    grams = {}
    for number, document in enumerate(planted(folder)):
        if number in wanted:
            grams[number] = set(
                n_grams(hashed_words(ShingleCharacters.of([document.text])), settings.shingle)[0].tolist()
            )
    for number in numbers.tolist():
        a, b = grams[number], grams[int(judged.first[number])]
        yield len(a & b) / max(1, len(a | b)) >= settings.near


def everything(folder: Path) -> None:
    """Languages, personal data and all the rest with it."""
    measures = DocumentMeasures.of(HygieneSettings(), language="en", everything=True)
    (folder / "parts").mkdir(exist_ok=True)
    parts = PartsFolder(folder / "parts", {}, kind=PassProgress, suffix=".npy")
    begun = time.process_time()
    MeasuringPass(measures, parts).run(planted(folder), resume=False)
    size = (folder / "planted.jsonl").stat().st_size / 1e6
    print(f"everything: {size / (time.process_time() - begun):.1f} MB/s; memory {memory():.0f} MB")
    parts.remove()


def contaminated(folder: Path) -> None:
    grams = sum(max(0, len(document.text.split())) for document in planted(folder))
    sketch = Sketch.begin(folder / SKETCH, grams)
    begun = time.process_time()
    waiting: list[str] = []
    for document in planted(folder):
        waiting.append(document.text)
        if len(waiting) == 32:
            sketch.add(waiting)
            waiting.clear()
    sketch.add(waiting)
    taken = time.process_time() - begun
    sketch.finish()
    size, file = (folder / "planted.jsonl").stat().st_size / 1e6, (folder / SKETCH).stat().st_size / 1e6
    print(f"sketch: {file:.1f} MB, {size / taken:.1f} MB/s")
    opened = Sketch.open(folder / SKETCH)
    for words in (13, 10):
        told = []
        for kind in (*EDITS, "clean"):
            data = EvaluationSet.read(str(folder / f"{kind}.jsonl"), n=WORDS)
            known, counts = opened.holds_runs(data.grams, data.counts_of_texts, words)
            sums = np.concatenate([[0], np.cumsum(known)])
            hits = data.of_examples(sums[np.cumsum(counts)] - sums[np.cumsum(counts) - counts])
            shared = SharedSet.of(data, hits, data.of_examples(counts), words)
            told.append(f"{kind} {shared.share:.3f}")
        print(f"  examples that share a run of {words} words: {', '.join(told)}")


def peer(text: str) -> None:
    """datasketch as its documentation uses it: strings, SHA-1, one document after another."""
    from datasketch import MinHash, MinHashLSH

    index, size, begun = MinHashLSH(threshold=0.25, num_perm=128), 0, time.process_time()
    for number, document in enumerate(limited(text, 5)):
        words = re.findall(r"\w+", document.text.lower())
        sketch = MinHash(num_perm=128)
        sketch.update_batch([" ".join(words[at : at + 3]).encode() for at in range(len(words) - 2)])
        index.query(sketch)
        index.insert(str(number), sketch)
        size += len(document.text.encode())
    print(f"datasketch by itself: {size / 1e6 / (time.process_time() - begun):.1f} MB/s")


def memory() -> float:
    """The most that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
