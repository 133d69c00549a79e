"""Regular files only: every other kind is refused at once, and by name."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.regular_files import is_there, open_named, open_regular, read_bytes, read_text, refuse_link, walk


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's name may have only a hundred characters
        server.bind(path.name)
        os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "a symbolic link": lambda path: path.symlink_to("/etc/hostname"),
    "a folder": lambda path: path.mkdir(),
    "a FIFO": os.mkfifo,
    "a socket": _socket,
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_by_its_kind(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    KINDS[kind](path)
    for call in (is_there, open_regular, read_bytes, read_text):
        with pytest.raises(ArtefactError, match=f"config.json is {kind}"):
            call(path)


def test_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="/dev/zero is a device"):
        read_bytes(Path("/dev/zero"), DataError)


def test_what_is_absent_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert not is_there(tmp_path / "no")
    assert not is_there(tmp_path / "file" / "below")
    with pytest.raises(ArtefactError, match="no is missing"):
        read_bytes(tmp_path / "no")
    with pytest.raises(ArtefactError, match="null"):
        is_there(tmp_path / "a\0b")


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"12345")
    assert read_bytes(path, most=5) == b"12345"
    with pytest.raises(ArtefactError, match="5 bytes; more than 4 are refused"):
        read_bytes(path, most=4)


def test_text_must_be_utf_8(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ok\xff")
    with pytest.raises(ArtefactError, match="byte 2 is not UTF-8"):
        read_text(tmp_path / "f")


def test_links_of_the_hugging_face_cache_are_followed_into_its_blobs_only(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "c0ffee"
    (snapshot / "1_Pooling").mkdir(parents=True)
    blobs = snapshot.parents[1] / "blobs"
    blobs.mkdir()
    (blobs / "0a").write_text("{}")
    (tmp_path / "private").write_text("secret")
    (snapshot / "config.json").symlink_to("../../blobs/0a")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/0a")
    assert read_bytes(snapshot / "config.json") == b"{}"
    assert read_bytes(snapshot / "1_Pooling" / "config.json") == b"{}"
    (snapshot / "out").symlink_to(tmp_path / "private")
    (blobs / "through").symlink_to(tmp_path / "private")
    (snapshot / "twice").symlink_to("../../blobs/through")
    for name in ("out", "twice"):
        with pytest.raises(ArtefactError, match="symbolic link"):
            read_bytes(snapshot / name)


def test_a_folder_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "generator").symlink_to(tmp_path)
    with pytest.raises(ArtefactError, match="generator is a symbolic link"):
        refuse_link(tmp_path / "generator")
    refuse_link(tmp_path / "absent")


def test_walk_gives_what_os_walk_gives(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file.txt").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "e")
    (tmp_path / "circle").symlink_to("circle")
    expected = {place: (sorted(folders), sorted(names)) for place, folders, names in os.walk(tmp_path)}
    assert {place: (sorted(folders), sorted(names)) for place, folders, names in walk(tmp_path)} == expected
    pruned = []
    for place, folders, _ in walk(tmp_path):
        pruned.append(place)
        folders[:] = [name for name in folders if name != "a"]
    assert sorted(pruned) == [str(tmp_path), str(tmp_path / "e")]


def test_a_named_file_may_be_a_link_but_no_fifo(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("words")
    (tmp_path / "link.txt").symlink_to("file.txt")
    with open_named(str(tmp_path / "link.txt")) as file:
        assert file.read() == b"words"
    os.mkfifo(tmp_path / "fifo.txt")
    with pytest.raises(DataError, match="is a FIFO"):
        open_named(str(tmp_path / "fifo.txt"), DataError)
    with pytest.raises(DataError, match="is a folder"):
        open_named(str(tmp_path), DataError)
    with pytest.raises(DataError, match="cannot be opened"):
        open_named(str(tmp_path / "missing"), DataError)


def test_a_pipe_of_the_shell_is_read(tmp_path: Path) -> None:
    """What `<(…)` gives: a name of a stream that is open already."""
    read, write = os.pipe()
    os.write(write, b"words")
    os.close(write)
    with open_named(f"/dev/fd/{read}") as file:
        assert file.read() == b"words"
    os.close(read)
