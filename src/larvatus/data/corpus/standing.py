"""What a build finds standing in its directory: nothing, an unfinished corpus to go on with, a finished one, or
something else.

Only the first two are built upon. A finished corpus of the same text and settings is left as it is; anything else is
refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.data.corpus.format import JOURNAL, MANIFEST, TOKENIZER, CorpusSettings, Manifest, read_manifest
from larvatus.data.corpus.journal import Journal
from larvatus.data.corpus.shards import check_shards, check_tokenizer, fault_of
from larvatus.data.corpus.sources import Text
from larvatus.data.corpus.units import Unit
from larvatus.data.text.tokenizer import Tokenizer

ELSE = "choose another --out, or remove it"


def refuse_what_is_not_ours(out: Path) -> None:
    """Never write among files that are not a corpus."""
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    if names and not names & {MANIFEST, JOURNAL, TOKENIZER}:
        raise ArtefactError(f"{out} holds other files ({sorted(names)[0]} …); choose another --out")


def keep_tokenizer(tokenizer: Tokenizer, out: Path, *, replace: bool) -> dict[str, str]:
    """Save the tokenizer beside the shards, unless one is kept there; the checksums of the files of the given one."""
    kept, aside = out / TOKENIZER, out / f".{TOKENIZER}.tmp-{os.getpid()}"
    with files.saying_what_is_full(out):
        shutil.rmtree(aside, ignore_errors=True)
        tokenizer.save(aside)
        sums = {path.name: files.sha256(path) for path in sorted(aside.iterdir())}
        if replace:
            shutil.rmtree(kept, ignore_errors=True)
        if kept.exists():
            shutil.rmtree(aside)
        else:
            for path in (*aside.rglob("*"), aside):
                files.fsync(path)
            os.rename(aside, kept)
            files.fsync(out)
    return sums


def finished(out: Path, settings: CorpusSettings, text: Text, units: Callable[[], Iterator[Unit]]) -> Manifest:
    """The manifest of a corpus that holds just what would be built; any other is refused.

    The text is read again for that: an edit need not change the size of a file, nor its time.
    """
    manifest = read_manifest(out)
    refuse_other_settings(out, manifest.settings, settings, "holds a corpus built")
    *_, last = units()
    if last.text_sha256 != manifest.text_sha256:
        raise ArtefactError(f"{out} holds a corpus of other text than {text.names}; {ELSE}")
    check_tokenizer(out, manifest.settings)
    check_shards(out, manifest.shards)
    return manifest


def refuse_other_settings(out: Path, there: CorpusSettings, now: CorpusSettings, verb: str) -> None:
    for name in there.__struct_fields__:
        was, given = getattr(there, name), getattr(now, name)
        if was != given:
            said = "another tokenizer" if name in ("tokenizer", "vocabulary") else f"{name} {was!r}, now {given!r}"
            said = "other filters or canaries" if name == "hygiene" else said
            raise ArtefactError(f"{out} {verb} with other settings ({said}); {ELSE}")


def take_up(out: Path, journal: Journal, settings: CorpusSettings, notice: Callable[[str], None]) -> None:
    """Keep the shards of an interrupted build that still stand; a damaged one and what follows are built again."""
    if journal.header is not None and journal.entries:
        refuse_other_settings(out, journal.header.settings, settings, "holds an unfinished corpus begun")
        check_tokenizer(out, settings)
    for i, entry in enumerate(journal.entries):
        if (fault := fault_of(out, entry.shard)) is not None:
            del journal.entries[i:]
            notice(f"{fault.split(';')[0]}; it and what follows are built again")
            break
    if journal.entries:
        notice(f"{out}: going on after {len(journal.entries)} finished shards")
