"""The course in docs/chapter/ runs as it is written: each page by itself, in order, with the output that it shows."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import larvatus as lv
from tests.test_tickets import BLOCK, check_output

DOCS = Path(__file__).parents[1] / "docs"
CHAPTER = DOCS / "chapter"
PAGES = sorted(page for page in CHAPTER.glob("*.md") if page.name != "code.md")
EXERCISES = sorted((CHAPTER / "exercises").glob("*.md"))
SLOW: set[str] = set()
"""Pages that train, or read more than some sentences: `make proof` runs them."""

EQUATION = re.compile(r"\\tag\{(11\.\d+)\}")
CODE_LINK = re.compile(r"\]\(code\.md#(larvatus\.[\w.]+)\)")


@functools.cache
def english() -> lv.Model:
    """The packaged model, loaded once for all pages."""
    return lv.load(device="cpu")


def runnable() -> list[Any]:
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.proof] if page.stem in SLOW else [])
        for page in [*PAGES, *EXERCISES]
    ]


@pytest.mark.parametrize("page", runnable())
def test_the_code_of_a_page_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, load = english(), lv.load
    monkeypatch.setattr(lv, "load", lambda *given, **settings: load(*given, **settings) if given else model)
    monkeypatch.chdir(tmp_path)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002  # pages may seed them
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, (kind, code) in enumerate(blocks):
            if kind != "python":
                continue
            shown = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, str(page), "exec"), names)
            assert shown[0] == "text" or not printed.getvalue(), f"the page does not show {printed.getvalue()}"
            check_output(shown[1] if shown[0] == "text" else "", printed.getvalue())
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


@pytest.mark.parametrize("page", [*PAGES, *EXERCISES], ids=lambda page: page.stem)
def test_a_page_has_code_and_begins_with_imports(page: Path) -> None:
    first = next(code for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "python")
    assert first.startswith(("import ", "from ")), f"{page.name}: each page is run by itself"


def test_every_numbered_equation_is_typeset_next_to_the_function_that_computes_it() -> None:
    numbers: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = list(EQUATION.finditer(text))
        numbers += [match[1] for match in found]
        for match in found:
            section = text[match.end() :].partition("\n## ")[0]
            assert CODE_LINK.search(section), f"{page.name}: no function is linked after {match[1]}"
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {f"11.{n}" for n in range(1, 28)} - {"11.16"}  # 11.16 and 11.28 are examples


def test_every_linked_function_is_shown_with_its_source() -> None:
    shown = set(
        re.findall(r"^::: (larvatus\.[\w.]+)$", (CHAPTER / "code.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    linked = {name for page in [*PAGES, *EXERCISES] for name in CODE_LINK.findall(page.read_text(encoding="utf-8"))}
    assert linked == shown
    for name in shown:
        parts = name.split(".")
        for cut in range(len(parts) - 1, 1, -1):
            with contextlib.suppress(ImportError):
                functools.reduce(getattr, parts[cut:], importlib.import_module(".".join(parts[:cut])))
                break
        else:
            pytest.fail(f"code.md names {name}")


def test_twelve_exercises_have_solutions_and_are_linked() -> None:
    linked = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert len(EXERCISES) == 12
    for page in EXERCISES:
        text = page.read_text(encoding="utf-8")
        assert text.count("<summary>Solution</summary>") == 1, page.name
        assert f"exercises/{page.name}" in linked, page.name


@pytest.mark.proof
def test_the_figures_are_those_that_the_script_draws() -> None:
    """The same words in the same places; numbers may differ in a last digit from one processor to another."""
    module = importlib.util.spec_from_file_location("figures", CHAPTER / "figures.py")
    assert module is not None
    assert module.loader is not None
    figures = importlib.util.module_from_spec(module)
    module.loader.exec_module(figures)
    digits = re.compile(r"\d")
    for name, draw in figures.FIGURES.items():
        kept = (DOCS / "pictures" / f"chapter_{name}.svg").read_text(encoding="utf-8")
        drawn = draw(english())
        words = [[digits.sub("", label) for label in re.findall(r">([^<>]+)<", svg)] for svg in (drawn, kept)]
        assert words[0] == words[1], name
        assert drawn.count("<rect") == kept.count("<rect")
