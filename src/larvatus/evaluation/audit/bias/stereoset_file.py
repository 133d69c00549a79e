"""StereoSet's file (Nadeem et al. 2021): contexts, each with a stereotype, an anti-stereotype and something unrelated.

{"data": {"intrasentence": [{"id": …, "target": "Ethiopia", "bias_type": "race", "context": "A BLANK came.",
    "sentences": [{"id": …, "sentence": "A poor man came.", "gold_label": "stereotype"}, …]}],
  "intersentence": [… the same, the sentences following the context …]}}
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from larvatus.core.errors import DataError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.streams import numbered_lines

KINDS = ("intrasentence", "intersentence")
LABELS = ("stereotype", "anti-stereotype", "unrelated")
BLANK = "BLANK"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SHAPE = 'StereoSet is {"data": {"intrasentence": […], "intersentence": […]}}'


@dataclass(frozen=True)
class StereoExample:
    kind: str
    target: str
    category: str
    context: str
    sentences: tuple[str, str, str]
    """Stereotype, anti-stereotype, unrelated."""
    where: str

    def fillings(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """The context of an intrasentence example with each word in its blank, and the character span of the word.

        As published, the word is the sentence's space-separated word at the position of the blank, without punctuation.
        """
        number = next(at for at, word in enumerate(self.context.split(" ")) if BLANK in word)
        for sentence in self.sentences:
            words = sentence.split(" ")
            word = words[number].translate(_NO_PUNCTUATION) if number < len(words) else ""
            if not word:
                raise DataError(f"{self.where}: {sentence!r:.80} has no word at the blank of its context")
            start = self.context.index(BLANK)
            yield self.context.replace(BLANK, word, 1), (start, start + len(word))


def read_stereoset(name: str | Path) -> list[StereoExample]:
    """All examples of both kinds from a file, compressed or not."""
    text = "\n".join(line for _, line in numbered_lines(str(name)))
    try:
        record: Any = msgspec.json.decode(text)
    except (ValueError, RecursionError) as fault:
        raise DataError(f"{name}: broken JSON: {fault}") from fault
    data = record.get("data") if isinstance(record, dict) else None
    if not isinstance(data, dict) or not any(isinstance(data.get(kind), list) for kind in KINDS):
        raise DataError(f"{name} is not in StereoSet's shape; {_SHAPE}")
    examples = [
        _example(kind, row, f"{name}: {kind} {number}")
        for kind in KINDS
        for number, row in enumerate(data.get(kind) or (), start=1)
    ]
    if not examples:
        raise DataError(f"{name} holds no examples; {_SHAPE}")
    return examples


def _example(kind: str, row: Any, where: str) -> StereoExample:
    if not isinstance(row, Mapping):
        raise DataError(f"{where} is no JSON object; {_SHAPE}")
    for field in ("target", "bias_type", "context"):
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise DataError(f"{where}: no text {field!r}; an example has target, bias_type, context and sentences")
    sentences: dict[str, str] = {}
    for sentence in row.get("sentences") or ():
        if not isinstance(sentence, Mapping) or not isinstance(sentence.get("sentence"), str):
            raise DataError(f"{where}: a sentence is no object with 'sentence' and 'gold_label'")
        refuse_surrogates(sentence["sentence"], where)
        sentences[str(sentence.get("gold_label"))] = sentence["sentence"]
    if set(sentences) != set(LABELS) or not all(text.strip() for text in sentences.values()):
        raise DataError(f"{where}: wants one sentence each with gold_label {', '.join(LABELS)}")
    if kind == "intrasentence" and BLANK not in row["context"]:
        raise DataError(f"{where}: its context has no {BLANK}")
    if len(set(sentences.values())) < len(LABELS):
        raise DataError(f"{where}: two of its sentences are the same; they must differ")
    refuse_surrogates(row["context"], where)
    chosen = (sentences["stereotype"], sentences["anti-stereotype"], sentences["unrelated"])
    return StereoExample(kind, row["target"], row["bias_type"], row["context"], chosen, where)
