"""Hub models by name, from caches made here: the network is never asked, and what would be asked of it is seen."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from larvatus import load
from larvatus.core.errors import ArtefactError, UsageError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.interfaces.cli.main import run
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.model_names import FILES, find_model
from tests.models.bundle.theirs import LIMIT, equal, their_directory

Make = Callable[..., Any]
OLD, NEW = "a" * 40, "0123456789" * 4


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def directory(tmp_path: Path, tiny_model: Make, save_tiny: Make) -> Path:
    made: Path = save_tiny(tmp_path / "made", tiny_model())
    return made


def put(cache: Path, name: str, source: Path, commit: str, *, branch: str | None = None) -> Path:
    """A model in the cache as the library lays it out: blobs, and snapshots of links to them."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir(exist_ok=True)
    for number, path in enumerate(sorted(source.iterdir())):
        blob = repository / "blobs" / f"{commit[:8]}{number:032x}"
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    if branch:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / branch).write_text(commit)
    return snapshot


def test_a_name_loads_from_the_cache_where_main_was(hub_cache: Path, directory: Path) -> None:
    put(hub_cache, "org/name", directory, OLD)
    snapshot = put(hub_cache, "org/name", directory, NEW, branch="main")
    model = load("org/name", device="cpu")
    assert model.bundle.path.resolve() == snapshot.resolve()
    assert model.fill("the [MASK]")[0].token
    assert load_bundle(f"org/name@{OLD}").path.name == OLD
    assert load_bundle("org/name", revision=OLD).path.name == OLD
    assert load_bundle("org/name@main").path.name == NEW


def test_a_name_without_an_organisation_and_weights_of_transformers(
    hub_cache: Path, tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 20, "max_position_embeddings": LIMIT}
    source, theirs = their_directory(tmp_path / "theirs", tiny_tokenizer, "DistilBertForMaskedLM", **sizes)
    put(hub_cache, "distil-tiny", source, NEW, branch="main")
    equal(load("distil-tiny", device="cpu").network, theirs, tiny_tokenizer)


def test_a_directory_here_comes_first(
    hub_cache: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hub_cache, "org/name", directory, NEW, branch="main")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(directory, tmp_path / "org" / "name")
    assert load_bundle("org/name").path == Path("org/name")
    for asked in ({"revision": NEW}, {"online": True}):
        with pytest.raises(UsageError, match="org/name is a local directory"):
            load_bundle("org/name", **asked)


def test_a_revision_that_is_not_in_the_cache_names_those_that_are(hub_cache: Path, directory: Path) -> None:
    put(hub_cache, "org/name", directory, OLD)
    with pytest.raises(ArtefactError, match=f"not at main; give a revision: org/name@{OLD}"):
        load("org/name")
    with pytest.raises(ArtefactError, match=f"not at {NEW}; give a revision: org/name@{OLD}"):
        load("org/name", revision=NEW)


def test_a_model_that_is_not_in_the_cache_says_how_to_fetch_it(hub_cache: Path) -> None:
    with pytest.raises(ArtefactError, match="larvatus convert org/name OUT --online --revision COMMIT") as caught:
        load("org/name")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 5


def test_a_changed_file_and_a_link_out_of_the_cache_are_refused(
    hub_cache: Path, directory: Path, tmp_path: Path
) -> None:
    """Links lead into the blobs of the same model, or nowhere; the manifest is checked as ever."""
    snapshot = put(hub_cache, "org/name", directory, NEW, branch="main")
    weights = snapshot / "model.safetensors"
    inside = weights.resolve()
    outside = Path(shutil.copy(inside, tmp_path / "elsewhere"))
    weights.unlink()
    weights.symlink_to(outside)
    with pytest.raises(ArtefactError, match="symbolic link"):
        load("org/name")
    weights.unlink()
    weights.symlink_to(inside)
    spoilt = bytearray(inside.read_bytes())
    spoilt[-1] ^= 1
    inside.write_bytes(spoilt)
    with pytest.raises(ArtefactError, match="does not match its checksum"):
        load("org/name")


def test_pickled_weights_in_the_cache_are_refused(hub_cache: Path, directory: Path) -> None:
    for name in ("model.safetensors", "larvatus.json"):
        (directory / name).unlink()
    (directory / "pytorch_model.bin").write_bytes(b"\x80\x04anything")
    put(hub_cache, "org/name", directory, NEW, branch="main")
    with pytest.raises(ArtefactError, match=r"pytorch_model\.bin is pickled"):
        load("org/name")


@pytest.mark.parametrize("online", [False, True])
def test_without_the_library_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch, online: bool) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ArtefactError, match=r'pip install "larvatus\[hub\]"'):
        load("org/name", revision=NEW, online=online)


@pytest.mark.parametrize(
    "name",
    ["../org/name", "/org/name", "org/name/more", "org/..", "a--b/c", "https://x.org/m", "~/m", "x" * 5000, "ä/b"],
)
def test_what_cannot_be_a_name_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ArtefactError, match="is not a directory here, and Larvatus downloads nothing by name unless"):
        find_model(name, online=True, revision=NEW)


@pytest.mark.parametrize("revision", ["../../x", "/etc", "a b", ".", "x\n"])
def test_what_cannot_be_a_revision_is_refused(hub_cache: Path, revision: str) -> None:
    with pytest.raises(UsageError, match="is not a revision"):
        find_model("org/name", revision=revision)


def test_two_revisions_at_once_are_refused(hub_cache: Path) -> None:
    with pytest.raises(UsageError, match="give one of them"):
        find_model(f"org/name@{OLD}", revision=NEW)


# ── fetching


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[dict[str, Any]]:
    """Every call of the library's download, which gives our directory."""
    calls: list[dict[str, Any]] = []

    def download(name: str, **options: Any) -> str:
        calls.append({"name": name, **options})
        return str(directory)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return calls


def test_fetching_asks_for_one_commit_and_for_no_pickle_and_no_code(asked: list[dict[str, Any]]) -> None:
    load("org/name", revision=NEW, online=True, device="cpu")
    assert asked == [{"name": "org/name", "revision": NEW, "allow_patterns": list(FILES)}]

    def fetched(name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in asked[0]["allow_patterns"])

    for name in ("config.json", "model.safetensors", "model-00001-of-2.safetensors", "vocab.txt", "spiece.model"):
        assert fetched(name)
    assert fetched("model.safetensors.index.json")
    assert fetched("1_Pooling/config.json")
    for name in ("pytorch_model.bin", "modeling_x.py", "model.pt", "x.pkl", "x.ckpt", "tf_model.h5", "onnx/m.onnx"):
        assert not fetched(name)


def test_nothing_is_fetched_unless_asked(asked: list[dict[str, Any]]) -> None:
    load("org/name", revision=NEW, device="cpu")
    assert [call["local_files_only"] for call in asked] == [True]


@pytest.mark.parametrize(
    ("revision", "said"),
    [(None, "no revision is given"), ("main", "'main' is not a commit"), ("a" * 39, "a' is not a commit")],
)
def test_a_branch_is_not_fetched_but_its_commit_is_named(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, revision: str | None, said: str
) -> None:
    seen = []

    class Api:
        def model_info(self, name: str, *, revision: str) -> Any:
            seen.append((name, revision))
            return SimpleNamespace(sha=NEW)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(UsageError, match=said) as caught:
        load("org/name", revision=revision, online=True)
    assert str(caught.value).endswith(f"{revision or 'main'} is now {NEW}")
    assert seen == [("org/name", revision or "main")]
    assert asked == []


def test_a_branch_is_refused_without_the_network_too(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Api:
        def model_info(self, name: str, *, revision: str) -> Any:
            raise ConnectionError("no route\nto the host")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(UsageError, match=r"the commit of main could not be looked up \(no route\)$"):
        load("org/name", revision="main", online=True)


def test_a_failed_fetch_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise OSError("401 Client Error.\nRepository Not Found")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ArtefactError, match=f"org/name@{NEW} cannot be downloaded: 401 Client Error;") as caught:
        load("org/name", revision=NEW, online=True)
    assert "\n" not in str(caught.value)


# ── the command line


def test_fill_takes_a_name(hub_cache: Path, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(hub_cache, "org/name", directory, NEW)
    with pytest.raises(SystemExit) as ended:
        run(["fill", "the [MASK]", "--model", f"org/name@{NEW}", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["text"] == "the [MASK]"


def test_convert_fetches_when_asked(
    asked: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        run(["convert", "org/name", str(out), "--online", "--revision", NEW])
    assert ended.value.code == 0
    assert asked[0]["revision"] == NEW
    assert load_bundle(out).lineage["converted"]["from"] == "org/name"
    assert "saved" in capsys.readouterr().out
