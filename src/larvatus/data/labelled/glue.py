"""The tasks of GLUE by name (Wang et al. 2019): files, columns, labels, official metrics, published scores.

    data = read_glue("mrpc", "glue/")
    data.train, data.dev["dev"], data.task.metrics          # ("f1", "accuracy"): the first decides

A directory is GLUE's (with ``SST-2/``, ``CoLA/``, …) or one task's own; files are ``train.tsv``, ``dev.tsv``, of MNLI
``dev_matched.tsv`` and ``dev_mismatched.tsv``, compressed or not, or the same names as JSONL or Parquet. Quotation
marks are characters, and CoLA has no header. MRPC comes without a dev file: the last 408 rows of training are it, and
that is reported. Classes written as numbers (0, 1, …) in files made by others get their names.

Predictions for the unlabelled test sets are written as GLUE's test server expects them:

    test = glue_test_set("mnli-mm")                     # file MNLI-mm.tsv, labels entailment, neutral, contradiction
    examples = list(read_test_rows(test, "MNLI/test_mismatched.tsv"))
    write_submission(Path("submission") / test.file, test, zip(examples, answers))

A file has the columns ``index`` and ``prediction``, a row for each row of the test set in its order. Every row needs a
prediction, so one with an empty text is kept. The server takes a zip of all files of `FILES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.outputs import new_output
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.records import Dataset, Kind, Place, TextExample
from larvatus.data.labelled.tables import ENDINGS, Columns, TableOptions, ending, find_columns, open_table
from larvatus.data.labelled.texts import read_texts
from larvatus.data.text.archives import COMPRESSIONS

Split = Literal["train", "dev"]
MRPC_DEV = 408
"""Rows of MRPC's official dev set."""
LARGEST = 5.0
"""Largest of STS-B's scores, which begin at 0."""
EMPTY = "."
"""Text used for an empty row, which still needs a prediction."""
_NO_AGREEMENT = "-"
"""The label of pairs on which MNLI's people did not agree."""
_GUESSED = Columns()
_COLA = Columns(text=4, label=2)


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    name: str
    title: str
    """As the papers write it; also the name of its folder."""
    pairs: bool = True
    labels: tuple[str, ...] = ()
    """Classes, in the order of their ids; none for regression."""
    metrics: tuple[str, ...] = ("accuracy",)
    """As the benchmark scores it; the first decides which model is best."""
    dev: tuple[str, ...] = ("dev",)
    """Names of its dev files."""
    symmetric: bool = False
    """Whether a pair means the same in either order."""
    bare: Columns = _GUESSED
    """Columns of a file without a header."""

    @property
    def kind(self) -> Kind:
        return "multi-class" if self.labels else "regression"


_ENTAILMENT = ("entailment", "not_entailment")
TASKS = {
    task.name: task
    for task in (
        GlueTask(name="cola", title="CoLA", pairs=False, labels=("0", "1"), metrics=("matthews",), bare=_COLA),
        GlueTask(name="sst2", title="SST-2", pairs=False, labels=("0", "1")),
        GlueTask(name="mrpc", title="MRPC", labels=("0", "1"), metrics=("f1", "accuracy"), symmetric=True),
        GlueTask(name="stsb", title="STS-B", metrics=("spearman", "pearson"), symmetric=True),
        GlueTask(name="qqp", title="QQP", labels=("0", "1"), metrics=("f1", "accuracy"), symmetric=True),
        GlueTask(
            name="mnli",
            title="MNLI",
            labels=("entailment", "neutral", "contradiction"),
            dev=("dev_matched", "dev_mismatched"),
        ),
        GlueTask(name="qnli", title="QNLI", labels=_ENTAILMENT),
        GlueTask(name="rte", title="RTE", labels=_ENTAILMENT),
        GlueTask(name="wnli", title="WNLI", labels=("0", "1")),
    )
}

_PAPER = ("mnli", "mnli-mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte", "average")
PUBLISHED: dict[str, dict[str, float]] = {
    system: dict(zip(_PAPER, scores, strict=True))
    for system, scores in {
        "Pre-OpenAI SOTA": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0),
        "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
        "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
        "BERT-base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
        "BERT-large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
    }.items()
}
"""Table 1 of Devlin et al. (2019), in percent: the test sets, scored by GLUE's server. F1 of QQP and MRPC, Spearman's
correlation of STS-B, Matthews' of CoLA, accuracy of the others; WNLI is missing."""


@dataclass(frozen=True)
class GlueData:
    task: GlueTask
    train: Dataset[TextExample] | None
    dev: dict[str, Dataset[TextExample]]
    """By the name of the file: ``dev``, or ``dev_matched`` and ``dev_mismatched``."""


def glue_task(name: str) -> GlueTask:
    """A task by its name: sst2, SST-2 and sst_2 are one."""
    plain = _plain(name)
    if plain not in TASKS:
        raise UsageError(f"{name!r} is no task of GLUE{did_you_mean(plain, TASKS)}")
    return TASKS[plain]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def glue_files(task: GlueTask, directory: str | Path) -> dict[str, Path]:
    """The files of a task by their name without endings: ``train``, ``dev``, ``dev_matched``, …"""
    root = Path(directory)
    if not root.is_dir():
        raise DataError(f"{root} is no directory; give the one that holds GLUE's files")
    names = {task.name, task.title.lower()}
    inside = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and folder.name.lower() in names]
    home = inside[0] if inside else root
    wanted = {"train", *task.dev}
    files: dict[str, Path] = {}
    for path in sorted(home.iterdir()):
        stem = path.name.lower()
        for compression in COMPRESSIONS:
            stem = stem.removesuffix(compression)
        stem = stem.removesuffix(ending(path.name))
        if path.is_file() and stem in wanted and ending(path.name) in ENDINGS:
            files.setdefault(stem, path)
    if not files:
        raise DataError(f"{home} has no files of {task.title}; it needs train.tsv or {task.dev[0]}.tsv")
    return files


def read_glue(
    name: str, directory: str | Path, *, splits: Sequence[Split] = ("train", "dev"), problems: Problems | None = None
) -> GlueData:
    """The examples of a task. A requested split that is not there is an error."""
    task = glue_task(name)
    files = glue_files(task, directory)
    dev = {name: _read(task, files[name], problems) for name in task.dev if name in files and "dev" in splits}
    cut = task.name == "mrpc" and "dev" not in files and "train" in files
    train = _read(task, files["train"], problems) if "train" in files and ("train" in splits or cut) else None
    if cut and train is not None:
        train, dev["dev"] = _split(train)
    there = ", ".join(sorted(path.name for path in files.values()))
    for split, got in (("train", train), ("dev", dev)):
        if split in splits and not got:
            raise DataError(f"{next(iter(files.values())).parent} has no {split} file of {task.title} (it has {there})")
    return GlueData(task, train if "train" in splits else None, dev if "dev" in splits else {})


def _read(task: GlueTask, path: Path, problems: Problems | None) -> Dataset[TextExample]:
    columns = Columns() if open_table(str(path), problems=Problems()).header else task.bare
    data = replace(read_texts(path, columns, kind=task.kind, problems=problems), symmetric=task.symmetric)
    first = data.examples[0]
    if (first.pair is not None) != task.pairs:
        what = "pairs of texts" if task.pairs else "single texts"
        raise DataError(f"{path}: {task.title} has {what}, but the file is {data.columns}")
    if not task.labels:
        return data
    examples = [example for example in data.examples if example.label != _NO_AGREEMENT]
    dropped = len(data) - len(examples)
    notes: tuple[str, ...] = (f"{dropped:,} pairs without agreement skipped",) if dropped else ()
    seen = set(data.labels()) - {_NO_AGREEMENT}
    if not seen <= set(task.labels):
        numbers = {str(index): label for index, label in enumerate(task.labels)}
        odd = next((example for example in examples if example.label not in numbers), None)
        if odd is not None:
            raise DataError(f"{odd.place}: {task.title} has no label {odd.label!r}; it has {', '.join(task.labels)}")
        examples = [replace(example, label=numbers[str(example.label)]) for example in examples]
        notes += (f"classes by number: {', '.join(f'{number} = {label}' for number, label in numbers.items())}",)
    return replace(data, examples=tuple(examples), notes=notes)


def _split(train: Dataset[TextExample]) -> tuple[Dataset[TextExample], Dataset[TextExample]]:
    if len(train) <= MRPC_DEV:
        raise DataError(f"{train.source}: {len(train)} rows are too few to take the last {MRPC_DEV} as dev")
    said = f"no dev file: the last {MRPC_DEV} training rows are dev"
    first, last = train.examples[:-MRPC_DEV], train.examples[-MRPC_DEV:]
    return replace(train, examples=first, notes=(*train.notes, said)), replace(train, examples=last, notes=(said,))


@dataclass(frozen=True)
class GlueTestSet:
    """One of GLUE's test sets, and the file that holds predictions for it."""

    name: str
    task: GlueTask
    title: str
    rows: int
    """Rows of the official test set."""

    @property
    def file(self) -> str:
        return f"{self.title}.tsv"


_MNLI = TASKS["mnli"]
TEST_SETS = {
    each.name: each
    for each in (
        GlueTestSet("cola", TASKS["cola"], "CoLA", 1_063),
        GlueTestSet("sst2", TASKS["sst2"], "SST-2", 1_821),
        GlueTestSet("mrpc", TASKS["mrpc"], "MRPC", 1_725),
        GlueTestSet("stsb", TASKS["stsb"], "STS-B", 1_379),
        GlueTestSet("qqp", TASKS["qqp"], "QQP", 390_965),
        GlueTestSet("mnlim", _MNLI, "MNLI-m", 9_796),
        GlueTestSet("mnlimm", _MNLI, "MNLI-mm", 9_847),
        GlueTestSet("qnli", TASKS["qnli"], "QNLI", 5_463),
        GlueTestSet("rte", TASKS["rte"], "RTE", 3_000),
        GlueTestSet("wnli", TASKS["wnli"], "WNLI", 146),
        GlueTestSet("ax", _MNLI, "AX", 1_104),
    )
}
FILES = tuple(each.file for each in TEST_SETS.values())


def glue_test_set(name: str) -> GlueTestSet:
    """A test set by its name: mnli-mm, MNLI-mm and mnli_mm are one.

    >>> glue_test_set("SST-2").file
    'SST-2.tsv'
    """
    plain = _plain(name)
    if plain == "mnli":
        raise UsageError("MNLI has several test sets; name one: mnli-m (test_matched), mnli-mm (test_mismatched) or ax")
    if plain not in TEST_SETS:
        names = [each.title.lower() for each in TEST_SETS.values()]
        raise UsageError(f"{name!r:.60} is no test set of GLUE{did_you_mean(name.lower(), names)}")
    return TEST_SETS[plain]


def check_labels(test: GlueTestSet, labels: Sequence[str], *, numbers: bool, model: str) -> None:
    """Refuse a model whose answers are not those of the task. `numbers`: it predicts a number."""
    if numbers != (not test.task.labels):
        wanted = f"one of {', '.join(test.task.labels)}" if test.task.labels else "a number from 0 to 5"
        raise UsageError(f"{test.title} wants {wanted} for each row, which {model} does not predict; name its model")
    if test.task.labels and set(labels) != set(test.task.labels):
        raise UsageError(
            f"{model} has the labels {', '.join(labels[:8])}, and {test.title} wants {', '.join(test.task.labels)}; "
            "fine-tune it on GLUE's own files"
        )


def read_test_rows(
    test: GlueTestSet, name: str, columns: Columns = Columns(), say: Callable[[str], None] = lambda line: None
) -> Iterator[TextExample]:
    """The rows of a test file, in their order; `id` is the index that the server knows a row by."""
    table = open_table(name, TableOptions(format="tsv") if ending(name) in ("", ".txt") else TableOptions())
    chosen = find_columns(table, columns, labelled=False)
    if (chosen.pair is not None) != test.task.pairs:
        what = "pairs of texts" if test.task.pairs else "single texts"
        raise DataError(f"{table.name}: {test.title} has {what}, but the file is {chosen.describe(table)}")
    say(f"{table.name}: read as: {chosen.describe(table)}")
    empty, seen = 0, set[str]()
    for number, (place, row) in enumerate(table.rows):
        texts = [str(row.get(column) or "").strip() for column in (chosen.text, chosen.pair) if column is not None]
        empty += not all(texts)
        index = _index(place, row.get(chosen.id)) if chosen.id is not None else str(number)
        if index in seen:
            raise DataError(f"{place}: the index {index} occurs twice; the server wants each once")
        seen.add(index)
        first, *second = [text or EMPTY for text in texts]
        yield TextExample(first, second[0] if second else None, None, place, index)
    if empty:
        say(f"{table.name}: {empty:,} rows have an empty text, read as {EMPTY!r}: every row needs a prediction")
    if len(seen) != test.rows:
        say(f"warning: {table.name} has {len(seen):,} rows, and GLUE's test set of {test.title} {test.rows:,}")


def _index(place: Place, value: object) -> str:
    shown = str(value).strip()
    if not shown.isascii() or not shown.isdigit():
        raise DataError(f"{place}: the index {shown[:40]!r} is no whole number; give GLUE's own test file")
    return str(int(shown)) if len(shown) < 20 else shown


def prediction(test: GlueTestSet, label: str | None, value: float | None) -> str:
    """A cell of the file: a label, or for STS-B a number, cut to its range.

    >>> prediction(glue_test_set("stsb"), None, 5.3), prediction(glue_test_set("rte"), "entailment", None)
    ('5.00000', 'entailment')
    """
    if test.task.labels:
        assert label is not None
        return label
    if value is None or not math.isfinite(value):
        raise DataError(f"{test.title} wants a number for each row, and the model predicts {value}")
    return f"{min(LARGEST, max(0.0, value)):.5f}"


def write_submission(out: Path, rows: Iterable[tuple[str, str]]) -> int:
    """Write indices and predictions; how many."""
    count = 0
    with new_output(out) as aside, aside.open("w", encoding="utf-8", newline="") as stream:
        stream.write("index\tprediction\n")
        for index, answer in rows:
            stream.write(f"{index}\t{answer}\n")
            count += 1
    return count
