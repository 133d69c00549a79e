"""Nothing that users send reaches a log: warnings, faults of threads and of tasks are told by their kind and place.

    with quiet_logs():
        serve()

Python prints the message of a warning or of a fault that nobody caught, and that message may quote a text: a warning
that a text looks like another language does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from larvatus.core.errors import OtherLanguageWarning
from larvatus.interfaces.serve.observed import logger, place_of


@contextmanager
def quiet_logs() -> Iterator[None]:
    """For as long as a server runs; what was there before comes back."""
    hook = threading.excepthook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherLanguageWarning)
        warnings.showwarning = _warned
        threading.excepthook = _thread_failed
        for name in ("uvicorn.error", "uvicorn.access", "asyncio"):  # bad requests would fill the log
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            threading.excepthook = hook


def task_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `loop.set_exception_handler`."""
    fault = context.get("exception")
    logger.error("%s in a task", "a fault" if fault is None else place_of(fault))


def _thread_failed(given: threading.ExceptHookArgs) -> None:
    logger.error("%s in a thread", "a fault" if given.exc_value is None else place_of(given.exc_value))


def _warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    logger.warning("%s at %s:%d", category.__name__, Path(filename).name, lineno)
