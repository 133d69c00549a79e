"""Put a sentence adapter into a model directory, where nothing else changes.

    store_adapter(Path("runs/mine"), adapter, dtype="int8")        # runs/mine/sentence, listed in larvatus.json

The folder and the manifest change together, or neither does (`atomic_save.py`). Claims stay: the manifest's digest, to
which they refer, does not cover the adapter.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from larvatus.core import files
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.atomic_save import finish_interrupted_save, replace_files
from larvatus.models.bundle.card_update import card_state, carry_over
from larvatus.models.bundle.sentence_adapter import AdapterPrecision, SentenceAdapter, stored_tensors, write_adapter
from larvatus.models.bundle.weights import stored_bytes


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
