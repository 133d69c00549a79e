"""A build to be killed: `python killed_build.py TEXT OUT`, slowed down so that the killer has a choice of moments."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

from larvatus.data.corpus.build import build_corpus
from tests.data.corpus.made_up import SMALL, small_tokenizer

if __name__ == "__main__":
    options = dataclasses.replace(SMALL, workers=2, progress=lambda counts: time.sleep(0.02))
    build_corpus([Path(sys.argv[1])], small_tokenizer(), Path(sys.argv[2]), options)
