"""Check labelled data before training: errors, which stop it, and warnings, which would spoil it unnoticed.

    report = check(read_texts("train.tsv"), read_texts("dev.tsv"))
    report.balance["train"]                       # {'1': 6023, '0': 2528}

Errors: faults of reading, no labels, one class only, illegal sequences of tags. Warnings: texts that occur twice, in
train and dev both (exactly, or but for case and spaces), or with different labels; labels of dev that train lacks;
labels seen once; classes far from balance; texts longer than a model reads at once; characters that come from broken
decoding; of questions: repeated ids, passages in train and dev both, long answers.

Texts are compared by digests of 16 bytes, in one pass: a million texts of any length take a million entries.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from larvatus.core.ranges import digits
from larvatus.data.labelled.problems import Errors, Findings, Level, Problems, Report, count_noun
from larvatus.data.labelled.records import Dataset, LabelledExample, QuestionExample, QuestionPlace, shorten
from larvatus.data.text.tag_schemes import LETTERS, Scheme, detect_scheme, find_illegal, read_leniently
from larvatus.data.text.words import segment_words

Examples = Dataset[Any]
_First = tuple[LabelledExample, str]
_SAID = {
    "leak": ("train texts in dev", "{} of dev {} in train too: scores will flatter"),
    "near leak": ("train texts in dev, nearly", "{} of dev {} in train but for case and spaces"),
    "other": ("conflicting labels", "{} {} labelled in two ways"),
    "again": ("duplicates", "{} {} a repetition of an earlier one"),
    "near": ("near duplicates", "{} {} a repetition but for case and spaces"),
}

Measure = Callable[[Sequence[str]], Sequence[int]]
"""Tokens of each text: what a tokenizer counts."""
AT_ONCE = 1_000
_ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd\ufeff]")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")
LONGEST_ANSWER = 30
"""Default of the longest answer in tokens: `AnswerOptions.longest`."""
LONGEST = 512
"""Tokens that most encoders read at once."""
SHOWN = 5
_KINDS = {name: name for name in ("spans", "answers", "choices", "texts")}
UNSEEN = "dev labels unseen in train"
UNBALANCED = 20
"""How many times rarer than the most frequent label another must be to be reported."""


def check(
    train: Examples,
    dev: Examples | None = None,
    *,
    problems: Problems | None = None,
    measure: Measure | None = None,
    longest: int = LONGEST,
    shown: int = SHOWN,
    errors: Errors = "refuse",
) -> Report:
    """Report on labelled data before a model is trained on it.

    `problems`: rows that reading skipped, which stop training unless `errors` is skip. `measure` counts
    tokens; without it words are counted.
    """
    findings = Findings(shown)
    for name, count in (problems.counts if problems else Counter[str]()).items():
        kept = problems.examples[name] if problems else []
        level: Level = "warning" if errors == "skip" else "error"
        outcome = "skipped" if errors == "skip" else "cannot be used"
        message = f"{count:,} {'row' if count == 1 else 'rows'} {outcome}"
        findings.add(name, level, message, [str(place) for place in kept], count)
    parts = {"train": train} | ({} if dev is None else {"dev": dev})
    first = train.examples[0]
    scheme = _scheme(train) if first.labels_are == "tags" else None
    balance = {name: _balance(part, scheme) for name, part in parts.items()}
    if first.labels_are == "answers":
        check_questions(findings, parts)
    elif first.labels_are not in ("choices", "texts"):
        _labels(findings, parts, balance)
    for remark in first.remarks(parts):
        findings.add(remark.name, "warning", remark.message, remark.places)
    if scheme is not None:
        for part in parts.values():
            _illegal(findings, part, scheme)
    find_repeats(findings, parts)
    lengths = measure_lengths(findings, parts, measure, longest)
    find_odd_characters(findings, parts)
    return Report(
        sizes={name: len(part) for name, part in parts.items()},
        kind=scheme or train.kind or _KINDS.get(first.labels_are, "no labels"),
        balance=balance,
        lengths=lengths,
        unit="words" if measure is None else "tokens",
        findings=tuple(sorted(findings.listed, key=lambda finding: finding.level)),
    )


def _scheme(train: Examples) -> Scheme:
    return detect_scheme([example.tags for example in train if example.tags is not None])


def _balance(part: Examples, scheme: Scheme | None) -> dict[str, int]:
    """Classes, tags, or the entities that tags mean, commonest first."""
    counts = part.labels()
    if scheme is not None and scheme != "none":
        counts = Counter()
        for example in part:
            known = [tag if _is_of(tag, scheme) else "O" for tag in example.tags or ()]
            counts.update(entity.label for entity in read_leniently(known, scheme))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _is_of(tag: str, scheme: Scheme) -> bool:
    return tag == "O" or (tag[:1] in tuple(LETTERS[scheme][1:]) and (len(tag) == 1 or (tag[1] == "-" and len(tag) > 2)))


def _first(part: Examples, label: str) -> str:
    """Where a label occurs first, and what it is."""
    for example in part:
        names = set(example.names())
        if example.labels_are == "tags":  # a type is named by its tags
            names |= {tag[2:] for tag in names}
        if label in names:
            return f"{example.place}: {label!r}"
    return repr(label)


def _labels(findings: Findings, parts: dict[str, Examples], balance: dict[str, dict[str, int]]) -> None:
    train = parts["train"]
    if all(example.answer() is None for example in train):
        findings.add("no labels", "error", "the examples have no labels; name their column: --label, or --tag", count=1)
        return
    if train.kind == "regression":
        if len({example.answer() for example in train}) == 1:
            findings.add("one value only", "error", "all labels are the same number: nothing to learn", count=1)
        return
    counts = balance["train"]
    spans = train.examples[0].labels_are == "spans"  # words outside spans are a separate class
    alone = train.kind != "multi-label" and not spans and len(counts) == 1 and set(train.labels()) == set(counts)
    if alone or not counts:
        only = f"{next(iter(counts))!r} is the only label" if counts else "no example has a label"
        findings.add("one class only", "error", f"{only} of {train.source}: there is nothing to tell apart", count=1)
    once = [name for name, count in counts.items() if count == 1]
    message = f"{count_noun(len(once), 'label is', 'labels are')} seen once in train"
    places = [_first(train, name) for name in once[: findings.most]]
    findings.add("labels seen once", "warning", message, places, len(once))
    unseen = [name for name in balance.get("dev", {}) if name not in counts]
    message = f"{count_noun(len(unseen), 'label', 'labels')} of dev that train lacks: they will count as wrong"
    places = [_first(parts["dev"], name) for name in unseen[: findings.most]]
    findings.add(UNSEEN, "warning", message, places, len(unseen))
    top = max(counts.values(), default=0)
    rare = [f"{name!r}: {count:,}, the commonest {top:,}" for name, count in counts.items() if count * UNBALANCED < top]
    message = f"{count_noun(len(rare), 'label is', 'labels are')} more than {UNBALANCED} times rarer than the commonest"
    findings.add("unbalanced", "warning", message, rare)


def _illegal(findings: Findings, part: Examples, scheme: Scheme) -> None:
    tally = findings.tally()
    for example in part:
        if scheme == "none" or example.tags is None:
            continue
        foreign = next((index for index, tag in enumerate(example.tags) if not _is_of(tag, scheme)), None)
        if foreign is not None:
            bad = [(foreign, f"{example.tags[foreign]!r} is no tag of the scheme {scheme}")]
        else:
            bad = [(illegal.index, illegal.message) for illegal in find_illegal(example.tags, scheme)]
        for index, message in bad:
            if tally.add():
                tally.examples.append(f"{example.place}: word {index + 1}, {example.words[index]!r}: {message}")
    message = f"{count_noun(tally.count, 'tag', 'tags')} of {part.source} out of place in the scheme {scheme}"
    findings.add("illegal tags", "error", message, tally.examples, tally.count)


def find_repeats(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note every text that has come before."""
    first: dict[bytes, _First] = {}
    folded: dict[bytes, _First] = {}
    tallies = {name: findings.tally() for name in _SAID}
    for name, part in parts.items():
        for example in part:
            text = example.reads()
            before = first.setdefault(_digest(text), (example, name))
            near = folded.setdefault(_digest(" ".join(text.casefold().split())), (example, name))
            if before[0] is not example:
                tally = tallies["again" if before[1] == name else "leak"]
                if tally.add():
                    tally.examples.append(f"{example.place}: {shorten(text)} (first at {before[0].place})")
                if before[0].answer() != example.answer() and tallies["other"].add():
                    labels = f"{before[0].answer_shown()}, then {example.answer_shown()}"
                    said = f"{example.place}: {shorten(text)} (first at {before[0].place}): {labels}"
                    tallies["other"].examples.append(said)
            elif near[0] is not example:
                tally = tallies["near" if near[1] == name else "near leak"]
                if tally.add():
                    tally.examples.append(f"{example.place}: {shorten(text)} (like {near[0].place})")
    for kind, (title, message) in _SAID.items():
        count = tallies[kind].count
        texts = message.format(f"{count:,} text{'s' * (count != 1)}", "is" if count == 1 else "are")
        findings.add(title, "warning", texts, tallies[kind].examples, count)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def measure_lengths(
    findings: Findings, parts: dict[str, Examples], measure: Measure | None, longest: int
) -> dict[str, float]:
    """Median, 95th percentile and maximum of train; texts over the limit are noted, longest first."""
    stats: dict[str, float] = {}
    unit = "words" if measure is None else "tokens"
    for name, part in parts.items():
        sizes = np.fromiter(_sizes(part, measure), dtype=np.int64, count=len(part))
        if name == "train":
            middle, high = np.percentile(sizes, [50, 95])
            stats = {"median": float(middle), "p95": float(high), "longest": int(sizes.max())}
        over = np.flatnonzero(sizes > longest)
        worst = over[np.argsort(-sizes[over], kind="stable")][: findings.most]
        said = [f"{part.examples[index].place}: {sizes[index]:,} {unit}" for index in worst.tolist()]
        message = f"{count_noun(len(over), 'text', 'texts')} of {name} longer than {longest:,} {unit}; read in windows"
        findings.add("long texts", "warning", message, said, len(over))
    return stats


def _sizes(part: Examples, measure: Measure | None) -> Iterator[int]:
    for start in range(0, len(part), AT_ONCE):
        for_now = part.examples[start : start + AT_ONCE]
        if measure is not None:
            yield from measure([example.reads() for example in for_now])
            continue
        for example in for_now:
            words = example.word_count()
            yield count_words(example.reads()) if words is None else words


def count_words(text: str) -> int:
    """How many words `segment_words` finds; plain ASCII, most of what is checked, is counted the short way."""
    plain = text.replace("\t", " ")
    return len(_ASCII_WORD.findall(plain)) if plain.isascii() and plain.isprintable() else len(segment_words(text))


def find_odd_characters(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note controls, replacement characters and byte-order marks; and texts that are not in NFC."""
    odd, loose = findings.tally(), findings.tally()
    for part in parts.values():
        for example in part:
            text = example.reads()
            if text.isascii() and text.isprintable():
                continue
            match = _ODD.search(text)
            if match and odd.add():
                odd.examples.append(f"{example.place}: U+{ord(match.group()):04X} at character {match.start()}")
            if not unicodedata.is_normalized("NFC", text) and loose.add():
                loose.examples.append(f"{example.place}: {shorten(text)}")
    said = f"{count_noun(odd.count, 'text holds', 'texts hold')} control or replacement characters: a broken decoding?"
    findings.add("odd characters", "warning", said, odd.examples, odd.count)
    count = count_noun(loose.count, "text is", "texts are")
    said = f"{count} not in Unicode's composed form (NFC); equal words may differ"
    findings.add("not NFC", "warning", said, loose.examples, loose.count)


def check_questions(findings: Findings, parts: dict[str, Examples]) -> None:
    """Note what questions have that others do not."""
    questions: dict[str, list[QuestionExample]] = {name: list(part) for name, part in parts.items()}
    for name, part in parts.items():
        again = _numbered(part)
        said = f"{count_noun(len(again), 'question', 'questions')} of {name} with the id of an earlier one"
        places = [f"{question.place}: read as {question.id}" for question in again[: findings.most]]
        findings.add("repeated ids", "warning", f"{said}; prediction files number them", places, len(again))
    seen = {question.passage: question for question in questions["train"]}
    both = [question for question in questions.get("dev", []) if question.passage in seen]
    said = f"{count_noun(len(both), 'question', 'questions')} of dev about passages of train: scores will flatter"
    places = [
        f"{question.place}: {shorten(question.passage)} (first at {seen[question.passage].place})"
        for question in both[: findings.most]
    ]
    findings.add("train passages in dev", "warning", said, places, len(both))
    for name, asked in questions.items():
        long = [
            f"{question.place}: {len(words):,} words: {shorten(text)}"
            for question in asked
            for text, _ in question.answers[:1]
            if len(words := segment_words(text)) > LONGEST_ANSWER
        ]
        said = f"{count_noun(len(long), 'answer', 'answers')} of {name} of more than {LONGEST_ANSWER} words"
        findings.add("long answers", "warning", f"{said} are never given; --set longest=N allows more", long)


def _numbered(part: Dataset[QuestionExample]) -> list[QuestionExample]:
    """Questions whose id was numbered when they were read, since an earlier one has it."""
    ids = {question.id for question in part}
    numbered = []
    for question in part:
        base, _, number = question.id.rpartition("#")
        written = isinstance(question.place, QuestionPlace) and question.place.id == question.id
        if base in ids and digits(number) is not None and not written:
            numbered.append(question)
    return numbered
