"""Crash reports: an unexpected error prints one line, writes a report file and exits with 70.

    with reporting_crashes():               # in `__main__`, around everything
        …
    larvatus --debug fill "…"               # shows the traceback instead (so does LARVATUS_DEBUG=1)

Memory, disk, descriptors or threads can run out anywhere in the program: `machine_error` turns such exceptions into the
same one-line errors as those that users cause. All others are bugs of Larvatus and get a report. It has versions, the
command and the traceback, but no text of the user. This module imports nothing large, because it must work when an
import fails or is interrupted.
"""

from __future__ import annotations

import builtins
import errno
import os
import platform
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from larvatus.core.errors import ArtefactError, LarvatusError, is_out_of_memory, printable
from larvatus.core.run_identity import VERSION
from larvatus.interfaces.cli.streams import go_on_without_stdout

UNEXPECTED = 70
"""Exit code of a bug."""
STOPPED = 130
"""Exit code after Ctrl-C."""
REFUSED = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR)
"""Error numbers of a path that cannot be opened or created: the user can give another path."""
LOWER = "lower --microbatch, --batch-tokens or --workers, or use shorter texts, a smaller model or a larger machine"
_NUMBER = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
"""Error number in a message of a library in Rust or C++."""


def complain(message: str, code: int) -> int:
    """Print the message as one line on standard error, with --debug after the traceback; returns the exit code."""
    if debugging():
        traceback.print_exc()
    sys.stderr.write(f"larvatus: {printable(message)}\n")
    sys.stderr.flush()
    return code


def debugging() -> bool:
    """Whether tracebacks are shown: `larvatus --debug COMMAND …`, or the environment variable."""
    before = [word for at, word in enumerate(sys.argv[1:]) if all(w.startswith("-") for w in sys.argv[1 : at + 2])]
    return "--debug" in before or os.environ.get("LARVATUS_DEBUG", "") not in ("", "0")


@contextmanager
def reporting_crashes() -> Iterator[None]:
    """Turn unexpected errors into one line and exit code 70. It always exits."""
    try:
        yield
        code: int | str | None = 0
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        code = complain("stopped", STOPPED)
    except BaseException as fault:  # a panic in Rust is not an Exception
        code = _end(fault)
    _flush_streams()
    sys.exit(code)


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """End the program at Ctrl-C while modules are imported, where KeyboardInterrupt may surface as another error."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # Ctrl-C is ignored, as in a background job
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(*_: object) -> NoReturn:
    with suppress(OSError):
        os.write(2, b"larvatus: stopped\n")
    os._exit(STOPPED)


def _flush_streams() -> None:
    """Flush output without raising: what cannot be written is lost, and a second Ctrl-C ends the program at once."""
    go_on_without_stdout()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _end(fault: BaseException) -> int:
    try:
        error = machine_error(fault)
        if error is not None:
            return complain(str(error), error.exit_code)
        what = f"{type(fault).__name__}: {fault}".removesuffix(": ")
        what = what if len(what) <= 300 else f"{what[:300]}…"
        if debugging():
            return complain(f"this should not have happened ({what})", UNEXPECTED)
        path = write_report(fault)
        where = "no report could be written" if path is None else f"please send us the report {path}"
        return complain(
            f"this should not have happened ({what}); {where}; larvatus --debug shows the traceback", UNEXPECTED
        )
    except BaseException:  # without memory or descriptors, this can still be written
        os.write(2, b"larvatus: this should not have happened, and no report could be written\n")
        return UNEXPECTED


def machine_error(fault: BaseException) -> LarvatusError | None:
    """The one-line error if memory, disk, descriptors or threads ran out; None for other exceptions."""
    message = str(fault).strip()
    first = f" ({message.splitlines()[0][:200]})" if message else ""
    number = _errno(fault, message)
    if is_out_of_memory(fault) or number == errno.ENOMEM:
        return LarvatusError(f"memory ran out{first}; {LOWER}")
    if "can't start new thread" in message or (isinstance(fault, OSError) and number == errno.EAGAIN):
        return LarvatusError(f"no more threads or processes may be started{first}; lower --workers, or raise ulimit -u")
    name = getattr(fault, "filename", None)
    path = "a file" if name is None else os.fsdecode(name) if isinstance(name, str | bytes) else str(name)
    path = path if len(path) <= 300 else f"{path[:300]}…"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return ArtefactError(f"no space left to write {path}; free some, or choose another --out")
    if number == errno.EFBIG:
        return ArtefactError(f"{path} grew larger than a file may be here; raise ulimit -f, or choose another disk")
    if number in (errno.EMFILE, errno.ENFILE):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return ArtefactError(
            f"{path} cannot be opened: {most:,} files may be open at once; raise ulimit -n, or lower --workers"
        )
    if number in (errno.EROFS, errno.EIO, errno.EPIPE) or (number in REFUSED and name is not None):
        return ArtefactError(f"{path} cannot be read or written ({os.strerror(number)}); choose another place for it")
    return None


def _errno(fault: BaseException, message: str) -> int | None:
    """Number of a system error; libraries in Rust and C++ put it in their message."""
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault.errno
    number = _NUMBER.search(message)
    return int(number[1] or number[2]) if number else None


def write_report(fault: BaseException) -> Path | None:
    """Write the report to the current folder, or else to the folder for temporary files; None if neither works."""
    name = time.strftime(f"larvatus-report-%Y%m%d-%H%M%S-{os.getpid()}.txt")
    for folder in (os.getcwd, tempfile.gettempdir):
        with suppress(OSError):
            path = Path(folder()) / name
            with path.open("x", encoding="utf-8", errors="backslashreplace") as file:  # never an existing file
                file.write(report(fault))
            return path
    return None


def report(fault: BaseException) -> str:
    """Content of the report: what a developer needs, without the user's texts."""
    lines = [
        f"larvatus {VERSION}, torch {_version('torch')}, Python {platform.python_version()}, {platform.platform()}",
        f"command: larvatus {' '.join(_without_texts(sys.argv[1:]))}",
        "Words in quotes and arguments that may be your text are removed.",
    ]
    chain: list[BaseException] = []
    cause: BaseException | None = fault
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    for each in reversed(chain):
        frames, kind = "".join(traceback.format_tb(each.__traceback__)), type(each)
        lines += ["", frames + f"{kind.__module__}.{kind.__qualname__}: {_without_quoted(str(each), frames)}"]
    return "\n".join(lines) + "\n"


def _version(package: str) -> str:
    from importlib import metadata  # takes a tenth of a second, only for reports

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _without_texts(arguments: list[str]) -> Iterator[str]:
    """Commands, options, numbers, settings and existing files; all other words are replaced by their length."""
    for at, word in enumerate(arguments):
        plain = re.fullmatch(r"-{1,2}[a-z][a-z-]*|[-+.e\d]+|[a-z_.\d]+=[-+.e\d]+", word)
        command = at < 3 and re.fullmatch(r"[a-z]+", word) and not any(w.startswith("-") for w in arguments[1:at])
        yield word if plain or (command and at < 2) or os.path.lexists(word) else f"<{len(word)} characters>"


def _without_quoted(message: str, frames: str) -> str:
    """The message of an exception without quoted words, except names that occur in the program."""
    ours = {*re.findall(r"\w+", frames), *dir(builtins), "NoneType"}
    return re.sub(r"""(['"])(.*?)\1""", lambda m: m[0] if m[2] in ours else f"{m[1]}…{m[1]}", message, flags=re.DOTALL)
