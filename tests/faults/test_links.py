"""Rows 66 and 67: reading a directory writes nothing, and whatever is no regular file in it is refused at once."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.inference.senses.inventory import SenseInventory
from larvatus.models.bundle import atomic_save as replaced
from larvatus.models.bundle import manifest as manifests
from larvatus.models.bundle.directory import load_bundle
from tests import warm
from tests.faults.conftest import SETTINGS, TEXT
from tests.faults.forked import Forked
from tests.faults.killed_save import everything
from tests.patience import WATCHDOG_S

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    from larvatus.data.corpus import build_corpus
    from larvatus.data.text.readers import Document

    out = tmp_path_factory.mktemp("corpus") / "c"
    build_corpus([Document(text=TEXT, source="t", line=1)] * 40, tiny_tokenizer, out)
    return out


READERS: dict[str, tuple[object, ...]] = {
    "fill": ("fill", "The [MASK].", "--model", "m"),
    "embed": ("embed", "t.txt", "--model", "m", "--out", "v.parquet"),
    "convert": ("convert", "m", "converted"),
    "predict": ("predict", "m", "The river."),
    "score": ("score", "t.txt", "--model", "m"),
    "evaluate": ("evaluate", "m", "--corpus", "t.txt"),
    "similar": ("similar", "The *river* ran.", "The *bank* ran.", "--model", "m"),
    "isotropy": ("isotropy", "show", "--model", "m", "--corpus", "t.txt"),
    "attention": ("attention", "The river.", "--model", "m", "--out", "page.html"),
    "patch": ("patch", "The [MASK] ran.", "A [MASK] ran.", "--answers", "river,bank", "--model", "m"),
    "map": ("map", "bank", "--model", "m", "--corpus", "t.txt", "--out", "page.html"),
    "tokenizer": ("tokenizer", "show", "m", "The river."),
    "finetune": ("finetune", "classify", "--model", "m", "--train", "train.jsonl", "--out", "tuned"),
    "pretrain": ("pretrain", "--from", "m", "--corpus", "t.txt", "--out", "run", "--steps", "1"),
}
"""Commands that read a model."""


# ── 66. nothing is written where something is read


def hostile(model: Path, home: Path) -> None:
    """`x -> home` and `.pending/x/.bashrc`: settled on load, it overwrote the file of a user."""
    home.mkdir()
    (home / ".bashrc").write_text("mine")
    (model / "x").symlink_to(home)
    (model / ".pending" / "x").mkdir(parents=True)
    (model / ".pending" / "x" / ".bashrc").write_text("theirs")


@pytest.mark.parametrize("command", READERS)
def test_66_reading_a_hostile_directory_writes_nothing(
    model: Path, forked: Forked, tmp_path: Path, command: str
) -> None:
    hostile(model, tmp_path / "home")
    before = everything(tmp_path)
    forked(*READERS[command]).refused(5, ".pending", "remove it")
    assert (tmp_path / "home" / ".bashrc").read_text() == "mine"
    made = {"run", "run/corpus", "tuned"}
    assert [one for one in everything(tmp_path) if str(one[0].relative_to(tmp_path)) not in made] == before


def test_66_the_attack_as_a_user_meets_it(model: Path, tmp_path: Path) -> None:
    """One process for it alone, as `larvatus` is started."""
    hostile(model, tmp_path / "home")
    command = [sys.executable, "-m", "larvatus", "fill", "The [MASK].", "--model", "m"]
    done = warm.run(command, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert done.returncode == 5, done.stderr
    assert done.stderr.startswith("larvatus: m/.pending")
    assert (tmp_path / "home" / ".bashrc").read_text() == "mine"


def cut(directory: Path, save: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, at: str) -> None:
    """A save that is cut when it puts the file of that name in its place."""
    real = os.link

    def power_cut(source: Any, target: Any, **options: Any) -> None:
        if Path(source).name == at:
            raise KeyboardInterrupt
        real(source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", power_cut)
        with pytest.raises(KeyboardInterrupt):
            save()
    assert (directory / files.PENDING).is_dir()


@pytest.mark.parametrize("at", ["README.md", "model.safetensors", "larvatus.json"])
def test_66_a_cut_save_is_read_where_it_stands_and_settled_by_the_next(
    model: Path, tiny_model: Make, save_tiny: Make, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    new = tiny_model(seed=1)
    cut(model, lambda: save_tiny(model, new), monkeypatch, at=at)
    before = everything(model)
    for _ in range(2):
        found = load_bundle(model)
        assert found.network.encoder.embeddings.words.weight.equal(new.encoder.embeddings.words.weight)
        assert found.path == model
    assert everything(model) == before
    save_tiny(model, tiny_model(seed=2))
    assert not [path.name for path in model.iterdir() if path.name.startswith(".")]
    load_bundle(model)


def test_66_settling_puts_in_place_what_was_cut(
    model: Path, tiny_model: Make, save_tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tiny_model(seed=1)
    cut(model, lambda: save_tiny(model, new), monkeypatch, at="model.safetensors")
    (model / "unigram_counts.json").write_text("{}")  # of the model before, and of no other: it goes
    manifest = json.loads((model / "larvatus.json").read_text())
    manifest["files"]["unigram_counts.json"] = {"sha256": "0" * 64, "bytes": 2}
    (model / "larvatus.json").write_text(json.dumps(manifest))
    with files.locked(model):
        replaced.finish_interrupted_save(model)
    assert not (model / files.PENDING).exists()
    assert not (model / "unigram_counts.json").exists()
    assert load_bundle(model).network.encoder.embeddings.words.weight.equal(new.encoder.embeddings.words.weight)


def pending_link(model: Path, home: Path) -> None:
    shutil.move(model / files.PENDING, home / "elsewhere")
    (model / files.PENDING).symlink_to(home / "elsewhere")


def pending_file(model: Path, home: Path) -> None:
    shutil.rmtree(model / files.PENDING)
    (model / files.PENDING).write_text("")


def linked_file(model: Path, home: Path) -> None:
    shutil.move(model / files.PENDING / "config.json", home / "config.json")
    (model / files.PENDING / "config.json").symlink_to(home / "config.json")


def more_files(model: Path, home: Path) -> None:
    (model / files.PENDING / "authorized_keys").write_text("theirs")


def no_manifest(model: Path, home: Path) -> None:
    (model / files.PENDING / manifests.NAME).unlink()


def other_bytes(model: Path, home: Path) -> None:
    path = model / files.PENDING / "config.json"
    inode = path.read_bytes()
    path.unlink()
    path.write_bytes(inode.replace(b"gelu", b"relu"))


SPOILT = [pending_link, pending_file, linked_file, more_files, no_manifest, other_bytes]


@pytest.mark.parametrize("spoil", SPOILT, ids=[spoil.__name__ for spoil in SPOILT])
def test_66_a_pending_that_no_save_of_ours_left_is_refused_by_readers_and_writers(
    model: Path, tiny_model: Make, save_tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Make
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    cut(model, lambda: save_tiny(model, tiny_model(seed=1)), monkeypatch, at="config.json")
    spoil(model, home)
    before = everything(tmp_path)
    with pytest.raises(ArtefactError, match=r"\.pending"):
        load_bundle(model)
    assert everything(tmp_path) == before
    with pytest.raises(ArtefactError, match=r"\.pending"):
        save_tiny(model, tiny_model(seed=2))
    assert [one[:2] for one in everything(tmp_path)] == [one[:2] for one in before]  # but for the time of a lock


def test_66_a_folder_that_leads_elsewhere_is_not_settled_into(
    model: Path, save_tiny: Make, tiny_model: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator is put into a folder: where that is a link, nothing is written through it."""
    home = tmp_path / "home"
    home.mkdir()
    cut(model, lambda: save_tiny(model, tiny_model(seed=1)), monkeypatch, at="config.json")
    pending = model / files.PENDING
    shutil.copytree(model, pending / "generator", ignore=shutil.ignore_patterns(".pending"))
    manifest = json.loads((pending / manifests.NAME).read_text())
    inner = pending / "generator" / manifests.NAME
    manifest["parts"] = {"generator": {"sha256": files.sha256(inner), "bytes": inner.stat().st_size}}
    (pending / manifests.NAME).write_text(json.dumps(manifest))
    (model / "generator").symlink_to(home)
    with files.locked(model), pytest.raises(ArtefactError, match="generator is a symbolic link"):
        replaced.finish_interrupted_save(model)
    assert list(home.iterdir()) == []


# ── 66. what is written is not written through links


def test_66_no_lock_is_written_through_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(mine)
    with pytest.raises(ArtefactError, match=r"\.lock is a symbolic link"), files.locked(tmp_path / "run"):
        pass
    assert mine.read_text() == "precious"


def test_66_a_link_where_a_file_is_written_aside_is_not_followed(tmp_path: Path) -> None:
    """The name aside holds the number of the process, which can be guessed."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for name in ("a.json", "b.bin"):
        (tmp_path / f".{name}.tmp-{os.getpid()}").symlink_to(mine)
    files.write_json(tmp_path / "a.json", {})
    with files.new_file(tmp_path / "b.bin") as aside:
        aside.write_bytes(b"new")
    (tmp_path / f".c.tmp-{os.getpid()}").symlink_to(tmp_path, target_is_directory=True)
    with files.new_directory(tmp_path / "c") as aside:
        (aside / "x").write_text("")
    assert mine.read_text() == "precious"


def test_66_sweeping_takes_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".a.tmp-1x").symlink_to(tmp_path / "home")
    assert files.sweep(tmp_path / "run") == [".a.tmp-1x"]
    assert (tmp_path / "home" / "mine").read_text() == "precious"
    assert not (tmp_path / "run" / ".a.tmp-1x").is_symlink()


PRETRAIN = ("pretrain", "bert", *SETTINGS, "--corpus", "t.txt", "--out", "run", "--steps", "1")
FINETUNE = ("finetune", "classify", "--model", "m", "--train", "train.jsonl", "--out", "run")
FIT = ("isotropy", "fit", "--model", "m", "--corpus", "t.txt")


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (PRETRAIN, "run/checkpoints"),
        (PRETRAIN, "run/corpus"),
        (PRETRAIN, "run/vocabulary"),
        (PRETRAIN, "run/metrics.jsonl"),
        (PRETRAIN, "run/.lock"),
        (FINETUNE, "run/checkpoints"),
        (FINETUNE, "run/metrics.jsonl"),
        (FIT, "m/standardise"),
        (("embed", "t.txt", "--model", "m", "--out", "v.parquet"), "v.parquet.parts/run.json"),
        (("corpus", "build", "t.txt", "--tokenizer", "m", "--out", "c"), "c/tokenizer"),
        (("similar", "index", "t.txt", "--word", "bank", "--model", "m", "--out", "i"), "i.parts/run.json"),
    ],
)
def test_66_a_run_does_not_write_through_what_leads_elsewhere(
    model: Path, forked: Forked, tmp_path: Path, command: tuple[object, ...], place: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(home if "." not in Path(place).name else home / "new")
    forked(*command).refused(5, f"{place} is a symbolic link")
    assert list(home.iterdir()) == []


# ── 67. regular files only


def make(path: Path, kind: str, target: Path) -> Iterator[None]:
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        shutil.move(path, target)
    if kind == "a symbolic link":
        path.symlink_to(target)
    elif kind == "a FIFO":
        os.mkfifo(path)
    else:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
        os.chdir(here)
    yield


KINDS = ["a symbolic link", "a FIFO", "a socket"]
OF_A_MODEL = [
    "config.json",
    "model.safetensors",
    "larvatus.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "unigram_counts.json",
    "modules.json",
    "vocab.txt",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vouched", [True, False], ids=["manifest", "no manifest"])
def test_67_what_is_no_file_in_a_model_is_refused_by_kind(
    model: Path, forked: Forked, tmp_path: Path, kind: str, vouched: bool
) -> None:
    if not vouched:
        (model / manifests.NAME).unlink()
    for name in OF_A_MODEL:
        if not vouched and name in (manifests.NAME, "vocab.txt"):  # nobody reads vocab.txt, but a manifest lists it
            continue
        spoilt = Path(shutil.copytree(model, tmp_path / f"spoilt-{name}"))
        next(make(spoilt / name, kind, tmp_path / f"elsewhere-{name}"))
        forked("load", spoilt).refused(5, name, f"is {kind}")


def test_67_links_in_the_other_files_of_a_model(model: Path, forked: Forked, tmp_path: Path) -> None:
    """An index of shards, a folder of pooling, a card: each read by one command only."""
    (model / manifests.NAME).unlink()
    shards = Path(shutil.copytree(model, tmp_path / "shards"))
    shutil.move(shards / "model.safetensors", tmp_path / "s")
    os.mkfifo(shards / "model.safetensors.index.json")
    forked("load", shards).refused(5, "index.json is a FIFO")
    pooled = Path(shutil.copytree(model, tmp_path / "pooled"))
    (pooled / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "1_Pooling"}]))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    (pooled / "1_Pooling").symlink_to(tmp_path / "elsewhere")
    forked("load", pooled).refused(5, "1_Pooling is a symbolic link")
    (model / "README.md").unlink()
    os.mkfifo(model / "README.md")
    forked("convert", "m", "out").refused(5, "README.md is a FIFO")
    assert forked("load", "m").code == 0  # which does not read the card


@pytest.mark.parametrize("kind", KINDS)
def test_67_what_is_no_file_in_a_corpus_is_refused_by_kind(
    built: Path, forked: Forked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("manifest.json", "journal.jsonl", "00000.arrow", "tokenizer/tokenizer.json", "tokenizer"):
        spoilt = Path(shutil.copytree(built, tmp_path / f"spoilt-{name.replace('/', '-')}"))
        if name == "tokenizer" and kind == "a symbolic link":
            shutil.move(spoilt / name, tmp_path / "kept")
            (spoilt / name).symlink_to(tmp_path / "kept")
        else:
            next(make(spoilt / name, kind, tmp_path / f"elsewhere-{name.replace('/', '-')}"))
        forked("corpus", "verify", spoilt).refused(4, f"{name} is {kind}")
        if name == "00000.arrow":
            forked("pretrain", "bert", *SETTINGS, "--corpus", spoilt, "--out", "run", "--steps", 1).refused(
                4, f"{name} is {kind}"
            )


@pytest.mark.parametrize("kind", KINDS)
def test_67_what_is_no_file_in_a_run_is_refused_by_kind(model: Path, forked: Forked, tmp_path: Path, kind: str) -> None:
    begun = tmp_path / "run" / "checkpoints" / "step-00000002"
    begun.mkdir(parents=True)
    next(make(begun / "state.json", kind, tmp_path / "state"))
    (tmp_path / "state").touch()
    forked(*PRETRAIN, "--resume").refused(5, f"state.json is {kind}")
    begun.rename(begun.with_name("seed-0-step-00000002"))
    forked(*FINETUNE, "--resume").refused(5, f"state.json is {kind}")
    parts = tmp_path / "v.parquet.parts"
    parts.mkdir()
    (parts / "run.json").write_text("{}")
    next(make(parts / "00000.arrow", kind, tmp_path / "part"))
    forked("embed", "t.txt", "--model", "m", "--out", "v.parquet", "--resume").refused(5, f"00000.arrow is {kind}")


def test_67_a_recipe_that_never_answers_is_refused_and_a_link_to_one_is_read(
    model: Path, forked: Forked, tmp_path: Path
) -> None:
    os.mkfifo("mine.toml")
    for command in (("recipes", "show", "mine.toml"), ("pretrain", "mine.toml", *PRETRAIN[2:])):
        forked(*command).refused(3, "mine.toml is a FIFO")
    (tmp_path / "real.toml").write_text('base = "bert"\n')
    Path("linked.toml").symlink_to("real.toml")
    assert forked("recipes", "show", "linked.toml").code == 0
    Path("upon.toml").write_text('base = "linked.toml"\n')  # not what the user named, but what a file names
    forked("recipes", "show", "upon.toml").refused(3, "linked.toml is a symbolic link")
    Path("device.toml").symlink_to("/dev/zero")
    forked("recipes", "show", "device.toml").refused(3, "/dev/zero is a device")


def test_67_a_device_in_a_model_is_refused(model: Path, forked: Forked) -> None:
    (model / "config.json").unlink()
    try:
        os.mknod(model / "config.json", 0o020666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine lets nobody make devices")
    forked("load", "m").refused(5, "config.json is a device")


def test_67_sense_vectors_and_standardisers(model: Path, forked: Forked, tmp_path: Path) -> None:
    (model / "standardise").mkdir()
    os.mkfifo(model / "standardise" / "default.safetensors")
    embed = ("embed", "t.txt", "--model", "m", "--out", "v.parquet", "--standardise")
    forked(*embed, "default").refused(5, "default.safetensors is a FIFO")
    forked(*embed, "m/standardise/default.safetensors").refused(5, "default.safetensors is a FIFO")
    (tmp_path / "senses").mkdir()
    (tmp_path / "senses" / "larvatus.json").symlink_to(tmp_path / "t.txt")
    with pytest.raises(ArtefactError, match="is a symbolic link"):
        SenseInventory.load(tmp_path / "senses")


def test_67_settings_of_a_gigabyte_are_not_read(model: Path, forked: Forked) -> None:
    for name in ("config.json", "larvatus.json", "tokenizer.json"):
        kept = (model / name).read_bytes()
        with (model / name).open("wb") as file:
            file.truncate(2**31)  # sparse: takes no room on the disk
        done = forked("load", "m")
        done.refused(5, name)
        assert done.megabytes < 200
        (model / name).write_bytes(kept)
