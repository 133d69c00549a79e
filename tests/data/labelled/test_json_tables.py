"""Labelled examples in JSON as people have it: lines, an array, pretty-printed; each example knows its line."""

import json

import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.texts import read_texts

ROWS = [{"text": f'Text {n}: {{[ "quoted" ]}}', "label": "odd" if n % 2 else "even"} for n in range(6)]
WAYS = {
    "lines": "\n".join(map(json.dumps, ROWS)),
    "array": json.dumps(ROWS),
    "pretty array": json.dumps(ROWS, indent=2),
    "array of lines": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]",
    "pretty objects": "\n".join(json.dumps(row, indent=2) for row in ROWS),
}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_records_is_read(way, name, tmp_path):
    path = tmp_path / name
    path.write_text(WAYS[way])
    found = read_texts([str(path)])
    assert [(example.text, example.label) for example in found] == [(row["text"], row["label"]) for row in ROWS]
    lines = WAYS[way].split("\n")
    for example in found:
        assert json.dumps(example.text) in "".join(lines[example.place.line - 1 :][:2])


def test_a_file_that_breaks_off_says_where_its_last_record_begins(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(WAYS["pretty array"][:-30])
    with pytest.raises(DataError, match=r"a\.json:22: broken JSON: Input data was truncated"):
        read_texts([str(path)])
