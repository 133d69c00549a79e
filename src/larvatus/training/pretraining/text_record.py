"""The text and vocabulary that a run began with: `corpus/text.json` and `vocabulary/vocabulary.json`.

    text = resume_text(out / "corpus", given, text_hashes(["judgments/"], None, out=out), say=print)

Text that was edited between two commands is noticed by its hash, whatever its size and time. As long as there are no
shards, nothing is lost and everything is made again, with a message; after that the run is refused. Text behind an
address cannot be checked without fetching it again: it is trusted once its shards exist.

    record_vocabulary(folder, wanted)        # after all of its files were written
    vocabulary_matches(folder, wanted)       # whether it can be used again: a changed file is refused by name
"""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from larvatus.core.checksummed import check_file, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.core.files import new_file, saying_what_is_full, sha256
from larvatus.core.regular_files import is_there
from larvatus.data.corpus import Corpus, is_corpus
from larvatus.data.corpus.sources import content_hash
from larvatus.data.text.languages import LanguageSource, path_of

EMBEDDED = "embedded"
TEXT_FILE, INPUT = "text.json", "input.txt"
ELSE = "choose another --out"
_CHUNK = 1 << 20

Hashes = dict[str, str | None]
"""By name; None of what cannot be read twice."""


def text_hashes(corpus: Sequence[LanguageSource], valid: str | None, *, out: Path) -> Hashes:
    """SHA-256 of every text that was named, by its name."""
    hashes = {str(path): _hash(path, out) for path in corpus}
    return hashes if valid is None else {**hashes, f"--valid {valid}": _hash(valid, out)}


def _hash(given: LanguageSource, out: Path) -> str | None:
    if given == EMBEDDED:
        return f"Python {platform.python_version()}"  # that ships it
    if given == "-":
        return content_hash(kept_input(out))
    path = Path(path_of(given))
    return Corpus.open(path, verify=False).fingerprint if is_corpus(path) else content_hash(given)


def resume_text(
    folder: Path, given: dict[str, Any], hashes: Hashes, *, say: Callable[[str], None]
) -> dict[str, str | None] | None:
    """Fingerprints of the shards that were built before from the same text; None where they are still to be built."""
    note = folder / TEXT_FILE
    if is_there(note):
        before = read_checksummed(note, way=ELSE)
        changed = list(_changes(before, given, hashes))
        if changed and any((folder / "train").glob("*.arrow")):
            raise ArtefactError(f"{folder} was built from other text or options: {changed[0]}; put it back, or {ELSE}")
        if not changed:
            shards: dict[str, str | None] | None = before["shards"]
            return shards
        say(f"{changed[0]}: nothing was built from it yet, so this starts again")
    _write(folder, given, hashes, None)
    return None


def record_text(folder: Path, given: dict[str, Any], hashes: Hashes, *, valid: Path | None) -> None:
    """All shards are written."""
    _write(folder, given, hashes, {"train": _fingerprint(folder / "train"), "valid": _fingerprint(valid)})


def check_shards(folder: Path, shards: dict[str, str | None]) -> Path | None:
    """Refuse shards that were put in place of those that were built; the folder of the held-out ones, if any."""
    valid = folder / "valid" if is_corpus(folder / "valid") else None
    for name, path in (("train", folder / "train"), ("valid", valid)):
        if path is not None and _fingerprint(path) != shards.get(name):
            raise ArtefactError(f"{path} is not the corpus that was built here; put it back, or {ELSE}")
    return valid


def _write(folder: Path, given: dict[str, Any], hashes: Hashes, shards: dict[str, str | None] | None) -> None:
    with saying_what_is_full(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_checksummed(folder / TEXT_FILE, {"given": given, "texts": hashes, "shards": shards})


def _fingerprint(path: Path | None) -> str | None:
    return None if path is None else Corpus.open(path, verify=False).fingerprint


def _changes(before: dict[str, Any], given: dict[str, Any], hashes: Hashes) -> Iterator[str]:
    for name in sorted({*before["given"], *given}):
        if (was := before["given"].get(name)) != (now := given.get(name)):
            yield f"{name} was {was}, now {now}"
    for name, digest in hashes.items():
        if before["texts"].get(name) != digest:
            yield f"{name} was edited since"


def kept_input(out: Path) -> Path:
    """Standard input, kept in a file of the run, to be read again; what comes later must be the same."""
    path = out / "corpus" / INPUT
    note = path.with_suffix(".json")
    if not is_there(note):
        with saying_what_is_full(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with new_file(path) as aside, aside.open("wb") as file:
            for chunk in _input():
                digest.update(chunk)
                file.write(chunk)
        write_checksummed(note, {"input": digest.hexdigest()})
        return path
    wanted = read_checksummed(note, way=ELSE)["input"]
    check_file(path, wanted, way=ELSE)
    digest, size = hashlib.sha256(), 0
    for chunk in _input() if sys.stdin is not None and not sys.stdin.isatty() else ():
        digest.update(chunk)
        size += len(chunk)
    if size and digest.hexdigest() != wanted:
        raise ArtefactError(f"standard input holds other text than {path}, which was read before; {ELSE}")
    return path


def _input() -> Iterator[bytes]:
    if sys.stdin is None:
        raise UsageError("standard input is closed, and - reads it; name a file")
    while chunk := sys.stdin.buffer.read(_CHUNK):
        yield chunk


VOCABULARY_FILE = "vocabulary.json"


def record_vocabulary(folder: Path, wanted: dict[str, Any]) -> None:
    """Record what it was made of, with the checksum of every file."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != VOCABULARY_FILE)
    files = {path.relative_to(folder).as_posix(): sha256(path) for path in paths}
    write_checksummed(folder / VOCABULARY_FILE, {**wanted, "files": files})


def vocabulary_matches(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether a vocabulary made of the same is there; the note of another one is removed."""
    noted = _read(folder)
    files = noted.pop("files", {})
    if noted != wanted:
        (folder / VOCABULARY_FILE).unlink(missing_ok=True)
        return False
    _check(folder, files)
    return True


def has_intact_files(folder: Path, beginning: str) -> bool:
    """Whether a vocabulary has files whose names begin so; those that are missing or changed are refused by name."""
    files: dict[str, str] = _read(folder).get("files", {})
    files = {name: wanted for name, wanted in files.items() if name.startswith(beginning)}
    _check(folder, files)
    return bool(files)


def _check(folder: Path, files: dict[str, str]) -> None:
    for name, wanted in files.items():
        check_file(folder / name, wanted, way=_way(folder))


def _read(folder: Path) -> dict[str, Any]:
    return read_checksummed(folder / VOCABULARY_FILE, way=_way(folder)) if is_there(folder / VOCABULARY_FILE) else {}


def _way(folder: Path) -> str:
    return f"remove {folder} to train it again"
