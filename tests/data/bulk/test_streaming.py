"""A corpus in remote storage is read through a cache that is checked, bounded and shared; what is wrong is one line."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from larvatus.core.errors import ArtefactError, DataError, UsageError
from larvatus.data.corpus.build import BuildOptions, build_corpus
from larvatus.data.corpus.loader import Cursor, Loader
from larvatus.data.corpus.packing import SingleSegmentConfig
from larvatus.data.corpus.remote import mirror_corpus
from larvatus.data.corpus.store import Corpus
from tests import warm
from tests.data.bulk.conftest import prose

ADDRESS = "memory://bucket/corpus"


@pytest.fixture(scope="module")
def local(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    text = prose(folder / "text.txt", 400)
    build_corpus(
        text, tiny_tokenizer, folder / "corpus", BuildOptions(workers=1, unit_characters=4_000, shard_bytes=10_000)
    )
    return folder / "corpus"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LARVATUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bucket(local: Path, cache: Path) -> Any:
    """The corpus in storage of fsspec's own."""
    storage = fsspec.filesystem("memory")
    storage.put(str(local), "/bucket/corpus", recursive=True)
    yield storage
    storage.rm("/bucket", recursive=True)


def shards(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.arrow"))


def test_a_corpus_larger_than_its_cache_reads_as_the_local_one(
    local: Path, bucket: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = Corpus.open(local)
    largest = max(shard.bytes for shard in near.manifest.shards)
    room = 3 * largest
    assert len(near.manifest.shards) > 6
    monkeypatch.setenv("LARVATUS_CACHE_GB", str(room / 1e9))
    far = Corpus.open(mirror_corpus(ADDRESS))
    assert shards(cache) == []  # nothing is fetched before it is read
    assert far.fingerprint == near.fingerprint
    order = np.random.default_rng(0).permutation(len(near.chunks)).tolist()
    for chunk in order:
        assert far.batch(chunk).equals(near.batch(chunk))
        assert sum(path.stat().st_size for path in shards(cache)) <= room


def test_the_loader_gives_the_same_steps(local: Path, bucket: Any) -> None:
    def steps(path: Path) -> list[Any]:
        settings: dict[str, Any] = {"packing": SingleSegmentConfig(), "length": 32, "corruption": None, "seed": 1}
        loader = Loader(Corpus.open(path), tokens=256, workers=0, **settings)
        return [batch for batch, _ in zip(loader.steps(Cursor()), range(3), strict=False)]

    folder = mirror_corpus(ADDRESS)
    assert folder is not None
    for (near, *_), (far, *_) in zip(steps(local), steps(folder), strict=True):
        assert np.array_equal(near.tokens.ids, far.tokens.ids)


def test_what_is_damaged_in_the_cache_is_fetched_again_and_in_storage_refused(bucket: Any, cache: Path) -> None:
    folder = mirror_corpus(ADDRESS)
    assert folder is not None
    Corpus.open(folder).batch(0)
    (kept,) = shards(cache)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-1] + b"x")
    Corpus.open(folder).batch(0)
    assert kept.read_bytes() == whole
    kept.unlink()
    with bucket.open("/bucket/corpus/00000.arrow", "wb") as file:
        file.write(whole[:100])
    with pytest.raises(DataError, match=r"00000.arrow as it was fetched does not match its checksum"):
        Corpus.open(folder).batch(0)
    assert shards(cache) == []


def test_a_corpus_that_was_built_anew_replaces_its_mirror(bucket: Any, local: Path, tmp_path: Path) -> None:
    folder = mirror_corpus(ADDRESS)
    assert folder == mirror_corpus(ADDRESS)
    other = tmp_path / "other"
    shutil.copytree(local, other)
    assert mirror_corpus("memory://bucket/nothing") is None
    with bucket.open("/bucket/corpus/manifest.json", "ab") as file:
        file.write(b" ")
    with pytest.raises(DataError, match=r"manifest\.json"):
        mirror_corpus(ADDRESS)


def test_a_full_disk_is_one_line(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = mirror_corpus(ADDRESS)
    assert folder is not None
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(ArtefactError, match=r"no space left in the cache .* another disk with LARVATUS_CACHE$"):
        Corpus.open(folder).batch(0)
    assert not [path for path in folder.iterdir() if "tmp" in path.name]


@pytest.mark.parametrize(("size", "said"), [("0.000001", "does not fit into a cache"), ("much", "is no size")])
def test_a_cache_of_no_use_is_one_line(bucket: Any, monkeypatch: pytest.MonkeyPatch, size: str, said: str) -> None:
    folder = mirror_corpus(ADDRESS)
    assert folder is not None
    monkeypatch.setenv("LARVATUS_CACHE_GB", size)
    with pytest.raises(UsageError, match=said):
        Corpus.open(folder).batch(0)


class Forbidden(MemoryFileSystem):
    """Storage that lets nobody in, each in the way of another driver."""

    protocol = "forbidden"
    cachable = False
    raises: Exception = PermissionError("Access Denied")

    def exists(self, path: str, **_: Any) -> bool:
        raise self.raises

    info = exists  # type: ignore[assignment]


class NoCredentials(Exception):
    """As some drivers raise: neither an OSError nor a ValueError."""


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (PermissionError("Access Denied"), "may not be read (Access Denied); get permission, or sign in"),
        (NoCredentials("Unable to locate credentials\nmore"), "cannot be opened: Unable to locate credentials"),
    ],
)
def test_a_bucket_without_permission_is_one_line(
    larvatus: Any, tiny_directory: Path, cache: Path, tmp_path: Path, raised: Exception, said: str
) -> None:
    fsspec.register_implementation("forbidden", Forbidden, clobber=True)
    Forbidden.raises = raised
    for arguments in (
        ("embed", "forbidden://bucket/texts", "--model", tiny_directory, "--out", tmp_path / "v.npy"),
        ("corpus", "show", "forbidden://bucket/corpus"),
        ("pretrain", "bert", "--corpus", "forbidden://bucket/corpus", "--out", tmp_path / "run", "--steps", 1),
    ):
        code, _, complaint = larvatus(*arguments)
        assert (code, said in complaint, complaint.count("\n")) == (4, True, 0), (arguments, complaint)


READ = """
import sys, fsspec
from pathlib import Path
from larvatus.data.corpus.remote import ShardCache
from larvatus.data.corpus.store import Corpus
near = Corpus.open(Path(sys.argv[1]))
fetches = []
def fetch(shard):
    fetches.append(shard.file)
    return open(near.path / shard.file, "rb")
cache = ShardCache.here()
(cache.root / "corpus").mkdir(parents=True, exist_ok=True)
for shard in near.manifest.shards:
    cache.fetched(cache.root / "corpus" / shard.file, shard, lambda: fetch(shard))
print(len(fetches))
"""


def test_ranks_of_a_machine_fetch_each_shard_once(local: Path, cache: Path) -> None:
    command = [sys.executable, "-c", READ, str(local)]
    ranks = [warm.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    fetches = [int(rank.communicate()[0]) for rank in ranks]
    assert sum(fetches) == len(Corpus.open(local).manifest.shards)
