"""Labelled files as probing examples: a word, a span or a pair of them, and a label; or the tree of a sentence.

| task | file | unit | label |
| --- | --- | --- | --- |
| tag | CoNLL, CoNLL-U, JSONL of tags | word | tag, any column, any key of FEATS or MISC |
| spans | brackets, brat, JSONL of spans, BIO of several levels | span | type |
| relations | brat or JSONL with relations | tail and head | relation |
| arcs | CoNLL-U with heads | word and its head | relation |
| roles | PropBank: JSONL, CoNLL-2005, CoNLL-2012 | argument and predicate | role |
| coref | CoNLL-2012, CorefUD, JSONL | mention and an earlier one | coreferent or different |
| structure | CoNLL-U with heads | all words of a sentence | the tree |

    data = read_probe_data("arcs", "train.conllu", limit=2_000)
    data.units, data.labels, data.names          # [N, 2] numbers of units, [N] label ids, their names

The word type of an example is the last word of its first unit. Control labels (Hewitt & Liang 2019, *Designing and
interpreting probes with control tasks*) are sampled for each word type from the label frequencies of the training
examples, so that they can be memorised, but not read from what a vector says about the word's use.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from larvatus.core.arrays import Ints
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.rng import stream
from larvatus.data.labelled.conllu import ABSENT, NAMES
from larvatus.data.labelled.file_options import FileOptions, WordFiles
from larvatus.data.labelled.in_memory import Examples, are_files
from larvatus.data.labelled.records import Dataset, in_order
from larvatus.data.labelled.split import units_of
from larvatus.data.labelled.tables import path_strings
from larvatus.tasks.examples import read_examples, task_of_file

ProbeTask = Literal["tag", "spans", "relations", "arcs", "roles", "coref", "structure"]
READ_BY: dict[ProbeTask, str] = {
    "tag": "tag", "spans": "spans", "relations": "spans", "arcs": "parse", "roles": "roles", "coref": "coref",
    "structure": "parse",
}  # fmt: skip
"""The fine-tuning task whose files each probe reads."""
GUESSED: dict[str, ProbeTask] = {"tag": "tag", "spans": "spans", "roles": "roles", "coref": "coref", "parse": "arcs"}
TRAIN, VALIDATION, TEST = range(3)
FEWEST = 10
"""Fewest texts that are split."""
LEAK = 0.9
"""Share of examples with a label of one word type from which labels count as names of words."""
LOOKED_UP = 0.98
"""Share of the test examples of known words from which the word is taken to determine the label."""
FEWEST_KNOWN = 20
"""Fewest test examples of known words for that."""
Label = TypeVar("Label", int, str)
Unit = tuple[int, int]
Row = tuple[Unit, Unit | None, str]
"""Characters of the labelled unit and of the one it is related to, and the label."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeData:
    """Examples of all three parts. Units are numbered over all texts, in their order."""

    task: ProbeTask
    source: str
    texts: Sequence[str]
    spans: Sequence[Sequence[Unit]]
    """Units of each text, in characters."""
    parts: Ints
    """[texts] `TRAIN`, `VALIDATION` or `TEST`."""
    units: Ints
    """[N, 1 or 2] units of each example."""
    owners: Ints
    """[N] its text."""
    labels: Ints
    """[N] its label; a test example with a label that training lacks has the number of classes."""
    types: Sequence[str]
    """[N] its word type."""
    names: tuple[str, ...]
    """Classes."""
    heads: Sequence[Ints]
    """Heads of the words of each text, from 1, 0 for the root; for `structure` only."""
    scored: Sequence[npt.NDArray[np.bool_]]
    """Words of each text that are scored, without punctuation; for `structure` only."""
    notes: tuple[str, ...]

    def of(self, part: int) -> Ints:
        """The examples of a part."""
        return np.flatnonzero(self.parts[self.owners] == part)

    def without(self, missing: npt.NDArray[np.bool_]) -> ProbeData:
        """The data without examples of units that are missing, [U]; a sentence with one is left out of `structure`."""
        if not missing.any():
            return self
        note = f"{int(missing.sum()):,} units without a token are left out"
        kept = np.asarray(~missing[self.units].any(axis=1), np.bool_).reshape(-1)
        return dataclasses.replace(
            self,
            units=self.units[kept],
            owners=self.owners[kept],
            labels=self.labels[kept],
            types=[word for word, keep in zip(self.types, kept, strict=True) if keep],
            notes=(*self.notes, note),
        )

    def control_labels(self, seed: int) -> Ints:
        """[N] a label for each word type, sampled from the frequencies of the training examples."""
        counts = np.bincount(self.labels[self.of(TRAIN)], minlength=len(self.names))
        steps = np.cumsum(counts / counts.sum())
        sampled = {
            word: int(np.searchsorted(steps, uniform_of(word, seed) * steps[-1], side="right"))
            for word in set(self.types)
        }
        return np.array([sampled[word] for word in self.types], np.int64)


def uniform_of(word: str, seed: int) -> float:
    """A number from 0 to 1 that belongs to a word type."""
    digest = hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest()
    return float(stream(seed, "probe control", 0, int.from_bytes(digest, "little")).random())


def read_probe_data(
    task: ProbeTask | None,
    given: Examples,
    *,
    test: Examples | None = None,
    columns: WordFiles = WordFiles(),
    limit: int = 2_000,
    most_labels: int = 100,
    seed: int = 0,
) -> ProbeData:
    """Examples of a file or table; a fifth is the test part unless one is given, a tenth of the rest validation."""
    chosen = check_task(task, given)
    train, notes = _sampled(_read(chosen, given, columns), limit, seed)
    if len(train) < FEWEST:
        way = f"give {FEWEST} or more" if limit >= FEWEST else f"raise --limit {limit} to {FEWEST} or more"
        raise DataError(f"{train.source}: {len(train)} texts are too few to probe; {way}")
    if test is None:
        train, held_out = _split(train, 0.2, seed)
    else:
        held_out, more = _sampled(_read(chosen, test, columns), limit, seed)
        notes += more
    train, validation = _split(train, 0.1, seed)
    data = [(part, each) for part, held in enumerate((train, validation, held_out)) for each in held.examples]
    source = train.source if test is None else f"{train.source}, tested on {held_out.source}"
    return _numbered(chosen, source, data, _reader(chosen, columns, seed), most_labels, notes)


def check_task(task: str | None, given: Examples) -> ProbeTask:
    """The named task, or the one that a file looks to be of."""
    if task is None:
        guess = task_of_file(path_strings(given)[0]) if are_files(given) else "tag"  # type: ignore[arg-type]
        task = GUESSED.get(guess, "")
        if not task:
            files = ", ".join(path_strings(given))  # type: ignore[arg-type]
            raise UsageError(f"the task of {files} is not clear; name it: --task {', '.join(get_args(ProbeTask))}")
    if task not in get_args(ProbeTask):
        raise UsageError(f"there is no probe {task!r}{did_you_mean(task, get_args(ProbeTask))}")
    return task  # type: ignore[return-value]


def _read(task: ProbeTask, given: Examples, columns: WordFiles) -> Dataset[Any]:
    reading: FileOptions = columns if task == "tag" else FileOptions()
    if task != "tag" and columns != WordFiles():
        raise UsageError(f"--word and --tag are for words with tags; leave them out of --task {task}")
    return read_examples(READ_BY[task], given, reading)


def _sampled(data: Dataset[Any], limit: int, seed: int) -> tuple[Dataset[Any], tuple[str, ...]]:
    """Up to `limit` texts at random, in their order."""
    if len(data) <= limit:
        return data, data.notes
    chosen = np.sort(stream(seed, "probe texts").permutation(len(data))[:limit]).tolist()
    note = f"{limit:,} of {len(data):,} {data.examples[0].noun} of {data.source}, sampled at random"
    return dataclasses.replace(data, examples=tuple(data.examples[n] for n in chosen)), (*data.notes, note)


def _split(data: Dataset[Any], share: float, seed: int) -> tuple[Dataset[Any], Dataset[Any]]:
    """Without, and only, a random share of the texts; documents and equal texts stay together."""
    owners = np.array(units_of(data))
    order = stream(seed, "probe split", round(100 * share)).permutation(owners.max() + 1)
    reached = np.cumsum(np.bincount(owners)[order])
    held = np.isin(owners, order[: np.searchsorted(reached, share * len(data)) + 1])
    if held.all():
        raise DataError(f"{data.source}: all texts are equal or of one document; give others")
    parts = (tuple(each for each, out in zip(data, held, strict=True) if out == part) for part in (False, True))
    train, test = (dataclasses.replace(data, examples=examples) for examples in parts)
    return train, test


def _reader(task: ProbeTask, columns: WordFiles, seed: int) -> Callable[[int, Any], Iterator[Row]]:
    """Gives the rows of an example, by its number."""
    if task == "tag":
        optional = columns.tag is not None and columns.tag.lower() not in NAMES and not columns.tag.isdigit()
        return lambda number, example: _tags(example, skip=ABSENT if optional else None)
    if task == "coref":
        return lambda number, example: _mentions(example, number, seed)
    readers: dict[ProbeTask, Callable[[Any], Iterator[Row]]] = {
        "spans": _spans, "relations": _relations, "arcs": _arcs, "roles": _roles, "structure": _words,
    }  # fmt: skip
    return lambda number, example: readers[task](example)


def _tags(example: Any, *, skip: str | None) -> Iterator[Row]:
    for place, tag in zip(example.located()[1], example.tags or (), strict=False):
        if tag != skip:
            yield place, None, tag


def _spans(example: Any) -> Iterator[Row]:
    places = example.located()[1]
    for start, end, label in example.spans or ():
        yield (places[start][0], places[end - 1][1]), None, label


def _relations(example: Any) -> Iterator[Row]:
    units = [unit for unit, _, _ in _spans(example)]
    for head, tail, label in example.relations:
        yield units[tail], units[head], label


def _arcs(example: Any) -> Iterator[Row]:
    places = example.located()[1]
    for place, head, label in zip(places, example.heads or (), example.relations or (), strict=False):
        if head:
            yield place, places[head - 1], label


def _roles(example: Any) -> Iterator[Row]:
    places = example.located()[1]
    for frame in example.frames or ():
        for role, first, last in frame.arguments:
            if role != "V":
                yield (places[first][0], places[last][1]), places[frame.predicate], role


def _words(example: Any) -> Iterator[Row]:
    for place in example.located()[1]:
        yield place, None, ""


def _mentions(example: Any, number: int, seed: int) -> Iterator[Row]:
    """Each mention with the nearest earlier one of its cluster, and with one of another cluster near it."""
    if not hasattr(example, "clusters"):
        raise DataError(f"{example.place}: pronouns with two names have no clusters; give documents with clusters")
    places = example.located()[1]
    mentions = sorted(
        ((places[first][0], places[end - 1][1]), cluster)
        for cluster, group in enumerate(example.clusters or ())
        for first, end in group
    )
    choices = stream(seed, "probe mentions", 0, number).random(len(mentions))
    for at, (unit, cluster) in enumerate(mentions):
        nearest = next((other for other, its in reversed(mentions[:at]) if its == cluster), None)
        others = [other for other, its in mentions[max(0, at - 10) : at] if its != cluster]
        if nearest is not None and others:  # in pairs, so that both labels are equally frequent
            yield unit, nearest, "coreferent"
            yield unit, others[int(choices[at] * len(others))], "different"


def _numbered(
    task: ProbeTask,
    source: str,
    data: Sequence[tuple[int, Any]],
    read: Callable[[int, Any], Iterator[Row]],
    most_labels: int,
    notes: tuple[str, ...],
) -> ProbeData:
    """Rows of all texts with numbers for units and labels."""
    spans: list[list[Unit]] = []
    rows: list[tuple[int, int, str, str, int]] = []  # both units, label, word type, text
    before = 0
    for number, (_, example) in enumerate(data):
        text, known = example.located()[0], dict[Unit, int]()
        for a, b, label in read(number, example):
            if a[0] >= a[1] or (b is not None and b[0] >= b[1]):
                continue
            first = before + known.setdefault(a, len(known))
            second = first if b is None else before + known.setdefault(b, len(known))
            rows.append((first, second, label, text[slice(*a)].split()[-1], number))
        spans.append([*known])
        before += len(known)
    parts = np.array([part for part, _ in data], np.int64)
    names, kept, more = _classes(task, source, rows, parts, most_labels)
    ids = {name: n for n, name in enumerate(names)}
    pairs = np.array([row[:2] for row in kept], np.int64).reshape(-1, 2)
    return ProbeData(
        task=task,
        source=source,
        texts=[example.located()[0] for _, example in data],
        spans=spans,
        parts=parts,
        units=pairs if task in ("relations", "arcs", "roles", "coref") else pairs[:, :1],
        owners=np.array([row[4] for row in kept], np.int64),
        labels=np.array([ids.get(row[2], len(names)) for row in kept], np.int64),
        types=[row[3] for row in kept],
        names=names,
        heads=[np.array(example.heads) for _, example in data] if task == "structure" else (),
        scored=[np.array(example.upos) != "PUNCT" for _, example in data] if task == "structure" else (),
        notes=notes + more,
    )


def _classes(
    task: ProbeTask, source: str, rows: list[Any], parts: Ints, most: int
) -> tuple[tuple[str, ...], list[Any], tuple[str, ...]]:
    """Names of the classes, the rows that are kept, and notes."""
    if task == "structure":
        return ("",), rows, ()
    counts = Counter(row[2] for row in rows if parts[row[4]] == TRAIN)
    names = in_order({name for name, _ in counts.most_common(most)})
    dropped = {name for name, _ in counts.most_common()[most:]}
    kept = [
        row for row in rows if row[2] in names or (row[2] not in dropped and parts[row[4]] == TEST)
    ]  # a label that only the test part has is counted as wrong
    examples = sum(parts[row[4]] == TRAIN for row in kept)
    if not examples:
        raise DataError(f"{source}: no training example has a label for --task {task}; name another task or column")
    if len(names) < 2:
        raise DataError(f"{source}: all {examples:,} examples are {names[0]!r}; a probe needs two labels or more")
    if examples < (count := len({row[2] for row in kept})):
        raise DataError(f"{source}: {examples:,} training examples for {count:,} labels; give more texts")
    if not any(parts[row[4]] == TEST for row in kept):
        raise DataError(f"{source}: the test part has no example; give more texts, or --test FILE")
    notes = []
    if dropped:
        lost = sum(counts[name] for name in dropped)
        notes.append(
            f"the {most:,} most frequent labels are kept; {lost:,} examples of {len(dropped):,} others are not"
        )
    words: dict[str, set[str]] = {}
    for row in kept:
        words.setdefault(row[2], set()).add(row[3])
    single = sum(counts[name] for name in names if len(words[name]) == 1 and counts[name] > 1)
    repeated = sum(counts[name] for name in names if counts[name] > 1)
    if single >= LEAK * max(1, repeated) and repeated:
        notes.append(
            f"{single / repeated:.0%} of the examples have a label that belongs to one word: the probe reads word "
            "identity, the control task is as easy, and selectivity shows nothing"
        )
    elif (known := _by_word(kept, parts)).size >= FEWEST_KNOWN and known.mean() >= LOOKED_UP:
        notes.append(
            f"the word determines the label: {known.mean():.0%} of the {len(known):,} test examples whose word "
            "occurs in training have its most frequent label there, so accuracy shows which words a layer knows"
        )
    return names, kept, tuple(notes)


def _by_word(rows: Sequence[Any], parts: Ints) -> npt.NDArray[np.bool_]:
    """Whether each test example whose word type occurs in training has the type's most frequent label there."""
    likely = labels_by_word((row[3], row[2]) for row in rows if parts[row[4]] == TRAIN)
    tested = [(row[3], row[2]) for row in rows if parts[row[4]] == TEST]
    return np.array([likely[word] == label for word, label in tested if word in likely], np.bool_)


def labels_by_word(pairs: Iterable[tuple[str, Label]]) -> dict[str, Label]:
    """The most frequent label of each word type; of equally frequent ones the first in order.

    >>> labels_by_word([("run", "VERB"), ("run", "NOUN"), ("run", "VERB")])
    {'run': 'VERB'}
    """
    counts: dict[str, Counter[Label]] = {}
    for word, label in pairs:
        counts.setdefault(word, Counter())[label] += 1
    return {word: min(seen, key=lambda label: (-seen[label], label)) for word, seen in counts.items()}
