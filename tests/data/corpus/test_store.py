"""An opened corpus: what was written, read in place; and whatever was changed is refused by name (FAULTS B, E43)."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from larvatus.core import files
from larvatus.core.checksummed import read_checksummed, write_checksummed
from larvatus.core.errors import DataError
from larvatus.data.corpus.format import schema
from larvatus.data.corpus.store import Corpus


@pytest.fixture
def copy(corpus: Corpus, tmp_path: Path) -> Path:
    return Path(shutil.copytree(corpus.path, tmp_path / "copy"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = read_checksummed(path / "manifest.json", way="")
    change(manifest)
    write_checksummed(path / "manifest.json", manifest)


def test_counts_and_chunks_agree_with_what_the_blocks_hold(corpus: Corpus) -> None:
    assert len(corpus.manifest.shards) > 2
    assert len(corpus.chunks) > 10
    whole = corpus.block(range(len(corpus.chunks)))
    counted = (len(np.unique(whole.numbers)), len(whole.sentences) - 1, int(whole.words.sum()), len(whole.ids))
    assert counted == (corpus.documents, corpus.sentences, corpus.words, corpus.tokens)
    assert corpus.documents == 400
    last = corpus.block([len(corpus.chunks) - 1])
    assert last.ids.tolist() == whole.ids[-len(last.ids) :].tolist()


def test_a_chunk_is_read_where_it_lies(corpus: Corpus) -> None:
    block = corpus.block([3])
    assert block.ids.dtype == np.uint16
    assert not block.ids.flags.owndata
    assert not block.ids.flags.writeable
    lies_at = corpus.batch(3).column("ids").values.buffers()[1].address
    assert block.ids.__array_interface__["data"][0] == lies_at


def test_two_bytes_a_token_where_the_vocabulary_allows_it() -> None:
    assert schema(1 << 16).field("ids").type.value_type == pa.uint16()
    assert schema((1 << 16) + 1).field("ids").type.value_type == pa.uint32()


def test_a_flipped_byte_is_refused_by_name(copy: Path) -> None:
    shard = copy / "00001.arrow"
    data = bytearray(shard.read_bytes())
    wanted, data[len(data) // 2] = files.sha256(shard), data[len(data) // 2] ^ 1
    shard.write_bytes(data)
    got = files.sha256(shard)
    says = rf"00001\.arrow does not match its checksum \(expected {wanted[:4]}…, got {got[:4]}…\); rebuild with"
    with pytest.raises(DataError, match=says):
        Corpus.open(copy)


def test_a_truncated_shard_is_refused_with_its_size(copy: Path) -> None:
    shard = copy / "00002.arrow"
    os.truncate(shard, shard.stat().st_size - 1)
    with pytest.raises(DataError, match=r"00002\.arrow does not match its checksum.*bytes instead of"):
        Corpus.open(copy)
    os.truncate(shard, 100)  # read without a check, it is still an error of ours
    with pytest.raises(DataError, match=r"00002\.arrow is not a shard"):
        Corpus.open(copy, verify=False).block(range(len(Corpus.open(copy, verify=False).chunks)))


def test_a_missing_shard_manifest_or_tokenizer_is_refused(copy: Path) -> None:
    (copy / "00000.arrow").rename(copy / "elsewhere")
    with pytest.raises(DataError, match=r"00000\.arrow is missing"):
        Corpus.open(copy)
    (copy / "elsewhere").rename(copy / "00000.arrow")
    Corpus.open(copy)
    (copy / "tokenizer" / "tokenizer.json").rename(copy / "elsewhere")
    with pytest.raises(DataError, match=r"tokenizer\.json is missing"):
        Corpus.open(copy)
    (copy / "manifest.json").unlink()
    with pytest.raises(DataError, match="was begun but not finished; build with"):
        Corpus.open(copy)
    with pytest.raises(DataError, match="is not a corpus"):
        Corpus.open(copy / "tokenizer")


def test_another_tokenizer_is_refused(copy: Path) -> None:
    path = copy / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text().replace('"the"', '"teh"'))
    with pytest.raises(DataError, match=r"tokenizer\.json does not match its checksum"):
        Corpus.open(copy)


@pytest.mark.parametrize("name", ["/etc/passwd", "../00000.arrow", "a/00000.arrow", "00000.pkl", "", "00000.arrow\n"])
def test_a_manifest_that_points_elsewhere_is_refused(copy: Path, name: str) -> None:
    edit(copy, lambda manifest: manifest["shards"][0].update(file=name))
    with pytest.raises(DataError, match="not the name of a shard"):
        Corpus.open(copy)


def test_a_link_in_place_of_a_shard_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "00000.arrow").rename(tmp_path / "outside.arrow")
    (copy / "00000.arrow").symlink_to(tmp_path / "outside.arrow")
    with pytest.raises(DataError, match="is a symbolic link"):
        Corpus.open(copy)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.update(format=9), "has format 9"),
        (lambda m: m.update(auto_map="evil.py"), "auto_map"),
        (lambda m: m.pop("shards"), "shards"),
        (lambda m: m["shards"][0].update(tokens="many"), "tokens"),
        (lambda m: m["counts"].update(tokens=1), "counts 1 tokens"),
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(copy: Path, change: Callable[[Any], None], says: str) -> None:
    edit(copy, change)
    with pytest.raises(DataError, match=says):
        Corpus.open(copy)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000])
def test_a_manifest_that_is_no_json_is_refused(copy: Path, text: str) -> None:
    (copy / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json"):
        Corpus.open(copy)


def replace_shard(path: Path, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    """Rewrite the first shard, checksum and all, as whoever made the corpus could."""
    reader = pa.ipc.open_file(pa.py_buffer((path / "00000.arrow").read_bytes()))
    batches = [change(reader.get_batch(i)) for i in range(reader.num_record_batches)]
    with pa.OSFile(str(path / "00000.arrow"), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    edit(path, lambda m: m["shards"][0].update(sha256=files.sha256(path / "00000.arrow")))


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("bombed",))


def test_a_pickled_column_is_refused_unread(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 26."""
    monkeypatch.chdir(copy)
    bomb = pickle.dumps(Bomb())
    replace_shard(copy, lambda b: b.append_column("object", pa.array([bomb] * len(b), pa.binary())))
    with pytest.raises(DataError, match=r"00000\.arrow has columns that no corpus has \(object\); refused"):
        Corpus.open(copy)
    assert not (copy / "bombed").exists()


def test_an_extension_type_is_refused(copy: Path) -> None:
    def disguise(batch: pa.RecordBatch) -> pa.RecordBatch:
        metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Bomb())}
        return batch.cast(schema(100).set(7, schema(100).field(7).with_metadata(metadata)))

    replace_shard(copy, disguise)
    with pytest.raises(DataError, match=r"columns that no corpus has \(line\)"):
        Corpus.open(copy)


def test_ids_beyond_the_vocabulary_and_borders_beyond_the_text_are_refused(copy: Path, corpus: Corpus) -> None:
    def column(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        def change(batch: pa.RecordBatch) -> pa.RecordBatch:
            i = batch.schema.get_field_index(name)
            changed = [values(row) for row in batch.column(i).to_pylist()]
            return batch.set_column(i, batch.schema.field(i), pa.array(changed, batch.schema.field(i).type))

        return change

    for name, values in (
        ("ids", lambda row: [*row[:-1], 60_000]),
        ("sentences", lambda row: [*row[:-1], 60_000]),
        ("sentences", lambda row: [1, *row[1:]]),
        ("sentences", lambda row: []),
        ("words", lambda row: row[1:]),
    ):
        shutil.rmtree(copy)
        shutil.copytree(corpus.path, copy)
        replace_shard(copy, column(name, values))
        opened = Corpus.open(copy)
        with pytest.raises(DataError, match="chunk 0 is damaged"):
            opened.block([0])
