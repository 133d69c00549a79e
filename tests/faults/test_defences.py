"""Take out one defence at a time, in a copy, and see that a test fails: see `tests/faults/defences/__init__.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTS = sorted((Path(__file__).parent / "defences").glob("*.toml"))
DEFENCES = [entry for path in LISTS for entry in tomllib.loads(path.read_text(encoding="utf-8"))["defence"]]
NAMES = [entry["name"] for entry in DEFENCES]


def test_each_defence_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("entry", DEFENCES, ids=NAMES)
def test_a_defence_stands_where_its_entry_says(entry: dict[str, str]) -> None:
    """Quick, so that an edit which moves a defence is noticed before `make proof`."""
    assert set(entry) <= {"name", "file", "out", "in", "test"}
    assert (ROOT / entry["file"]).read_text(encoding="utf-8").count(entry["out"]) == 1, entry["out"]
    file, _, name = entry["test"].partition("::")
    name = name.rpartition("::")[2].partition("[")[0]
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.proof
@pytest.mark.parametrize("entry", DEFENCES, ids=NAMES)
def test_without_the_defence_its_test_fails(entry: dict[str, str], tmp_path: Path) -> None:
    for name in ("src", "tests", "pyproject.toml"):
        source = ROOT / name
        shutil.copytree(source, tmp_path / name) if source.is_dir() else shutil.copy(source, tmp_path / name)
    target = tmp_path / entry["file"]
    spoilt = target.read_text(encoding="utf-8").replace(entry["out"], entry.get("in", ""))
    compile(spoilt, str(target), "exec")  # a test that fails of a syntax error would prove nothing
    target.write_text(spoilt, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", ""]
    done = subprocess.run(
        [*command, entry["test"]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # 1: a test failed; 2 to 5: none was run
    assert "1 failed" in done.stdout, done.stdout
