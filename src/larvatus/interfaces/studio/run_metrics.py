"""Training runs below a folder, and their `metrics.jsonl`, read in pieces while they grow.

    runs = find_runs(Path("runs"))                        # {"law": Path("runs/law"), …}
    first = read_records(runs["law"])
    later = read_records(runs["law"], after=first.after, stamp=first.stamp)

The reader passes the byte up to which it knows the file. An incomplete last line is left for the next read. A file that
was replaced or became shorter is read from its beginning, and the result says so.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.regular_files import open_regular, walk
from larvatus.interfaces.serve.responses import RequestError

METRICS = "metrics.jsonl"
DEEPEST, MOST_RUNS, MOST_FOLDERS = 5, 500, 20_000
"""Depth to which runs are searched, number of runs that are listed, and number of folders that are searched."""
CHUNK = 2**20
"""Bytes of one response."""
TAIL = 2**14
"""Bytes at the end of a file that contain its last record."""
LARGEST = 2**53
"""Largest integer that a browser represents exactly; a file may hold one of hundreds of digits."""
LIVE_S = 90.0
"""A run that wrote within this many seconds is live."""
WORDS = ("kind", "said", "path")
"""Fields of a record that are not numbers and are kept."""


class NoSuchRun(RequestError, status=404):
    """No run has this name."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """Consecutive records of a run."""

    records: list[dict[str, Any]]
    after: int
    """Byte up to which the file was read."""
    stamp: str
    """Identity of the file."""
    restarted: bool
    """Whether the file was replaced: earlier records no longer hold."""
    more: bool
    """Whether more can be read now."""
    broken: int
    """Lines that are not records and were skipped."""


@dataclass(frozen=True, kw_only=True)
class RunList:
    """The runs of a folder."""

    runs: dict[str, Path]
    whole: bool
    """False if a limit was reached: there may be more."""


def find_runs(folder: Path) -> RunList:
    """Folders with a `metrics.jsonl`, by their names below `folder`, newest first. Links are not followed."""
    runs: dict[str, Path] = {}
    looked = 0
    for place, folders, names in walk(folder):
        looked += 1
        here = Path(place)
        if looked > MOST_FOLDERS:
            break
        if len(here.relative_to(folder).parts) >= DEEPEST:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if METRICS in names and not (here / METRICS).is_symlink():
            runs[here.relative_to(folder).as_posix()] = here
    newest = sorted(runs.items(), key=lambda item: (-_changed(item[1]), item[0]))
    whole = looked <= MOST_FOLDERS and len(newest) <= MOST_RUNS
    return RunList(runs=dict(newest[:MOST_RUNS]), whole=whole)


def run_named(folder: Path, name: str) -> Path:
    """The run with a name of `find_runs`. Nothing above the folder or behind a link can be named."""
    parts = name.split("/")
    plain = all(part and not part.startswith(".") and "\0" not in part for part in parts) or name == "."
    run = folder / name if plain and len(parts) <= DEEPEST else None
    if run is None or not _is_run(folder, run):
        raise NoSuchRun("there is no run of that name here; it may have been removed")
    return run


def _is_run(folder: Path, run: Path) -> bool:
    path_down = [run / METRICS, run, *run.parents]
    try:
        linked = any(path.is_symlink() for path in path_down[: path_down.index(folder)])
        return not linked and (run / METRICS).is_file()
    except (OSError, ValueError):  # a name that no file can have: too long, half a surrogate pair
        return False


def describe_run(name: str, run: Path) -> dict[str, Any] | None:
    """An entry of the list of runs; None if the run has been removed meanwhile."""
    try:
        last = _last(run / METRICS)
    except ArtefactError:
        return None
    return {
        "name": name,
        "step": last.get("step"),
        "kind": last.get("kind"),
        "changed": round(_changed(run), 3),
        "live": time.time() - _changed(run) < LIVE_S,
        "bytes": _size(run),
    }


def read_records(run: Path, *, after: int = 0, stamp: str = "", most: int = CHUNK) -> Records:
    """Records after a byte of the file, from at most `most` bytes."""
    if after < 0:
        raise DataError(f"after is a byte of the file, not {after}")
    with open_regular(run / METRICS) as file:
        status = os.fstat(file.fileno())
        now = f"{status.st_ino:x}"
        restarted = bool(after) and (after > status.st_size or (stamp != "" and stamp != now))
        start = 0 if restarted else after
        file.seek(start)
        piece = file.read(most)
    end = piece.rfind(b"\n") + 1
    if not end and len(piece) == most:  # no line is that long
        return Records(records=[], after=start + most, stamp=now, restarted=restarted, more=True, broken=1)
    lines = [line for line in piece[:end].split(b"\n") if line.strip()]
    records = [record for line in lines if (record := _record(line)) is not None]
    return Records(
        records=records,
        after=start + end,
        stamp=now,
        restarted=restarted,
        more=start + len(piece) < status.st_size,
        broken=len(lines) - len(records),
    )


def records_dict(run: Path | None, *, after: int, stamp: str) -> dict[str, Any]:
    """The records as a dict, for a response; empty for a run that has not written yet."""
    if run is None or not (run / METRICS).exists():
        nothing = Records(records=[], after=0, stamp="", restarted=bool(after), more=False, broken=0)
        return dataclasses.asdict(nothing)
    return dataclasses.asdict(read_records(run, after=after, stamp=stamp))


def _record(line: bytes) -> dict[str, Any] | None:
    """Numbers and a few text fields of a line; None if it is not a record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(step := record.get("step"), int) or abs(step) > LARGEST:
        return None
    return dict(_plain(record))


def _plain(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Numbers that are not finite (a diverged loss), or too large for a browser, become None."""
    for name, value in record.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value if abs(value) <= LARGEST or (isinstance(value, float) and math.isfinite(value)) else None
        elif name in WORDS and isinstance(value, str):
            yield name, value


def _last(path: Path) -> dict[str, Any]:
    """The last complete record; empty if there is none yet."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL))
        lines = file.read(TAIL).split(b"\n")[:-1]
    return next((record for line in reversed(lines) if (record := _record(line)) is not None), {})


def _changed(run: Path) -> float:
    try:
        return (run / METRICS).stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0


def _size(run: Path) -> int:
    try:
        return (run / METRICS).stat().st_size
    except OSError:
        return 0
