"""Suites by name, and their run on models, one part after the other.

    run = SuiteRun(suite=get_suite("english"), subjects=(…,), data=DataFolder.open("data"), out=Path("runs/suite"), …)
    results = run_suite(run, reporter)

Each part of each model is a file that is written atomically. A running part locks its folder, so that several processes
can measure different parts into one output. A part is reported and skipped if its files are missing or the model cannot
do it. Finished parts are kept if a later one fails.

The English suite: masked words, grammar, GLUE, tags, entities, nested spans, answers, word meanings, isotropy, each
with published figures. docs/suite.md describes the parts and the layout of the data folder. WNLI is excluded: its dev
set repeats training sentences with other answers, so models that learn the task do worse than the majority baseline;
Devlin et al. (2019) excluded it too. QNLI, QQP and MNLI are excluded because training on them takes longer than all
other parts together.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import torch

from larvatus.core import files
from larvatus.core.errors import ArtefactError, DataError, LarvatusError, Preempted, UsageError, did_you_mean
from larvatus.core.run_identity import VERSION
from larvatus.core.signals import resumable
from larvatus.data.labelled.glue import PUBLISHED, TASKS
from larvatus.evaluation.suite.fine_tuned import FineTunedPart
from larvatus.evaluation.suite.masked import MaskedPart, MinimalPairsPart
from larvatus.evaluation.suite.meanings import IsotropyPart, SensesPart, SimilarityPart
from larvatus.evaluation.suite.part import (
    DataFolder,
    NotMeasured,
    PartRun,
    PublishedFigure,
    Suite,
    SuiteModel,
    SuitePart,
    SuiteSettings,
)
from larvatus.evaluation.suite.results import (
    ROLES,
    PartRecord,
    SkippedPart,
    SuiteResults,
    read_record,
    record_file,
    write_record,
)
from larvatus.inference.vectors.layers import LayerWeights
from larvatus.models.nn.device import explain_out_of_memory
from larvatus.training.engine.reporter import Reporter
from larvatus.training.engine.settings import Runtime

PACKAGES = ("torch", "tokenizers", "numpy")
GO_ON = "measured parts are kept, and the same command with --resume continues"


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteRun:
    suite: Suite
    subjects: tuple[SuiteModel, ...]
    data: DataFolder
    out: Path
    settings: SuiteSettings
    runtime: Runtime
    resume: bool = False
    overwrite: bool = False

    def settings_of(self, subject: SuiteModel) -> SuiteSettings:
        """The settings, with the model's own layers of word vectors where none are requested."""
        return msgspec.structs.replace(self.settings, layers=self.settings.layers or subject.bundle.word_layers)

    def identity(self, subject: SuiteModel, part: SuitePart) -> dict[str, Any]:
        return {
            "model": subject.contents,
            "data": self.data.checksums((*part.files, *part.may_read)),
            "settings": part.identity(self.settings_of(subject), self.runtime),
        }

    def folder(self, subject: SuiteModel, part: SuitePart) -> Path:
        """Folder from which an interrupted part resumes."""
        return self.out / subject.role / f"{part.name}.part"

    def command(self, subject: SuiteModel, part: SuitePart) -> str:
        """Command that measures a part again."""
        words = ["larvatus", "evaluate", subject.name, "--suite", self.suite.name]
        words += [*(self.suite.named or ("--data", str(self.data.root))), "--only", part.name]
        for name in part.minds:
            value = getattr(self.settings_of(subject), name)
            if value is True:
                words.append(f"--{name}")
            elif value not in (None, False, "auto"):
                words += [f"--{name}", str(value)]
        return shlex.join([*words, "--device", self.runtime.device])


def run_suite(run: SuiteRun, reporter: Reporter) -> SuiteResults:
    """Measure every requested part of every model; return all results in `out`."""
    parts = run.suite.chosen(run.settings.only, run.settings.leave_out)
    absent = {part.name: missing for part in parts if (missing := run.data.missing(part.files)) is not None}
    if len(absent) == len(parts):
        raise DataError(
            f"--data {run.data.root} holds the files of no requested part ({next(iter(absent.values()))} is "
            "missing); lay it out as docs/suite.md describes"
        )
    there = [part for part in parts if part.name not in absent]
    if any("layers" in part.minds for part in there):
        _check_layers(run)
    kept = _checked(run, there)
    if run.overwrite:
        for subject in run.subjects:
            for part in there:
                record_file(run.out, subject.role, part.name).unlink(missing_ok=True)
                shutil.rmtree(run.folder(subject, part), ignore_errors=True)
    unmeasured = []
    for part in parts:
        for subject in run.subjects:
            reason: NotMeasured | None
            if part.name in absent:
                reason = NotMeasured(f"{absent[part.name]} is missing", short="file missing")
            elif (subject.role, part.name) in kept:
                reporter.say(f"{part.name}, {subject.label}: measured before")
                continue
            else:
                reason = _measured(run, subject, part, reporter)
            if reason is not None:
                reporter.warn(f"{part.name}, {subject.label}: not measured: {reason}")
                said = {"role": subject.role, "label": subject.label, "part": part.name}
                unmeasured.append(SkippedPart(why=str(reason), short=reason.short, **said))
    return _all(run, unmeasured)


def _check_layers(run: SuiteRun) -> None:
    """Refuse layers that a model lacks, before any measurement."""
    if run.settings.layers == "all":
        raise UsageError("--layers all gives several vectors of a word; give last, last4, or the number of a layer")
    for subject in run.subjects:
        LayerWeights.read(run.settings_of(subject).layers or "last", layers=subject.bundle.network.encoder.depth)


def _checked(run: SuiteRun, parts: list[SuitePart]) -> set[tuple[str, str]]:
    """Roles and parts that are measured already. Records of another model or of other inputs are refused."""
    kept: set[tuple[str, str]] = set()
    for subject in run.subjects:
        for part in run.suite.parts:
            path, begun = record_file(run.out, subject.role, part.name), run.folder(subject, part)
            mine = part in parts
            if mine and run.overwrite:
                continue
            record = read_record(path, run.identity(subject, part) if mine and run.resume else None)
            if record is not None and record.of.get("model") != subject.contents:
                raise ArtefactError(f"{path} is of another model than {subject.name}; choose another --out")
            if mine and not run.resume and (record is not None or begun.exists()):
                what = "is measured" if record is not None else "was begun"
                raise ArtefactError(
                    f"{path.with_suffix('')} {what} already; continue with --resume, or measure again with --overwrite"
                )
            if mine and record is not None:
                kept.add((subject.role, part.name))
    return kept


def _measured(run: SuiteRun, subject: SuiteModel, part: SuitePart, reporter: Reporter) -> NotMeasured | None:
    """Measure a part and store its record; return the reason if it cannot be measured."""
    reporter.say(f"{part.name}, {subject.label} …")
    folder, began, of = run.folder(subject, part), time.monotonic(), run.identity(subject, part)
    work = PartRun(
        subject=subject,
        data=run.data,
        settings=run.settings_of(subject),
        runtime=run.runtime,
        folder=folder,
        reporter=reporter,
    )
    try:
        with files.locked(folder), resumable(GO_ON), explain_out_of_memory(f"lower --microbatch; {GO_ON}"):
            measured = part.measure(work)
            record = PartRecord(
                part=part.name,
                of=of,
                label=subject.label,
                figures=measured.figures,
                details=measured.details,
                notes=measured.notes,
                seconds=round(time.monotonic() - began, 3),
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                command=run.command(subject, part),
                machine=_machine(run.runtime, subject),
            )
            write_record(record_file(run.out, subject.role, part.name), record)
    except (ArtefactError, Preempted, UsageError):
        raise
    except LarvatusError as fault:
        shutil.rmtree(folder, ignore_errors=True)
        return fault if isinstance(fault, NotMeasured) else NotMeasured(str(fault))
    shutil.rmtree(folder, ignore_errors=True)
    shown = [f"{figure.measure} {figure.value:.4f}" for figure in record.figures[:4] if figure.value is not None]
    reporter.say(f"{part.name}, {subject.label}: {', '.join(shown)} · {record.seconds:,.0f} s")
    return None


def _machine(runtime: Runtime, subject: SuiteModel) -> dict[str, Any]:
    device = torch.cuda.get_device_name(runtime.device) if runtime.cuda else platform.machine()
    return {
        "larvatus": VERSION,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in PACKAGES},
        "device": f"{runtime.device} ({device})",
        "precision of fine-tuning": runtime.precision,
        "parameters": subject.parameters,
    }


def _all(run: SuiteRun, unmeasured: list[SkippedPart]) -> SuiteResults:
    """All results in `out`, of this run and earlier ones."""
    records: dict[str, dict[str, PartRecord]] = {}
    for role in ROLES:
        held = {part.name: read_record(record_file(run.out, role, part.name)) for part in run.suite.parts}
        measured = {name: record for name, record in held.items() if record is not None}
        if measured:
            records[role] = measured
    labels = {role: next(iter(held.values())).label for role, held in records.items()}
    labels |= {subject.role: subject.label for subject in run.subjects}
    return SuiteResults(suite=run.suite, records=records, unmeasured=unmeasured, labels=labels)


# The English suite.

HELD_OUT = "text/en_wiki.valid.txt"
SENSE_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013")
GLUE = ("sst2", "cola", "rte", "stsb", "mrpc")

_BERT = "Devlin et al. 2019, Table 1 (test sets)"
_WITH_DATA = "as quoted with the data, not looked up in the papers"
_RAGANATO = "Raganato et al. 2017, as quoted with the data"
_FREQUENT = dict(zip(SENSE_SETS, (65.6, 66.0, 54.5, 63.8), strict=True))


def _glue(name: str) -> FineTunedPart:
    title = TASKS[name].title
    dev = None if name == "mrpc" else f"glue/{title}/dev.tsv"
    said = "the last 408 rows of train.tsv" if dev is None else "the dev set"
    return FineTunedPart(
        name=name, title=title, task="classify", glue=name, train=f"glue/{title}/train.tsv", scored=dev, said=said
    )


def _references() -> dict[str, tuple[PublishedFigure, ...]]:
    references = {
        name: tuple(
            PublishedFigure(system=system, value=PUBLISHED[system][name], source=_BERT)
            for system in ("BERT-base", "BiLSTM+ELMo+Attn")
        )
        for name in GLUE
    }
    references["blimp"] = tuple(
        PublishedFigure(system=system, value=value, source=_WITH_DATA)
        for system, value in (("RoBERTa-large", 86.5), ("GPT-2", 82.6), ("people", 88.6), ("5-gram", 61.2))
    )
    for name in SENSE_SETS:
        references[f"senses/{name}"] = (
            PublishedFigure(system="most frequent sense", value=_FREQUENT[name], source=_RAGANATO),
            PublishedFigure(system="BERT-large (mean of all sets)", value=73.5, source=_WITH_DATA),
        )
    return references


def _tuned(name: str, title: str, task: str, files: str, *, scored: str = "dev") -> FineTunedPart:
    """A model fine-tuned on the training file of a set; {} in `files` is the name of the split."""
    train, test = files.format("train"), files.format(scored)
    return FineTunedPart(name=name, title=title, task=task, train=train, scored=test, said=f"the {scored} set")


_PARTS: tuple[SuitePart, ...] = (
    MaskedPart(name="masked", title="Masked words", text=HELD_OUT),
    MinimalPairsPart(name="blimp", title="BLiMP", pairs="blimp.jsonl"),
    *map(_glue, GLUE),
    _tuned("ewt", "EWT, UPOS", "tag", "pos/ewt/{}.conllu"),
    _tuned("wikiann", "WikiANN-en", "tag", "ner/wikiann/en/{}.conll", scored="test"),
    _tuned("wnut17", "WNUT-17", "tag", "ner/wnut17/{}.conll"),
    _tuned("gum", "GUM, nested", "spans", "ner/gum/{}.conllu"),
    FineTunedPart(
        name="xquad", title="XQuAD-en", task="answer", train="qa/tydiqa/tydiqa.goldp.en.train.json",
        scored="qa/xquad/xquad.en.json", said="XQuAD-en, after learning from TyDiQA's English gold passages",
    ),
    SensesPart(
        name="senses", title="Word senses", tagged="senses/semcor.tar", wordnet="senses/wordnet30.tar",
        sets={name: f"senses/raganato/{name}/{name}.data.xml" for name in SENSE_SETS},
    ),
    SimilarityPart(name="scws", title="SCWS", judgements="senses/scws.tsv"),
    SimilarityPart(name="wic", title="WiC", judgements="senses/wic.jsonl", same_or_not=True),
    IsotropyPart(name="isotropy", title="Isotropy", text=HELD_OUT),
)  # fmt: skip
ENGLISH = Suite(name="english", parts=_PARTS, references=_references())


SuiteName = Literal["english", "language"]
SUITES: dict[str, Suite] = {suite.name: suite for suite in (ENGLISH,)}


def get_suite(name: str) -> Suite:
    """A suite whose files have fixed places in a folder; that of a treebank is made by `language_suite`."""
    if name not in SUITES:
        known = get_args(SuiteName)
        raise UsageError(f"there is no suite {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}")
    return SUITES[name]
