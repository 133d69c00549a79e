"""Word boundaries in scripts without spaces: this package's rule (a character is a word) and segmenters.

    pip install icu4py jieba budoux
    python benchmarks/word_boundaries.py words.tsv [--text text.txt]

`words.tsv` has a word and its tag on each line and a blank line after each sentence, as the files of Universal
Dependencies do when cut to two columns. Words are joined without spaces, segmented, and the boundaries within each
sentence compared with those of the treebank: precision, recall and F1, with a 95% interval over sentences. With
`--text`, segmenters are compared with each other on running text; agreement of two segmenters is not correctness.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from larvatus.data.text.words import segment_words

Cuts = set[int]


def opened(path: Path) -> Iterator[str]:
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        yield from file


def sentences(path: Path) -> Iterator[list[str]]:
    words: list[str] = []
    for line in itertools.chain(opened(path), [""]):
        if line.strip():
            words.append(line.split("\t")[0])
        elif words:
            yield words
            words = []


def by_lengths(parts: Sequence[str]) -> Cuts:
    return set(itertools.accumulate(map(len, parts[:-1])))


def characters(text: str) -> Cuts:
    return {start for start, _ in segment_words(text).tolist() if start}


def segmenters() -> dict[str, Callable[[str], Cuts]]:
    """Those that are installed."""
    made: dict[str, Callable[[str], Cuts]] = {"larvatus (characters)": characters}
    try:
        from icu4py.breakers import WordBreaker

        made["ICU (icu4py)"] = lambda text: by_lengths(list(WordBreaker(text, "zh")))
    except ImportError:
        print("icu4py is not installed")
    try:
        import jieba

        jieba.setLogLevel(60)
        made["jieba"] = lambda text: by_lengths(jieba.lcut(text))
    except ImportError:
        print("jieba is not installed")
    try:
        import budoux

        for name, load in (
            ("BudouX, simplified", budoux.load_default_simplified_chinese_parser),
            ("BudouX, traditional", budoux.load_default_traditional_chinese_parser),
        ):
            parse = load().parse
            made[name] = lambda text, parse=parse: by_lengths(parse(text))
    except ImportError:
        print("budoux is not installed")
    return made


def scores(counts: np.ndarray) -> tuple[float, float, float]:
    """Precision, recall and F1 of summed (right, given, true) counts."""
    right, given, true = counts
    return right / max(1, given), right / max(1, true), 2 * right / max(1, given + true)


def compared(given: Sequence[Cuts], true: Sequence[Cuts]) -> str:
    counts = np.array([(len(a & b), len(a), len(b)) for a, b in zip(given, true, strict=True)])
    precision, recall, f1 = scores(counts.sum(axis=0))
    generator = np.random.default_rng(0)
    drawn = [scores(counts[generator.integers(len(counts), size=len(counts))].sum(axis=0))[2] for _ in range(1_000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{precision:.3f} | {recall:.3f} | {f1:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--lines", type=int, default=2_000, help="lines of --text")
    given = parser.parse_args()
    true = list(sentences(given.words))
    texts = ["".join(words) for words in true]
    print(f"{len(texts):,} sentences, {sum(map(len, true)):,} words")
    print("| segmenter | precision | recall | boundary F1 (95%, sentences) |\n| --- | --- | --- | --- |")
    kinds = segmenters()
    for name, cut in kinds.items():
        print(f"| {name} | {compared([cut(text) for text in texts], [by_lengths(words) for words in true])} |")
    if given.text is not None:
        lines = [line.strip() for line in itertools.islice(opened(given.text), given.lines) if line.strip()]
        cuts = {name: [cut(line) for line in lines] for name, cut in kinds.items()}
        print(f"{len(lines):,} lines of running text: F1 of one segmenter by another")
        for first, second in itertools.combinations(cuts, 2):
            print(f"| {first} | {second} | {compared(cuts[first], cuts[second])} |")


if __name__ == "__main__":
    main()
