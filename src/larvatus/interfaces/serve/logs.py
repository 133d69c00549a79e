"""Logging of the server. Nothing that users send reaches a log: errors are logged by type and location.

    with quiet_logs():
        serve()

Python prints the message of a warning or of an uncaught exception, and the message may quote a text: a warning that a
text looks like another language does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from larvatus.core.errors import OtherLanguageWarning

logger = logging.getLogger("larvatus.serve")


def error_location(fault: BaseException) -> str:
    """Type of an error and its place in our code: enough to find it, with nothing of the request.

    >>> try: {}["a secret"]
    ... except KeyError as fault: print(error_location(fault).split(" at ")[0])
    KeyError
    """
    frames = traceback.extract_tb(fault.__traceback__)
    package = str(Path(__file__).parents[2])
    last = next(
        (frame for frame in reversed(frames) if frame.filename.startswith(package)), frames[-1] if frames else None
    )
    where = "" if last is None else f" at {Path(last.filename).parent.name}/{Path(last.filename).name}:{last.lineno}"
    return f"{type(fault).__name__}{where}"


@contextmanager
def quiet_logs() -> Iterator[None]:
    """While a server runs; the previous hooks are restored afterwards."""
    hook = threading.excepthook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherLanguageWarning)
        warnings.showwarning = _log_warning
        threading.excepthook = _log_thread_error
        for name in ("uvicorn.error", "uvicorn.access", "asyncio"):  # bad requests would fill the log
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            threading.excepthook = hook


def log_task_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For `loop.set_exception_handler`."""
    fault = context.get("exception")
    logger.error("%s in a task", "a fault" if fault is None else error_location(fault))


def _log_thread_error(given: threading.ExceptHookArgs) -> None:
    logger.error("%s in a thread", "a fault" if given.exc_value is None else error_location(given.exc_value))


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    logger.warning("%s at %s:%d", category.__name__, Path(filename).name, lineno)
