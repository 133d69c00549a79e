"""The page of the studio as files: no markup from strings, no network, every module there, readable in both themes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import larvatus
from tests.patience import WATCHDOG_S

PAGE = Path(larvatus.__file__).parent / "interfaces" / "studio" / "page"
SCRIPTS = sorted(PAGE.rglob("*.js"))
STYLES = sorted(PAGE.rglob("*.css"))
FILES = [*SCRIPTS, *STYLES, *sorted(PAGE.rglob("*.html"))]
MOST_LINES = 300
MARKUP = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "DOMParser",
    "createContextualFragment",
    "eval(",
)
NAMESPACES = {"http://www.w3.org/2000/svg"}
IMPORT = re.compile(r"""(?:from\s+|import\s*\(\s*|import\s+)["'](\.[^"']+)["']""")
VIEWS = {"fill", "layers", "inside", "senses", "compare", "why", "swap", "probe"}
VIEWS |= {"search", "label", "learn", "runs", "card"}


def named(path: Path) -> str:
    return str(path.relative_to(PAGE))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_of_the_page_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < MOST_LINES


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_no_text_is_ever_read_as_markup(path: Path) -> None:
    text = path.read_text("utf-8")
    assert [word for word in MARKUP if word in text] == []


@pytest.mark.parametrize("path", [*FILES, PAGE / "icon.svg"], ids=named)
def test_the_page_names_no_address_outside_its_server(path: Path) -> None:
    addresses = set(re.findall(r"""(?:https?:|(?<=["'`(]))//[\w.-]+\.[a-z]{2,}[^\s"'`)]*""", path.read_text("utf-8")))
    assert addresses - NAMESPACES == set()


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_every_module_that_is_imported_exists(path: Path) -> None:
    for target in IMPORT.findall(path.read_text("utf-8")):
        assert (path.parent / target).is_file() or target == "../runtime/ort.js", target  # which the export vendors


def test_every_file_that_the_page_names_exists() -> None:
    html = (PAGE / "index.html").read_text("utf-8")
    targets = re.findall(r'(?:href|src)="([^"#]+)"', html)
    assert len(targets) >= 8
    assert [target for target in targets if not (PAGE / target).is_file()] == []


def test_a_page_under_a_strict_policy_has_no_script_or_style_of_its_own() -> None:
    html = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", html) == []


def test_all_views_are_listed_and_export_what_the_shell_shows() -> None:
    listed = set(re.findall(r'\{ id: "(\w+)"', (PAGE / "views" / "index.js").read_text("utf-8")))
    assert listed == VIEWS
    for view in VIEWS:
        text = (PAGE / "views" / f"{view}.js").read_text("utf-8")
        assert re.search(r"export const view\b", text), view
        assert re.search(rf'\bid: "{view}"', text), view


def test_every_module_parses() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    parse = (
        "const {readFileSync: read} = require('fs'); const {SourceTextModule: Module} = require('vm');"
        "for (const path of process.argv.slice(1)) new Module(read(path, 'utf8'), {identifier: path});"
    )
    paths = [str(script) for script in SCRIPTS]
    command = [node, "--no-warnings", "--experimental-vm-modules", "-e", parse, *paths]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert run.returncode == 0, run.stderr


def themes() -> dict[str, dict[str, str]]:
    """The colours of the light and of the dark theme."""
    text = (PAGE / "css" / "tokens.css").read_text("utf-8")
    blocks = re.findall(r"color-scheme: (light|dark);([^}]*)}", text)
    read = [(name, dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", block))) for name, block in blocks]
    assert [name for name, _ in read] == ["light", "dark"]
    return dict(read)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


TEXT_ON = {
    "--ink": ["--ground", "--side", "--card", "--raised", "--sunken", "--accent-wash", "--line"],
    "--ink-soft": ["--ground", "--side", "--card", "--sunken", "--raised"],
    "--ink-faint": ["--ground", "--side", "--card", "--sunken"],
    "--accent-text": ["--ground", "--side", "--card", "--sunken", "--accent-wash"],
    "--accent-ink": ["--accent", "--accent-text"],
    "--bad": ["--bad-wash", "--card"],
    "--warn": ["--warn-wash", "--card"],
    "--good": ["--good-wash", "--card"],
    "--card": ["--heat-less", *(f"--series-{number}" for number in range(1, 9))],
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(theme: str) -> None:
    colours = themes()[theme]
    weak = {
        (text, ground): round(contrast(colours[text], colours[ground]), 2)
        for text, grounds in TEXT_ON.items()
        for ground in grounds
        if contrast(colours[text], colours[ground]) < 4.5
    }
    assert weak == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_borders_of_controls_and_focus_can_be_seen(theme: str) -> None:
    colours = themes()[theme]
    for line in ("--line-strong", "--accent"):
        assert min(contrast(colours[line], colours[ground]) for ground in ("--ground", "--card", "--side")) >= 3
