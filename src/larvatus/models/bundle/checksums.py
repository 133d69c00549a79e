"""Checksums of everything that loading a model directory reads: two directories with equal checksums hold the same
model.

model_checksums(Path("bert-base"))      # {"config.json": "5f2c…", "model.safetensors": "91ab…", …}
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from larvatus.core import files
from larvatus.core.regular_files import is_there
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.directory import CONFIG, GENERATOR, TOKENIZER, TOKENIZER_FILES
from larvatus.models.bundle.sentence_modules import module_files
from larvatus.models.bundle.weights import CRF_FILE, find_weights


def model_checksums(directory: Path) -> dict[str, str]:
    """SHA-256 by file name: settings, weights, tokenizer; a CRF, a generator and sentence modules if there are any."""
    directory = files.standing(directory)
    beside = (*TOKENIZER_FILES, CRF_FILE)
    paths = [directory / CONFIG, directory / TOKENIZER, *find_weights(directory)]
    paths += [directory / name for name in beside if is_there(directory / name)]
    paths += module_files(directory)
    sums = {path.relative_to(directory).as_posix(): files.sha256(path) for path in paths}
    if is_there(directory / GENERATOR / CONFIG):
        sums |= {f"{GENERATOR}/{name}": checksum for name, checksum in model_checksums(directory / GENERATOR).items()}
    return sums


def model_digest(directory: Path) -> str:
    """One checksum that identifies a model in claims: its manifest's digest, or one over the files it reads."""
    directory = files.standing(directory)
    if not is_there(directory / CONFIG):  # a model in memory
        return ""
    manifest = manifests.read_manifest(directory)
    if manifest is not None:
        return manifest.digest
    lines = [f"{name} {checksum}" for name, checksum in sorted(model_checksums(directory).items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def sentence_digest(directory: Path) -> str:
    """One checksum that identifies the vectors of whole texts: of the model, and of its sentence adapter if any."""
    directory = files.standing(directory)
    digest, manifest = model_digest(directory), manifests.read_manifest(directory)
    adapter = None if manifest is None else manifest.parts.get(manifests.ADAPTER)
    return digest if adapter is None else hashlib.sha256(f"{digest} {adapter.sha256}".encode()).hexdigest()
