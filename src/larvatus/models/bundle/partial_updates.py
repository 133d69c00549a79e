"""Change the card or the adapter of a model directory, and nothing else in it.

    state = card_state(Path("runs/law"))                           # the manifest and the current README.md
    write_card(Path("runs/law"), claims)
    store_adapter(Path("runs/mine"), adapter, dtype="int8")        # runs/mine/sentence, listed in larvatus.json

What is written and the manifest change together, or neither does (`atomic_save.py`). All other files must be those that
were saved. README.md may have been edited by hand: text outside the figures is kept, and gets a new checksum. A new
adapter leaves the claims as they are: the manifest's digest, to which they refer, does not cover it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.core.regular_files import is_there, open_regular, read_text
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.atomic_save import finish_interrupted_save, replace_files
from larvatus.models.bundle.card import figures_section, render_figures, with_figures
from larvatus.models.bundle.claims import Claim, claim_dicts, read_claims, refuse_repeats
from larvatus.models.bundle.directory import CARD, CONFIG, Bundle
from larvatus.models.bundle.manifest import FileEntry, Manifest, plain, read_manifest
from larvatus.models.bundle.sentence_adapter import AdapterPrecision, SentenceAdapter, stored_tensors, write_adapter
from larvatus.models.bundle.weights import stored_bytes

LONGEST_CARD = 1_000_000
"""Bytes of a card that are read."""


@dataclass(frozen=True)
class CardState:
    """The manifest, claims and card of a directory."""

    manifest: Manifest
    claims: tuple[Claim, ...]
    text: str
    """Text of README.md; empty if there is none."""
    edited: bool
    """Whether README.md was changed since its checksum was written."""

    @property
    def rendered(self) -> bool:
        """Whether README.md agrees with the claims."""
        return figures_section(self.text) == render_figures(self.claims)


def read_card(bundle: Bundle) -> str:
    """The text of a model's card, up to a size limit; empty if there is none."""
    path = files.standing(bundle.path) / CARD
    if not is_there(path):
        return ""
    with open_regular(path) as file:
        return file.read(LONGEST_CARD).decode("utf-8", errors="replace")


def card_state(directory: Path) -> CardState:
    """Read the state; refuse a directory that is not a Larvatus model."""
    root = files.standing(directory)
    if not root.is_dir():
        raise ArtefactError(f"{directory} is not a directory; give a model's")
    manifest = read_manifest(root)
    if manifest is None:
        what = "a model that Larvatus did not write" if is_there(root / CONFIG) else "no model"
        way = "; write it as ours first: larvatus convert DIR OUT" if is_there(root / CONFIG) else ""
        raise ArtefactError(f"{directory} holds {what} (no {manifests.NAME}){way}")
    if CONFIG not in manifest.files:
        raise ArtefactError(
            f"{directory} holds something else that Larvatus wrote, not a model; give a model's directory"
        )
    claims = read_claims(manifest.claims, root / manifests.NAME)
    refuse_repeats(claims, root / manifests.NAME)
    text = read_text(root / CARD, most=LONGEST_CARD) if is_there(root / CARD) else ""
    entry = manifest.files.get(CARD)
    edited = entry is None or not text or files.sha256(root / CARD) != entry.sha256
    return CardState(manifest, claims, text, edited)


def write_card(directory: Path, claims: Sequence[Claim], *, word_layers: str | None = None) -> bool:
    """Render README.md from these claims and save both; returns whether anything changed. `word_layers` replaces the
    layers that the model's word vectors are of."""
    with files.locked(directory, nested=True):
        finish_interrupted_save(directory)
        files.sweep(directory)
        state = card_state(directory)
        others = {name: entry for name, entry in state.manifest.files.items() if name != CARD}
        manifests.verify(directory, msgspec.structs.replace(state.manifest, files=others))
        stamped = [
            claim if claim.model else msgspec.structs.replace(claim, model=state.manifest.digest) for claim in claims
        ]
        layers = word_layers or state.manifest.word_layers
        same = tuple(stamped) == state.claims and layers == state.manifest.word_layers
        if same and state.rendered and not state.edited:
            return False
        text = with_figures(state.text or f"# {directory.absolute().name}\n", stamped)
        with replace_files(directory, len(text)) as aside:
            carry_over(directory, aside, state.manifest, without=(CARD,))
            files.write_text(aside / CARD, text)
            entry = FileEntry(sha256=files.sha256(aside / CARD), bytes=(aside / CARD).stat().st_size)
            manifest = msgspec.structs.replace(
                state.manifest, files={**others, CARD: entry}, claims=claim_dicts(stamped), word_layers=layers
            )
            files.write_json(aside / manifests.NAME, plain(manifest))
    return True


def carry_over(directory: Path, aside: Path, manifest: Manifest, *, without: Sequence[str]) -> None:
    """Link all other files and folders, or copy them if the file system has no hard links."""
    names = [name for name in manifest.files if name not in without]
    for part in (part for part in manifest.parts if part not in without):
        (aside / part).mkdir()
        inner = read_manifest(directory / part)
        assert inner is not None, "verified just now"
        names += [f"{part}/{name}" for name in (*inner.files, manifests.NAME)]
    for name in names:
        try:
            os.link(directory / name, aside / name, follow_symlinks=False)
        except OSError:
            shutil.copyfile(directory / name, aside / name)


# The adapter.


def store_adapter(directory: Path, adapter: SentenceAdapter, *, dtype: AdapterPrecision) -> Path:
    """Write the adapter as the folder `sentence` of a directory that Larvatus wrote, in place of one that is there."""
    with files.locked(directory, nested=True):
        finish_interrupted_save(directory)
        files.sweep(directory)
        manifest = card_state(directory).manifest
        manifests.verify(directory, manifest)
        with replace_files(directory, stored_bytes(stored_tensors(adapter.tensors, dtype))) as aside:
            carry_over(directory, aside, manifest, without=(manifests.ADAPTER,))
            folder = aside / manifests.ADAPTER
            folder.mkdir()
            write_adapter(folder, adapter, dtype=dtype)
            written = folder / manifests.NAME
            entry = manifests.FileEntry(sha256=files.sha256(written), bytes=written.stat().st_size)
            listed = msgspec.structs.replace(manifest, parts={**manifest.parts, manifests.ADAPTER: entry})
            files.write_json(aside / manifests.NAME, manifests.plain(listed))
    return directory / manifests.ADAPTER
