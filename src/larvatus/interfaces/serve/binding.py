"""Who can reach an address: other machines only where there are keys."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from larvatus.core.errors import UsageError, printable

_NAME = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")


def check_binding(host: str, key_file: str | None) -> None:
    """Refuse to be open to other machines without keys."""
    if key_file is None and not is_loopback(host):
        raise UsageError(
            f"--host {host} can be reached from other machines; give --key-file FILE (a key a line), "
            "or leave --host at 127.0.0.1"
        )


def check_names(names: Iterable[str]) -> None:
    """Refuse what can be no name in a request's Host: the port is not part of it."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--host-allowed {printable(name)!r} is no name or address; give one without a port, such as larvatus"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
