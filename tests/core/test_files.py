"""Directories that appear whole or not at all, and locks that go with their process."""

import errno
import os
import subprocess
import sys

import pytest

from larvatus.core.errors import ArtefactError
from larvatus.core.files import locked, new_directory, new_file, saying_what_is_full, sweep, write_json


def test_a_directory_that_fails_half_way_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), new_directory(tmp_path / "a") as aside:
        (aside / "x").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_appears_is_forced_to_the_disk_first_and_its_name_afterwards(tmp_path, monkeypatch):
    done: list[object] = []
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(os.fstat(handle).st_ino))
    for name in ("rename", "replace"):
        move = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *pair, move=move: (done.append("renamed"), move(*pair))[1])
    with new_directory(tmp_path / "a") as aside:
        (aside / "x").write_text("whole")
    file, folder, parent = (path.stat().st_ino for path in (tmp_path / "a" / "x", tmp_path / "a", tmp_path))
    assert done == [file, folder, "renamed", parent]
    done.clear()
    with new_file(tmp_path / "b") as aside:
        aside.write_text("whole")
    assert done == [(tmp_path / "b").stat().st_ino, "renamed", parent]


def test_a_full_disk_names_the_path_and_the_bytes(tmp_path):
    with (
        pytest.raises(ArtefactError, match=r"no space left to write .*/a \(1,000,000,000,000,000,000 bytes needed\)"),
        new_directory(tmp_path / "a", 10**18),
    ):
        pass
    with pytest.raises(ArtefactError, match="cannot be written"), saying_what_is_full(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system")


def test_sweep_takes_what_the_dead_left_and_spares_the_living(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".a.tmp-{dead.pid}").mkdir()
    (tmp_path / f".b.tmp-{os.getppid()}").mkdir()
    (tmp_path / "kept").mkdir()
    assert sweep(tmp_path) == [f".a.tmp-{dead.pid}"]
    assert (tmp_path / f".b.tmp-{os.getppid()}").exists()
    assert (tmp_path / "kept").exists()


def test_a_second_writer_is_refused_by_the_pid_of_the_first(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(ArtefactError, match=rf"another run \(pid {os.getpid()}\) is writing here"),
        locked(tmp_path),
    ):
        pass
    with locked(tmp_path):
        pass


def test_json_is_whole_or_absent(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "vectors.npy"
    with new_file(path) as aside:
        aside.write_bytes(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    with pytest.raises(KeyError), new_file(path) as aside:
        aside.write_bytes(b"hal")
        raise KeyError
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("vectors.npy", b"whole")]
