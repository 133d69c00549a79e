"""Suites by name. A suite is a list of parts with published figures.

    get_suite("english").chosen(only=("blimp",))

The English suite: masked words, grammar, GLUE, tags, entities, nested spans, answers, word meanings, isotropy.
docs/suite.md describes the parts and the layout of the data folder.

WNLI is excluded: its dev set repeats training sentences with other answers, so models that learn the task do worse than
the majority baseline; Devlin et al. (2019) excluded it too. QNLI, QQP and MNLI are excluded because training on them
takes longer than all other parts together.
"""

from __future__ import annotations

from typing import Literal

from larvatus.core.errors import UsageError, did_you_mean
from larvatus.data.labelled.glue import PUBLISHED, TASKS
from larvatus.evaluation.suite.fine_tuned import FineTunedPart
from larvatus.evaluation.suite.masked import MaskedPart, MinimalPairsPart
from larvatus.evaluation.suite.meanings import IsotropyPart, SensesPart, SimilarityPart
from larvatus.evaluation.suite.part import PublishedFigure, Suite, SuitePart

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


SuiteName = Literal["english"]
SUITES: dict[str, Suite] = {suite.name: suite for suite in (ENGLISH,)}


def get_suite(name: str) -> Suite:
    if name not in SUITES:
        raise UsageError(f"there is no suite {name!r}{did_you_mean(name, SUITES)}; there are: {', '.join(SUITES)}")
    return SUITES[name]
