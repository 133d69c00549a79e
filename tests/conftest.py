"""Loads the fixtures and hooks that all tests share, in each process that runs tests.

The process that only hands tests to the workers of pytest-xdist imports nothing: they would start seconds later.
"""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two tests run side by side on two cores, and so do their processes


SHARED = ("tests.shared", "tests.tiny", "tests.made_up")
pytest.register_assert_rewrite(*SHARED)  # before the conftest.py of a folder imports them


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        for name in SHARED:
            config.pluginmanager.import_plugin(name)
