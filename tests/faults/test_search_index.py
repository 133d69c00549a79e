"""Faults of an index of passages: an interrupted or failed build leaves the old index whole, and loses nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

import larvatus as lv
from larvatus.core.errors import ArtefactError, DataError, NumericsError
from larvatus.inference.search import build, text_vectors
from larvatus.inference.search.generation import NAME, Generation, read_manifest
from larvatus.interfaces.cli.main import run
from tests.faults.test_exhausted import limited

SENTENCE = "The bank of the river was deep, number {}."


@pytest.fixture(scope="module")
def model(tiny_directory):
    return lv.load(tiny_directory, device="cpu")


@pytest.fixture
def documents(tmp_path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text("\n".join(SENTENCE.format(f"{name}{n}") for n in range(20)))
    return folder


@pytest.fixture
def make(model, documents, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "CHARACTERS", 200)  # parts of a few passages

    def index(**settings):
        return lv.index_documents(documents, out=tmp_path / "index", model=model, passage=60, overlap=0, **settings)

    return index


def contents(index: Path) -> dict[str, bytes]:
    return {str(path.relative_to(index)): path.read_bytes() for path in sorted(index.rglob("*")) if path.is_file()}


def count_reads(monkeypatch, *, fail_after: int | None = None, fault: Exception | None = None) -> list[str]:
    """Texts that the model reads; after so many blocks it fails."""
    read: list[str] = []
    plain = text_vectors.unit_vectors
    blocks = iter(range(10**9))

    def counted(model, texts):
        if fail_after is not None and next(blocks) >= fail_after:
            assert fault is not None
            raise fault
        read.extend(texts)
        return plain(model, texts)

    monkeypatch.setattr(text_vectors, "unit_vectors", counted)
    return read


def test_a_build_that_breaks_off_leaves_the_old_index_and_resumes(make, documents, tmp_path, monkeypatch):
    old = make()
    before = contents(old.path)
    (documents / "b.txt").write_text("\n".join(SENTENCE.format(f"new{n}") for n in range(20)))
    with monkeypatch.context() as patched:
        count_reads(patched, fail_after=2, fault=KeyboardInterrupt())
        with pytest.raises(BaseException, match=r"the same command resumes|^$"):
            make()
    assert contents(old.path) == before
    assert len(lv.Index.open(old.path, model=old.model).search("river", top=5)) == 5
    (documents / "c.txt").write_text("A bank.")  # another change meanwhile loses nothing
    read = count_reads(monkeypatch)
    assert len(make()) == 41
    assert 0 < len(read) < 21
    assert len(read) == len(set(read))
    assert not (tmp_path / "index.parts").exists()


def test_a_killed_build_resumes_and_ends_with_the_same_index(make, tiny_directory, tmp_path, monkeypatch):
    """In a child, by SIGKILL, between a part and the end."""
    expected = contents(make().path)
    shutil.rmtree(tmp_path / "index")
    child = os.fork()
    if not child:
        make(progress=lambda done: os.kill(os.getpid(), signal.SIGKILL) if done > 20 else None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "index" / NAME).exists()
    with pytest.raises(ArtefactError, match=r"is no index: it has no index.json"):
        lv.Index.open(tmp_path / "index", model=tiny_directory)
    read = count_reads(monkeypatch)
    index = make()
    assert 0 < len(read) < 60
    after = contents(index.path)
    assert after.keys() == expected.keys()
    assert [name for name in after if name != NAME and after[name] != expected[name]] in ([], ["00001/sources.arrow"])


@pytest.mark.parametrize("stage", ["parts", "passages", "vectors"])
def test_a_full_disk_is_one_line_and_nothing_is_lost(make, documents, tmp_path, monkeypatch, stage):
    old = make()
    before = contents(old.path)
    (documents / "d.txt").write_text("\n".join(SENTENCE.format(f"d{n}") for n in range(200)))
    plain = build.write_vectors

    def with_little_room(*given):
        with limited(resource.RLIMIT_FSIZE, 2_000):
            plain(*given)

    with monkeypatch.context() as patched, pytest.raises(ArtefactError, match="ulimit -f"):
        if stage == "vectors":
            patched.setattr(build, "write_vectors", with_little_room)
            make()
        with limited(resource.RLIMIT_FSIZE, {"parts": 300, "passages": 9_000}[stage]):
            make()
    assert contents(old.path) == before
    read = count_reads(monkeypatch)
    assert len(make()) == 260
    assert len(read) == {"parts": 200, "vectors": 0}.get(stage, len(read)) <= 200


def test_every_damage_of_every_file_is_named(make, model):
    path = make().path
    for file in sorted(path.rglob("*")):
        if not file.is_file():
            continue
        whole = file.read_bytes()
        for damaged in (whole[: len(whole) // 2], bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]]), None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with pytest.raises(ArtefactError, match=file.name):
                lv.Index.open(path, model=model)
        file.write_bytes(whole)
    assert len(lv.Index.open(path, model=model)) == 60


def test_an_index_of_another_model_is_refused_by_name(make, tiny_model, save_tiny, documents, tmp_path):
    index = make()
    other = lv.load(save_tiny(tmp_path / "other", tiny_model(seed=9)), device="cpu")
    prints = rf"tiny \({index.model.fingerprint[:8]}.*other \({other.fingerprint[:8]}"
    with pytest.raises(ArtefactError, match=f"{prints}.*build it again"):
        lv.Index.open(index.path, model=other)
    with pytest.raises(ArtefactError, match=f"{prints}.*--overwrite"):
        lv.index_documents(documents, out=index.path, model=other, passage=60, overlap=0)
    assert read_manifest(index.path).fingerprint == index.model.fingerprint
    replaced = lv.index_documents(documents, out=index.path, model=other, passage=60, overlap=0, overwrite=True)
    assert replaced.manifest.fingerprint == other.fingerprint


def test_vectors_that_are_not_finite_are_refused(documents, tiny_directory, tmp_path):
    broken = lv.load(tiny_directory, device="cpu")
    with torch.no_grad():
        next(broken.network.encoder.parameters()).fill_(float("nan"))
    with pytest.raises(NumericsError, match=r"the vector of 'The bank .* is not finite; check the weights"):
        lv.index_documents(documents, out=tmp_path / "index", model=broken)
    assert not (tmp_path / "index").exists()
    assert not (tmp_path / "index.parts").exists()


def test_a_text_without_a_token_has_a_vector_of_zeros(model, tmp_path):
    (tmp_path / "odd.jsonl").write_text(json.dumps({"text": "\x01"}) + "\n" + json.dumps({"text": "A river."}) + "\n")
    index = lv.index_documents(tmp_path / "odd.jsonl", out=tmp_path / "index", model=model)
    held = Generation.open(index.path)
    assert (held.vectors.decode(slice(None), "float16") != 0).any(axis=1).tolist() == [False, True][-len(index) :]
    assert np.isfinite([hit.score for hit in index.search("river")]).all()


def test_a_file_that_changes_while_it_is_read_is_refused(make, documents, monkeypatch):
    plain = build.read_documents

    def meddled(paths, **settings):
        yield from plain(paths, **settings)
        if paths[0].endswith("b.txt"):
            Path(paths[0]).write_text("changed")

    with monkeypatch.context() as patched:
        patched.setattr(build, "read_documents", meddled)
        with pytest.raises(DataError, match=r"b.txt changed while it was read; run the same command again"):
            make()
    assert len(make()) == 41


def test_a_place_that_is_no_index_is_left_alone(make, documents, model, tmp_path, capsys):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "mine.txt").write_text("x")
    with pytest.raises(ArtefactError, match="is there already and is no index"):
        make()
    assert (tmp_path / "index" / "mine.txt").read_text() == "x"
    with pytest.raises(SystemExit) as ended:
        run(["search", "a river", "--index", str(documents)])
    assert ended.value.code == 5
    assert "is no index: it has no index.json" in capsys.readouterr().err
    with pytest.raises(DataError, match="cannot be read again"):
        lv.index_documents("-", out=tmp_path / "other", model=model)
