"""Which addresses are this machine's alone.

is_here("127.0.0.1"), is_here("0.0.0.0")            # True, False
"""

from __future__ import annotations

import ipaddress


def is_here(host: str) -> bool:
    """Whether only this machine can reach it.

    >>> is_here("::1"), is_here("localhost"), is_here("192.168.0.7")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
