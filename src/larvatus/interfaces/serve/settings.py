"""What may be set of a server: the same struct for Python and for `larvatus serve`.

ServeSettings(port=8400, max_items=64)
"""

from __future__ import annotations

from typing import Annotated

from larvatus.core.flags import Flag, PathName
from larvatus.core.ranges import Range, whole
from larvatus.core.settings import Settings
from larvatus.interfaces.serve.binding import check_binding, check_names

LIMITS = "Limits of a request"
LOAD = "Load"
Port = Annotated[int, whole(0, 65_535)]
Bytes = Annotated[int, whole(1, 2**40)]
Most = Annotated[int, whole(1, 10**9)]
Threads = Annotated[int, whole(1, 1_024)]
Seconds = Annotated[float, Range(0, 86_400, above=True)]


class ServeSettings(Settings):
    """How a server listens, what it refuses, and how much it does at once."""

    host: str = "127.0.0.1"
    """Address to listen on; by default this machine alone."""
    port: Port = 8_311
    """Port; 0: any that is free."""
    host_allowed: Annotated[tuple[str, ...], Flag("--host-allowed", metavar="NAME")] = ()
    """Another name or address that requests may give as their Host, such as that of a container; repeatable."""
    key_file: Annotated[PathName | None, Flag("--key-file", metavar="FILE")] = None
    """File of keys, one a line: requests without one are refused (Authorization: Bearer KEY)."""
    senses: Annotated[PathName | None, Flag("--senses", metavar="DIR")] = None
    """Sense vectors of larvatus senses build, for /v1/senses to name WordNet's senses."""
    wordnet: Annotated[PathName | None, Flag("--wordnet", metavar="DIR")] = None
    """The folder of WordNet's files, for --senses; by default Debian's."""
    max_body: Annotated[Bytes, Flag("--max-body", panel=LIMITS)] = 4 * 2**20
    """Bytes of a request's body."""
    max_items: Annotated[Most, Flag("--max-items", panel=LIMITS)] = 256
    """Texts of a request."""
    max_tokens: Annotated[Most, Flag("--max-tokens", panel=LIMITS)] = 32_768
    """Tokens that are computed for a request; a text to be scored is read once for each of its tokens."""
    max_numbers: Annotated[Most, Flag("--max-numbers", panel=LIMITS)] = 2**21
    """Numbers of an answer: vectors of all units and layers, attention weights."""
    max_top: Annotated[Most, Flag("--max-top", panel=LIMITS)] = 100
    """Candidates that may be asked for."""
    queue: Annotated[Most, Flag("--queue", panel=LOAD)] = 256
    """Requests under way or waiting; beyond it, 429 and Retry-After."""
    connections: Annotated[Most, Flag("--connections", panel=LOAD)] = 512
    """Connections that are open; beyond it, the one that has been idle longest is closed."""
    threads: Annotated[Threads, Flag("--threads", panel=LOAD)] = 16
    """Requests, or groups of equal ones, that are prepared at once."""
    batch_tokens: Annotated[Most, Flag("--batch-tokens", panel=LOAD)] = 2_048
    """Tokens of a pass of the encoder; no answer depends on it."""
    timeout: Annotated[Seconds, Flag("--timeout", panel=LOAD)] = 60.0
    """Seconds after which a request is given up."""
    json_lines: Annotated[bool, Flag("--json")] = False
    """Requests as JSON lines on standard input, answers on standard output; no socket."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_binding(self.host, self.key_file)
        check_names(self.host_allowed)
