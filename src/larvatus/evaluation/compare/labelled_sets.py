"""Labelled sets for the fine-tuning of a comparison: parsed from short words, and read before any training; baselines.

    classify=glue/SST-2                      a directory with train.* and dev.*, or a task of GLUE
    tag=train.conll:dev.conll                training and validation files; a third is the test set
    answer:XQuAD=tydiqa.en.json:xquad.json   with a name for the table
    classify=glue/SST-2,glue/RTE,tag=ewt     several, separated by commas; the task carries over

    for source in parse_sets(["classify=glue/SST-2,tag=ewt"]):
        baseline_scores(labelled_set(source), "accuracy")            # {"commonest label": 0.512}

The test set is scored, or the validation examples if there is none. If there is a single file, a random tenth of its
examples is held out for validation, the same for every model. Baselines learn from the training examples and are scored
on the same examples as the model: the majority label, the most frequent tag of each word form, phrase lookup, roles by
word form and place.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.data.labelled.glue import GlueTask, glue_task, read_glue
from larvatus.data.labelled.in_memory import Examples
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.split import hold_out
from larvatus.data.text.tag_schemes import read_entities
from larvatus.metrics.entities import entity_f1
from larvatus.tasks.examples import read_examples
from larvatus.tasks.registry import TASKS, get_task, parse_file_options
from larvatus.tasks.roles.baseline import surface_argument_f1
from larvatus.tasks.trainer.run import sample_share
from larvatus.tasks.trainer.save import contents_hash

Sets = str | Sequence[str] | Mapping[str, Any]
"""Words as given to `--then`; or by task: a path, a list of paths, a tuple of training and validation examples, or a
mapping from names in the table to any of these."""
_HELD_OUT = ("dev", "validation", "valid")
_FORM = "give TASK=DIRECTORY with train.* and dev.* in it, or TASK=TRAIN:DEV"


@dataclass(frozen=True, eq=False)
class SetSource:
    """A requested labelled set that is not read yet."""

    task: str
    name: str | None
    given: str | Path | tuple[Examples, ...]
    """A path as on the command line, or training, validation and test examples."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledSet:
    """Training, validation and test examples, the same for every model."""

    task: str
    name: str
    train: Dataset[Any]
    dev: Dataset[Any]
    """Validation examples, which select the best weights."""
    test: Dataset[Any] | None = None
    """Test examples, scored once; None scores `dev`."""
    metric: str | None = None
    """The official metric, if there is one."""

    @property
    def scored(self) -> Dataset[Any]:
        return self.dev if self.test is None else self.test

    @property
    def folder(self) -> str:
        """The name as a directory name."""
        return re.sub(r"[^\w.+-]+", "-", self.name).strip("-.") or "set"

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Hashes of the contents of its examples, independent of file names."""
        test = None if self.test is None else contents_hash(self.test)
        return {
            "task": self.task,
            "train": contents_hash(self.train),
            "dev": contents_hash(self.dev),
            "test": test,
            "metric": self.metric,
        }


def parse_sets(given: Sets) -> list[SetSource]:
    """The requested sets in order; nothing is read yet."""
    if isinstance(given, Mapping):
        return [source for task, value in given.items() for source in _of_task(task, value)]
    words = [given] if isinstance(given, str) else list(given)
    return [source for word in words for source in _of_word(word)]


def _of_word(word: str) -> Iterator[SetSource]:
    task: str | None = None
    for item in filter(None, (item.strip() for item in word.split(","))):
        head, equals, rest = item.partition("=")
        kind, _, name = head.partition(":")
        if equals and (task is None or kind in TASKS):
            task, path = _known(kind, word), rest
        else:
            name, path = "", item
        if task is None or not path:
            raise UsageError(f"--then {word} is no labelled set of a task; {_FORM}")
        yield SetSource(task, name or None, path)


def _of_task(task: str, value: Any) -> Iterator[SetSource]:
    _known(task, task)
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield SetSource(task, str(name), each)
    elif isinstance(value, list):
        for each in value:
            yield SetSource(task, None, each)
    else:
        yield SetSource(task, None, value)


def _known(task: str, word: str) -> str:
    if task not in TASKS:
        raise UsageError(f"--then {word}: there is no task {task!r} to fine-tune for{did_you_mean(task, TASKS)}")
    return task


def set_name(source: SetSource) -> str:
    """The name of a set in the table: as given, else from its directory or file."""
    if source.name is not None:
        return source.name
    if isinstance(source.given, tuple):
        return source.task
    path = Path(source.given)
    if (glue := _glue(source)) is not None:
        return glue[0].title
    if path.is_dir():
        return path.resolve().name
    first = path if path.exists() else Path(str(path).split(":")[0])
    stem = first.name.split(".")[0]
    return first.resolve().parent.name if stem.startswith("train") else stem


def labelled_set(
    source: SetSource, *, columns: Mapping[str, Any] | None = None, most: int | None = None
) -> LabelledSet:
    """Read a set. `columns` names columns of its files; `most` limits training examples by random sampling."""
    try:
        data = _read(source, columns or {})
    except (DataError, UsageError) as fault:
        raise type(fault)(f"--then {source.task}: {fault}") from fault
    if most is None or most >= len(data.train):
        return data
    return replace(data, train=sample_share(data.train, most / len(data.train)))


def _read(source: SetSource, columns: Mapping[str, Any]) -> LabelledSet:
    given = source.given
    if isinstance(given, tuple):
        return _of_examples(source, columns, given)
    if (glue := _glue(source)) is not None and not columns:
        official, directory = glue
        data = read_glue(official.name, directory)
        assert data.train is not None
        return LabelledSet(
            task=source.task,
            name=set_name(source),
            train=data.train,
            dev=next(iter(data.dev.values())),
            metric=official.metrics[0],
        )
    return _of_examples(source, columns, _files_in(Path(given)) if Path(given).is_dir() else _files_of(str(given)))


def _of_examples(source: SetSource, columns: Mapping[str, Any], given: Sequence[Examples]) -> LabelledSet:
    name = set_name(source)
    if not 1 <= len(given) <= 3:
        raise UsageError(f"{name} is {len(given)} sets of examples; give training, validation and test examples")
    reading = parse_file_options(source.task, columns)
    train = read_examples(source.task, given[0], reading)
    others = [read_examples(source.task, each, reading, kind=train.kind) for each in given[1:]]
    if not others:
        train, dev, _ = hold_out(train)
        others = [dev]
    test = others[1] if len(others) > 1 else None
    return LabelledSet(task=source.task, name=name, train=train, dev=others[0], test=test)


def _glue(source: SetSource) -> tuple[GlueTask, Path] | None:
    """The GLUE task that a path names, and its directory: ``glue/SST-2``, ``glue/sst2``."""
    if isinstance(source.given, tuple) or not get_task(source.task).of_glue:
        return None
    path = Path(source.given)
    if not (path.is_dir() or (not path.exists() and path.parent.is_dir())):
        return None
    try:
        official = glue_task(path.resolve().name)
    except UsageError:
        return None
    return official, path if path.is_dir() else path.parent


def _files_in(directory: Path) -> list[Path]:
    train = _file(directory, ("train",))
    dev = _file(directory, _HELD_OUT)
    if train is None or dev is None:
        raise DataError(f"{directory} has no {'train' if train is None else 'dev'} file; {_FORM}")
    return [train, dev]


def _file(directory: Path, stems: Sequence[str]) -> Path | None:
    for stem in stems:
        matches = [path for path in sorted(directory.iterdir()) if path.is_file() and path.name.split(".")[0] == stem]
        if len(matches) > 1:
            names = " and ".join(path.name for path in matches)
            raise DataError(f"{directory} holds {names}; name the files: {matches[0]}:…")
        if matches:
            return matches[0]
    return None


def _files_of(given: str) -> list[Path]:
    names = [given] if Path(given).exists() else given.split(":")
    for name in names:
        if not Path(name).is_file():
            raise DataError(f"{name or given} does not exist; {_FORM}")
    return [Path(name) for name in names]


def check_set_names(sets: Sequence[LabelledSet]) -> None:
    """Refuse two sets with one name, which would share a row and a folder."""
    folders = [each.folder for each in sets]
    for each in sets:
        if folders.count(each.folder) > 1:
            raise UsageError(f"two labelled sets are called {each.name}; name them: --then {each.task}:NAME=PATH")


Phrase = tuple[str, ...]
Spans = Collection[tuple[int, int, str]]
"""Word spans [start, end) with labels."""


def baseline_scores(data: LabelledSet, metric: str) -> dict[str, float]:
    """Scores of the baseline for a kind of labels and a metric, by name; empty if there is none."""
    score = _BASELINES.get((data.train.examples[0].labels_are, metric))
    return {} if score is None else score(data)


def majority_accuracy(data: LabelledSet) -> dict[str, float]:
    """Accuracy of always predicting the most frequent training label."""
    common = _commonest(data)
    return {"commonest label": statistics.fmean(example.label == common for example in data.scored)}


def majority_f1(data: LabelledSet) -> dict[str, float]:
    """F1 of the second of two classes, if the most frequent label is always predicted."""
    classes = sorted({example.label for example in data.train})
    wanted = sum(example.label == classes[-1] for example in data.scored)
    if _commonest(data) != classes[-1]:
        return {"commonest label": 0.0}
    return {"commonest label": 2 * wanted / (wanted + len(data.scored))}


def _commonest(data: LabelledSet) -> Any:
    return Counter(example.label for example in data.train).most_common(1)[0][0]


def word_form_accuracy(data: LabelledSet) -> dict[str, float]:
    """Accuracy of the most frequent tag of each word form; unknown words get the most frequent tag."""
    tags_of: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in data.train:
        for word, tag in zip(example.words, example.tags, strict=True):
            tags_of[word][tag] += 1
    common = sum(tags_of.values(), Counter()).most_common(1)[0][0]
    best = {word: counts.most_common(1)[0][0] for word, counts in tags_of.items()}
    pairs = [pair for example in data.scored for pair in zip(example.words, example.tags, strict=True)]
    return {"word forms": statistics.fmean(best.get(word, common) == tag for word, tag in pairs)}


def entity_lookup_f1(data: LabelledSet) -> dict[str, float]:
    """Entity F1 of phrase lookup."""
    train, scored = (
        [(example.words, set(read_entities(example.tags or (), "BIO"))) for example in part]
        for part in (data.train, data.scored)
    )
    return {"phrases looked up": lookup_f1(train, scored)}


def span_lookup_f1(data: LabelledSet) -> dict[str, float]:
    """Span F1 of phrase lookup, without nested spans."""
    train, scored = (
        [(example.words, set(example.spans or ())) for example in part] for part in (data.train, data.scored)
    )
    return {"phrases looked up": lookup_f1(train, scored)}


def lookup_f1(train: Sequence[tuple[Phrase, Spans]], scored: Sequence[tuple[Phrase, Spans]]) -> float:
    """F1 of labelling each phrase as in training, most frequent label, longest match first, no nesting."""
    types: defaultdict[Phrase, Counter[str]] = defaultdict(Counter)
    for words, spans in train:
        for start, end, label in spans:
            types[tuple(map(str.lower, words[start:end]))][label] += 1
    best = {phrase: counts.most_common(1)[0][0] for phrase, counts in types.items()}
    longest = max(map(len, best), default=0)
    guesses = [sorted(_phrases(tuple(map(str.lower, words)), best, longest)) for words, _ in scored]
    return entity_f1([sorted(spans) for _, spans in scored], guesses).micro.f1


def _phrases(words: Phrase, types: dict[Phrase, str], longest: int) -> Iterator[tuple[int, int, str]]:
    place = 0
    while place < len(words):
        for end in range(min(len(words), place + longest), place, -1):
            if (label := types.get(words[place:end])) is not None:
                yield place, end, label
                place = end - 1
                break
        place += 1


_BASELINES: dict[tuple[str, str], Callable[[LabelledSet], dict[str, float]]] = {
    ("classes", "accuracy"): majority_accuracy,
    ("classes", "f1"): majority_f1,
    ("classes", "matthews"): lambda data: {"commonest label": 0.0},
    ("tags", "accuracy"): word_form_accuracy,
    ("tags", "entity-f1"): entity_lookup_f1,
    ("spans", "span-f1"): span_lookup_f1,
    ("spans", "argument-f1"): lambda data: {"surface": surface_argument_f1(data.train, data.scored)},
}
