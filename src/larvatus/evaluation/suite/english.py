"""The English suite: masked words, grammar, tasks of GLUE, tags, entities, nested spans, answers, meanings, isotropy.

docs/suite.md says what each part measures, and how the data folder is laid out.

WNLI is left out: its dev set holds the sentences of its training set with other answers, so that models which learn the
task are worse than the commonest answer; Devlin et al. (2019) left it out too. Of QNLI, QQP and MNLI the suite asks for
nothing: their training sets take longer than all the rest.
"""

from __future__ import annotations

from larvatus.data.labelled.glue import PUBLISHED, TASKS
from larvatus.evaluation.suite.figures import Reference
from larvatus.evaluation.suite.fine_tuned import FineTuned
from larvatus.evaluation.suite.masked import Masked
from larvatus.evaluation.suite.meanings import Isotropy, Senses, Similarity
from larvatus.evaluation.suite.pairs import MinimalPairs
from larvatus.evaluation.suite.part import Part
from larvatus.evaluation.suite.suite import Suite

HELD_OUT = "text/en_wiki.valid.txt"
SENSE_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013")
GLUE = ("sst2", "cola", "rte", "stsb", "mrpc")

_BERT = "Devlin et al. 2019, Table 1 (test sets)"
_WITH_DATA = "as quoted with the data, not looked up in the papers"
_RAGANATO = "Raganato et al. 2017, as quoted with the data"
_FREQUENT = dict(zip(SENSE_SETS, (65.6, 66.0, 54.5, 63.8), strict=True))


def _glue(name: str) -> FineTuned:
    title = TASKS[name].title
    dev = None if name == "mrpc" else f"glue/{title}/dev.tsv"
    said = "the last 408 rows of train.tsv" if dev is None else "the dev set"
    return FineTuned(
        name=name, title=title, task="classify", glue=name, train=f"glue/{title}/train.tsv", scored=dev, said=said
    )


def _references() -> dict[str, tuple[Reference, ...]]:
    references = {
        name: tuple(
            Reference(system=system, value=PUBLISHED[system][name], source=_BERT)
            for system in ("BERT-base", "BiLSTM+ELMo+Attn")
        )
        for name in GLUE
    }
    references["blimp"] = tuple(
        Reference(system=system, value=value, source=_WITH_DATA)
        for system, value in (("RoBERTa-large", 86.5), ("GPT-2", 82.6), ("people", 88.6), ("5-gram", 61.2))
    )
    for name in SENSE_SETS:
        references[f"senses/{name}"] = (
            Reference(system="most frequent sense", value=_FREQUENT[name], source=_RAGANATO),
            Reference(system="BERT-large (mean of all sets)", value=73.5, source=_WITH_DATA),
        )
    return references


_PARTS: tuple[Part, ...] = (
    Masked(name="masked", title="Masked words", text=HELD_OUT),
    MinimalPairs(name="blimp", title="BLiMP", pairs="blimp.jsonl"),
    *map(_glue, GLUE),
    FineTuned(
        name="ewt", title="EWT, UPOS", task="tag", train="pos/ewt/train.conllu", scored="pos/ewt/dev.conllu",
        said="the dev set",
    ),
    FineTuned(
        name="wikiann", title="WikiANN-en", task="tag", train="ner/wikiann/en/train.conll",
        scored="ner/wikiann/en/test.conll", said="the test set",
    ),
    FineTuned(
        name="wnut17", title="WNUT-17", task="tag", train="ner/wnut17/train.conll", scored="ner/wnut17/dev.conll",
        said="the dev set",
    ),
    FineTuned(
        name="gum", title="GUM, nested", task="spans", train="ner/gum/train.conllu", scored="ner/gum/dev.conllu",
        said="the dev set",
    ),
    FineTuned(
        name="xquad", title="XQuAD-en", task="answer", train="qa/tydiqa/tydiqa.goldp.en.train.json",
        scored="qa/xquad/xquad.en.json", said="XQuAD-en, after learning from TyDiQA's English gold passages",
    ),
    Senses(
        name="senses", title="Word senses", tagged="senses/semcor.tar", wordnet="senses/wordnet30.tar",
        sets={name: f"senses/raganato/{name}/{name}.data.xml" for name in SENSE_SETS},
    ),
    Similarity(name="scws", title="SCWS", judgements="senses/scws.tsv"),
    Similarity(name="wic", title="WiC", judgements="senses/wic.jsonl", same_or_not=True),
    Isotropy(name="isotropy", title="Isotropy", text=HELD_OUT),
)  # fmt: skip
ENGLISH = Suite(name="english", parts=_PARTS, references=_references())
