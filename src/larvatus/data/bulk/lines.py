"""Results as rows of a file, block by block, kept in parts until the file is whole: what `predict` and `score` write.

    job = LineJob(out=Path("answers.jsonl"), settings={"model": "5f2c…"}, resume=True, overwrite=False)
    counts = job.write(blocks, answered, progress)      # `answered` has the blocks computed, by whatever executor

Blocks that a killed run had written are passed over, not read again by the model; they are cut by the text alone, so a
run that continues ends with the bytes of one that was never stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from larvatus.core import files
from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs, is_stream, new_output
from larvatus.core.settings import Settings
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.bulk.row_files import RowFormat, row_format, write_rows
from larvatus.data.bulk.skipped import skip_row

Task = TypeVar("Task")


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
            stand = parts.open(resume=self.resume)
            for block in answered(islice(iter(blocks), stand.blocks, None)):
                stand = _after(stand, block)
                text = "".join(f"{line}\n" for line in block.lines).encode()
                parts.write(partial(_write, text), stand, size=len(text), faults=block.faults)
                progress(stand.counts)
            with new_output(self.out) as whole:
                self._assemble(list(parts.paths()), whole)
            for line in parts.faults():
                skip_row(line)
            parts.remove()
        return stand.counts

    def _assemble(self, parts: list[Path], whole: Path) -> None:
        """One file of all parts, in the format that its name says."""
        if self.format != "jsonl":
            write_rows(whole, self.format, parts)
            return
        with whole.open("wb") as sink:
            for path in parts:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, sink)


def _after(stand: LineProgress, block: BlockLines) -> LineProgress:
    names = {*stand.counts, *block.counts}
    sums = {name: stand.counts.get(name, 0) + block.counts.get(name, 0) for name in sorted(names)}
    return LineProgress(blocks=stand.blocks + 1, counts=sums)


def _write(text: bytes, path: Path) -> None:
    path.write_bytes(text)
