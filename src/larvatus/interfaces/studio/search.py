"""Search in the studio: collections of dropped files, an index of each, built in the background and then served.

    builder = IndexBuilder(Folders(runs=Path("runs")), models)
    name = builder.new("My notes")                                    # 'my-notes'
    builder.add_file(CollectionFile(collection=name, name="a.md", text="…"))
    builder.start(BuildRequest(collection=name))
    builder.state()                                   # {"phase": "building", "vectors": 320, …}

The files and the index are kept in `runs/studio-search/NAME`. A build runs in a thread; its passes go through the
server's batcher, so that requests take turns with it. A stopped or failed build continues from the vectors that it has
written. Indexes of an earlier studio are served again if their model is.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from larvatus.core import files
from larvatus.core.errors import LarvatusError, UsageError
from larvatus.core.regular_files import is_there
from larvatus.core.settings import Settings
from larvatus.inference.model import Model
from larvatus.inference.search.build import BuildRun, BuildSummary, IndexContents, build_passage_index
from larvatus.inference.search.generation import NAME
from larvatus.inference.search.sources import PassageSettings
from larvatus.interfaces.api.searching import DocumentSettings
from larvatus.interfaces.serve.responses import RequestError, error_location, logger, without_paths
from larvatus.interfaces.serve.served_models import ServedModels
from larvatus.interfaces.studio.learn_request import MOST_BYTES, name_parts, slug

DOCUMENT_ENDINGS = (".txt", ".md", ".csv", ".tsv", ".jsonl")
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
        stem, ending = name_parts(
            self.name, DOCUMENT_ENDINGS, refused="cannot be indexed here", instead="larvatus search build"
        )
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


# Builds.

Phase = Literal["building", "stopping", "stopped", "loading", "ready", "failed"]
BUSY: tuple[Phase, ...] = ("building", "stopping", "loading")
FILES, INDEX = "files", "index"
PATIENCE_S = 10.0
"""Seconds that a build has to stop when the studio ends."""


class BuildBusy(RequestError, status=409):
    """Another index is being built."""


class _StopBuild(Exception):
    """Raised between two blocks of a build."""


@dataclass
class IndexBuild:
    """State of a build."""

    request: BuildRequest
    phase: Phase = "building"
    vectors: int = 0
    """Passages that the model has read."""
    expected: int = 0
    """About how many passages there are."""
    error: str = ""
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    summary: BuildSummary | None = None

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1; None before the first passages are read."""
        return min(1.0, self.vectors / self.expected) if self.vectors and self.expected else None

    def to_dict(self) -> dict[str, Any]:
        busy = self.phase in BUSY
        made = self.summary
        return {
            "phase": self.phase,
            "busy": busy,
            "name": self.request.collection,
            "vectors": self.vectors,
            "error": self.error,
            "seconds": round(time.monotonic() - self.begun if busy else self.seconds, 1),
            "model": self.request.model,
            "column": self.request.column,
            "share": self.share,
            "passages": None if made is None else made.passages,
            "documents": None if made is None else made.documents,
        }


class IndexBuilder:
    """Keeps collections of files, and builds and serves their indexes, one at a time."""

    def __init__(self, folder: Path, served: Callable[[], ServedModels]) -> None:
        self._folder, self._served = folder, served
        self._lock = threading.Lock()
        self._build: IndexBuild | None = None
        self._thread: threading.Thread | None = None
        self._restored: dict[str, str] | None = None

    def state(self) -> dict[str, Any]:
        """The build, and collections of an earlier studio whose index cannot be served, with the reason."""
        unavailable = self._restore()
        with self._lock:
            build = {"phase": "idle", "busy": False} if self._build is None else self._build.to_dict()
        return {**build, "unavailable": unavailable}

    def _restore(self) -> dict[str, str]:
        """Serve the indexes that are there, once."""
        with self._lock:
            if self._restored is None:
                self._restored = {}
                for path in sorted(self._folder.glob(f"*/{INDEX}/{NAME}")):
                    name = path.parents[1].name
                    try:
                        self._served().add_index(path.parent, name=name)
                    except LarvatusError as fault:
                        self._restored[name] = without_paths(str(fault))
            return dict(self._restored)

    def new(self, name: str) -> str:
        """An empty collection; its name is that of no other: `notes`, `notes-2`, …"""
        self._restore()
        with self._lock:
            self._refuse_while_busy()
            stem, number = slug(name), 1
            free, served = stem, self._served().indexes
            while free in served or is_there(self._folder / free / INDEX / NAME):
                number += 1
                free = f"{stem}-{number}"
            shutil.rmtree(self._folder / free, ignore_errors=True)  # of a build that never ended
            with files.saying_what_is_full(self._folder):
                (self._folder / free / FILES).mkdir(parents=True)
            return free

    def add_file(self, given: CollectionFile) -> str:
        """Store a file; returns its name."""
        folder = self._files(given.collection)
        size = given.check_size()
        with self._lock:
            self._refuse_while_busy()
            there = [path.stat().st_size for path in folder.iterdir()]
            if len(there) >= MOST_FILES or sum(there) + size > MOST_IN_ALL:
                raise UsageError(
                    f"a collection has at most {MOST_FILES:,} files and {MOST_IN_ALL:,} bytes here; "
                    "larvatus search build takes more"
                )
            path = _free_path(folder / given.checked_name())
            with files.saying_what_is_full(folder):
                path.write_text(given.text, encoding="utf-8", errors="replace", newline="")
            return path.name

    def start(self, request: BuildRequest) -> dict[str, Any]:
        """Build the index of a collection, or continue a build; refused while another one runs."""
        folder = self._files(request.collection)
        model = self._served().choose("embed", request.model).model
        with self._lock:
            self._refuse_while_busy()
            if not any(folder.iterdir()):
                raise UsageError("the collection has no file; drop some first")
            build = self._build = IndexBuild(request)
            self._thread = threading.Thread(target=self._run, args=(build, model), name="larvatus index", daemon=True)
            self._thread.start()
            return build.to_dict()

    def stop(self) -> dict[str, Any]:
        """Stop the build after its block; what it has read is kept."""
        with self._lock:
            if self._build is None or self._build.phase != "building":
                raise UsageError("no index is being built")
            self._build.phase = "stopping"
            return self._build.to_dict()

    def close(self) -> None:
        """Stop a running build when the studio ends."""
        with self._lock:
            if self._build is not None and self._build.phase == "building":
                self._build.phase = "stopping"
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _files(self, collection: str) -> Path:
        folder = self._folder / checked_collection(collection) / FILES
        if not folder.is_dir():
            raise UsageError(f"there is no collection {collection!r}; begin one")
        return folder.resolve()

    def _refuse_while_busy(self) -> None:
        if self._build is not None and self._build.phase in BUSY:
            raise BuildBusy(f"{self._build.request.collection} is being indexed; stop it, or wait for it")

    def _run(self, build: IndexBuild, model: Model) -> None:
        try:
            build.summary = self._index(build, model)
            with self._lock:
                build.phase = "loading"
            self._served().add_index(self._folder / build.request.collection / INDEX, name=build.request.collection)
            self._end(build, "ready")
        except _StopBuild:
            self._end(build, "stopped")
        except LarvatusError as fault:
            self._end(build, "failed", without_paths(str(fault)))
        except Exception as fault:  # also out of memory: the page shows it, and the server keeps running
            logger.error("%s in the build of an index", error_location(fault))
            self._end(build, "failed", f"unexpected error: {type(fault).__name__}; the log has its place")

    def _end(self, build: IndexBuild, phase: Phase, error: str = "") -> None:
        with self._lock:
            build.seconds = time.monotonic() - build.begun
            build.phase, build.error = phase, error

    def _index(self, build: IndexBuild, model: Model) -> BuildSummary:
        def progress(vectors: int) -> None:
            with self._lock:
                build.vectors = vectors
                if build.phase == "stopping":
                    raise _StopBuild

        cut, texts = PassageSettings(), sorted(self._files(build.request.collection).iterdir())
        build.expected = sum(1 + path.stat().st_size // (cut.passage - cut.overlap) for path in texts)
        options = DocumentSettings(text=build.request.column).build_options(cut, IndexContents())
        index = self._folder / build.request.collection / INDEX
        return build_passage_index(model, [*map(str, texts)], index, options, BuildRun(progress=progress))


def _free_path(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free
