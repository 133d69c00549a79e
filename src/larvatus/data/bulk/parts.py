"""A file that grows part by part, so a killed run can resume; and the bad rows that a long job skipped.

    OUT.parts/run.json        what is being computed; only a run with the same settings may resume
    OUT.parts/parts.jsonl     a line for each part: its checksum, the progress of the run, the rows that were skipped
    OUT.parts/00000.arrow     the first part (`.jsonl` where the result is lines)

Each part is whole or absent. Everything is checksummed (`core/checksummed.py`): a missing or changed part is refused by
name before anything is added.

    with write_errors_to(Path("errors.jsonl")):
        …                                     # readers call `skip_row` before they raise

A skipped row is one line of that file, `{"error": "reviews.jsonl:1042: broken JSON: …"}`, while the job continues.
Without a file nothing is skipped: the first bad row is an error that names its place. Rows that fail in a worker come
back with its results (`compute_good_rows`), and are noted in their order, so the file does not depend on who worked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from larvatus.core import files
from larvatus.core.checksummed import Ledger, check_file, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.core.outputs import check_outputs, is_stream, new_output
from larvatus.core.regular_files import only_regular
from larvatus.core.run_identity import RunIdentity
from larvatus.core.settings import Settings
from larvatus.data.bulk.row_files import RowFormat, row_format, write_rows

Row = TypeVar("Row")
Result = TypeVar("Result")

_noted: ContextVar[Callable[[str], None] | None] = ContextVar("noted", default=None)


@contextmanager
def write_errors_to(path: Path | None) -> Iterator[None]:
    """Bad rows that are met meanwhile go into this file; without one they are raised."""
    if path is None:
        yield
        return
    with new_output(path) as aside, aside.open("w", encoding="utf-8") as stream:
        token = _noted.set(lambda message: print(json.dumps({"error": message}, ensure_ascii=False), file=stream))
        try:
            yield
        finally:
            _noted.reset(token)


@contextmanager
def ignoring_bad_rows() -> Iterator[None]:
    """While text is read that will be read again: its bad rows are noted then."""
    token = _noted.set(lambda message: None) if skips_bad_rows() else None
    try:
        yield
    finally:
        if token is not None:
            _noted.reset(token)


def skips_bad_rows() -> bool:
    """Whether bad rows are skipped."""
    return _noted.get() is not None


def skip_row(message: str) -> bool:
    """Note a bad row; False where nobody collects them."""
    note = _noted.get()
    if note is None:
        return False
    note(message)
    return True


def compute_good_rows(
    compute: Callable[[list[Row]], Sequence[Result]], rows: Sequence[Row], place: Callable[[Row], str]
) -> tuple[list[Row], Sequence[Result], list[str]]:
    """The rows that can be computed with their results, and what is wrong with each of the others.

    `place` names the place of a row; empty where messages name it.

    >>> def roots(rows):
    ...     if min(rows) < 0:
    ...         raise DataError("no root")
    ...     return [row**0.5 for row in rows]
    >>> compute_good_rows(roots, [4.0, -1.0, 9.0], str)
    ([4.0, 9.0], [2.0, 3.0], ['-1.0: no root'])
    """
    try:
        return list(rows), compute(list(rows)), []
    except (DataError, UsageError):  # some row is bad; one by one shows which
        faults: dict[int, str] = {}
        for number, row in enumerate(rows):
            try:
                compute([row])
            except (DataError, UsageError) as fault:
                named = place(row)
                faults[number] = f"{named}: {fault}" if named else str(fault)
        good = [row for number, row in enumerate(rows) if number not in faults]
        if not faults:
            raise
        return good, compute(good) if good else [], list(faults.values())


# Parts.

RUN, LEDGER = "run.json", "parts.jsonl"
Progress = TypeVar("Progress", bound=msgspec.Struct)
Task = TypeVar("Task")


class _Part(Settings, omit_defaults=True):
    """A line of the ledger."""

    sha256: str
    progress: msgspec.Raw = msgspec.field(name="stand")  # as older versions write it
    faults: tuple[str, ...] = ()


class PartsFolder(Generic[Progress]):
    """The folder of one run: `open` reads what is there, `write` adds to it."""

    def __init__(self, directory: Path, settings: dict[str, Any], *, kind: type[Progress], suffix: str) -> None:
        self.directory, self.settings = directory, settings
        self._kind, self._suffix = kind, suffix
        self._way = f"remove {directory} to start again"
        self._ledger: Ledger | None = None
        self._parts: list[_Part] = []

    def open(self, *, resume: bool) -> Progress:
        """Begin or resume; returns the progress so far. Parts of another run are neither mixed in nor overwritten."""
        only_regular(self.directory)
        files.sweep(self.directory)
        self._ledger = Ledger(self.directory / LEDGER, way=self._way)
        if not self._ledger.records:
            if self._path(1).exists():  # the first may be unlisted after a kill, another may not
                raise ArtefactError(f"{self._ledger.path} lists no parts, but there are some; {self._way}")
            write_checksummed(self.directory / RUN, self.settings)
            self._ledger.begin([])
            return self._kind()
        if not resume:
            raise ArtefactError(
                f"{self.directory} holds an unfinished run; continue with --resume, or remove it to start again"
            )
        before = read_checksummed(self.directory / RUN, way=self._way)
        RunIdentity(self.settings).check(
            before,
            lambda changes: ArtefactError(
                f"{self.directory} was begun with other settings ({changes}); use the same, or remove it to start again"
            ),
        )
        try:
            self._parts = [msgspec.json.decode(record, type=_Part) for record in self._ledger.records]
            for part in self._parts:
                msgspec.json.decode(part.progress, type=self._kind)
        except msgspec.MsgspecError as fault:
            raise ArtefactError(f"{self._ledger.path} lists no parts ({fault}); {self._way}") from fault
        for path, part in zip(self.paths(), self._parts, strict=True):
            check_file(path, part.sha256, way=self._way)
        self._ledger.begin(self._ledger.records)
        return self.progress()

    def paths(self) -> list[Path]:
        """The parts in order."""
        return [self._path(number) for number in range(len(self._parts))]

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:05d}{self._suffix}"

    def _written(self) -> list[Path]:
        return sorted(self.directory.glob(f"[0-9]*{self._suffix}"))

    def progress(self) -> Progress:
        """How far the parts reach."""
        return msgspec.json.decode(self._parts[-1].progress, type=self._kind) if self._parts else self._kind()

    def faults(self) -> Iterator[str]:
        """The rows that were skipped, in their order."""
        for part in self._parts:
            yield from part.faults

    def write(
        self, part: Callable[[Path], object], progress: Progress, *, size: int, faults: Sequence[str] = ()
    ) -> None:
        """Add a part: `part` writes it to the path that it is given."""
        path = self._path(len(self._parts))
        with files.new_file(path, size) as aside:
            part(aside)
        entry = _Part(
            sha256=files.sha256(path), progress=msgspec.Raw(msgspec.json.encode(progress)), faults=tuple(faults)
        )
        assert self._ledger is not None, "opened before anything is added"
        self._ledger.append(entry)
        self._parts.append(entry)

    def remove(self) -> None:
        """The run is done. The ledger goes last, so that `removed` can still say how far it came after a kill."""
        for path in self._written():
            path.unlink(missing_ok=True)
        shutil.rmtree(self.directory)

    def removed(self) -> Progress:
        """Where the result exists already, only what was left to remove is removed."""
        records = Ledger(self.directory / LEDGER, way=self._way).records
        self.remove()
        last = msgspec.json.decode(records[-1], type=_Part).progress if records else None
        return self._kind() if last is None else msgspec.json.decode(last, type=self._kind)

    @contextmanager
    def removed_when_empty(self) -> Iterator[None]:
        """A run that fails before its first part leaves nothing behind."""
        try:
            yield
        except BaseException:
            if not self._written():
                shutil.rmtree(self.directory, ignore_errors=True)
            raise


class LineProgress(Settings):
    """How far a run has come."""

    blocks: int = 0
    counts: dict[str, float] = {}
    """Whatever the job counts, in sum."""


@dataclass(frozen=True)
class BlockLines:
    """What a block gives."""

    lines: list[str]
    """A line of JSON: a record, or in CSV and TSV a flat row (`row_files.json_lines`)."""
    faults: list[str] = field(default_factory=list)
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LineJob:
    """A file of rows that is written block by block: what `predict` and `score` write.

        job = LineJob(out=Path("answers.jsonl"), settings={"model": "5f2c…"}, resume=True, overwrite=False)
        counts = job.write(blocks, answered, progress)      # `answered` computes blocks, by any executor

    A resumed run skips the blocks that are written. Blocks are cut by the text only, so it ends with the bytes of a run
    that was never stopped.
    """

    out: Path
    settings: dict[str, Any]
    """All that a line depends on: a run continues only with the same."""
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        if is_stream(self.out):
            raise UsageError(f"{self.out} cannot be resumed; name a file, such as answers.jsonl")

    @property
    def format(self) -> RowFormat:
        return row_format(self.out)

    @property
    def directory(self) -> Path:
        return self.out.with_name(self.out.name + ".parts")

    def write(
        self,
        blocks: Iterable[Task],
        answered: Callable[[Iterator[Task]], Iterator[BlockLines]],
        progress: Callable[[Mapping[str, float]], None] = lambda counts: None,
    ) -> Mapping[str, float]:
        """Have the blocks computed, and write the file; the counts of all."""
        directory = self.directory
        ended = self.resume and directory.exists() and self.out.exists()  # killed after its last step but one
        check_outputs(self.out, overwrite=self.overwrite or ended)
        parts = PartsFolder(directory, self.settings, kind=LineProgress, suffix=".jsonl")
        with files.locked(directory), parts.removed_when_empty():
            if ended and not self.overwrite:
                return parts.removed().counts
            state = parts.open(resume=self.resume)
            for block in answered(islice(iter(blocks), state.blocks, None)):
                state = _after(state, block)
                text = "".join(f"{line}\n" for line in block.lines).encode()
                parts.write(partial(Path.write_bytes, data=text), state, size=len(text), faults=block.faults)
                progress(state.counts)
            with new_output(self.out) as whole:
                self._assemble(list(parts.paths()), whole)
            for line in parts.faults():
                skip_row(line)
            parts.remove()
        return state.counts

    def _assemble(self, parts: list[Path], whole: Path) -> None:
        """One file of all parts, in the format of its ending."""
        if self.format != "jsonl":
            write_rows(whole, self.format, parts)
            return
        with whole.open("wb") as sink:
            for path in parts:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, sink)


def _after(state: LineProgress, block: BlockLines) -> LineProgress:
    names = {*state.counts, *block.counts}
    sums = {name: state.counts.get(name, 0) + block.counts.get(name, 0) for name in sorted(names)}
    return LineProgress(blocks=state.blocks + 1, counts=sums)
