"""The text of the English model: cleaned, without duplicates, and without what evaluation sets hold.

    python packages/english_text.py DATA --out text --report overlap.json --sample sample.txt

writes one file a source (`text/wiki.1.txt.xz`, `text/podcasts.txt.xz`, …: a paragraph or turn a line, a blank line
between documents) and the documents held out of each (`text/held_out/podcasts.txt.xz`, …). Training reads them whole,
and their short texts as documents of their own:

    for source, documents in read_texts(Path("text")): ...              # source: "wiki.1"; a document has line breaks
        texts = [*documents, *short_texts(source, documents)]

An encoder that has only read windows of 128 tokens from the middle of articles has hardly seen what people ask it
about: a sentence on its own, a question, a line of talk, a note in small letters. All draws are made by a hash of the
text, so they are the same ones every time, on any number of processes.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import itertools
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from english_overlap import RUN, EvaluationRuns, blocks, read_sets

from larvatus.core.arrays import Bools
from larvatus.data.text.words import split_sentences

Document = list[str]
HELD_OUT = {"novels": 50, "podcasts": 40, "textbooks": 60, "chat": 60, "service_dialogues": 100, "children": 60}
"""One document in so many is held out of training, for measurements; Wikipedia has a held-out file of its own."""
SOURCES = ("wiki.1", "wiki.2", "novels", "podcasts", "textbooks", "chat", "service_dialogues", "children")
SAMPLE = {"wiki.1": 11, "wiki.2": 11, "novels": 13, "podcasts": 11, "textbooks": 7, "chat": 7} | {
    "service_dialogues": 3,
    "children": 2,
}
"""Millions of characters of the sample for the vocabulary."""
TALK = ("podcasts", "chat", "service_dialogues")
LOWER, UNSTOPPED = 8, 4
"""One short text in eight in lower case, one of four of these without what ends a sentence."""
_LABEL = re.compile(r"[A-Z][\w.'’-]*(?:,? [A-Z(][\w.'’)-]*){0,4}: +")
_CHAPTER = re.compile(r"(?:CHAPTER|Chapter|BOOK|PART|VOLUME|VOL\.)\b.{0,60}")
_CITATION = re.compile(r"[A-Z][^\s,]+(?: [A-Z][^\s,]+)?, [A-Z].*\b(?:1[89]|20)\d\d\b")
_PUBLISHED = re.compile(r"Press\b|Books\b|Publish|New York:|London:|Boston:|Journal|Accessed|[,:] \d+–\d+|\bno\. \d|“")
_NOT_WORD = re.compile(r"[\W_]+")


def draw(text: str, one_in: int, kind: str) -> bool:
    """Whether this text is one of those drawn: always the same ones."""
    return int.from_bytes(hashlib.blake2b(f"{kind} {text}".encode(), digest_size=4).digest()) % one_in == 0


# --- what is odd in a source ------------------------------------------------------------------------------------------


def _substitutions(*pairs: tuple[str, str]) -> Callable[[str], str]:
    compiled = [(re.compile(pattern), into) for pattern, into in pairs]

    def apply(line: str) -> str:
        for pattern, into in compiled:
            line = pattern.sub(into, line)
        return line.strip()

    return apply


_spaces = (r" {2,}", " "), (r" +([,.;:!?)])(?=\s|$)", r"\1")
clean_wiki = _substitutions(
    (r"\[ ?\[update\]\]", ""),
    (r"\{\{[^{}]*\}\}", ""),
    (r"\((?:\s*[;,:])+\s*", "("),  # a pronunciation was here
    (r" ?\(\s*\)", ""),
    *_spaces,
)
clean_podcast = _substitutions(
    (r"\[?_?\[\d[\d:]*\]", ""),
    (r"(?<!\w)_([^_]+)_(?!\w)", r"\1"),
    (r"\*\*?([^*]+)\*\*?", r"\1"),
    (r"(?<=\w) --(?= )", " —"),
    (r" {2,}", " "),
)
clean_textbook = _substitutions(
    (r"^[^\w\"'“‘(\[$–—-]+", ""),  # pictograms before headings
    (r"</?[a-z]+>", ""),
    (r" ?\((?:credit|Credit|attribution)\b[^()]*(?:\([^()]*\)[^()]*)*\)", ""),
    (r" ?\(\s*\)", ""),
    *_spaces,
)
clean_novel = _substitutions(
    ("`", "‘"),
    ("´", "’"),
    (r" ?\[(?:Footnote:? [^\]]*|\d+|Illustration[^\]]*)\]", ""),
    (r"(?<!\w)_([^_]+)_(?!\w)", r"\1"),
    (r" {2,}", " "),
)
clean_story = _substitutions((r"[_*]+", ""), (r" {2,}", " "), (r" +([,.;!?])(?=\s|$)", r"\1"))
clean_chat = _substitutions((r"\\+$", ""), (r" {2,}", " "))


def articles(text: str) -> Iterator[Document]:
    for document in text.split("\n\n"):
        lines = [line for line in document.split("\n") if line.count("|") < 3 and "style=" not in line]
        yield [clean_wiki(line) for line in lines if "{{" not in line or "}}" in line]


def chapters(text: str) -> Iterator[Document]:
    """Novels in chapters; what is shorter than 200 words (a table of contents) stays with the next."""
    for novel in text.split("\n\n"):
        chapter: Document = []
        for line in map(clean_novel, html.unescape(novel).split("\n")):
            if _CHAPTER.fullmatch(line) and sum(each.count(" ") for each in chapter) > 200:
                yield chapter
                chapter = []
            chapter.append(line)
        yield chapter


def podcasts(text: str) -> Iterator[Document]:
    """Every other transcript without the speakers' names and `[laughs]`."""
    for document in text.split("\n\n"):
        turns = [clean_podcast(line) for line in document.split("\n")]
        turns = [turn for turn in turns if not re.match(r"(?:Break|Jingle|Sample|Outro|Promo|Clip)\b[^:]{0,20}:", turn)]
        if draw(document, 2, "labels"):
            turns = [re.sub(r" ?\[[a-z][a-z ]*\]", "", _LABEL.sub("", turn, count=1)).strip() for turn in turns]
        yield turns


def textbooks(text: str) -> Iterator[Document]:
    """Without lists of sources and the headings that all chapters share."""
    often = {line for line, count in Counter(text.split("\n")).items() if count > 10}
    for document in text.split("\n\n"):
        kept = (
            line for line in document.split("\n") if line not in often and "http" not in line and "www." not in line
        )
        yield [clean_textbook(line) for line in kept if not (_CITATION.match(line) and _PUBLISHED.search(line))]


def stories(text: str) -> Iterator[Document]:
    """Lines that a page's width broke are joined."""
    for document in text.split("\n\n"):
        lines: Document = []
        for line in filter(None, map(clean_story, document.split("\n"))):
            if lines and lines[-1][-1] not in '.?!"”’:)' and (line[0].islower() or lines[-1][-1] == ","):
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        yield lines


def dialogues(text: str) -> Iterator[Document]:
    """One dialogue in four with its `A:` and `B:`."""
    for document in text.split("\n\n"):
        turns = document.split("\n")
        yield turns if draw(document, 4, "labels") else [re.sub(r"^[AB]: ", "", turn) for turn in turns]


def chats(text: str) -> Iterator[Document]:
    for document in text.split("\n\n"):
        yield [clean_chat(line) for line in document.split("\n")]


MADE: dict[str, Callable[[str], Iterator[Document]]] = {
    "wiki.1": articles,
    "wiki.2": articles,
    "novels": chapters,
    "podcasts": podcasts,
    "textbooks": textbooks,
    "chat": chats,
    "service_dialogues": dialogues,
    "children": stories,
}


class Unrepeated:
    """Paragraphs of eight words and more are kept once (turns of talk: of thirteen), whatever case and punctuation."""

    def __init__(self, source: str) -> None:
        self.least = 13 if source in TALK else 8
        self.seen: set[int] = set()
        self.repeated = 0

    def __call__(self, document: Document) -> Document:
        out = []
        for paragraph in document:
            words = _NOT_WORD.sub(" ", paragraph.lower()).strip()
            if not words:
                continue
            if words.count(" ") + 1 >= self.least:
                key = hash(words)
                if key in self.seen:
                    self.repeated += 1
                    continue
                self.seen.add(key)
            out.append(paragraph)
        return out


# --- short texts ------------------------------------------------------------------------------------------------------


def short_texts(source: str, documents: Iterable[str]) -> Iterator[str]:
    """Texts of a few words to a paragraph, made from documents of a source."""
    for document in documents:
        for text in _parts(source, document.split("\n")):
            yield lowered(text) if draw(text, LOWER, "lower") else text


def lowered(text: str) -> str:
    text = text.lower()
    return text.rstrip(".?!") if draw(text, UNSTOPPED, "stop") else text


def _parts(source: str, lines: Document) -> Iterator[str]:
    if source.startswith("wiki"):
        for line in lines:
            if line.count(" ") > 3:
                if draw(line, 7, "article"):
                    yield line
                elif draw(line, 14, "sentences"):
                    yield from sentences(line)
    elif source in ("chat", "service_dialogues"):
        turns = [turn.removeprefix("A: ").removeprefix("B: ") for turn in lines]
        single, pairs = (1, 2) if source == "chat" else (4, 4)
        yield from (turn for turn in turns if turn.count(" ") > 1 and draw(turn, single, "turn"))
        for first, second in itertools.pairwise(turns):
            if draw(first + second, pairs, "pair"):
                yield f"{first} {second}"
    else:
        if source == "podcasts":
            lines = [_LABEL.sub("", line, count=1) if ": " in line else line for line in lines]
        every = source in ("novels", "children")
        for line in lines:
            if line.count(" ") > 2:
                yield line
                if every or draw(line, 2, "sentences"):
                    yield from sentences(line)


def sentences(paragraph: str) -> list[str]:
    """Sentences of three words and more; none where the paragraph is a single one."""
    parts = split_sentences(paragraph)
    return [part for part in parts if part.count(" ") > 1] if len(parts) > 1 else []


def read_texts(folder: Path) -> Iterator[tuple[str, list[str]]]:
    for source in SOURCES:
        with lzma.open(folder / f"{source}.txt.xz", "rt", encoding="utf-8") as file:
            yield source, file.read().split("\n\n")


def vocabulary_sample(folder: Path) -> Iterator[str]:
    """Paragraphs to learn a vocabulary from, one in five in lower case, without the speakers' names."""
    for source, documents in read_texts(folder):
        left = SAMPLE[source] * 1_000_000
        for document in sorted(documents, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8).digest()):
            for line in document.split("\n"):
                text = _LABEL.sub("", line, count=1) if source == "podcasts" else line
                yield text.lower() if draw(text, 5, "vocabulary") else text
                left -= len(text)
            if left < 0:
                break


# --- writing ----------------------------------------------------------------------------------------------------------


def write(path: Path, documents: list[Document]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join("\n".join(document) for document in documents if document)
    path.write_bytes(lzma.compress(text.encode(), preset=6))


def made(data: Path, source: str) -> tuple[list[Document], list[Document], int]:
    """Training documents of a source, those held out, and how many paragraphs were repetitions."""
    with lzma.open(data / "text" / f"en_{source}.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read()
    unrepeated, kept, held_out = Unrepeated(source), [], []
    one_in = HELD_OUT.get(source)
    for document in MADE[source](text):
        if document := unrepeated(document):
            held = one_in and draw("\n".join(document), one_in, "held out")
            (held_out if held else kept).append(document)
    return kept, held_out, unrepeated.repeated


_READ: dict[str, tuple[list[Document], list[Document], int]] = {}
_RUNS: list[EvaluationRuns] = []


def finish(source: str, data: Path, out: Path) -> tuple[str, dict[str, int], Bools, Bools]:
    """Write a source without what evaluation sets hold."""
    documents, held_out, repeated = _READ.pop(source, None) or made(data, source)
    runs, removed, kept = _RUNS[0], 0, []
    found, left = np.zeros((2, len(runs.grams)), bool)
    for block in blocks(documents):
        cleaned, count = runs.cleaned(block, found)
        kept += [document for document in cleaned if document]
        removed += count
        left[runs.touched(cleaned)[1]] = True
    write(out / f"{source}.txt.xz", kept)
    words = sum(len(paragraph.split()) for document in kept for paragraph in document)
    paragraphs = sum(map(len, kept))
    counts = {"documents": len(kept), "paragraphs": paragraphs, "words": words, "held_out": len(held_out)}
    return source, counts | {"repeated_paragraphs": repeated, "overlapping_paragraphs": removed}, found, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True, help="counts and overlaps, as JSON")
    parser.add_argument("--sample", type=Path, help="text for the vocabulary, a blank line between paragraphs")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    fork = get_context("fork")
    with fork.Pool(given.workers) as pool:
        read = pool.starmap(made, [(given.data, source) for source in HELD_OUT], chunksize=1)
    _READ.update(zip(HELD_OUT, read, strict=True))
    sets = read_sets(given.data)
    for source, (_, held_out, _) in _READ.items():
        write(given.out / "held_out" / f"{source}.txt.xz", held_out)
        sets[f"held out: {source}"] = [["\n".join(document)] for document in held_out]
    runs = EvaluationRuns.of(sets)
    _RUNS.append(runs)
    report: dict[str, dict[str, dict[str, int]]] = {"sources": {}}
    found, left = np.zeros((2, len(runs.grams)), bool)
    with fork.Pool(given.workers) as pool:
        jobs = [pool.apply_async(finish, (source, given.data, given.out)) for source in SOURCES]
        for job in jobs:
            source, counts, hits, hits_left = job.get()
            report["sources"][source] = counts
            found |= hits
            left |= hits_left
            print(source, counts, flush=True)
    after = runs.examples_with(left)
    report["sets"] = {
        name: each | {"shared_after": after[name]["shared"]} for name, each in runs.examples_with(found).items()
    }
    given.report.write_text(json.dumps({"run_of_words": RUN, **report}, indent=1) + "\n", encoding="utf-8")
    if given.sample:
        with given.sample.open("w", encoding="utf-8") as file:
            file.writelines(f"{text}\n\n" for text in vocabulary_sample(given.out))


if __name__ == "__main__":
    main()
