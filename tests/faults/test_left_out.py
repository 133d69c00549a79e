"""Row 70: what of a folder is not read (links, what cannot be opened, FIFOs) is counted and said, by every command."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from larvatus.core.errors import DataError
from larvatus.data.text.readers import ReadOptions, Skipped, list_files, read_documents

NOBODY = 65_534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything: be somebody else for a while."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two texts, and one of each thing that is not read; in the working directory, so that anybody can get there."""
    place = tmp_path / "here"
    texts = place / "texts"
    (place / "elsewhere").mkdir(parents=True)
    (place / "elsewhere" / "other.txt").write_text("a text from elsewhere\n")
    (texts / "more").mkdir(parents=True)
    (texts / "one.txt").write_text("the river bank was wide and deep .\n\nthe bank of the river .\n")
    (texts / "more" / "two.txt").write_text("turn your homework in please .\n\na river was deep and wide .\n")
    (texts / "linked.txt").symlink_to("../elsewhere/other.txt")
    (texts / "dangling.txt").symlink_to("../elsewhere/absent.txt")
    (texts / "loop.txt").symlink_to("loop.txt")
    (texts / "gone").symlink_to("../elsewhere/folder")
    (texts / "linked").symlink_to("../elsewhere")
    (texts / "back").symlink_to("../texts")
    os.mkfifo(texts / "fifo.txt")
    (texts / "private.txt").write_text("not for all\n")
    (texts / "private.txt").chmod(0)
    (texts / "closed").mkdir()
    (texts / "closed" / "three.txt").write_text("never seen\n")
    (texts / "closed").chmod(0)
    (texts / "picture.png").write_bytes(b"")
    (texts / ".hidden").mkdir()
    monkeypatch.chdir(place)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("texts/socket.txt")
    return Path("texts")


LEFT = {
    "texts/linked.txt": "linked file",
    "texts/dangling.txt": "dangling link",
    "texts/loop.txt": "dangling link",
    "texts/gone": "dangling link",
    "texts/linked": "linked folder",
    "texts/back": "linked folder",
    "texts/fifo.txt": "FIFO, socket or device",
    "texts/socket.txt": "FIFO, socket or device",
    "texts/private.txt": "unreadable file",
    "texts/closed": "unreadable folder",
}


def test_70_all_that_is_not_read_is_counted_by_reason(folder: Path) -> None:
    skipped = Skipped()
    with unprivileged():
        found = list_files([folder], skipped=skipped)
        list_files([folder], skipped=skipped)  # twice the same is one
    assert found == [folder / "more" / "two.txt", folder / "one.txt"]
    assert skipped.left == LEFT
    assert skipped.reasons["linked folder"] == 2
    assert "2 × linked folder, 1 × unreadable file, 1 × unreadable folder skipped (texts/back, " in str(skipped)


def test_70_a_pattern_follows_links_and_counts_the_rest(folder: Path) -> None:
    skipped = Skipped()
    with unprivileged():
        found = list_files(["texts/**/*.txt"], skipped=skipped)
    assert folder / "linked.txt" in found
    assert skipped.left["texts/closed"] == "unreadable folder"
    assert skipped.left["texts/fifo.txt"] == "FIFO, socket or device"
    assert skipped.left["texts/dangling.txt"] == "dangling link"


def test_70_a_folder_of_which_nothing_can_be_read_says_why(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a.txt").symlink_to(folder.absolute() / "one.txt")
    with pytest.raises(DataError, match=r"1 × linked file skipped .*; a pattern such as .*/links/\* reads links too"):
        list_files([tmp_path / "links"])
    assert list_files([f"{tmp_path}/links/*"]) == [tmp_path / "links" / "a.txt"]
    with unprivileged(), pytest.raises(DataError, match="closed holds no text that can be read: 1 × unreadable folder"):
        list_files(["texts/closed"])
    with pytest.raises(DataError, match=r"dangling.txt is a link that leads nowhere"):
        list_files(["texts/dangling.txt"])


def test_70_labelled_folders_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    from larvatus.data.labelled.standoff import brat_documents

    (tmp_path / "brat").mkdir()
    (tmp_path / "brat" / "a.ann").write_text("")
    assert brat_documents(str(tmp_path / "brat")) == [str(tmp_path / "brat" / "a.ann")]
    (tmp_path / "brat" / "more").symlink_to(tmp_path)
    with pytest.raises(DataError, match="brat cannot be read whole: 1 × linked folder"):
        brat_documents(str(tmp_path / "brat"))


def test_70_documents_of_a_folder_come_with_its_count(folder: Path) -> None:
    skipped = Skipped()
    with unprivileged():
        texts = [one.text for one in read_documents([folder], options=ReadOptions(on_bad="skip"), skipped=skipped)]
    assert len(texts) == 4
    assert not any("never" in text or "elsewhere" in text or "not for all" in text for text in texts)
    assert len(skipped.left) == len(LEFT)


COMMANDS: dict[str, list[object]] = {
    "corpus build": ["corpus", "build", "texts", "--tokenizer", "MODEL", "--out", "corpus", "--workers", 1],
    "tokenizer train": ["tokenizer", "train", "texts", "--size", 50, "--out", "vocabulary"],
    "embed": ["embed", "texts", "--model", "MODEL", "--out", "v.npy"],
    "isotropy fit": ["isotropy", "fit", "--model", "MODEL", "--corpus", "texts", "--out", "z.safetensors"],
    "isotropy show": ["isotropy", "show", "--model", "MODEL", "--corpus", "texts"],
    "similar index": ["similar", "index", "texts", "--model", "MODEL", "--word", "river", "--out", "river.index"],
    "map": ["map", "river", "--model", "MODEL", "--corpus", "texts", "--method", "pca", "--json"],
    "attention": ["attention", "--model", "MODEL", "--corpus", "texts"],
    "evaluate": ["evaluate", "MODEL", "--corpus", "texts"],
    "importance": ["attention", "importance", "--model", "MODEL", "--corpus", "texts"],
    "knockout": ["knockout", "--model", "MODEL", "--corpus", "texts", "--greedy", 0],
}


@pytest.fixture(scope="module")
def bare(tiny_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that does not say how it was trained."""
    path = shutil.copytree(tiny_directory, tmp_path_factory.mktemp("bare") / "model")
    manifest = json.loads((path / "larvatus.json").read_text())
    (path / "larvatus.json").write_text(json.dumps(manifest | {"recipe": None}))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_70_every_command_says_what_it_left_out(
    command: str, folder: Path, bare: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from larvatus.interfaces.cli.main import run

    given = [str(bare if one == "MODEL" else one) for one in COMMANDS[command]]
    with pytest.raises(SystemExit) as ended:
        run(given)
    said = capfd.readouterr()
    text = " ".join((said.out + said.err).split())
    assert ended.value.code == 0, text
    for reason in ("linked file", "linked folder", "dangling link", "FIFO, socket or device"):
        assert reason in text, text


def test_70_pretraining_says_what_it_left_out(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from larvatus.interfaces.cli.main import run
    from tests.faults.conftest import SETTINGS
    from tests.made_up import sentences

    lines = [" ".join(words).capitalize() + "." for words in sentences(600)]
    (folder / "prose.txt").write_text("\n\n".join(" ".join(lines[n : n + 10]) for n in range(0, 600, 10)))
    settings = [*SETTINGS, "--set", "tokenizer.size=50", "--set", "batch=4"]
    with pytest.raises(SystemExit) as ended:
        run(["pretrain", "bert", *settings, "--corpus", "texts", "--out", "run", "--steps", "1", "--workers", "0"])
    said = capfd.readouterr()
    assert ended.value.code == 0, said.err
    assert "skipped: " in said.out
    assert "2 × linked folder" in " ".join(said.out.split())
