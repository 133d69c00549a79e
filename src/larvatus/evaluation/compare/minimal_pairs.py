"""Minimal pairs (BLiMP, Warstadt et al. 2020): accuracy of preferring the good sentence by pseudo-log-likelihood.

    run = PairRun(model.network, model.tokenizer, read_pairs(["blimp.jsonl.xz"]), method="original")
    result = run.finish()                                            # all in memory
    result = run.to_file(Path("scores.jsonl"), settings, resume=True)   # every score in a file; survives a kill

Files are BLiMP's JSONL, or lines good<TAB>bad[<TAB>phenomenon]; both may be compressed. The first line determines the
format, and errors name file and line:

    {"sentence_good": "…", "sentence_bad": "…", "UID": "adjunct_island", "linguistics_term": "…", "field": "syntax"}

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
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec

from larvatus.core import files
from larvatus.core.checksummed import LONGEST, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.outputs import check_outputs, is_stream, new_output
from larvatus.core.regular_files import is_there, only_regular, read_bytes
from larvatus.core.settings import Settings
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.bulk.row_files import RowFormat, row_file, row_format, write_rows
from larvatus.data.text.streams import numbered_lines
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.cloze.likelihood import score_texts
from larvatus.inference.cloze.masked_copies import Method
from larvatus.inference.cloze.results import Score
from larvatus.metrics.accuracy import PairAccuracies, pair_accuracies
from larvatus.models.network import Network

GROUPS = {"UID": "phenomenon", "linguistics_term": "term", "field": "field"}
"""Groupings of pairs, finest first: the name in files, and the name in tables."""
_HEADERS = (["sentence_good", "sentence_bad"], ["good", "bad"])


class MinimalPair(msgspec.Struct, frozen=True, kw_only=True):
    good: str
    bad: str
    groups: dict[str, str] = {}
    """Group by each name of `GROUPS`."""
    id: str | None = None
    """Its `pairID` in the file."""
    where: str = ""
    """File and line."""


def read_pairs(names: Sequence[str]) -> list[MinimalPair]:
    """All pairs of all files, in order."""
    pairs = [pair for name in names for pair in _pairs(name)]
    if not pairs:
        raise DataError(f"no minimal pairs in {', '.join(names) or 'the list'}; give JSONL, or good<TAB>bad lines")
    return pairs


def _pairs(name: str) -> Iterator[MinimalPair]:
    lines = ((number, line) for number, line in numbered_lines(name) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    read = _record if first[1].lstrip().startswith("{") else _row
    for number, line in chain([first], lines):
        if read is _row and number == first[0] and [cell.strip() for cell in line.split("\t")[:2]] in _HEADERS:
            continue
        where = f"{'standard input' if name == '-' else name}:{number}"
        yield _checked(read(line, where))


def minimal_pair(sentences: Any, where: str) -> MinimalPair:
    """A pair from memory: the good sentence, then the bad one. `where` names it in errors."""
    if not isinstance(sentences, tuple | list) or [type(sentence) for sentence in sentences] != [str, str]:
        raise UsageError(f"{where} is not two sentences; give files, or the good and the bad sentence of each pair")
    return _checked(MinimalPair(good=sentences[0], bad=sentences[1], where=where))


def _checked(pair: MinimalPair) -> MinimalPair:
    for sentence in (pair.good, pair.bad):
        if not sentence.strip():
            raise DataError(f"{pair.where}: a sentence is empty; there is nothing to score")
        if "\0" in sentence:
            raise DataError(f"{pair.where}: NUL byte at {sentence.index(chr(0)) + 1} of a sentence; repair it")
        refuse_surrogates(sentence, pair.where)
    return pair


def _record(line: str, where: str) -> MinimalPair:
    try:
        record: Any = msgspec.json.decode(line)
    except (ValueError, RecursionError) as fault:
        raise DataError(f"{where}: broken JSON: {fault}") from fault
    if not isinstance(record, dict):
        raise DataError(f"{where}: the line is not a JSON object")
    for name in ("sentence_good", "sentence_bad"):
        if name not in record:
            raise DataError(f"{where}: no field {name!r}; a pair has sentence_good and sentence_bad")
        if not isinstance(record[name], str):
            raise DataError(f"{where}: field {name!r} is {type(record[name]).__name__}, not a string")
    groups = {name: str(record[name]) for name in GROUPS if record.get(name) is not None}
    identifier = record.get("pairID")
    return MinimalPair(
        good=record["sentence_good"],
        bad=record["sentence_bad"],
        groups=groups,
        id=None if identifier is None else str(identifier),
        where=where,
    )


def _row(line: str, where: str) -> MinimalPair:
    cells = [cell.strip() for cell in line.split("\t")]
    if not 2 <= len(cells) <= 3:
        raise DataError(f"{where}: {len(cells)} columns; write good<TAB>bad, or good<TAB>bad<TAB>phenomenon")
    groups = {"UID": cells[2]} if len(cells) == 3 and cells[2] else {}
    return MinimalPair(good=cells[0], bad=cells[1], groups=groups, where=where)


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
