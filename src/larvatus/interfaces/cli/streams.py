"""Standard input, output and error in any state: closed, full, without a reader, or with a small character set.

    take_over()                     the first thing the program does, before anything opens a file
    go_on_without_stdout()          for a command that saves: its output may be lost, its results may not

A command that only prints ends when nobody reads: quietly if the reader has closed the pipe (`larvatus recipes | head
-1` raises `ReaderGone`), with an error if standard output is full or closed. A command that saves reports on standard
error that its output is gone, and continues. Standard error itself may always be lost.

Only the standard library is imported here: this runs before everything else.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import Any

from larvatus.core.errors import ArtefactError

NARROWEST = 60
"""Least columns: narrower tables lose content; a narrower terminal breaks the lines itself."""
ESCAPED = "larvatus-escaped"


class ReaderGone(BrokenPipeError):
    """Nobody reads the output of a command that only prints."""


class Output(io.FileIO):
    """Descriptor 1 or 2. After a failed write, all further output is discarded, that of child processes too."""

    def __init__(self, number: int, *, closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self.needed = number == 1
        self._absent = closed

    def write(self, data: Any) -> int:
        try:
            if self._absent:
                raise OSError(errno.EBADF, "it is closed")
            while (written := super().write(data)) is None:  # another program has made it non-blocking
                select.select([], [self], [])
            return written
        except OSError as fault:
            self._give_up(fault)
        return memoryview(data).nbytes

    def _give_up(self, fault: OSError) -> None:
        self._absent = False
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        needed, self.needed = self.needed, False
        if needed and fault.errno == errno.EPIPE:
            raise ReaderGone(errno.EPIPE, "nobody reads standard output")
        if needed:
            raise ArtefactError(
                f"standard output cannot be written ({fault.strerror}), and printing is all this command does"
            )
        if self.fileno() == 1:  # a loss of standard error is not reported: a program may read standard output
            line = f"larvatus: standard output is gone ({fault.strerror}); the command continues without it\n"
            error = _output(sys.stderr)
            if error is not None:  # straight to the descriptor: a progress bar may be half drawn
                error.write(line.encode())


def take_over() -> None:
    """Replace the three streams, whatever state they are in."""
    closed = [number for number in range(3) if _was_closed(number)]
    if 0 in closed or sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  it lives as long as the program
    codecs.register_error(ESCAPED, _escape)
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)  # None where the descriptor was closed
        at_once = number == 2 if before is None else before.line_buffering or before.write_through
        stream = io.TextIOWrapper(
            io.BufferedWriter(Output(number, closed=number in closed)),
            encoding="utf-8" if before is None else before.encoding,
            errors=ESCAPED,
            line_buffering=at_once,
        )
        setattr(sys, name, stream)
    _widen()


def go_on_without_stdout() -> None:
    """From here on, standard output may be lost."""
    output = _output(sys.stdout)
    if output is not None:
        output.needed = False


def _output(stream: Any) -> Output | None:
    """The `Output` of a stream that `take_over` made; None for other streams, such as those of tests."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    return raw if isinstance(raw, Output) else None


def _was_closed(number: int) -> bool:
    """Whether a descriptor was closed. It is opened again: the next opened file would get its number, and the output of
    the program would be written into a checkpoint."""
    try:
        os.fstat(number)
        return False
    except OSError:
        handle = os.open(os.devnull, os.O_RDWR)
        if handle == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(handle, number)
            os.close(handle)
        return True


def _escape(fault: UnicodeError) -> tuple[str, int]:
    r"""``\u2014`` for characters that the terminal lacks, and for bytes of a file name that are not text: valid in JSON
    too, where characters beyond 16 bits are two of them."""
    assert isinstance(fault, UnicodeEncodeError)
    units = fault.object[fault.start : fault.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{unit.hex()}" for unit in (units[at : at + 2] for at in range(0, len(units), 2))), fault.end


def _widen() -> None:
    """Remove widths that are not numbers or that no terminal has; a narrow terminal breaks the lines itself."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        value = os.environ.get(name, "1")
        if not (value.isascii() and value.isdigit() and len(value) <= 4 and int(value)):
            del os.environ[name]
    width = int(os.environ.get("COLUMNS", "0"))
    for number in range(3):
        with suppress(OSError):
            width = width or os.get_terminal_size(number).columns
    if 0 < width < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
