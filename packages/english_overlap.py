"""Evaluation sets that the English model's training text must not hold, and the paragraphs that share a run with them.

    sets = read_sets(Path("data"))
    runs = EvaluationRuns.of(sets)
    kept, removed = runs.cleaned(documents, found)       # documents are lists of paragraphs

A run is 13 words, of lower-cased letters and digits, in one document: it may cross paragraphs. `found` collects the
runs that the text held.
"""

from __future__ import annotations

import csv
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from larvatus.core.arrays import Bits, Bools, Ints
from larvatus.data.corpus.hygiene.shingles import (
    HashedWords,
    ShingleCharacters,
    count_per_document,
    hashed_words,
    n_grams,
)

RUN = 13
Examples = list[list[str]]
_TABLE_BITS = 26
_MARKUP = re.compile(r"<[^>]+>")
_PARTED = re.compile(r" (n['’]t|n ['’]t)\b", re.IGNORECASE)


def joined(words: Iterable[str]) -> str:
    """Words of a tokenised text as text has them: `does n't` is `doesn't`."""
    return whole(" ".join(words))


def whole(text: str) -> str:
    return _PARTED.sub("n't", _MARKUP.sub("", text)) if " n" in text or "<" in text else text


def lines(path: Path) -> list[str]:
    encoding = "utf-8-sig"
    try:
        return lzma.decompress(path.read_bytes()).decode(encoding).splitlines()
    except UnicodeDecodeError:
        return lzma.decompress(path.read_bytes()).decode("latin-1").splitlines()


def fields(*columns: int, header: bool = True) -> Callable[[Path], Examples]:
    """Rows of a tab-separated table, of which these columns are text."""

    def read(path: Path) -> Examples:
        rows = [line.split("\t") for line in lines(path)[1 if header else 0 :] if line.strip()]
        return [[whole(row[column]) for column in columns if -len(row) <= column < len(row)] for row in rows]

    return read


def plain(path: Path) -> Examples:
    return [[whole(line)] for line in lines(path) if line.strip()]


def records(*keys: str) -> Callable[[Path], Examples]:
    """JSON, one record a line; a list is of words."""

    def read(path: Path) -> Examples:
        out = []
        for line in lines(path):
            row = json.loads(line)
            out.append([whole(v) if isinstance(v, str) else joined(v) for v in (row[key] for key in keys)])
        return out

    return read


def squad(path: Path) -> Examples:
    """Paragraphs with their questions."""
    articles = json.loads("\n".join(lines(path)))["data"]
    return [
        [paragraph["context"], *(qa["question"] for qa in paragraph["qas"])]
        for article in articles
        for paragraph in article["paragraphs"]
    ]


def comma_table(path: Path) -> Examples:
    return [[row["title"], row["text"]] for row in csv.DictReader(lines(path))]


def columns_of_words(column: int, prefix: str = "") -> Callable[[Path], Examples]:
    """Sentences of a file with a token a line and a blank line between sentences; comments begin with #."""

    def read(path: Path) -> Examples:
        sentences: list[list[str]] = [[]]
        for line in lines(path):
            cells = line.split("\t") if "\t" in line else line.split()
            if not cells or not line.strip():
                sentences.append([])
            elif not line.startswith("#") and len(cells) > column:
                sentences[-1].append(cells[column].removeprefix(prefix))
        return [[joined(words)] for words in sentences if words]

    return read


def word_forms(path: Path) -> Examples:
    """Sentences of CoNLL-U, as its comments have them."""
    mark = "# text = "
    return [[line.removeprefix(mark)] for line in lines(path) if line.startswith(mark)]


def sense_sentences(path: Path) -> Examples:
    text = "\n".join(lines(path))
    return [
        [joined(re.findall(r">([^<\n]+)</(?:wf|instance)>", sentence))]
        for sentence in re.findall(r"<sentence.*?</sentence>", text, re.DOTALL)
    ]


def marked(*kept: str) -> Callable[[Path], Examples]:
    """SMART's format: `.I` number, then fields such as `.T` and `.W`."""

    def read(path: Path) -> Examples:
        parts = re.split(r"(?m)^\.I .*$", "\n".join(lines(path)))
        out = []
        for part in parts[1:]:
            pieces = re.split(r"(?m)^\.([A-Z])\s*$", part)
            out.append([text for name, text in zip(pieces[1::2], pieces[2::2], strict=True) if name in kept])
        return out

    return read


def slashed(path: Path) -> Examples:
    return [[part] for part in re.split(r"(?m)^\s*/\s*$", "\n".join(lines(path))) if part.strip()]


def documents(path: Path) -> Examples:
    return [[part] for part in "\n".join(lines(path)).split("\n\n")]


SETS: list[tuple[str, Sequence[str], Callable[[Path], Examples]]] = [
    ("XQuAD en", ["qa/xquad/xquad.en.json.xz"], squad),
    ("SQuAD 1.1 dev", ["qa/squad_shifts/squaddev_v1.1.json.xz"], squad),
    ("SQuAD-shifts, news", ["qa/squad_shifts/nyt_v1.0.json.xz"], squad),
    ("SQuAD-shifts, Reddit", ["qa/squad_shifts/reddit_v1.0.json.xz"], squad),
    ("TyDiQA en", ["qa/tydiqa/tydiqa.goldp.en.train.json.xz", "qa/tydiqa/tydiqa.goldp.en.dev.json.xz"], squad),
    ("SCWS", ["senses/scws.tsv.xz"], fields(5, 6, header=False)),
    ("WiC", ["senses/wic.jsonl.xz"], records("text")),
    ("BLiMP", ["blimp.jsonl.xz"], records("sentence_good", "sentence_bad")),
    ("SST-2 dev", ["glue/SST-2/dev.tsv.xz"], fields(1)),
    ("CoLA dev", ["glue/CoLA/dev.tsv.xz"], fields(3, header=False)),
    ("MRPC", ["glue/MRPC/train.tsv.xz"], fields(3, 4)),
    ("RTE dev", ["glue/RTE/dev.tsv.xz"], fields(1, 2)),
    ("QNLI dev", ["glue/QNLI/dev.tsv.xz"], fields(1, 2)),
    ("STS-B dev", ["glue/STS-B/dev.tsv.xz"], fields(7, 8)),
    ("STS 2012 to 2015", ["sts/201*.tsv.xz"], fields(1, 2, header=False)),
    ("SICK", ["sts/SICK_*.txt.xz"], fields(1, 2)),
    ("XNLI en dev", ["xnli/dev-en.tsv.xz"], fields(0, 1, header=False)),
    ("PAWS-X en dev", ["pawsx/dev-en.tsv.xz"], fields(0, 1, header=False)),
    ("AG News", ["agnews/agnews.csv.xz"], comma_table),
    ("Banking77 test", ["classify/banking77.test.tsv.xz"], fields(1, header=False)),
    ("rt-polarity", ["classify/rt-polarity.*.txt.xz"], plain),
    ("custrev", ["classify/custrev.*.txt.xz"], plain),
    ("EWT dev", ["pos/ewt/dev.conllu.xz"], word_forms),
    ("GUM dev", ["ner/gum/dev.conllu.xz"], word_forms),
    ("OntoGUM dev", ["coref/ontogum.dev.conllu.xz"], word_forms),
    ("WNUT-17 dev", ["ner/wnut17/dev.conll.xz"], columns_of_words(0)),
    (
        "WikiANN en dev and test",
        ["ner/wikiann/en/dev.conll.xz", "ner/wikiann/en/test.conll.xz"],
        columns_of_words(0, "en:"),
    ),
    ("senses: Raganato", ["senses/raganato/*/*.data.xml.xz"], sense_sentences),
    ("PropBank EWT dev", ["srl/propbank_ewt.dev.jsonl.xz"], records("words")),
    ("GAP", ["coref/gap-*.tsv.xz"], fields(1)),
    ("LitBank", ["coref/litbank.conll.xz"], columns_of_words(3)),
    ("CISI", ["retrieval/cisi_CISI.ALL.xz", "retrieval/cisi_CISI.QRY.xz"], marked("T", "W")),
    ("NPL", ["retrieval/npl_doc-text.xz", "retrieval/npl_query-text.xz"], slashed),
    ("en_wiki.valid", ["text/en_wiki.valid.txt.xz"], documents),
]


def read_sets(data: Path) -> dict[str, Examples]:
    """All sets that are there; one that is not is an error."""
    out = {}
    for name, patterns, read in SETS:
        paths = [path for pattern in patterns for path in sorted(data.glob(pattern))]
        if len(paths) < len(patterns):
            raise SystemExit(f"english_overlap.py: {data} has no {' or '.join(patterns)}; give the data's folder")
        out[name] = [example for path in paths for example in read(path)]
    return out


@dataclass
class EvaluationRuns:
    names: list[str]
    owners: Ints
    """[R] example of each run, numbered over all sets."""
    places: Ints
    """[R] place of each run in `grams`."""
    sets_of_examples: Ints
    """[E]"""
    grams: Bits
    """Runs of all sets, sorted, each once."""
    _table: Bools = field(repr=False)

    @classmethod
    def of(cls, sets: dict[str, Examples]) -> EvaluationRuns:
        runs: list[Bits] = []
        owners: list[Ints] = []
        of_examples: list[int] = []
        for number, examples in enumerate(sets.values()):
            first = len(of_examples)
            of_examples += [number] * len(examples)
            texts = [text for example in examples for text in example]
            example = np.repeat(np.arange(first, first + len(examples)), [len(each) for each in examples])
            found, counts = n_grams(hashed_words(ShingleCharacters.of(texts)), RUN)
            runs.append(found)
            owners.append(np.repeat(example, counts))
        grams, places = np.unique(np.concatenate(runs), return_inverse=True)
        table = np.zeros(1 << _TABLE_BITS, bool)
        table[grams & np.uint64(len(table) - 1)] = True
        return cls(list(sets), np.concatenate(owners), places, np.array(of_examples), grams, table)

    def hits(self, runs: Bits) -> tuple[Ints, Ints]:
        """Which of a text's runs are known, and their places in `grams`."""
        maybe = np.flatnonzero(self._table[runs & np.uint64(len(self._table) - 1)])
        at = np.minimum(np.searchsorted(self.grams, runs[maybe]), len(self.grams) - 1)
        known = self.grams[at] == runs[maybe]
        return maybe[known], at[known]

    def cleaned(self, texts: list[list[str]], found: Bools) -> tuple[list[list[str]], int]:
        """Documents without the paragraphs that a known run touches, and how many those were."""
        touched, at = self.touched(texts)
        found[at] = True
        removed, out = 0, []
        for document, marks in zip(texts, touched, strict=True):
            while marks.any():
                removed += int(marks.sum())
                document = [paragraph for paragraph, mark in zip(document, marks, strict=True) if not mark]
                (marks,), _ = self.touched([document])
            out.append(document)
        return out, removed

    def touched(self, texts: list[list[str]]) -> tuple[list[Bools], Ints]:
        """Of each paragraph of each document whether a known run touches it, and the places of those runs."""
        words = hashed_words(ShingleCharacters.of([paragraph for document in texts for paragraph in document]))
        sizes = np.array([len(document) for document in texts], np.int64)
        ends = np.cumsum(sizes)
        sums = np.concatenate([[0], np.cumsum(words.counts)])
        of_documents = sums[ends] - sums[ends - sizes]
        runs, counts = n_grams(HashedWords(words.hashes, of_documents), RUN)
        hits, at = self.hits(runs)
        document = np.searchsorted(np.cumsum(counts), hits, side="right")
        first = hits - (np.cumsum(counts) - counts)[document] + (np.cumsum(of_documents) - of_documents)[document]
        steps = np.zeros(len(words.hashes) + 1, np.int64)
        np.add.at(steps, first, 1)
        np.add.at(steps, first + RUN, -1)
        marks = count_per_document(np.cumsum(steps[:-1]) > 0, words.counts) > 0
        return np.split(marks, ends[:-1]), at

    def examples_with(self, found: Bools) -> dict[str, dict[str, int]]:
        """Of each set, its examples, those that have a run, and those that share one."""
        size = len(self.sets_of_examples)
        judged, shared = np.zeros(size, bool), np.zeros(size, bool)
        judged[self.owners] = True
        shared[self.owners[found[self.places]]] = True
        return {
            name: {
                "examples": int((self.sets_of_examples == number).sum()),
                "of 13 words and more": int(judged[self.sets_of_examples == number].sum()),
                "shared": int(shared[self.sets_of_examples == number].sum()),
            }
            for number, name in enumerate(self.names)
        }


def blocks(documents: Iterable[list[str]], characters: int = 4_000_000) -> Iterator[list[list[str]]]:
    """Documents together that have about so many characters."""
    block: list[list[str]] = []
    size = 0
    for document in documents:
        block.append(document)
        size += sum(map(len, document))
        if size > characters:
            yield block
            block, size = [], 0
    if block:
        yield block
