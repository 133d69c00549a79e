"""Single segments (SpanBERT, Joshi et al. 2020, §3.3): one stretch of consecutive sentences of one document, no pairs.

    [CLS] sentences up to the limit [SEP]

Sequences start at sentences and never cross documents. Sentences longer than a sequence are cut.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import ClassVar

import numpy as np

from larvatus.core.settings import Settings
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import Pieces, as_array, cut_long, owners
from larvatus.data.text.template import SequenceTemplate


class SingleSegmentConfig(Settings, tag="single-segment"):
    gives: ClassVar[tuple[type, ...]] = ()
    texts: ClassVar[int] = 1
    least: ClassVar[int] = 1
    different_documents: ClassVar[int] = 1

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        room = template.text_length(length)
        starts_array = cut_long(block.sentences, block, room)
        last = np.searchsorted(starts_array, block.documents[1:])[owners(starts_array, block.documents)].tolist()
        starts = starts_array.tolist()
        firsts = []
        i = 0
        while i < len(last):  # one step a sequence
            firsts.append(starts[i])
            i = bisect_right(starts, starts[i] + room, i + 1, last[i] + 1) - 1
        begins = as_array(firsts)
        return Pieces.single(begins, np.append(begins[1:], starts[-1]))

    def check(self, counts: CorpusCounts) -> None:
        """Any text will do."""
