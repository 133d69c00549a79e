"""The manifest vouches for every file of a model directory, and follows no name out of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import ArtefactError
from larvatus.models.bundle.manifest import NAME, Manifest, read_manifest, verify, write_manifest


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.bin").write_bytes(bytes(range(256)))
    write_manifest(tmp_path, ["b.bin", "a.json"], recipe={"name": "bert"}, lineage={"seed": 7})
    return tmp_path


def check(directory: Path, **options: Any) -> Manifest:
    manifest = read_manifest(directory)
    assert manifest is not None
    verify(directory, manifest, **options)
    return manifest


def edit(directory: Path, **fields: Any) -> None:
    path = directory / NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_manifest_says_what_it_was_told_and_agrees_with_the_files(directory: Path) -> None:
    manifest = check(directory, required=["a.json"])
    assert (manifest.recipe, manifest.lineage) == ({"name": "bert"}, {"seed": 7})
    assert manifest.files["b.bin"].bytes == 256
    assert (
        manifest.files["a.json"].sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )  # of "{}"


def test_other_files_are_nobodys_business(directory: Path) -> None:
    (directory / "metrics.jsonl").write_text("{}")
    (directory / "checkpoints").mkdir()
    check(directory)


def test_no_manifest_is_no_error(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None


def test_a_file_the_manifest_does_not_vouch_for_is_refused(directory: Path) -> None:
    with pytest.raises(ArtefactError, match=r"has no checksum for model\.safetensors"):
        check(directory, required=["model.safetensors"])


def test_a_changed_file_is_refused_with_both_checksums(directory: Path) -> None:
    raw = bytearray((directory / "b.bin").read_bytes())
    raw[100] ^= 1
    (directory / "b.bin").write_bytes(raw)
    with pytest.raises(
        ArtefactError, match=r"b\.bin does not match its checksum \(expected 40aff2e9…, got [0-9a-f]{8}…\)"
    ):
        check(directory)


def test_a_longer_file_and_a_missing_file_are_refused(directory: Path) -> None:
    (directory / "a.json").write_text("{} ")
    with pytest.raises(ArtefactError, match=r"a\.json has 3 bytes, not the 2 that were saved"):
        check(directory)
    (directory / "a.json").unlink()
    with pytest.raises(ArtefactError, match=r"a\.json is missing"):
        check(directory)


@pytest.mark.parametrize("name", ["../a.json", "/etc/hostname", "sub/a.json", "..", "", "a\0b", "..\\a"])
def test_a_name_may_not_leave_the_directory(directory: Path, name: str) -> None:
    edit(directory, files={name: {"sha256": "0" * 64, "bytes": 2}})
    with pytest.raises(ArtefactError, match="only plain file names"):
        check(directory)


def test_a_symbolic_link_is_refused(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "a.json"
    elsewhere.write_text("{}")  # the same bytes
    (directory / "a.json").unlink()
    (directory / "a.json").symlink_to(elsewhere)
    with pytest.raises(ArtefactError, match="symbolic link"):
        check(directory)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"code": "os.system"}, "unknown field `code`"),
        ({"format": 2}, "format 2"),
        ({"format": "x"}, "format 'x'"),
        ({"files": {"a.json": {"sha256": "0", "bytes": 2, "url": "http://"}}}, "unknown field `url`"),
        ({"files": ["a.json"]}, "Expected `object`"),
    ],
)
def test_a_field_that_is_not_ours_is_refused(directory: Path, fields: dict[str, Any], word: str) -> None:
    edit(directory, **fields)
    with pytest.raises(ArtefactError, match=word):
        check(directory)


@pytest.mark.parametrize("text", ["", "[]", "{", "\ud800".encode("utf-8", "surrogatepass"), "[" * 100_000])
def test_what_is_no_manifest_is_refused_by_name(directory: Path, text: str | bytes) -> None:
    (directory / NAME).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ArtefactError, match=r"larvatus\.json"):
        check(directory)
