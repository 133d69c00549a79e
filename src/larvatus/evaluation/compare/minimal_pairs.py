"""Minimal pairs (BLiMP, Warstadt et al. 2020): accuracy of preferring the good sentence by pseudo-log-likelihood.

    run = PairRun(model.network, model.tokenizer, read_pairs(["blimp.jsonl.xz"]), method="original")
    result = run.finish()                                            # all in memory
    result = run.to_file(Path("scores.jsonl"), settings, resume=True)   # every score in a file; survives a kill

Pairs are scored in blocks, the two sentences of a pair together because they share masked copies. A run to a file
appends scores to OUT.parts/scores.jsonl and renames it to OUT at the end. A killed run resumes at its block and ends
with the same file. OUT.parts/run.json records the inputs and a checksum of the scores so far.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core import files
from larvatus.core.checksummed import LONGEST, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError
from larvatus.core.outputs import check_outputs, is_stream, new_output
from larvatus.core.regular_files import is_there, only_regular, read_bytes
from larvatus.core.settings import Settings
from larvatus.data.bulk.row_files import RowFormat, row_file, row_format, write_rows
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.compare.pair_files import GROUPS, MinimalPair
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.pseudo_likelihood import score_texts
from larvatus.inference.cloze.scores import Score
from larvatus.metrics.accuracy import PairAccuracies, pair_accuracies
from larvatus.models.network import Network

BLOCK = 256
"""Pairs per block."""

RUN, SCORES = "run.json", "scores.jsonl"

Normalise = Literal["none", "token", "word"]


class ScoredPair(Settings, omit_defaults=True):
    """A line of the file of scores."""

    sentence_good: str
    sentence_bad: str
    good: float
    """Pseudo-log-likelihood of the good sentence, normalised as requested; `bad` is that of the bad sentence."""
    bad: float
    preferred: bool
    UID: str | None = None
    linguistics_term: str | None = None
    field: str | None = None
    pairID: str | None = None


@dataclass(frozen=True)
class PairRun:
    network: Network
    tokenizer: Tokenizer
    pairs: Sequence[MinimalPair]
    method: Method = "original"
    normalise: Normalise = "none"
    """Normalisation of scores, since the two sentences may differ in length."""
    name: str = "the model"
    progress: Callable[[int], None] = lambda _: None
    """Callback with the number of finished pairs, starting with those of an interrupted run."""

    def finish(self) -> PairAccuracies:
        """Score all pairs in memory and return accuracies."""
        self.progress(0)
        return accuracies_of([row for block in self._blocks(0) for row in block])

    def to_file(self, out: Path, settings: dict[str, Any], *, resume: bool, overwrite: bool = False) -> PairAccuracies:
        """Score all pairs into a file. `settings` must be the same when the run is resumed."""
        parts = out.with_name(out.name + ".parts")
        format = row_format(out)
        ended = resume and not overwrite and is_there(parts / RUN) and _at_its_end(parts, out, format)
        check_outputs(out, overwrite=overwrite or ended)
        if is_stream(out):
            rows = [row for block in self._blocks(0) for row in block]
            with row_file(out) as write:
                for row in rows:
                    record = msgspec.to_builtins(row)
                    write(record, [record])
            return accuracies_of(rows)
        with files.locked(parts):
            only_regular(parts)
            part = out if ended and out.exists() and format == "jsonl" else parts / SCORES
            identity = {**settings, "sentences": self._checksum()}
            rows, digest = _begun(parts, part, identity, resume=resume)
            self.progress(len(rows))
            with files.saying_what_is_full(part), part.open("ab") as stream:
                for block in self._blocks(len(rows)):
                    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in block)
                    stream.write(lines)
                    stream.flush()
                    os.fsync(stream.fileno())
                    digest.update(lines)
                    _vouch(parts, identity, stream.tell(), digest)
                    rows += block
            if format != "jsonl":
                with new_output(out) as aside:
                    write_rows(aside, format, [part])
            else:
                with files.saying_what_is_full(out):
                    os.replace(part, out)
                    files.fsync(out.parent)
            shutil.rmtree(parts)
        return accuracies_of(rows)

    def _checksum(self) -> str:
        """Checksum of the pairs, independent of their files."""
        said = [[pair.good, pair.bad, pair.id, sorted(pair.groups.items())] for pair in self.pairs]
        return hashlib.sha256(msgspec.json.encode(said)).hexdigest()

    def _blocks(self, done: int) -> Iterator[list[ScoredPair]]:
        for first in range(done, len(self.pairs), BLOCK):
            block = self.pairs[first : first + BLOCK]
            texts = [sentence for pair in block for sentence in (pair.good, pair.bad)]
            labels = [f"{pair.where or 'a pair'}: the {which} sentence" for pair in block for which in ("good", "bad")]
            scores = score_texts(self.network, self.tokenizer, texts, method=self.method, labels=labels, name=self.name)
            numbers = [_divided(score, self.normalise) for score in scores]
            yield [
                ScoredPair(
                    sentence_good=pair.good,
                    sentence_bad=pair.bad,
                    good=good,
                    bad=bad,
                    preferred=good > bad,
                    pairID=pair.id,
                    **pair.groups,
                )
                for pair, good, bad in zip(block, numbers[::2], numbers[1::2], strict=True)
            ]
            self.progress(first + len(block))


def _at_its_end(parts: Path, out: Path, format: RowFormat) -> bool:
    """Whether an interrupted run missed only its last step: the output was already moved or written."""
    return not is_there(parts / SCORES) if format == "jsonl" else out.exists()


def _divided(score: Score, by: Normalise) -> float:
    return {"none": score.total, "token": score.per_token, "word": score.per_word}[by]


def accuracies_of(rows: Sequence[ScoredPair]) -> PairAccuracies:
    groups = {name: [getattr(row, name) for row in rows] for name in GROUPS}
    return pair_accuracies([row.good for row in rows], [row.bad for row in rows], groups)


def _vouch(parts: Path, settings: dict[str, Any], size: int, digest: Any) -> None:
    """Record the size and the checksum of the scores so far."""
    write_checksummed(parts / RUN, {"settings": settings, "bytes": size, "scores": digest.hexdigest()})


def _begun(parts: Path, part: Path, settings: dict[str, Any], *, resume: bool) -> tuple[list[ScoredPair], Any]:
    """Checksummed scores of an interrupted run, with the running checksum; anything after them is truncated."""
    way = f"remove {parts} to start again"
    if not is_there(parts / RUN):
        part.unlink(missing_ok=True)
        part.touch()
        _vouch(parts, settings, 0, hashlib.sha256())
        return [], hashlib.sha256()
    if not resume:
        raise ArtefactError(f"{parts} holds an unfinished run; continue with --resume, or remove it to start again")
    held = read_checksummed(parts / RUN, way=way)
    before, size = held.get("settings", {}), held.get("bytes", 0)
    changed = [name for name in sorted({*before, *settings}) if before.get(name) != settings.get(name)]
    if changed:
        raise ArtefactError(
            f"{parts} was started with another {' and '.join(changed)}; use the same, or remove it to start again"
        )
    kept = read_bytes(part, most=LONGEST)[:size]
    digest = hashlib.sha256(kept)
    if digest.hexdigest() != held.get("scores"):
        raise ArtefactError(f"{part} does not match its checksum: it was edited or is damaged; {way}")
    os.truncate(part, size)
    return [msgspec.json.decode(line, type=ScoredPair) for line in kept.splitlines()], digest
