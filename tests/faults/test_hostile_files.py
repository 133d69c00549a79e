"""Rows 4, 10, 40 and 43 from what a user does: files that lie or lead astray."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch

from larvatus.core import files
from larvatus.core.errors import ArtefactError
from larvatus.data.corpus import build_corpus
from larvatus.data.text.readers import Document
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import load_bundle
from larvatus.tasks.trainer import progress as finetuning
from tests import made_up as made
from tests.faults.conftest import SETTINGS, TEXT
from tests.faults.forked import Forked
from tests.faults.test_hostile_weights import Bomb
from tests.made_up import QUICK, Call
from tests.patience import WATCHDOG_S

Make = Callable[..., Any]


# ── 10. a vocabulary that is not the one that was saved


def swapped_ids(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["river"], vocabulary["bank"] = vocabulary["bank"], vocabulary["river"]
    path.write_text(json.dumps(tokenizer, indent=2, ensure_ascii=False))


def swapped_special(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for token in tokenizer["added_tokens"]:
        token["content"] = {"[CLS]": "[SEP]", "[SEP]": "[CLS]"}.get(token["content"], token["content"])
    path.write_text(json.dumps(tokenizer, indent=2, ensure_ascii=False))


def other_roles(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text().replace("[MASK]", "[UNK]"))


def another_map(folder: Path) -> None:
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "[UNK]"}))


def swapped_lines(folder: Path) -> None:
    path = folder / "vocab.txt"
    lines = path.read_text().splitlines()
    lines[6], lines[7] = lines[7], lines[6]
    path.write_text("\n".join(lines) + "\n")


def new_counts(folder: Path) -> None:
    (folder / "unigram_counts.json").write_text(json.dumps({"counts": [1] * 31}))


CHANGES = [swapped_ids, swapped_special, other_roles, another_map, swapped_lines, new_counts]


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_10_another_vocabulary_beside_the_weights_is_refused_by_the_manifest(
    model: Path, change: Callable[[Path], None]
) -> None:
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    change(model)
    (name,) = [path.name for path in model.iterdir() if before.get(path.name) != path.read_bytes()]
    with pytest.raises(
        ArtefactError, match=rf"{name} (does not match its checksum|has .* bytes)|has no checksum for {name}"
    ):
        load_bundle(model)


@pytest.mark.parametrize("change", [swapped_ids, swapped_special], ids=["swapped_ids", "swapped_special"])
def test_10_another_vocabulary_in_a_corpus_is_refused(
    tiny_tokenizer: Tokenizer, forked: Forked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Make
) -> None:
    monkeypatch.chdir(tmp_path)
    build_corpus([Document(text=TEXT, source="t", line=1)] * 40, tiny_tokenizer, tmp_path / "c")
    change(tmp_path / "c" / "tokenizer")
    forked("corpus", "verify", "c").refused(4, "c/tokenizer/tokenizer.json")
    forked("pretrain", "bert", *SETTINGS, "--corpus", "c", "--out", "run").refused(4, "c/tokenizer/tokenizer.json")


# ── 40. a checkpoint that is a pickle


def pickled(name: str, canary: Path) -> Callable[..., None]:
    """Writes tensors as ever, but in checkpoints a pickle under this name: every checksum is then made over it."""
    real = safetensors.torch.save_file

    def save_file(tensors: Any, path: Path, **options: Any) -> None:
        if path.name == name and path.parent.name.startswith((".step-", ".seed-")):
            path.write_bytes(pickle.dumps(Bomb(canary)))
        else:
            real(tensors, path, **options)

    return save_file


@pytest.mark.parametrize("name", ["optimizer.safetensors", "model.safetensors"])
def test_40_a_pickle_in_a_checkpoint_of_pretraining_is_refused_unread(
    pretrain: Make, prepared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Everything about the checkpoint is right, but for what its file is."""
    canary = tmp_path / "canary"
    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", pickled(name, canary))
        assert pretrain(prepared.train)[0] == 0
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    assert (newest / name).read_bytes().startswith(b"\x80")
    code, said = pretrain(prepared.train, "--resume")
    assert code == 5, said
    assert f"{name} is a zip archive or a pickle" in said
    assert not canary.exists()


@pytest.mark.parametrize("name", ["optimizer.safetensors", "trained.safetensors", "best.safetensors"])
def test_40_a_pickle_in_a_checkpoint_of_fine_tuning_is_refused_unread(
    finetune: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    canary = tmp_path / "canary"
    command = ("classify", "--train", made.classes(tmp_path / "train.jsonl"), "--out", tmp_path / "out", *QUICK)
    with monkeypatch.context() as patched:
        patched.setattr(safetensors.torch, "save_file", pickled(name, canary))
        plain, told = finetuning.FineTuneProgress._epoch, []

        def stop(self: Any, *what: Any) -> None:
            plain(self, *what)
            told.append(what)
            if len(told) == 2:
                os.kill(os.getpid(), signal.SIGTERM)

        patched.setattr(finetuning.FineTuneProgress, "_epoch", stop)
        assert finetune(*command)[0] == 75
    code, _, said = finetune(*command, "--resume")
    assert code == 5, said
    assert f"{name} is a zip archive or a pickle" in said
    assert not canary.exists()


# ── 43. names that lead elsewhere


ELSEWHERE = ["../secret", "/etc/hostname", "a/../../secret", "..", ".", "", "a\0b", "sub/file", "..\\secret"]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_43_names_in_manifest_index_and_modules_stay_in_the_directory(model: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("{}")
    manifest = json.loads((model / "larvatus.json").read_text())
    entry = {"sha256": files.sha256(tmp_path / "secret"), "bytes": 2}
    for part in ("files", "parts"):
        spoilt = {**manifest, part: {**manifest.get(part, {}), name: entry}}
        (model / "larvatus.json").write_text(json.dumps(spoilt))
        with pytest.raises(ArtefactError, match=r"larvatus\.json names"):
            load_bundle(model)
    (model / "larvatus.json").unlink()
    shutil.move(model / "model.safetensors", tmp_path / "w")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ArtefactError, match=r"index\.json names"):
        load_bundle(model)
    shutil.move(tmp_path / "w", model / "model.safetensors")
    (model / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": name}]))
    with pytest.raises(ArtefactError, match=r"modules\.json names"):
        load_bundle(model)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_43_names_in_a_corpus_stay_in_the_directory(tiny_tokenizer: Tokenizer, tmp_path: Path, name: str) -> None:
    from larvatus.core.checksummed import Ledger, read_checksummed, write_checksummed
    from larvatus.core.errors import DataError, LarvatusError
    from larvatus.data.corpus import Corpus

    build_corpus([Document(text=TEXT, source="t", line=1)] * 40, tiny_tokenizer, tmp_path / "c")
    (tmp_path / "secret").write_text("mine")
    path = tmp_path / "c" / "manifest.json"
    manifest = read_checksummed(path, way="")
    manifest["shards"][0]["file"] = name
    write_checksummed(path, manifest)
    with pytest.raises(DataError, match=r"manifest\.json"):
        Corpus.open(tmp_path / "c")
    path.unlink()  # as a build that was killed leaves it: the journal names the shard
    journal = tmp_path / "c" / "journal.jsonl"
    ledger = Ledger(journal, way="start again")  # whoever forges it can forge its checksums
    entry = json.loads(ledger.records[1])
    entry["shard"]["file"] = name
    ledger.begin([ledger.records[0], json.dumps(entry).encode()])
    try:
        build_corpus([Document(text=TEXT, source="t", line=1)] * 40, tiny_tokenizer, tmp_path / "c")
    except LarvatusError:
        pass
    else:
        assert {shard.file for shard in Corpus.open(tmp_path / "c").manifest.shards} == {"00000.arrow"}
    assert (tmp_path / "secret").read_text() == "mine"


# ── 4. a read-only output


READ_ONLY = """
import os, subprocess, sys
disk, model, text, train = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=True)
os.mkdir(disk + "/run")
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
from larvatus.interfaces.cli.main import run
for out in ("/run", "/new"):
    for command in (
        ["pretrain", "bert", "--corpus", text, "--steps", "1000000"],
        ["finetune", "classify", "--model", model, "--train", train, "--epochs", "100000"],
        ["convert", model],
    ):
        flag = [disk + out] if command[0] == "convert" else ["--out", disk + out]
        try: run([*command, *flag])
        except SystemExit as ended: assert ended.code == 5, (command, ended.code)
assert os.listdir(disk) == ["run"] and os.listdir(disk + "/run") == []
print("done")
"""


@pytest.mark.proof
def test_4_a_read_only_output_is_refused_before_step_0(model: Path, tmp_path: Path) -> None:
    """A disk that is mounted read-only, in a mount namespace of our own: root may not write there either.

    Were anything trained, it would go on for longer than the test.
    """
    alone = ("unshare", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this machine grants no mount namespace")
    (tmp_path / "disk").mkdir()
    places = [str(tmp_path / name) for name in ("disk", "m", "t.txt", "train.jsonl")]
    command = [*alone, sys.executable, "-c", READ_ONLY, *places]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert done.stdout.endswith("done\n"), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 6, done.stderr
    assert all("cannot be written" in line and "ead-only" in line and "choose another" in line for line in lines), lines
