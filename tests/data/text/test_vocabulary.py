"""Vocabulary training: the same every time, readable by `transformers`, honest about its limits."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter

import msgspec
import numpy as np
import pytest
from transformers import AutoTokenizer, BertTokenizer

from larvatus.core.errors import DataError
from larvatus.data.text import counting
from larvatus.data.text.embedded import embedded_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from tests.data.text.conftest import CONFIGS, SENTENCES, TEXTS
from tests.data.text.hostile import PIECES

TRAIN = """
import hashlib, sys
from larvatus.data.text.vocabularies import *
texts = sys.stdin.read().split("\\x1e")
for config in (WordPieceConfig(size=2000), ByteBPEConfig(size=2000), BPEConfig(size=2000), UnigramConfig(size=2000)):
    tokenizer = train_vocabulary(texts, config)
    print(hashlib.sha256(tokenizer.library.to_str().encode() + tokenizer.counts.tobytes()).hexdigest())
"""


def test_the_same_text_gives_the_same_vocabulary_in_any_process_with_any_threads():
    texts = "\x1e".join(document.text for document in itertools.islice(embedded_documents(), 30))
    runs = []
    for threads, seed in (("1", "1"), ("4", "2")):
        environment = os.environ | {
            "RAYON_NUM_THREADS": threads,
            "PYTHONHASHSEED": seed,
            "TOKENIZERS_PARALLELISM": "true",
        }
        runs.append(
            subprocess.run([sys.executable, "-c", TRAIN], input=texts, env=environment, capture_output=True, text=True)
        )
    assert all(run.returncode == 0 for run in runs), runs[0].stderr
    assert len(runs[0].stdout.split()) == 4
    assert runs[0].stdout == runs[1].stdout


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_size_is_exact_and_special_tokens_stand_where_their_family_has_them(tokenizers, kind):
    tokenizer = tokenizers[kind]
    assert tokenizer.size == CONFIGS[kind].size == len(set(tokenizer.tokens))
    if kind.startswith("wordpiece"):
        assert tokenizer.tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    else:
        assert tokenizer.tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
        assert tokenizer.mask_id == tokenizer.size - 1
    assert tokenizer.special_ids == {
        tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.padding_id, tokenizer.unk_id,
    }  # fmt: skip
    assert tokenizer.kind == kind.removesuffix("-cased")
    assert tokenizer.lowercase == (kind in ("wordpiece", "bpe"))


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_counts_are_those_of_encoding_the_training_text(tokenizers, kind):
    tokenizer = tokenizers[kind]
    naive = Counter(int(index) for text in TEXTS for index in tokenizer.encode(text).ids)
    assert tokenizer.counts.tolist() == [naive[index] for index in range(tokenizer.size)]


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_transformers_loads_what_we_save_with_equal_ids(tokenizers, kind, tmp_path):
    ours = tokenizers[kind]
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.special == ours.special
    assert again.fingerprint == ours.fingerprint
    assert np.array_equal(again.counts, ours.counts)
    assert theirs.pad_token_id == ours.padding_id
    for role in ("cls", "sep", "mask", "unk"):
        assert getattr(theirs, f"{role}_token_id") == getattr(ours, f"{role}_id")
    plain = [text for text in SENTENCES + PIECES if not set("<[") & set(text)]
    for text in [*plain, " ".join(plain)]:
        ids = ours.encode(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids == again.encode(text).ids.tolist()
        assert theirs(text)["input_ids"] == [ours.cls_id, *ids, ours.sep_id]
    asked = f"The {ours.special.mask} of the river."
    assert (
        theirs(asked, add_special_tokens=False)["input_ids"]
        == ours.encode(asked, special_tokens_in_text=True).ids.tolist()
    )
    left, right = (ours.encode(text).ids.tolist() for text in SENTENCES[:2])
    between = [ours.sep_id] if kind.startswith("wordpiece") else [ours.sep_id, ours.sep_id]
    assert theirs(*SENTENCES[:2])["input_ids"] == [ours.cls_id, *left, *between, *right, ours.sep_id]


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece-cased"])
def test_normalisation_is_berts(tokenizers, kind):
    ours = tokenizers[kind]
    theirs = BertTokenizer(
        vocab={piece: index for index, piece in enumerate(ours.tokens)}, do_lower_case=ours.lowercase
    )
    for text in [*SENTENCES, *(piece for piece in PIECES if "[" not in piece), " ".join(SENTENCES)]:
        assert ours.encode(text).ids.tolist() == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_a_size_the_text_cannot_fill_is_refused_with_one_that_it_can(kind):
    large = msgspec.structs.replace(CONFIGS[kind], size=50_000)
    with pytest.raises(DataError, match=r"larger than the text supports \(\d+ tokens\).*--size") as fault:
        train_vocabulary(TEXTS, large)
    supported = int(str(fault.value).rpartition("--size ")[2].partition(")")[0])
    assert train_vocabulary(TEXTS, msgspec.structs.replace(large, size=supported)).size == supported
    assert train_vocabulary(TEXTS, large, allow_smaller=True).size == supported
    with pytest.raises(DataError, match=r"tokenizer\.size=\d+ .*--size \d+\) or more"):
        train_vocabulary(TEXTS, msgspec.structs.replace(large, size=60))


def test_no_words_no_vocabulary():
    for config in (WordPieceConfig(), ByteBPEConfig(), BPEConfig(), UnigramConfig()):
        with pytest.raises(DataError, match="no words in the text"):
            train_vocabulary([""], config)
    with pytest.raises(DataError, match=r"text 2 holds a lone surrogate U\+D800"):
        train_vocabulary(["a", "\ud800"], WordPieceConfig())


def test_bytes_decode_to_what_was_encoded(tokenizers):
    for text in SENTENCES + PIECES:
        assert tokenizers["byte-bpe"].decode(tokenizers["byte-bpe"].encode(text).ids) == text


def test_merges_are_those_of_the_naive_algorithm():
    """Sennrich et al. 2016, algorithm 1, on their own example."""
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    texts = [" ".join([word] * count) for word, count in words.items()]
    tokenizer = train_vocabulary(texts, BPEConfig(size=4 + 14 + 5 + 1, min_count=2))
    merges = [tuple(pair) for pair in json.loads(tokenizer.library.to_str())["model"]["merges"]]
    split = {(*word[:-1], word[-1] + "</w>"): count for word, count in words.items()}
    counts = []
    for left, right in merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in split.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        assert pairs[left, right] == max(pairs.values())
        counts.append(pairs[left, right])
        split = {_merged(word, left, right): count for word, count in split.items()}
    assert len(merges) >= 5


def _merged(word: tuple[str, ...], left: str, right: str) -> tuple[str, ...]:
    parts, place = [], 0
    while place < len(word):
        if word[place : place + 2] == (left, right):
            parts.append(left + right)
            place += 2
        else:
            parts.append(word[place])
            place += 1
    return tuple(parts)


def test_counting_is_bounded_and_cut_text_counts_the_same(monkeypatch):
    bare = train_vocabulary(TEXTS, ByteBPEConfig(size=300)).library
    whole = counting.count_words(["the river was wide " * 50], bare)
    monkeypatch.setattr(counting, "PORTION", 64)
    assert counting.count_words(["the river was wide " * 50], bare) == whole
    monkeypatch.setattr(counting, "MOST_WORDS", 20)
    many = " ".join(f"w{number}" for number in range(500)) + " common" * 50
    few = counting.count_words([many], bare)
    assert len(few) <= 20
    assert "Ġcommon" in dict(few)


def test_embedded_text_is_fit_for_a_vocabulary():
    texts = [document.text for document in itertools.islice(embedded_documents(), 40)]
    tokenizer = train_vocabulary(texts, WordPieceConfig(size=1000))
    assert {"the", "##ing", "module"} & set(tokenizer.tokens) >= {"the", "##ing"}
    assert tokenizer.counts[tokenizer.unk_id] < 0.001 * tokenizer.counts.sum()


def test_line_breaks_are_not_counted_where_no_sentence_will_hold_one() -> None:
    lines = ["the bank of the river\nthe river of the bank\n\n"] * 20
    tokenizer = train_vocabulary(lines, ByteBPEConfig(size=270))
    assert tokenizer.counts is not None
    assert tokenizer.counts[tokenizer.id("\u010a")] == 0
    assert tokenizer.counts[tokenizer.id("\u0120the")] > 0


def test_digits_apart_are_a_token_each_and_transformers_reads_them_so(tmp_path):
    texts = ["In 1999 and 1998 there were 1999 of 1999.", "Call 1999-1999, room 199"] * 20
    together, apart = (
        train_vocabulary(texts, ByteBPEConfig(size=320, **chosen), allow_smaller=True)
        for chosen in ({}, {"digits": "apart"})
    )
    assert any(sum(char.isdigit() for char in token) > 1 for token in together.library.get_vocab())
    assert not any(sum(char.isdigit() for char in token) > 1 for token in apart.library.get_vocab())
    text = "There 1999, x99  9!"
    tokens = [token for token in apart.library.encode(text).tokens if any(map(str.isdigit, token))]
    assert tokens == ["Ġ1", *"999999"]
    apart.save(tmp_path / "apart")
    theirs = AutoTokenizer.from_pretrained(str(tmp_path / "apart"))
    assert theirs(text).input_ids == apart.library.encode(text).ids
    assert theirs.decode(theirs(text, add_special_tokens=False).input_ids) == text
    loaded = Tokenizer.load(tmp_path / "apart")
    assert (loaded.kind, loaded.style, loaded.library.to_str()) == ("byte-bpe", "Ġ", apart.library.to_str())
