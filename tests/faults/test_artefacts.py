"""Groups A and E of the list of faults, as far as they concern model directories. Numbers in names are rows."""

from __future__ import annotations

import ast
import errno
import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch

import larvatus
from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.weights import read_tensors, write_tensors
from tests import warm
from tests.faults.test_hostile_files import swapped_ids
from tests.patience import WATCHDOG_S

Make = Callable[..., Any]
HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def saved(tiny_model: Make, save_tiny: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = save_tiny(tmp_path_factory.mktemp("good") / "m", tiny_model())
    return made


@pytest.fixture
def directory(saved: Path, tmp_path: Path) -> Path:
    """A good model directory of one's own, to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "m"))


@pytest.fixture
def unvouched(directory: Path) -> Path:
    """The same without a manifest, as from Hugging Face: only the files themselves can show that they are bad."""
    (directory / "larvatus.json").unlink()
    return directory


def refused(directory: Path, *words: str, **options: Any) -> str:
    """The one line by which a directory is refused, which must hold the words."""
    with pytest.raises(ArtefactError) as caught:
        load_bundle(directory, **options)
    line = str(caught.value)
    assert caught.value.exit_code == 5
    assert "\n" not in line
    for word in words:
        assert word in line
    return line


def python(*arguments: str, before: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, *arguments]
    return warm.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, **options)


# ── A. saving


@pytest.mark.proof
def test_1_sigkill_at_50_random_moments_of_a_save_leaves_the_last_good_model(tmp_path: Path) -> None:
    done = python(str(HERE / "killed_save.py"), str(tmp_path / "m"), "moments")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10  # so many were killed on the way; the others had finished


@pytest.mark.proof
def test_2_sigkill_at_every_step_of_an_overwrite_leaves_the_old_or_the_new_model(tmp_path: Path) -> None:
    done = python(str(HERE / "killed_save.py"), str(tmp_path / "m"), "steps")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20  # steps there were


@pytest.mark.parametrize("when", ["before", "in the middle"])
def test_3_a_full_disk_names_the_path_and_the_bytes_and_keeps_the_old(
    directory: Path, tiny_model: Make, save_tiny: Make, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    if when == "before":
        small = shutil.disk_usage(directory)._replace(free=1000)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: small)
    else:

        def full(tensors: Any, path: Path, **_: Any) -> None:
            path.write_bytes(b"half")
            raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

        monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(ArtefactError, match=rf"no space left to write {directory}.* \([\d,]+ bytes needed\)"):
        save_tiny(directory, tiny_model(seed=1))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    load_bundle(directory)


ON_A_REAL_DISK = """
import shutil, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from killed_save import check, save
from larvatus.core.errors import ArtefactError

disk = Path(sys.argv[1])
def mount(*options): subprocess.run(["mount", *options, str(disk)], check=True)
def refused(word, number, hidden=8):
    try: save(disk / "m", number, hidden)
    except ArtefactError as fault: assert word in str(fault) and str(disk) in str(fault), fault
    else: raise AssertionError("saved on " + word)

mount("-t", "tmpfs", "-o", "size=256k", "tmpfs")
save(disk / "m", 1)
refused("bytes needed", 2, hidden=128)                              # seen to be too small before it begins
free = shutil.disk_usage
shutil.disk_usage = lambda path: free(path)._replace(free=2**40)    # as if another process filled it meanwhile
refused("bytes needed", 2, hidden=128)
check(disk / "m", {1})
mount("-o", "remount,ro")
refused("Read-only", 3)
check(disk / "m", {1})
print("done")
"""


def test_3_and_4_a_small_and_a_read_only_file_system(tmp_path: Path) -> None:
    """A real full disk and a real read-only one, in a mount namespace of our own."""
    alone = ("unshare", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this machine grants no mount namespace")
    done = python("-c", ON_A_REAL_DISK, str(tmp_path), str(HERE), before=alone)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_4_a_directory_that_may_not_be_written_is_refused(
    directory: Path, tiny_model: Make, save_tiny: Make, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Permission bits do not bind root, so the operating system's answer is injected."""

    def forbidden(path: Any, *_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "mkdir", forbidden)
    with pytest.raises(ArtefactError, match=rf"{directory}.* cannot be written .*choose another --out"):
        save_tiny(directory, tiny_model(seed=1))
    monkeypatch.undo()
    load_bundle(directory)


def test_4_an_output_below_or_instead_of_a_file_is_refused(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file" / "m", tmp_path / "file"):
        with pytest.raises(ArtefactError, match="file"):
            save_tiny(out, tiny_model())
    assert (tmp_path / "file").read_text() == "mine"


# ── A. loading


@pytest.mark.parametrize("place", [0, 9, 500, -1])
def test_5_a_flipped_byte_is_refused_with_both_checksums(directory: Path, place: int) -> None:
    path = directory / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[place] ^= 0x10
    path.write_bytes(raw)
    line = refused(directory, f"{path} does not match its checksum (expected ", "…, got ", "save or fetch")
    wanted = json.loads((directory / "larvatus.json").read_text())["files"]["model.safetensors"]["sha256"]
    assert wanted[:8] in line


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1000, -1])
def test_6_a_truncated_file_is_refused(directory: Path, keep: int) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(directory, str(path), "bytes")
    (directory / "larvatus.json").unlink()
    refused(directory, str(path), "not a sound safetensors file")


HOSTILE = """
import json, resource, sys
from pathlib import Path
import torch, larvatus.models.bundle.weights as weights
from larvatus.core.errors import ArtefactError

path = Path(sys.argv[1])
def forge(header, length=None, size=0):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        file.write((len(raw) if length is None else length).to_bytes(8, "little") + raw)
        file.truncate(max(8 + len(raw), size))       # sparse: takes no room on the disk

def tensor(begin, end, shape): return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
TB = 2**40
cases = [
    ({"a": tensor(0, TB, [2**38]), "b": tensor(TB - 4, TB + TB, [2**38 + 1])}, None, 2 * TB),     # overlap
    ({"a": tensor(0, TB, [2**38]), "b": tensor(TB + 4, 2 * TB, [2**38 - 1])}, None, 2 * TB),      # hole
    (b"{}", 10**8 + 1, 2 * 10**8),                                                                # header over 100 MB
    (b"{}", TB, 2 * TB),                                                                          # header of 1 TB
    (b"{}", 2**64 - 1, 0),
    ({"a": tensor(0, 16, [2**62, 4])}, None, 0),                                                  # shape overflow
    ({"a": tensor(0, 0, [2**40, 2**40, 0, 2**60])}, None, TB),                            # zero elements, 1 TB
    ({"a": tensor(0, 2**62, [2**60])}, None, 0),
    (b"{}", int.from_bytes(b"PK\\x03\\x04\\0\\0\\0\\0", "little"), 0),                               # a zip archive
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for header, length, size in cases:
    forge(header, length, size)
    try: weights.read_tensors(path)
    except ArtefactError as fault: assert str(path) in str(fault)
    else: raise AssertionError(header)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_7_and_44_a_lying_header_is_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    done = python("-c", HOSTILE, str(tmp_path / "x.safetensors"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16 * 1024  # KiB more than before, for files that claim terabytes


def test_8_nan_in_a_sound_file_is_refused_unless_allowed(unvouched: Path) -> None:
    path = unvouched / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in read_tensors(path).items()}
    tensors["bert.pooler.dense.weight"][3, 3] = torch.nan
    write_tensors(path, tensors)
    refused(unvouched, str(path), "bert.pooler.dense.weight", "NaN")
    load_bundle(unvouched, allow_nan=True)


def test_9_missing_extra_and_misshapen_tensors_are_one_error(unvouched: Path) -> None:
    path = unvouched / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in read_tensors(path).items()}
    del tensors["bert.encoder.layer.1.output.dense.bias"], tensors["cls.seq_relationship.bias"]
    tensors["bert.encoder.layer.7.output.dense.bias"] = torch.zeros(16)
    tensors["bert.embeddings.position_embeddings.weight"] = torch.zeros(31, 16)
    write_tensors(path, tensors)
    refused(
        unvouched,
        "missing: bert.encoder.layer.1.output.dense.bias, cls.seq_relationship.bias;",
        "extra: bert.encoder.layer.7.output.dense.bias;",
        "misshapen: bert.embeddings.position_embeddings.weight is [31, 16], not [32, 16];",
    )


def test_10_swapped_ids_of_the_vocabulary_are_refused_by_the_manifest(directory: Path) -> None:
    swapped_ids(directory)
    refused(directory, "tokenizer.json")


# ── E. hostile artefacts


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "last.ckpt", "model.pkl"])
def test_39_pickled_weights_are_refused_unread(unvouched: Path, tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    (unvouched / "model.safetensors").unlink()
    (unvouched / name).write_bytes(pickle.dumps(Bomb(canary)))
    refused(unvouched, name, "pickle", "save_pretrained")
    refused(unvouched / name, name, "pickle")
    assert not canary.exists()
    pickle.loads((unvouched / name).read_bytes())  # it would have
    assert canary.exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_39_and_40_a_pickle_by_another_name_is_refused_unread(tmp_path: Path, protocol: int) -> None:
    """Weights, optimizer and random state come through one reader, which reads safetensors and nothing else."""
    canary = tmp_path / "canary"
    for name in ("model.safetensors", "optimizer.safetensors", "optimizer.pt", "rng_state.pth"):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(Bomb(canary), protocol))
        with pytest.raises(ArtefactError, match=name):
            read_tensors(path)
    assert not canary.exists()


def test_39_and_40_no_code_of_ours_can_unpickle_a_file() -> None:
    """`import pickle`, `torch.load`, `numpy.load(allow_pickle=True)` and their kin occur nowhere in the package.

    Two files are exempt: they talk to worker processes that they started themselves, over pipes and memory without a
    name that nobody else can write to.
    """
    root = Path(larvatus.__file__).parent
    exempt = {root / "data" / "corpus" / name for name in ("processes.py", "shared_memory.py")}
    spelt = re.compile(r"pickle|dill|joblib|shelve|marshal|torch\s*\.\s*load")  # to parse nothing else
    texts = {path: path.read_text(encoding="utf-8") for path in set(root.rglob("*.py"))}
    assert all(spelt.search(texts[path]) for path in exempt)
    for path in [path for path in texts if path not in exempt and spelt.search(texts[path])]:
        for node in ast.walk(ast.parse(texts[path])):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names = [f"{node.value.id}.{node.attr}"]
            elif isinstance(node, ast.keyword):
                names = [node.arg or ""]
            banned = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "torch.load", "allow_pickle"}
            assert not banned & set(names), f"{path}:{getattr(node, 'lineno', '?')}"


def test_41_a_foreign_distributed_checkpoint_is_refused(unvouched: Path, tmp_path: Path) -> None:
    (unvouched / "model.safetensors").unlink()
    (unvouched / ".metadata").write_bytes(pickle.dumps(Bomb(tmp_path / "canary")))
    (unvouched / "__0_0.distcp").write_bytes(b"")
    refused(unvouched, "distributed checkpoint", "convert")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"auto_map": {"AutoModel": "evil.Model"}},
        {"_target_": "evil.Model"},
        {"class_path": "evil.Model"},
        {"quantization_config": {"layers": [{"_target_": "os.system"}]}},
    ],
)
def test_42_a_config_that_names_code_is_refused_and_nothing_is_imported(
    unvouched: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    (unvouched / "evil.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    path = unvouched / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    refused(unvouched, "config.json", "is not a setting of a model")
    assert "evil" not in sys.modules
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret"])
def test_43_a_manifest_that_points_elsewhere_is_refused(directory: Path, name: str) -> None:
    path = directory / "larvatus.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"sha256": "0" * 64, "bytes": 1}
    path.write_text(json.dumps(manifest))
    refused(directory, "larvatus.json", repr(name))


def test_43_a_link_in_place_of_a_file_is_refused(directory: Path, tmp_path: Path) -> None:
    shutil.move(directory / "model.safetensors", tmp_path / "elsewhere")
    (directory / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    refused(directory, "symbolic link")


def test_44_a_zip_bomb_is_refused_unread(unvouched: Path) -> None:
    with zipfile.ZipFile(unvouched / "model.safetensors", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("data.pkl", b"\0" * 10_000_000)
    refused(unvouched, "zip archive")


def test_45_a_pattern_that_could_run_for_ever_is_refused(unvouched: Path) -> None:
    path = unvouched / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    path.write_text(json.dumps(tokenizer))
    refused(unvouched, "tokenizer.json", "(a+)+$")


@pytest.mark.parametrize(
    "name", ["bert-base-uncased", "google-bert/bert-base-uncased@main", "https://example.org/model"]
)
def test_46_a_name_is_refused_without_the_network_and_a_directory_needs_none(
    directory: Path, monkeypatch: pytest.MonkeyPatch, hub_cache: Path, name: str
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    refused(Path(name), "is not a directory here", "downloads nothing by name")
    load_bundle(directory)


def test_46_a_directory_of_another_format_is_refused(directory: Path) -> None:
    path = directory / "larvatus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    refused(directory, "format 99", "use the Larvatus that wrote it")
