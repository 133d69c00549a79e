"""Take out one defence at a time, in a copy, and see that a test fails: see `tests/faults/defences/__init__.py`."""

from __future__ import annotations

import compileall
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.preloaded import Preloaded

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


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded() as run_tests:
        yield run_tests


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the house with its bytecode, which stays good in copies of the copy: their times are those of here."""
    folder = tmp_path_factory.mktemp("compiled")
    for name in ("src", "tests", "pyproject.toml"):
        source = ROOT / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy2(source, folder / name)
    assert compileall.compile_dir(folder / "src", quiet=1)
    return folder


@pytest.mark.proof
@pytest.mark.parametrize("entry", DEFENCES, ids=NAMES)
def test_without_the_defence_its_test_fails(
    entry: dict[str, str], compiled: Path, preloaded: Preloaded, tmp_path: Path
) -> None:
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    target = tmp_path / entry["file"]
    spoilt = target.read_text(encoding="utf-8").replace(entry["out"], entry.get("in", ""))
    compile(spoilt, str(target), "exec")  # a test that fails of a syntax error would prove nothing
    target.write_text(spoilt, encoding="utf-8")
    for stale in target.parent.glob(f"__pycache__/{target.stem}.*"):
        stale.unlink()
    code, said = preloaded(tmp_path, entry["test"])
    assert code == 1, said  # 1: a test failed; 2 to 5: none was run
    assert "1 failed" in said, said
