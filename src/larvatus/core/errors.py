"""The exception tree. Everything a user can cause is a `LarvatusError`: one line that names the thing and the way out.

    LarvatusError        exit 1
    ├── UsageError       exit 2    a command or a call that makes no sense
    ├── RecipeError      exit 3    a recipe that is misspelt or cannot work
    ├── DataError        exit 4    text, records or shards that cannot be used
    ├── ArtefactError    exit 5    a model, checkpoint or output directory that cannot be used
    ├── NumericsError    exit 6    a loss or gradient that is not finite
    └── Preempted        exit 75   stopped by a signal; saved; `--resume` continues from there
        └── RankLost     exit 75   another process of the run died or hangs; `--resume` continues from a checkpoint

The command line prints the message as ``larvatus: …`` and exits with the code; a traceback on bad input is a bug.
Any other exception is a bug: one line, a report file and exit 70 (`interfaces/cli/crash_report.py`).
"""

from __future__ import annotations

import difflib
import errno
import warnings
from collections.abc import Iterable


class LarvatusError(Exception):
    """Base of all errors a user can cause."""

    exit_code = 1
    reported = False
    """Whether another process of the same run has printed it: one line is enough."""
    on_all_ranks = False
    """Whether all processes of the run have it, not only this one."""


class UsageError(LarvatusError):
    exit_code = 2


class RecipeError(LarvatusError):
    exit_code = 3


class DataError(LarvatusError):
    exit_code = 4


class ArtefactError(LarvatusError):
    exit_code = 5


class NumericsError(LarvatusError):
    exit_code = 6


class Preempted(LarvatusError):
    exit_code = 75


class RankLost(Preempted):
    """Another process died or hangs. Nothing was saved for it: resume from the last checkpoint."""


class OtherLanguageWarning(UserWarning):
    """A text looks foreign to the model (`data/text/other_language.py`). Commands report it in one line."""


class OlderNameWarning(FutureWarning):
    """A setting was given by the name it had in an earlier version. Commands report it in one line."""


def warn_of_older_name(old: str, new: str) -> None:
    """Warn of a renamed setting, which works for one more version."""
    flags = [f"--{name.replace('_', '-')}" for name in (old, new)]
    warnings.warn(f"{flags[0]} is now {flags[1]}; the older name goes with the next version", OlderNameWarning, 3)


NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "not enough memory",
    "bad_alloc",
    "failed to map segment",
    "alloc_failed",
)
"""How torch, CUDA, the linker and others put it, in small letters."""


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether an error of a library means that memory ran out.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")), is_out_of_memory(ValueError())
    (True, False)
    """
    if isinstance(fault, MemoryError) or (isinstance(fault, OSError) and fault.errno == errno.ENOMEM):
        return True
    message = str(fault).lower()
    return any(words in message for words in NO_MEMORY)


def did_you_mean(wrong: str, known: Iterable[str], *, most: int | None = None) -> str:
    """``; did you mean X?`` for the nearest known name, or the list of what there is, `most` of it.

    >>> did_you_mean("lenght", ["length", "rate"])
    '; did you mean length?'
    """
    known = sorted(known)
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    more = ", …" if len(known) > len(known[:most]) else ""
    return f"; there are: {', '.join(known[:most])}{more}" if known else ""


def first_line(fault: BaseException) -> str:
    """The first line of an error's message, or its type if it has none.

    >>> first_line(OSError("no route\\nto the host")), first_line(TimeoutError())
    ('no route', 'TimeoutError')
    """
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]


def printable(text: str) -> str:
    r"""Text on one line with nothing that a terminal would obey: ``a\nb`` for a newline, ``\x1b`` for an escape.

    >>> printable("two\nlines")
    'two\\nlines'
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
