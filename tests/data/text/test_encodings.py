"""Text that is not UTF-8, as a user has it: Latin-1 and UTF-16 files, from the command to vocabulary and shards."""

import json

import msgspec
import pytest

from larvatus.core.errors import DataError
from larvatus.data.corpus import Corpus
from larvatus.data.text.documents import ReadOptions
from larvatus.data.text.readers import read_documents

TEXT = "Der Fluß über die Straße. Schöne Grüße aus Köln!\n" * 40 + "\n" + "Ein zweites Stück: été, naïve, señor.\n" * 40
RECORDS = [{"text": "Größe eins.", "lang": "de"}, {"text": "Zwei\nZeilen: {[\"'", "lang": "de"}]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8"])
def test_the_same_text_in_any_encoding_gives_the_same_vocabulary_and_shards(encoding, larvatus, tmp_path):
    for name, written in (("plain", "utf-8"), ("other", encoding)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text(TEXT, encoding=written)
        given = [] if name == "plain" else ["--encoding", encoding]
        out = tmp_path / name
        train = ["tokenizer", "train", out / "text.txt", "--size", 80, "--out", out / "vocabulary", *given]
        code, _, err = larvatus(*train)
        assert code == 0, err
        build = ["corpus", "build", out / "text.txt", "--tokenizer", out / "vocabulary", "--out", out / "corpus"]
        code, _, err = larvatus(*build, "--workers", 1, *given)
        assert code == 0, err
    ours, theirs = (Corpus.open(tmp_path / name / "corpus") for name in ("plain", "other"))
    assert (ours.tokenizer.tokens, ours.tokens) == (theirs.tokenizer.tokens, theirs.tokens)
    assert [ours.block([0]).ids.tolist()] == [theirs.block([0]).ids.tolist()]
    assert "encoding" not in ours.manifest.settings.reading  # what was built before there was a choice stays the same


def test_bytes_that_are_not_utf_8_name_file_line_and_option(larvatus, tmp_path):
    path = tmp_path / "old.txt"
    path.write_text("Plain.\nStraße.\n", encoding="latin-1")
    code, _, err = larvatus("tokenizer", "train", path, "--size", 90, "--out", tmp_path / "v")
    assert code == 4
    assert f"{path}:2: byte 0xdf at 5 is not UTF-8" in err
    assert "--encoding latin-1" in err
    code, _, err = larvatus("tokenizer", "train", path, "--out", tmp_path / "w", "--encoding", "latin-one")
    assert (code, err) == (
        2,
        "larvatus: --encoding latin-one is not known; try utf-8, latin-1, cp1252 or utf-16",
    )
    assert larvatus("tokenizer", "train", path, "--out", tmp_path / "x", "--encoding", "base64")[0] == 2
    with pytest.raises(DataError, match=r"old\.txt is not ascii .*give another --encoding"):
        list(read_documents([path], options=ReadOptions(encoding="ascii")))


def test_settings_of_before_stay_as_they_were():
    """Corpora and runs compare their settings as plain data: a field that is not given must not appear."""
    assert "encoding" not in msgspec.to_builtins(ReadOptions())
    assert msgspec.to_builtins(ReadOptions(encoding="latin-1"))["encoding"] == "latin-1"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize(
    "written",
    [
        "\n".join(json.dumps(record, ensure_ascii=False) for record in RECORDS),
        json.dumps(RECORDS, ensure_ascii=False),
        json.dumps(RECORDS, ensure_ascii=False, indent=2),
        "[\n" + ",\n".join(json.dumps(record, ensure_ascii=False) for record in RECORDS) + "\n]\n",
        "\n".join(json.dumps(record, ensure_ascii=False, indent=4) for record in RECORDS),
    ],
    ids=["lines", "one line", "pretty array", "array of lines", "pretty objects"],
)
def test_records_may_spread_over_lines(written, encoding, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(written, encoding=encoding)
    found = list(read_documents([path], options=ReadOptions(encoding=encoding, language_field="lang")))
    assert [(document.text, document.language) for document in found] == [(r["text"], r["lang"]) for r in RECORDS]
    lines = path.read_text(encoding=encoding).split("\n")
    assert all("{" in lines[document.line - 1] for document in found)  # where each record begins


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('[\n{"text": "a"},\n{"text": 3}\n]', r"a\.json:3: field 'text' is int"),
        ('[\n{"text": "a"},\n{"text": "b"\n', r"a\.json:3: broken JSON"),
        ('[\n{"text": "a"},\nnonsense\n]', r"a\.json:3: broken JSON"),
        ('{"text": "a"}\n{"text": "b"\n{"text": "c"}\n', r"a\.json:2: broken JSON"),
        ('[\n{"text": "a"},\n["b"]\n]', r"a\.json:3: the line is no JSON object"),
    ],
)
def test_what_is_broken_names_its_line(written, says, tmp_path):
    (tmp_path / "a.json").write_text(written)
    with pytest.raises(DataError, match=says):
        list(read_documents([tmp_path / "a.json"]))


def test_a_json_file_in_a_directory_is_left_aside_as_before(tmp_path):
    (tmp_path / "metadata.json").write_text('{"made": "by hand"}')
    (tmp_path / "a.txt").write_text("Text.")
    assert [document.text for document in read_documents([tmp_path])] == ["Text."]
