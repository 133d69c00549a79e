"""Requests of the Search view: files of a collection, a build, and passages whose words are matched with a question.

msgspec.json.decode(body, type=CollectionFile).checked_name()           # 'My notes.md'
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from larvatus.core.errors import UsageError
from larvatus.core.settings import Settings
from larvatus.interfaces.studio.learn_request import MOST_BYTES, name_parts, slug

ENDINGS = (".txt", ".md", ".csv", ".tsv", ".jsonl")
MOST_FILES = 1_000
MOST_IN_ALL = 50_000_000
"""Most bytes of a collection; `larvatus search build` indexes more."""
LONGEST_NAME = 120
_ODD = re.compile(r"[^\w .()-]+")


class NewCollection(Settings):
    """A name for files that are indexed together."""

    name: str = "documents"


class CollectionFile(Settings):
    """A file of text for a collection."""

    collection: str
    name: str
    """Name of the file. Its suffix is its format; a path before it is dropped."""
    text: str

    def checked_name(self) -> str:
        """The name under which the file is stored, and by which results name it.

        >>> CollectionFile(collection="a", name="../My notes: 1.MD", text="x").checked_name()
        'My notes_ 1.md'
        """
        stem, ending = name_parts(self.name, ENDINGS, refused="cannot be indexed here", instead="larvatus search build")
        stem = _ODD.sub("_", stem).strip(" .")[:LONGEST_NAME]
        return f"{stem or 'file'}{ending}"

    def check_size(self) -> int:
        """Bytes of the file; an empty or large one is refused."""
        size = len(self.text.encode("utf-8", errors="surrogatepass"))
        if size > MOST_BYTES:
            raise UsageError(
                f"{self.checked_name()} has {size:,} bytes, and {MOST_BYTES:,} are the most here; "
                "larvatus search build takes larger ones"
            )
        if not self.text.strip():
            raise UsageError(f"{self.checked_name()} is empty; leave it out")
        return size


class BuildRequest(Settings):
    """Index the files of a collection."""

    collection: str
    model: str | None = None
    """Name of a served model; None for the first."""
    column: str | None = None
    """Text column of tables; None to guess it."""


class MarksRequest(Settings):
    """Passages that a search returned."""

    index: str
    query: Annotated[str, Meta(max_length=10_000)]
    passages: Annotated[tuple[Annotated[str, Meta(max_length=20_000)], ...], Meta(max_length=50)]


def checked_collection(name: str) -> str:
    """A name that `slug` gave; another one could name a folder elsewhere."""
    if slug(name) != name:
        raise UsageError(f"there is no collection {name!r:.80}")
    return name
