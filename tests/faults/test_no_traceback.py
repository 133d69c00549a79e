"""No input ends in a traceback (item by item in `tests/faults/cases/`): one line, the right exit code, never 70."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults import cases
from tests.faults.cases import Case, Place

CASES: list[Case] = [
    case
    for module in pkgutil.iter_modules(cases.__path__)
    for case in importlib.import_module(f"{cases.__name__}.{module.name}").CASES
]


@pytest.fixture(scope="session")
def shared(tiny_model: Callable[..., Any], save_tiny: Callable[..., Any], tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("shared")
    save_tiny(folder / "model", tiny_model())
    (folder / "text.txt").write_text("The river ran past the bank of the town.\n\nThe bank lent money.\n" * 40)
    return folder


@pytest.fixture
def place(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    yield Place(here=tmp_path, model=shared / "model", text=shared / "text.txt")
    if (tmp_path / "deep").exists():  # `shutil.rmtree` calls itself for each folder
        subprocess.run(["rm", "-rf", tmp_path / "deep"], check=True)


def test_each_case_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_one_line_and_an_exit_code(
    case: Case, place: Place, larvatus: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    code, said = larvatus(*case.command(place))
    assert code == case.code, said
    assert (said == "") == (code == 0), said
    for word in case.says:
        assert word in said
