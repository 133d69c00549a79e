"""Sentences, one a sequence (ELMo, Peters et al. 2018): what stands beside a sentence is not seen.

    [CLS] sentence [SEP]

Sentences longer than a sequence are cut, at words.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from larvatus.core.settings import Settings
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.format import CorpusCounts
from larvatus.data.corpus.packing.pieces import Pieces, cut_long
from larvatus.data.text.template import SequenceTemplate


class SentencesConfig(Settings, tag="sentences"):
    gives: ClassVar[tuple[type, ...]] = ()
    texts: ClassVar[int] = 1
    least: ClassVar[int] = 1
    different_documents: ClassVar[int] = 1

    def plan(self, block: TextBlock, *, length: int, template: SequenceTemplate, random: np.random.Generator) -> Pieces:
        starts = cut_long(block.sentences, block, template.text_length(length))
        return Pieces.single(starts[:-1], starts[1:])

    def check(self, counts: CorpusCounts) -> None:
        """Any text will do."""
