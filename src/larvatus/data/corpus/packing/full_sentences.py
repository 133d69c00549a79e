"""Full sentences (RoBERTa, Liu et al. 2019, §4.2): contiguous sentences up to the limit, on across the end of a
document.

    [CLS] the last sentences of one document [SEP] the first of the next [SEP]

Every sequence starts at a sentence; a separator marks where a document ends. Sentences longer than a sequence are cut.
Where the next document is of another language, a new sequence begins (XLM-R, Conneau et al. 2020).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.settings import Settings
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import Pieces, as_array, cut_long, owners
from larvatus.data.text.template import SequenceTemplate


class FullSentencesConfig(Settings, tag="full-sentences"):
    gives: ClassVar[tuple[type, ...]] = ()
    texts: ClassVar[int] = 1
    least: ClassVar[int] = 1
    different_documents: ClassVar[int] = 1

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        starts = cut_long(block.sentences, block, room)  # [S+1]
        owner = owners(starts, block.documents)  # [S]
        separators = owner * len(template.gaps[-1])  # of the documents finished before: `room` must hold them too
        end = (starts[1:] + separators).tolist()
        begin = (starts[:-1] + separators).tolist()
        stop = _language_ends(block, owner)
        firsts = []
        i = 0
        while i < len(begin):  # one step a sequence
            firsts.append(i)
            i = max(bisect_right(end, begin[i] + room, i, stop[i] if stop else None), i + 1)
        # a piece starts at each sequence, and at each document within one
        begins = np.union1d(starts[as_array(firsts)], block.documents[:-1])
        sequences = np.searchsorted(starts[as_array(firsts)], begins, side="right") - 1
        ends = np.append(begins[1:], starts[-1])
        return Pieces(begins, ends, sequences, np.zeros_like(begins), {})

    def check(self, counts: CorpusCounts) -> None:
        """Any text will do."""


def _language_ends(block: TextBlock, owner: Ints) -> list[int] | None:
    """[S] the sentence after the last that continues in the same language; nothing where there is one language."""
    if block.languages is None:
        return None
    language = block.languages[owner]
    ends = np.append(np.flatnonzero(np.diff(language)) + 1, len(language))
    return np.repeat(ends, np.diff(ends, prepend=0)).tolist()
