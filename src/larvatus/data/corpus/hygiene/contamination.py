"""What a built corpus shares with evaluation sets, asked of its sketch: the text itself is not needed.

for shared in contamination(Path("corpus"), ["test.jsonl"], words=13):
    print(shared.name, shared.shared, shared.judged)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from larvatus.core.checksummed import check_file
from larvatus.core.errors import DataError, UsageError
from larvatus.data.corpus.format import read_manifest
from larvatus.data.corpus.hygiene.check import SharedSet
from larvatus.data.corpus.hygiene.evaluation_sets import EvaluationSet
from larvatus.data.corpus.hygiene.sketch import SKETCH, WORDS, Sketch


def contamination(corpus: Path, paths: Sequence[str], *, words: int) -> list[SharedSet]:
    """Of each set: how many of its examples have a run of so many words in common with the corpus."""
    if not paths:
        raise UsageError("no evaluation set was named; give its file")
    if words < WORDS:
        raise UsageError(f"the sketch of a corpus knows runs of {WORDS} words; ask for {WORDS} or more, not {words}")
    hygiene = read_manifest(corpus).hygiene
    sketch = Sketch.open(corpus / SKETCH)
    said = None if hygiene is msgspec.UNSET else hygiene.get("sketch_sha256")
    if not isinstance(said, str):
        raise DataError(f"{corpus / SKETCH} is not of this corpus; build it again with --sketch")
    check_file(corpus / SKETCH, said, DataError, way="build the corpus again")
    shared = []
    for path in paths:
        data = EvaluationSet.read(path, n=WORDS)
        known, counts = sketch.holds_runs(data.grams, data.counts_of_texts, words)
        runs = replace(data, counts_of_texts=counts)
        if not counts.sum():
            raise DataError(f"{path}: no text of it has {words} words; give its texts, or ask for fewer words")
        shared.append(SharedSet.of(runs, runs.hits(known), runs.counts, words))
    return shared
