"""The text of the English model's second run: short texts beside long ones, and novels more often than they come.

    python packages/english_text.py en_novels.txt.xz en_wiki.1.txt.xz en_wiki.2.txt.xz --out short.txt

An encoder that has only read windows of 128 tokens from the middle of articles has hardly seen what people ask it
about: a sentence on its own, a question, a line of talk, a note in small letters. `short.txt` has them as documents of
their own (a blank line between two), made from the same sources: all paragraphs of the novels twice, their sentences
once, and one paragraph of the encyclopaedia in seven; of each kind one in eight in lower case. It is read beside the
sources themselves.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

SENTENCE_ENDS = re.compile(r"(?<=[.?!])[\"”’']? +(?=[\"“‘']?[A-Z])")
"""As the model's text was cut: after `Mr.` and initials too."""
QUOTES = '"“”'
LOWER, OF_ARTICLES = 8, 7


def paragraphs(paths: Iterable[Path]) -> Iterator[str]:
    """Lines of five words and more: shorter ones are mostly titles."""
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            yield from (line.strip() for line in file if line.count(" ") > 3)


def sentences(paragraph: str) -> list[str]:
    """Sentences of three words and more, without the quotation marks of talk."""
    parts = (part.strip(QUOTES + " ") for part in SENTENCE_ENDS.split(paragraph))
    return [part for part in parts if part.count(" ") > 1]


def draw(text: str, one_in: int, kind: str) -> bool:
    """Whether this text is one of those drawn: always the same ones."""
    return int.from_bytes(hashlib.blake2b(f"{kind} {text}".encode(), digest_size=4).digest()) % one_in == 0


def short_texts(novels: list[Path], articles: list[Path]) -> Iterator[str]:
    for paragraph in paragraphs(novels):
        for copy in ("first", "second"):
            yield paragraph.lower() if draw(paragraph, LOWER, copy) else paragraph
        for sentence in sentences(paragraph):
            yield sentence.lower() if draw(sentence, LOWER, "sentence") else sentence
    for paragraph in paragraphs(articles):
        if draw(paragraph, OF_ARTICLES, "article"):
            yield paragraph.lower() if draw(paragraph, LOWER, "lower") else paragraph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("novels", type=Path)
    parser.add_argument("articles", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with given.out.open("w", encoding="utf-8") as file:
        for text in short_texts([given.novels], given.articles):
            file.write(f"{text}\n\n")


if __name__ == "__main__":
    main()
