"""Remote storage, through fsspec: what its drivers raise, which may be anything, becomes one line with the address.

with asking("s3://bucket/texts"):
    system.find(…)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from larvatus.core.errors import DataError, LarvatusError


@contextmanager
def asking(address: str) -> Iterator[None]:
    """Say in one line what came of asking storage for something."""
    try:
        yield
    except LarvatusError:
        raise
    except PermissionError as fault:
        raise DataError(f"{address} may not be read ({_line(fault)}); ask for permission, or sign in") from fault
    except Exception as fault:
        raise DataError(f"{address} cannot be opened: {_line(fault)}") from fault


def _line(fault: Exception) -> str:
    words = str(getattr(fault, "strerror", None) or fault).strip() or type(fault).__name__
    return words.partition("\n")[0][:300]
