"""Labelled files that are not UTF-8, by the commands that read them: the same as in UTF-8, whatever the format."""

import json

import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.texts import read_texts
from larvatus.data.text.streams import labelled_encoding

FILES = {
    "t.tsv": "text\tlabel\nGrüße aus Köln\tja\nKein Gruß\tnein\nÉté\tja\nStraße\tnein\n",
    "t.csv": 'text,label\n"Grüße, aus Köln",ja\nKein Gruß,nein\nÉté,ja\nStraße,nein\n',
    "t.json": json.dumps(
        [{"text": f"Größe {n}", "label": "né" if n % 2 else "ü"} for n in range(4)], ensure_ascii=False
    ),
    "t.conll": "Köln B-ORT\nist O\nschön O\n\nStraße O\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_latin_1_file_is_checked_as_the_same_file_in_utf_8(name, larvatus, tmp_path, monkeypatch):
    found = []
    for encoding in ("utf-8", "latin-1"):
        (tmp_path / encoding).mkdir()
        monkeypatch.chdir(tmp_path / encoding)
        (tmp_path / encoding / name).write_text(FILES[name], encoding=encoding)
        code, out, err = larvatus("data", "check", name, "--json", "--encoding", encoding)
        assert code == 0, err
        found.append(json.loads(out))
    assert found[0] == found[1]
    code, _, err = larvatus("data", "check", name)  # the encoding was for one command
    assert code == 4
    assert "is not UTF-8" in err
    assert "--encoding latin-1" in err


def test_in_python_an_encoding_holds_within_its_block(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text(FILES["t.tsv"], encoding="cp1252")
    with labelled_encoding("cp1252"):
        assert next(example.text for example in read_texts([str(path)])) == "Grüße aus Köln"
    with pytest.raises(DataError, match="is not UTF-8"):
        read_texts([str(path)])
