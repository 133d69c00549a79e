"""Row 74: one digit or byte changed in any file that a resume reads is refused by name.

A run of each kind is interrupted; then each file that it left is changed in turn, and the same command with --resume is
given. A checkpoint that is not the only one may be fallen back from, aloud. Files that no resume reads are listed with
the runs (`begun.py`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.begun import RUNS, Begun, Call


def read_by_a_resume(begun: Begun) -> list[Path]:
    every = {path for path in begun.kept.rglob("*") if path.is_file()}
    unread = {path for pattern in begun.unread for path in begun.kept.glob(pattern)}
    return sorted(every - unread)


def changes(path: Path) -> list[bytes]:
    """Its contents with the byte in the middle flipped; of text also with a digit changed."""
    held = path.read_bytes()
    flipped = bytearray(held)
    flipped[len(held) // 2] ^= 1
    found = [bytes(flipped)]
    if path.suffix in (".json", ".jsonl") and (digit := list(re.finditer(rb"(?<=[ :\[])\d", held))):
        at = digit[len(digit) // 2].start()
        found.append(held[:at] + (b"1" if held[at : at + 1] != b"1" else b"2") + held[at + 1 :])
    return found


def relative(path: Path, begun: Begun) -> str:
    return path.relative_to(begun.kept).as_posix()


def begun_and_copied(begun: Begun, folder: Path) -> tuple[Begun, Path]:
    pristine = folder / "pristine"
    shutil.copytree(begun.kept, pristine)
    return begun, pristine


LONG = ("adapt", "compare", "curve")
"""Of those, each resume takes seconds."""


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.proof) if k in LONG else k for k in RUNS])
def test_74_a_changed_byte_or_digit_in_any_file_that_a_resume_reads_is_refused_by_name(
    call: Call, begin: Callable[..., Begun], tmp_path: Path, kind: str
) -> None:
    begun, pristine = begun_and_copied(begin(kind), tmp_path)
    names = [relative(path, begun) for path in read_by_a_resume(begun)]
    assert len(names) >= 2, names
    survived = []
    for name in names:
        for number, changed in enumerate(changes(pristine / name)):
            shutil.rmtree(begun.kept)
            shutil.copytree(pristine, begun.kept)
            (begun.kept / name).write_bytes(changed)
            code, said, complaint = call(*begun.again)
            everything = f"{said}{complaint}".replace("\n", "")
            named = str(begun.kept / name) in everything
            aloud = "falling back" in everything or "built again" in everything
            if not (named and (code in (4, 5) or (code == 0 and aloud))):
                survived.append((name, number, code, complaint or said[-300:]))
    assert not survived, "\n".join(map(str, survived))
    assert {name for name in names if name.endswith((".json", ".jsonl"))}, "nothing that could be edited by hand"


@pytest.mark.parametrize("kind", ["embed", "index", "score", "corpus", "finetune"])
def test_74_a_missing_file_is_refused_by_name_or_made_again(
    call: Call, begin: Callable[..., Begun], tmp_path: Path, kind: str
) -> None:
    """A part in the middle, for one: what comes after it must not be taken for what comes next."""
    begun, pristine = begun_and_copied(begin(kind), tmp_path)
    tensors = [path for path in read_by_a_resume(begun) if path.suffix in (".arrow", ".safetensors")]
    for name in [relative(path, begun) for path in tensors]:
        shutil.rmtree(begun.kept)
        shutil.copytree(pristine, begun.kept)
        (begun.kept / name).unlink()
        code, said, complaint = call(*begun.again)
        letters = "".join(f"{said}{complaint}".split())  # lines are wrapped where they must, in a path or after it
        assert f"{name}ismissing" in letters, (name, code, said, complaint)
        if code == 0:
            break  # aloud; the result stands now
        assert code in (4, 5)
