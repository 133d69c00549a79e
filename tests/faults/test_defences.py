"""Take out one defence at a time, in a copy, and see that a test fails: see `tests/faults/defences/__init__.py`."""

from __future__ import annotations

import compileall
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import warm

ROOT = Path(__file__).parents[2]
LISTS = sorted((Path(__file__).parent / "defences").glob("*.toml"))
LIMIT_S = 900.0
SHORTEST_S, LONGEST_S = 12.0, 400.0
"""Watchdogs of tests that hang without their defence."""
OTHERS_S = 120.0
"""Watchdog of those that fail by an assertion, and so do not wait for it."""
CUT_OFF = re.compile(r"(?m)^E .*(TimeoutExpired|did not end within|\bit hung\b|'hangs'|: timed out|[ [(]-14\b)")
"""Of a test that failed because of a watchdog."""
DEFENCES: list[dict[str, Any]] = [
    entry for path in LISTS for entry in tomllib.loads(path.read_text(encoding="utf-8"))["defence"]
]
NAMES = [entry["name"] for entry in DEFENCES]


def test_each_defence_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


def stands(entry: dict[str, Any]) -> bool:
    file, _, name = entry["test"].partition("::")
    name = name.rpartition("::")[2].partition("[")[0]
    whole = (ROOT / entry["file"]).read_text(encoding="utf-8")
    test = (ROOT / file).read_text(encoding="utf-8")
    known = set(entry) <= {"name", "file", "out", "in", "test", "hangs"}
    return known and whole.count(entry["out"]) == 1 and f"def {name}(" in test


def test_every_defence_stands_where_its_entry_says() -> None:
    """Quick, so that an edit which moves a defence is noticed before `make proof`."""
    assert [entry["name"] for entry in DEFENCES if not stands(entry)] == []


class Popen(warm.Popen):
    """From an interpreter that has imported torch and its like, and nothing of larvatus: that is read from the copy."""

    server = warm.Server(preload="tests")


RUN = """
import sys
import pytest
code = pytest.main(sys.argv[1:])
import larvatus
assert larvatus.__file__.startswith(sys.path[1]), (larvatus.__file__, sys.path)
sys.exit(code)
"""


def run_test(folder: Path, test: str, watchdog_s: float) -> tuple[int, str]:
    """A test of the copy: exit code of pytest, and what it said. The processes that it starts are warm, too."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder / 'src'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "LARVATUS_DEFENCE_OUT": "1",
        "LARVATUS_EXAMPLES": "1",
        "LARVATUS_WATCHDOG_S": f"{watchdog_s:g}",
        warm.NESTED: "1",
    }
    words = [sys.executable, "-c", RUN, "-x", "-p", "no:cacheprovider", "-m", "", test]
    with (
        tempfile.TemporaryFile() as said,
        Popen(words, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True) as process,
    ):
        try:
            code = process.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        return code, said.read().decode(errors="replace")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with its bytecode, which stays good: the times of its files are those of here."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("src", "tests", "benchmarks", "pyproject.toml"):
        source = ROOT / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy2(source, folder / name)
    assert compileall.compile_dir(folder / "src", quiet=1)
    return folder


@contextmanager
def spoilt(target: Path, out: str, instead: str, number: int) -> Iterator[None]:
    """Inside, a file of the copy lacks a piece; with a time of its own, so that no other bytecode is taken for it."""
    whole, times = target.read_bytes(), target.stat()
    text = whole.decode().replace(out, instead)
    compile(text, str(target), "exec")  # a test that fails of a syntax error would prove nothing
    try:
        target.write_text(text, encoding="utf-8")
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns + (number + 1) * 10**10))
        yield
    finally:
        target.write_bytes(whole)
        os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def time_to_pass(folder: Path, test: str) -> float:
    """A watchdog under which the test passes while the defence is there: on a slow machine a longer one."""
    watchdog_s = SHORTEST_S
    while (result := run_test(folder, test, watchdog_s))[0] != 0:
        watchdog_s *= 4
        assert watchdog_s <= LONGEST_S, result[1]
    return watchdog_s


@pytest.mark.proof
@pytest.mark.parametrize("entry", DEFENCES, ids=NAMES)
def test_without_the_defence_its_test_fails(entry: dict[str, Any], house: Path) -> None:
    """By an assertion; where the entry says that it hangs, by a watchdog that it keeps to with the defence."""
    watchdog_s = time_to_pass(house, entry["test"]) if entry.get("hangs") else OTHERS_S
    with spoilt(house / entry["file"], entry["out"], entry.get("in", ""), DEFENCES.index(entry)):
        code, said = run_test(house, entry["test"], watchdog_s)
    assert code == 1, said  # 1: a test failed; 2 to 5: none was run
    assert "1 failed" in said, said
    assert entry.get("hangs") or not CUT_OFF.search(said), f"cut off by the clock; say so: hangs = true\n{said}"
