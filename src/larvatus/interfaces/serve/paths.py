"""Error messages without paths of this machine: clients are told the name of a file, never where it is.

>>> without_paths("cannot read '/usr/share/models/law.json'; GET /openapi.json lists all")
"cannot read 'law.json'; GET /openapi.json lists all"

Messages of the library name files by their paths, which help the user who started a command. An absolute path begins
with a folder that exists at the root of the file system; addresses such as /v1/embed do not.
"""

from __future__ import annotations

import os
import re

LONGEST = 2_000
"""Characters of a message: it may quote a name that a client made up."""
TOP_FOLDERS = frozenset(os.listdir("/"))
"""Read once: no request looks at the disk."""
_PATH = re.compile(r"""(?<![\w/.])/([^\s/'"`<>|:;,()\[\]]+)/[^\s'"`<>|:;,()\[\]]*""")


def without_paths(message: str) -> str:
    """The message on one line, with the last part of each path, and an end where it is very long."""
    line = _PATH.sub(_last_part, " ".join(message.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _last_part(match: re.Match[str]) -> str:
    return match[0].rstrip("/").rpartition("/")[2] if match[1] in TOP_FOLDERS else match[0]
