"""Files that vouch for themselves: no byte of them can change unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from larvatus.core.checksummed import Ledger, read_checksummed, write_checksummed
from larvatus.core.errors import ArtefactError

VALUE = {"step": 400, "rate": 0.1 + 0.2, "names": ["ä", "\udcff"], "none": None, "score": float("inf")}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_checksummed(tmp_path / "a.json", VALUE)
    assert read_checksummed(tmp_path / "a.json", way="") == VALUE


def test_every_byte_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_checksummed(path, VALUE)
    held = path.read_bytes()
    for place in range(len(held)):
        path.write_bytes(held[:place] + bytes([held[place] ^ 1]) + held[place + 1 :])
        with pytest.raises(ArtefactError, match=r"a\.json .*; start again|a\.json cannot be read"):
            read_checksummed(path, way="start again")
    for other in (b"", b"[]", b"{}", held[:-1], held + b" ", held.replace(b"400", b"4e2"), b"[" * 100_000):
        path.write_bytes(other)
        with pytest.raises(ArtefactError):
            read_checksummed(path, way="start again")


def test_every_byte_and_every_line_of_a_ledger_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    ledger = Ledger(path, way="")
    ledger.begin([])
    for number in range(4):
        ledger.append({"number": number})
    held = path.read_bytes()
    assert [b'{"number":%d}' % number for number in range(4)] == Ledger(path, way="").records
    for place in range(len(held) - 1):
        path.write_bytes(held[:place] + bytes([held[place] ^ 1]) + held[place + 1 :])
        with pytest.raises(ArtefactError, match=r"a\.jsonl:\d"):
            Ledger(path, way="")
    lines = held.splitlines(keepends=True)
    for other in ([*lines[:1], *lines[2:]], lines[1:], [lines[0], lines[2], lines[1], lines[3]]):
        path.write_bytes(b"".join(other))
        with pytest.raises(ArtefactError, match="does not match its checksum"):
            Ledger(path, way="")
    path.write_bytes(held[:-10])  # torn by a kill: what was whole stands
    assert len(Ledger(path, way="").records) == 3
