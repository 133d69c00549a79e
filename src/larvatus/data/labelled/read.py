"""Read labelled data, whatever its format: what tasks import.

train = read_texts("train.tsv.xz")
train = read_tagged("train.conllu", tag="xpos")
train = read_spans("annotations/")
train = read_questions("train-v2.0.json")
"""

from larvatus.data.labelled.squad import read_questions
from larvatus.data.labelled.tagged import read_spans, read_tagged
from larvatus.data.labelled.texts import read_texts

__all__ = ["read_questions", "read_spans", "read_tagged", "read_texts"]
