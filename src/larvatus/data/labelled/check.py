"""Look at labelled data before training: what stops it, and what spoils it without a word.

    report = check(read_texts("train.tsv"), read_texts("dev.tsv"))
    report.raise_errors()
    report.balance["train"]                       # {'1': 6023, '0': 2528}

Errors: faults of reading, no labels, one class only, illegal sequences of tags.
Warnings: texts that occur twice, in train and dev both (exactly, or but for case and spaces), or with different labels
(`repeats.py`); labels of dev that train lacks; labels seen once; classes far from balance; texts longer than a model
reads at once, and characters that come from broken decoding (`surface.py`); of questions, see `check_questions.py`.
"""

from __future__ import annotations

from collections import Counter

from larvatus.data.labelled.check_questions import check_questions
from larvatus.data.labelled.problems import Errors, Problems
from larvatus.data.labelled.repeats import Examples, find_repeats
from larvatus.data.labelled.report import Findings, Level, Report, many
from larvatus.data.labelled.surface import Measure, find_odd_characters, measure_lengths
from larvatus.data.text.tag_schemes import LETTERS, Scheme, detect_scheme, find_illegal, read_leniently

LONGEST = 512
"""Tokens that most encoders read at once."""
SHOWN = 5
_KINDS = {name: name for name in ("spans", "answers", "choices", "texts")}
UNSEEN = "dev labels unseen in train"
UNBALANCED = 20
"""How many times rarer than the commonest a label is before it is said."""


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
    """Everything there is to say of data before a model is trained on it.

    `problems`: what reading set aside, which stops training unless `errors` is skip. `measure` counts
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
    spans = train.examples[0].labels_are == "spans"  # words that are no span are a class of their own
    alone = train.kind != "multi-label" and not spans and len(counts) == 1 and set(train.labels()) == set(counts)
    if alone or not counts:
        only = f"{next(iter(counts))!r} is the only label" if counts else "no example has a label"
        findings.add("one class only", "error", f"{only} of {train.source}: there is nothing to tell apart", count=1)
    once = [name for name, count in counts.items() if count == 1]
    message = f"{many(len(once), 'label is', 'labels are')} seen once in train"
    places = [_first(train, name) for name in once[: findings.most]]
    findings.add("labels seen once", "warning", message, places, len(once))
    unseen = [name for name in balance.get("dev", {}) if name not in counts]
    message = f"{many(len(unseen), 'label', 'labels')} of dev that train lacks: they will count as wrong"
    places = [_first(parts["dev"], name) for name in unseen[: findings.most]]
    findings.add(UNSEEN, "warning", message, places, len(unseen))
    top = max(counts.values(), default=0)
    rare = [f"{name!r}: {count:,}, the commonest {top:,}" for name, count in counts.items() if count * UNBALANCED < top]
    message = f"{many(len(rare), 'label is', 'labels are')} more than {UNBALANCED} times rarer than the commonest"
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
    message = f"{many(tally.count, 'tag', 'tags')} of {part.source} out of place in the scheme {scheme}"
    findings.add("illegal tags", "error", message, tally.examples, tally.count)
