"""Settings of a server: the same struct for Python and for `larvatus serve`.

ServeSettings(port=8400, max_items=64)
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated

from larvatus.core.errors import UsageError, printable
from larvatus.core.ranges import Range, whole
from larvatus.core.settings import Flag, PathName, Settings

_NAME = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")
LIMITS = "Limits of a request"
LOAD = "Load"
Port = Annotated[int, whole(0, 65_535)]
Bytes = Annotated[int, whole(1, 2**40)]
Most = Annotated[int, whole(1, 10**9)]
Threads = Annotated[int, whole(1, 1_024)]
Seconds = Annotated[float, Range(0, 86_400, above=True)]


class ListenSettings(Settings):
    """Address of a server, the senses that it names and the indexes that it searches."""

    host: str = "127.0.0.1"
    """Address to listen on; by default only this machine can reach it."""
    port: Port = 8_311
    """Port; 0 for any free one."""
    host_allowed: Annotated[tuple[str, ...], Flag("--host-allowed", metavar="NAME")] = ()
    """Another name or address that requests may give as their Host, such as that of a container; repeatable."""
    senses: Annotated[PathName | None, Flag("--senses", metavar="DIR")] = None
    """Sense vectors of larvatus senses build, to name WordNet's senses."""
    wordnet: Annotated[PathName | None, Flag("--wordnet", metavar="DIR")] = None
    """Folder of WordNet's files, for --senses; by default Debian's."""

    index: Annotated[tuple[PathName, ...], Flag("--index", metavar="DIR")] = ()
    """Index of larvatus search build, for /v1/search; repeatable. Its model is served too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names(self.host_allowed)


class ServeSettings(ListenSettings):
    """How a server listens, what it refuses, and how much it does at once."""

    key_file: Annotated[PathName | None, Flag("--key-file", metavar="FILE")] = None
    """File of keys, one per line; requests need one of them (Authorization: Bearer KEY)."""
    max_body: Annotated[Bytes, Flag("--max-body", panel=LIMITS)] = 4 * 2**20
    """Bytes of a request's body."""
    max_items: Annotated[Most, Flag("--max-items", panel=LIMITS)] = 256
    """Texts of a request."""
    max_tokens: Annotated[Most, Flag("--max-tokens", panel=LIMITS)] = 32_768
    """Tokens computed for a request; scoring reads a text once for each of its tokens."""
    max_numbers: Annotated[Most, Flag("--max-numbers", panel=LIMITS)] = 2**21
    """Numbers in a response: vectors of all units and layers, attention weights."""
    max_top: Annotated[Most, Flag("--max-top", panel=LIMITS)] = 100
    """Candidates of a request."""
    queue: Annotated[Most, Flag("--queue", panel=LOAD)] = 256
    """Requests that run or wait; more get 429 and Retry-After."""
    connections: Annotated[Most, Flag("--connections", panel=LOAD)] = 512
    """Open connections; beyond it, the one that has been idle longest is closed."""
    threads: Annotated[Threads, Flag("--threads", panel=LOAD)] = 16
    """Requests, or groups of equal ones, that run at once."""
    batch_tokens: Annotated[Most, Flag("--batch-tokens", panel=LOAD)] = 2_048
    """Tokens of a forward pass; results do not depend on it."""
    timeout: Annotated[Seconds, Flag("--timeout", panel=LOAD)] = 60.0
    """Seconds after which a request is cancelled."""
    json_lines: Annotated[bool, Flag("--json")] = False
    """Read requests as JSON lines from standard input and write responses to standard output, without a socket."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_binding(self.host, self.key_file)


def check_binding(host: str, key_file: str | None) -> None:
    """Refuse an address that other machines can reach, unless there are keys."""
    if key_file is None and not is_loopback(host):
        raise UsageError(
            f"--host {host} can be reached from other machines; give --key-file FILE (one key per line), "
            "or leave --host at 127.0.0.1"
        )


def check_names(names: Iterable[str]) -> None:
    """Refuse names that cannot be a request's Host. A port is not part of it."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--host-allowed {printable(name)!r} is not a host name or address; give one without a port"
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
