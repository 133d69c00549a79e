"""The front page and the pages of docs/ are true where that can be seen: links, files and names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import larvatus

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"`([^`]+)`")
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REPRESENTATIONS = {"mean", "boundaries", "attention", "self-attention"}
"""Values of a setting that the table names, not functions."""
OLD_WORDS = re.compile(r"\bby lot\b|\b(leav\w+|left) (\w+ )?away\b|\btext that does not say\b")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """Those that the site and GitHub make of headings, and the site of documented names."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s+", "-", heading) for heading in plain} | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        goal = page.parent / target if target else page
        assert goal.exists(), f"{name_of(page)} links to {target}"
        assert not anchor or anchor in anchors(goal), f"{name_of(page)} links to {target}#{anchor}"


def links_by_name(prose: str) -> list[str]:
    """Text in brackets that Markdown reads as a link by name, `[heads][T]`, outside of code."""
    return re.findall(r"\[[^\]\n]*\]\[[^\]\n]*\]", CODE.sub("", prose))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shapes_are_not_read_as_links_by_name(page: Path) -> None:
    """The pages link by address only, so a pair of brackets is a mistake, which stops `make docs`."""
    unfenced = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = "\n".join(line for line in unfenced.splitlines() if not line.startswith("    "))
    assert not links_by_name(prose)


def test_shapes_in_the_reference_are_not_read_as_links_by_name() -> None:
    assert links_by_name("`weights` [layers][heads], `code[0][1]`") == ["[layers][heads]"]
    for name in larvatus.__all__:
        documented = getattr(larvatus, name)
        for value in (documented, *(vars(documented).values() if isinstance(documented, type) else ())):
            lines = (getattr(value, "__doc__", None) or "").splitlines()
            assert not links_by_name("\n".join(line for line in lines if ">>>" not in line)), f"{name}: {value}"


def test_ci_builds_the_pages() -> None:
    assert re.search(r"^make .*\bdocs\b", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_words_are_the_fields_and_examples_are_python(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not OLD_WORDS.search(text)
    for example in FENCE.findall(text):
        ast.parse(example)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_marks_of_a_merge_are_left(page: Path) -> None:
    assert not [line for line in page.read_text(encoding="utf-8").splitlines() if line[:7] in ("<" * 7, ">" * 7)]


def test_the_front_page_is_short_and_every_page_is_in_the_index_and_on_the_site() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        address = page.relative_to(DOCS).as_posix()
        assert address == "index.md" or f"({address})" in index
        assert f": {address}\n" in site


def test_the_reference_has_every_public_name() -> None:
    shown = re.findall(r"^::: larvatus\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted(set(larvatus.__all__) - {"__version__"})


def chapter_rows() -> list[list[str]]:
    """What, number in the older edition, computed by, checked by."""
    lines = (DOCS / "chapter.md").read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]


def test_every_file_and_name_of_the_chapter_exists() -> None:
    """`models/nn/crf.py` `Name.method`: the file is in src/larvatus or at the root, and defines what is named after
    it."""
    for _, _, *cells in chapter_rows():
        assert len(cells) == 2
        for cell in cells:
            source = ""
            for code in CODE.findall(cell):
                name = code.split(".")[-1]
                if "/" in code:
                    bases = (ROOT / "src" / "larvatus", ROOT)
                    at = next((base / code for base in bases if (base / code).exists()), None)
                    assert at is not None, f"chapter.md names {code}"
                    source = at.read_text(encoding="utf-8") if at.is_file() else ""
                elif source and (cell is cells[0] or name.startswith("test_")) and name not in REPRESENTATIONS:
                    assert re.search(rf"(def|class) {name}\b|self\.{name} =", source), f"chapter.md names {code}"
        assert "`tests/" in cells[1] or "`benchmarks/" in cells[1], f"no test: {cells}"


def numbers(text: str) -> set[int]:
    """Equations at the beginning of a cell: "11.18 to 11.20" are three, "11.14, 11.15" two."""
    found: set[int] = set()
    for first, last in re.findall(r"(?<!§)(?<!Fig\. )\b11\.(\d+)(?: to 11\.(\d+))?(?![\d.])", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_the_chapter_map_has_every_number_of_both_editions() -> None:
    """27 equations and an example in the newer edition, 21 and one in the older; sections of both that have none."""
    rows = chapter_rows()
    newer = [re.match(r"11\.\d+(?:(?: to|,) 11\.\d+)*", what) for what, *_ in rows]
    assert set().union(*(numbers(match[0]) for match in newer if match)) == set(range(1, 29))
    assert set().union(*(numbers(older) for _, older, *_ in rows)) == set(range(1, 23))
    sections = " ".join(f"{what} {older}" for what, older, *_ in rows)
    for section in ("11.2.1", "11.2.2", "11.2.3", "11.3", "11.3.2", "11.4.2", "11.5.1", "11.5.2"):
        assert any(f"§{section}" in what for what, *_ in rows), section
    for section in ("11.2.1", "11.2.2", "11.2.3", "11.2.4", "11.2.5", "11.3.2", "11.3.4", "11.4.1", "11.4.2", "11.4.3"):
        assert any(f"§{section}" in older for _, older, *_ in rows), section
    assert "§11.5" in sections
    assert sum(older == "§11.6" for _, older, *_ in rows) >= 3


@pytest.mark.parametrize("page", ["architecture.md", "extending.md", "reading.md"])
def test_every_file_that_a_page_on_the_code_names_exists(page: str) -> None:
    source = ROOT / "src" / "larvatus"
    names = set(re.findall(r"`([\w./-]+(?:\.(?:py|toml|md)|/))`", (DOCS / page).read_text(encoding="utf-8")))
    inside = {path.name + "/" * (not path.suffix) for path in source.rglob("*")}  # `nn/` after `models/`
    for name in names - inside - {"tasks/NAME/", "src/larvatus/"}:
        assert any((place / name).exists() for place in (source, ROOT)), f"{page} names {name}"


def test_architecture_names_every_package() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "larvatus"
    packages = {path.parent for path in source.glob("*/__init__.py")} | {
        path.parent for path in source.glob("*/*/__init__.py")
    }
    missing = sorted(path.name for path in packages if f"`{path.name}/`" not in text and path.parent.name != "tasks")
    assert not missing, f"architecture.md does not name {missing}"
