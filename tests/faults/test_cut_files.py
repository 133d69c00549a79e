"""Row 69: a cut archive is named and nothing of it is taken, by any reader; after an overlong line the rest is read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.data.labelled.squad import read_questions
from larvatus.data.labelled.tagged import read_spanned, read_tagged
from larvatus.data.labelled.texts import read_texts, read_unlabelled
from larvatus.data.text import records, streams
from larvatus.data.text.archives import COMPRESSIONS, decompressed
from larvatus.data.text.readers import ReadOptions, Skipped, read_documents
from larvatus.data.text.streams import numbered_lines
from larvatus.evaluation.compare.minimal_pairs import read_pairs
from larvatus.evaluation.compare.word_similarity import evaluate_wic
from larvatus.inference.senses.tagged import read_keys
from tests import made_up as labelled

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
TEXT = b"".join(b"line %d of a text, with %d in it\n\n" % (n, n * n) for n in range(4_000))
WHOLE = {suffix: pack(TEXT) for suffix, pack in PACK.items()}
SKIP = ReadOptions(on_bad="skip")


def read(packed: bytes, suffix: str) -> bytes:
    return decompressed(io.BytesIO(packed), f"text.txt{suffix}").read()


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@given(data=st.data())
def test_69_an_archive_cut_at_any_byte_is_named(suffix: str, data: st.DataObject) -> None:
    whole = WHOLE[suffix]
    ends = st.integers(0, 40) | st.integers(len(whole) - 40, len(whole) - 1) | st.integers(0, len(whole) - 1)
    cut = data.draw(ends)
    with pytest.raises(DataError, match=rf"^text.txt{suffix} is no whole {suffix} file"):
        read(whole[:cut], suffix)
    if cut:  # the same where whole parts stand before
        with pytest.raises(DataError, match=rf"^text.txt{suffix} is no whole {suffix} file"):
            read(whole + whole[:cut], suffix)


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_69_parts_end_to_end_are_read_whole_and_what_is_no_part_is_named(suffix: str) -> None:
    pack = PACK[suffix]
    assert read(b"".join(pack(b"%d\n" % n) for n in range(50)), suffix) == b"".join(b"%d\n" % n for n in range(50))
    assert read(pack(b"") + pack(b"one") + pack(b""), suffix) == b"one"
    for garbage in (b"x", b"more than a few bytes of something else", b"\xff" * 70_000):
        with pytest.raises(DataError, match=rf"text.txt{suffix} is no whole {suffix} file"):
            read(WHOLE[suffix] + garbage, suffix)
    if suffix in (".gz", ".xz"):  # padded to blocks, as tapes are
        assert read(WHOLE[suffix] + bytes(100_000) + WHOLE[suffix] + bytes(512), suffix) == TEXT + TEXT


def test_69_frames_to_be_skipped_are_and_a_flipped_byte_is_named() -> None:
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    assert read(skippable + WHOLE[".zst"] + skippable, ".zst") == TEXT
    for suffix in (".gz", ".xz", ".bz2"):  # zstd has checksums on request
        spoilt = bytearray(WHOLE[suffix])
        spoilt[len(spoilt) // 2] ^= 1
        with pytest.raises(DataError, match="is no whole"):
            read(bytes(spoilt), suffix)


def test_69_archives_that_ask_for_much_memory_are_refused() -> None:
    params = zstandard.ZstdCompressionParameters(window_log=31, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=params).compressobj()
    with pytest.raises(DataError, match="too much memory"):
        read(packer.compress(b"a" * 100) + packer.flush(), ".zst")
    packed = bytearray(lzma.compress(b"a" * 100))  # 12 bytes of header, then that of the block: …, LZMA2, 1, dictionary
    assert packed[14:16] == b"\x21\x01"
    packed[16] = 40  # 4 GiB
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    with pytest.raises(DataError, match="Memory usage limit"):
        read(bytes(packed), ".xz")


def parquet(path: Path) -> Path:
    pq.write_table(pa.table({"text": ["the river"] * 400, "label": ["wet"] * 400}), path)
    return path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows(name: str) -> Callable[[Path], Path]:
    lines = "".join(f"a text with {n} in it{{}}{'yes' if n % 3 else 'no'}\n" for n in range(400))
    separator = "," if name == "csv" else "\t"
    return lambda path: written(path, f"text{separator}label\n" + lines.replace("{}", separator))


def of_all(read: Callable[[str], Iterable[Any]]) -> Callable[[str], list[Any]]:
    return lambda name: list(read(name))


PAIRS = "".join(f"the {n} cats sit\tthe {n} cats sits\n" for n in range(400))
READERS: dict[str, tuple[str, Callable[[Path], Any], Callable[[str], Any]]] = {
    "text": ("a.txt", lambda path: path.write_bytes(TEXT), of_all(lambda name: read_documents([name]))),
    "skipping bad lines": (
        "a.txt", lambda path: path.write_bytes(TEXT), of_all(lambda name: read_documents([name], options=SKIP))
    ),
    "records": ("a.jsonl", labelled.classes, of_all(lambda name: read_documents([name], options=SKIP))),
    "parquet": ("a.parquet", parquet, of_all(lambda name: read_documents([name], options=SKIP))),
    "lines": ("a.txt", lambda path: path.write_bytes(TEXT), of_all(numbered_lines)),
    "labelled csv": ("a.csv", rows("csv"), read_texts),
    "labelled tsv": ("a.tsv", rows("tsv"), read_texts),
    "labelled records": ("a.jsonl", labelled.classes, read_texts),
    "labelled parquet": ("a.parquet", parquet, read_texts),
    "tags": ("a.conll", labelled.tags, read_tagged),
    "spans": ("a.conllu", labelled.nested, read_spanned),
    "questions": ("a.json", labelled.asked, read_questions),
    "pairs": ("a.tsv", lambda path: written(path, PAIRS), lambda name: read_pairs([name])),
    "sense keys": ("a.txt", lambda path: written(path, "d0.s0.t0 bank%1:17:01::\n" * 400), read_keys),
    "texts to predict": (
        "a.txt", lambda path: path.write_bytes(TEXT),
        of_all(lambda name: read_unlabelled(name, words=False, say=lambda _: None)),
    ),
    "words in context": (
        "a.jsonl",
        lambda path: written(path, '{"label": 1, "word": "a", "sentence1": "a b", "sentence2": "a c"}\n' * 400),
        lambda name: evaluate_wic(None, None, Path(name), None),  # type: ignore[arg-type]
    ),
}  # fmt: skip


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("reader", READERS)
def test_69_every_reader_refuses_what_is_cut_by_its_name(reader: str, suffix: str, tmp_path: Path) -> None:
    name, write, use = READERS[reader]
    write(tmp_path / name)
    packed = PACK[suffix]((tmp_path / name).read_bytes())
    cut = tmp_path / f"{name}{suffix}"
    for end in (len(packed) - 1, len(packed) * 2 // 3, 0):
        cut.write_bytes(packed[:end])
        with pytest.raises(DataError, match=rf"{name}{suffix} is no whole {suffix} file"):
            use(str(cut))


@pytest.mark.parametrize("reader", ["parquet", "labelled parquet"])
def test_69_a_cut_parquet_file_is_named(reader: str, tmp_path: Path) -> None:
    name, write, use = READERS[reader]
    whole = write(tmp_path / name).read_bytes()
    for end in (len(whole) - 1, len(whole) // 2, 3, 0):
        (tmp_path / name).write_bytes(whole[:end])
        with pytest.raises(DataError, match=rf"{name} is no whole Parquet file"):
            use(str(tmp_path / name))


@pytest.mark.parametrize("end", ["between members", "within one", "in the packing"])
def test_69_a_cut_archive_of_semcor_is_named(end: str, tmp_path: Path) -> None:
    from larvatus.inference.senses.tagged import ReadingCounts, read_semcor
    from larvatus.inference.senses.wordnet import WordNet
    from tests.inference.senses.conftest import SEMCOR, write_wordnet

    wordnet = WordNet.open(write_wordnet(tmp_path))
    (tmp_path / "br-a01").write_text(SEMCOR)
    with tarfile.open(tmp_path / "semcor.tar", "w") as archive:
        for name in ("one", "two"):
            archive.add(tmp_path / "br-a01", name)
    with tarfile.open(tmp_path / "semcor.tar") as archive:
        second = archive.getmembers()[1].offset
    whole = (tmp_path / "semcor.tar").read_bytes()
    path = tmp_path / ("semcor.tar.zst" if end == "in the packing" else "semcor.tar")
    if end == "in the packing":
        path.write_bytes(PACK[".zst"](whole)[:-3])
    else:
        path.write_bytes(whole[: second + (0 if end == "between members" else 700)])
    with pytest.raises(DataError, match=r"semcor.tar(.zst)?.*(incomplete|no whole|cannot be read as|breaks off)"):
        list(read_semcor(path, wordnet, ReadingCounts()))


@pytest.mark.parametrize("more", [(), ("--on-bad", "skip")])
def test_69_a_corpus_of_a_cut_archive_is_not_built(larvatus: Any, prepared: Any, tmp_path: Path, more: Any) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "whole.txt").write_bytes(TEXT)
    (tmp_path / "texts" / "cut.txt.zst").write_bytes(WHOLE[".zst"][:-10])
    tokenizer = prepared.train / "tokenizer"
    build = ("corpus", "build", tmp_path / "texts", "--tokenizer", tokenizer, "--out", tmp_path / "corpus")
    code, said = larvatus(*build, "--workers", 1, *more)
    assert (code, "cut.txt.zst is no whole .zst file" in said) == (4, True)
    assert not (tmp_path / "corpus" / "manifest.json").exists()


@pytest.mark.parametrize("kind", ["a.txt", "a.jsonl"])
@pytest.mark.parametrize("size", [101, 200, 202, 1_234])
def test_69_after_an_overlong_line_the_rest_is_read(
    kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LONGEST_LINE", 100)

    def line(text: str) -> str:
        return text if kind == "a.txt" else json.dumps({"text": text})

    path = tmp_path / kind
    texts = ["one", "x" * size, "two", "y" * (100 - len(line("")) - 1), "z" * size]
    path.write_text("\n\n".join(map(line, texts)))  # the last one without an end
    skipped = Skipped()
    assert [one.text for one in read_documents([path], options=SKIP, skipped=skipped)] == ["one", "two", texts[3]]
    assert skipped.bad == {"line too long": 2}
    with pytest.raises(DataError, match=rf"{kind}:3: the line has more than 100 bytes"):
        list(read_documents([path]))


def test_69_labelled_files_name_an_overlong_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LONGEST_LINE", 100)
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "x" * 101 + "\tyes\n")
    with pytest.raises(DataError, match=r"a.tsv:2: the line has more than 100 bytes"):
        read_texts(tmp_path / "a.tsv")
