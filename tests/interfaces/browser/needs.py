"""What the tests of pages need of the machine: a chromium, playwright that drives it, and axe-core.

Where one is missing the tests are skipped, and say why; `make browser` installs all three and sets
`LARVATUS_BROWSER=required`, with which a missing one fails.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest

REQUIRED = os.environ.get("LARVATUS_BROWSER") == "required"
ROOT = Path(__file__).parents[3]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def missing(reason: str) -> NoReturn:
    """Skip for this reason; fail where the browser is required."""
    if REQUIRED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


@contextmanager
def started_chromium() -> Iterator[Any]:
    """The system's chromium, driven by playwright, which downloads none."""
    if find_spec("playwright") is None:
        missing('no playwright: pip install "larvatus[browser]", or make browser')
    if BROWSER is None:
        missing("no chromium on this machine: install one to test the pages, or make browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def axe_script() -> Path:
    """axe-core's file: in the folder that `AXE_CORE` names, or where `make browser` has npm put it."""
    named = os.environ.get("AXE_CORE")
    folder = Path(named) if named else ROOT / ".venv" / "npm" / "node_modules" / "axe-core"
    path = folder / "axe.min.js"
    if not path.is_file():
        missing(f"no axe-core in {folder}: name its folder by AXE_CORE, or make browser")
    return path


def runtime_folder() -> Path:
    """The npm package with ONNX Runtime for the web: named by `ONNXRUNTIME_WEB`, or where `make browser` has it."""
    named = os.environ.get("ONNXRUNTIME_WEB")
    folder = Path(named) if named else ROOT / ".venv" / "npm" / "node_modules" / "onnxruntime-web"
    if not (folder / "package.json").is_file():
        missing(f"no onnxruntime-web in {folder}: name its folder by ONNXRUNTIME_WEB, or make browser")
    return folder
