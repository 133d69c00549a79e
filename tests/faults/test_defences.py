"""Take out one defence at a time, in a copy, and see that a test fails: see `tests/faults/defences/__init__.py`."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import warm

ROOT = Path(__file__).parents[2]
LISTS = sorted((Path(__file__).parent / "defences").glob("*.toml"))
LIMIT_S = 900.0
WATCHDOG_S = 40.0
"""Where a defence is out a hang is expected: it need not be waited for as long as `tests/patience.py` would."""
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


def run_test(folder: Path, test: str) -> tuple[int, str]:
    """A test of the copy: exit code of pytest, and what it said. The processes that it starts are warm, too."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder / 'src'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "LARVATUS_WATCHDOG_S": f"{WATCHDOG_S:g}",
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


@pytest.mark.proof
@pytest.mark.parametrize("entry", DEFENCES, ids=NAMES)
def test_without_the_defence_its_test_fails(entry: dict[str, str], house: Path) -> None:
    with spoilt(house / entry["file"], entry["out"], entry.get("in", ""), DEFENCES.index(entry)):
        code, said = run_test(house, entry["test"])
    assert code == 1, said  # 1: a test failed; 2 to 5: none was run
    assert "1 failed" in said, said
