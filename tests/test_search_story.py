"""docs/search_story.md is executed as it is: documents, a sentence encoder, an index, a search, scores, a server."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from larvatus.models.bundle import model_names
from tests.help_pages import write_help_pages
from tests.test_tickets import check_output, run_commands, steps

PAGE = Path(__file__).parents[1] / "docs" / "search_story.md"


PACKAGED = pytest.param("packaged", marks=pytest.mark.proof)
"""The English model learns and embeds for a minute on a CPU; a tiny model in its place shows that the page works."""


@pytest.fixture(params=["tiny", PACKAGED])
def shop(request: Any, tmp_path: Path, tiny_directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of the shop is the current one; gives which model takes part."""
    write_help_pages(tmp_path)
    monkeypatch.chdir(tmp_path)
    if request.param == "tiny":
        shutil.copytree(tiny_directory, tmp_path / "packages" / "tiny_english" / "model")
        monkeypatch.syspath_prepend(tmp_path / "packages")
        monkeypatch.setattr(model_names, "PACKAGE", "tiny_english")
    return str(request.param)


def test_the_story_of_a_search_in_python(shop: str) -> None:
    names: dict[str, Any] = {}
    ((code, shown),) = steps("In Python", PAGE)
    assert len([line for line in code.splitlines() if line]) <= 10
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, str(PAGE), "exec"), names)
    check_output(shown, printed.getvalue())
    hits = list(names["results"])
    assert len(hits) == 3
    assert shop == "tiny" or any("Refunds are paid" in hit.text for hit in hits)
    for hit in hits:
        assert Path(hit.document).read_text(encoding="utf-8")[hit.start : hit.end] == hit.text


def test_the_story_of_a_search_by_five_commands(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_commands(steps("With commands", PAGE), capsys).count("larvatus") == 5
