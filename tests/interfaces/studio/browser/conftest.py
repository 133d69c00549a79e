"""One chromium and one studio with tiny models for all tests here; a guarded page for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interfaces.browser.needs import started_chromium
from tests.interfaces.studio.browser.guarded import Guarded
from tests.interfaces.studio.browser.models import add_steps, make_models
from tests.interfaces.studio.browser.served import Served


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def served(
    chromium: Any,
    tiny_model: Callable[..., Any],
    save_tiny: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    """The studio's process; made after the browser, for without one there is nothing to serve."""
    folder = tmp_path_factory.mktemp("studio")
    for name, steps in (("first", 30), ("second", 20)):
        add_steps(folder / "runs" / name, 1, steps)
    (folder / "models").mkdir()
    with Served(make_models(folder / "models", tiny_model, save_tiny), runs=folder / "runs") as running:
        yield running


@pytest.fixture
def open_studio(chromium: Any, served: Served) -> Iterator[Callable[..., Guarded]]:
    """A function that opens a guarded page: `open_studio(color_scheme="dark")`; faults show when the test ends."""
    pages: list[Guarded] = []

    def opened(**context: Any) -> Guarded:
        pages.append(Guarded(chromium, served, **context))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()


@pytest.fixture
def studio(open_studio: Callable[..., Guarded]) -> Guarded:
    return open_studio()
