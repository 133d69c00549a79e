"""Row 75: a tokenizer.json that grows text without bound, or whose words have no limit, is refused or bounded.

Also row 45 (patterns), and numbers of workers and steps that no machine can serve.
"""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors

from larvatus.core.errors import ArtefactError
from larvatus.data.labelled import conllu
from larvatus.data.text.patterns import is_linear
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.evaluation.compare import word_similarity
from larvatus.inference.maps import instances
from larvatus.inference.senses import tagged as semcor
from tests.faults.test_runs import environment
from tests.patience import WATCHDOG_S, assert_linear

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"{CASED}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def charsmap(table: dict[bytes, bytes]) -> str:
    """A SentencePiece table: a double-array trie over the keys, then the entries."""
    entries, values = b"", {}
    for key, entry in table.items():
        values[key], entries = len(entries), entries + entry + b"\0"
    units = [0] * 256 * (2 + sum(map(len, table)))
    free = 256

    def place(node: int, prefix: bytes) -> None:
        nonlocal free
        base, free = free, free + 256
        leaf = prefix in values
        units[node] |= (base ^ node) << 10 | leaf << 8
        if leaf:
            units[base] = values[prefix] | 1 << 31
        for byte in sorted({key[len(prefix)] for key in table if key.startswith(prefix) and len(key) > len(prefix)}):
            units[base ^ byte] = byte
            place(base ^ byte, prefix + bytes([byte]))

    place(0, b"")
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + entries).decode()


FOLDING = charsmap({"ﷺ".encode(): "صلى الله عليه وسلم".encode(), "…".encode(): b"...", b"\t": b" "})
STEPS: dict[str, Any] = {
    "doubles": {"type": "Replace", "pattern": {"String": "e"}, "content": "ee"},
    "bytes": {"type": "ByteLevel"},
    "pieces": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    "anywhere": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "y" * 200},
    "before": {"type": "Prepend", "prepend": "▁" * 100},
    "mended": {"type": "Replace", "pattern": {"String": "e"}, "content": "ﷺ" * 10},
    "folded": {"type": "NFKD"},
    "hostile table": {"type": "Precompiled", "precompiled_charsmap": charsmap({b"e": b"e" * 1000})},
    "broken table": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    "cut": {"type": "Split", "pattern": {"String": "e"}, "behavior": "Isolated", "invert": False},
    "new": {"type": "Explode"},
}


def normalised(*names: str) -> Callable[[dict[str, Any]], None]:
    return lambda s: s.update(normalizer={"type": "Sequence", "normalizers": [STEPS[name] for name in names]})


def cut(*names: str) -> Callable[[dict[str, Any]], None]:
    return lambda s: s.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [STEPS[name] for name in names]})


def nested(settings: dict[str, Any]) -> None:
    for _ in range(50):
        settings["normalizer"] = {"type": "Sequence", "normalizers": [settings.get("normalizer") or STEPS["bytes"]]}


def template(settings: dict[str, Any]) -> None:
    special = {"[CLS]": {"id": "[CLS]", "ids": [2] * 100_000, "tokens": ["[CLS]"] * 100_000}}
    one = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    settings["post_processor"] = {"type": "TemplateProcessing", "single": one, "pair": one, "special_tokens": special}


def unigram(*pieces: str) -> Callable[[dict[str, Any]], None]:
    vocabulary = [["[UNK]", 0.0], *([piece, -1.0] for piece in pieces)]
    return lambda s: s.update(model={"type": "Unigram", "unk_id": 0, "vocab": vocabulary, "byte_fallback": False})


BOMBS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "forty doublings": (normalised(*["doubles"] * 40), "times longer"),
    "forty times bytes": (normalised(*["bytes"] * 40), "times longer"),
    "forty times bytes of pieces": (cut(*["pieces"] * 40), "times longer"),
    "half and half": (lambda s: (normalised(*["bytes"] * 6)(s), cut(*["pieces"] * 6)(s)), "times longer"),
    "at every place": (normalised("anywhere"), "times longer"),
    "before every stretch": (normalised("before"), "times longer"),
    "letters that unfold": (normalised("mended", "folded"), "times longer"),
    "a table of its own": (normalised("hostile table"), "times longer"),
    "a broken table": (normalised("broken table"), "precompiled_charsmap is damaged"),
    "a thousand cuts": (cut(*["cut"] * 1000), "more than 32 steps"),
    "an unknown step": (normalised("new"), "'Explode' is no step"),
    "sequences in sequences": (nested, "deep"),
    "a template of thousands": (template, "100,000 tokens around a text"),
    "a word of a billion": (lambda s: s["model"].update(max_input_chars_per_word=10**9), "1,000,000,000"),
    "a piece of a million": (unigram("é" * 1_000_000), "a piece of 1,000,000 characters"),
    "a long prefix": (lambda s: s["model"].update(continuing_subword_prefix="#" * 10**6), "continuing_subword_prefix"),
    "tokens by chance": (lambda s: s["model"].update(dropout=0.5), "dropout is '0.5'"),
    "added tokens": (lambda s: s["added_tokens"][0].update(content="e" * 10**6), "added_tokens has a piece"),
}


def write(path: Path, library: tokenizers.Tokenizer, change: Callable[[dict[str, Any]], None]) -> Path:
    settings = json.loads(library.to_str())
    change(settings)
    path.write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("name", BOMBS)
def test_75_a_bomb_is_refused_by_name(name: str, tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    change, message = BOMBS[name]
    path = write(tmp_path / "tokenizer.json", tiny_tokenizer.library, change)
    with pytest.raises(ArtefactError, match=message) as fault:
        Tokenizer.load(path)
    assert str(fault.value).startswith(str(path))


ENCODES = """
import json, resource, sys
from larvatus.inference.maps import instances
from larvatus.inference.senses import tagged as semcor
from larvatus.core.errors import ArtefactError
from larvatus.evaluation.compare import word_similarity
from larvatus.data.labelled import conllu
from larvatus.data.text.tokenizer import Tokenizer
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
answers = {}
for name in sys.argv[1:]:
    try:
        answers[name] = len(Tokenizer.load(name).encode("The naïve reader sees the same sentence here. " * 20).ids)
    except ArtefactError as fault:
        answers[name] = str(fault)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))  # ru_maxrss has that of who started it, too
print(json.dumps([answers, int(status["VmHWM"].split()[0])]))
"""


def test_75_whatever_is_not_refused_takes_little_memory(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In a process of its own, with 3 GB: each number of growing steps, from one to forty."""
    kinds = {"doubles": normalised, "bytes": normalised, "pieces": cut}
    paths = [
        write(tmp_path / f"{kind}-{count}.json", tiny_tokenizer.library, place(*[kind] * count))
        for kind, place in kinds.items()
        for count in (1, 4, 8, 20, 40)
    ]
    done = subprocess.run(
        [sys.executable, "-c", ENCODES, *map(str, paths)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=WATCHDOG_S,
    )
    assert done.returncode == 0, done.stderr
    answers, kilobytes = json.loads(done.stdout)
    assert kilobytes < 700_000
    for path in paths:
        count, answer = int(path.stem.partition("-")[2]), answers[str(path)]
        assert isinstance(answer, str) == (count > 4), (path, answer)
        assert isinstance(answer, str) or answer < 40_000  # 940 characters, which may grow to 32 times as many


def test_75_padding_and_truncation_of_a_file_do_not_act(tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    def pad(settings: dict[str, Any]) -> None:
        side = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]", "pad_to_multiple_of": None}
        settings["padding"] = {"strategy": {"Fixed": 10**9}, **side}
        settings["truncation"] = {"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}

    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.json", tiny_tokenizer.library, pad))
    text = "the river was wide and deep"
    assert tokenizer.encode(text).ids.tolist() == tiny_tokenizer.encode(text).ids.tolist()


def like(name: str) -> tokenizers.Tokenizer:
    """The pipelines of published families, as `transformers` writes them, over a few pieces."""
    n, p = normalizers, pre_tokenizers
    table = {"type": "Precompiled", "precompiled_charsmap": FOLDING}
    precompiled = tokenizers.Tokenizer.from_str(
        json.dumps(json.loads(tokenizers.Tokenizer(models.BPE()).to_str()) | {"normalizer": table})
    ).normalizer
    spaces = n.Replace(Regex(" {2,}"), "▁")
    meta = p.Metaspace(replacement="▁", prepend_scheme="always")

    def split(pattern: str) -> Any:
        return p.Sequence([p.Split(Regex(pattern), "isolated"), p.ByteLevel(False, use_regex=False)])

    pipelines: dict[str, tuple[Any, Any]] = {
        "bert, mpnet": (n.BertNormalizer(), p.BertPreTokenizer()),
        "japanese": (n.Sequence([n.NFKC(), n.BertNormalizer()]), p.BertPreTokenizer()),
        "roberta, gpt2": (None, p.ByteLevel(add_prefix_space=True)),
        "xlm-r": (n.Sequence([precompiled, spaces]), p.Sequence([p.WhitespaceSplit(), meta])),
        "albert": (
            n.Sequence(
                [n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), precompiled]
            ),
            p.Sequence([p.WhitespaceSplit(), meta]),
        ),
        "deberta": (n.Sequence([n.Strip(), precompiled, spaces]), p.Sequence([p.Punctuation(), meta])),
        "modernbert": (n.NFC(), p.ByteLevel(add_prefix_space=False)),
        "t5": (precompiled, p.Sequence([p.WhitespaceSplit(), meta])),
        "llama 2": (n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), None),
        "llama 3": (None, split(CL100K)),
        "o200k": (None, split(O200K)),
        "clip": (n.Sequence([n.NFC(), n.Replace(Regex(r"\s+"), " "), n.Lowercase()]), split(GPT2)),
        "falcon": (None, p.Sequence([p.Punctuation("contiguous"), p.ByteLevel(False), p.Digits(False)])),
    }
    pieces = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", *map(chr, range(33, 127)), "▁", "Ġ"]
    library = tokenizers.Tokenizer(models.BPE({piece: id for id, piece in enumerate(pieces)}, [], unk_token="<unk>"))
    normalizer, pre_tokenizer = pipelines[name]
    if normalizer is not None:
        library.normalizer = normalizer
    if pre_tokenizer is not None:
        library.pre_tokenizer = pre_tokenizer
    library.add_special_tokens([AddedToken(piece, special=True) for piece in pieces[:5]])
    library.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return library


@pytest.mark.parametrize(
    "name",
    [
        *("bert, mpnet", "japanese", "roberta, gpt2", "xlm-r", "albert", "deberta", "modernbert", "t5", "llama 2"),
        *("llama 3", "o200k", "clip", "falcon"),
    ],
)
def test_75_pipelines_of_published_families_are_not_refused(name: str, tmp_path: Path) -> None:
    library = like(name)
    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.json", library, lambda settings: None))
    text = "Hello  world… 12 naïve ﷺ"
    assert tokenizer.encode(text).ids.tolist() == library.encode(text, add_special_tokens=False).ids


RUNS = (("a", ""), (" ", ""), (" ", "c\n"), ("A", ""), ("A", "."), ("ab", " "), ("\n", "x"), ("é", "1"), (".", "x"))


@pytest.mark.parametrize("pattern", [GPT2, CL100K, O200K, r"\s+", " {2,}", r"(?:a|ab)?\w+", "[ab]{1,20}c"])
def test_45_a_pattern_that_runs_takes_linear_time(pattern: str) -> None:
    assert is_linear(pattern)
    cutter = pre_tokenizers.Split(Regex(pattern), "isolated")
    for unit, end in RUNS:
        assert_linear(lambda size, unit=unit, end=end: cutter.pre_tokenize_str(unit * size + end), 5_000)


@pytest.mark.parametrize(
    "pattern",
    [
        CASED,  # alone, it looks through a long run of capitals from each of them: 7 s for 20 kB
        pytest.param(r"\s*[\r\n]+", id="spaces alone"),
        r"\s*[\r\n]+|\s|\s+",
        CASED + r"|\p{Lu}|" + O200K.split("|", 8)[-1],
        "a{1,9}+b",  # in this engine a repeat of a repeat: exponential
        pytest.param("(?:ab?){2}", id="a group twice"),
        "a{20000}b",
        "a{200}b|" * 40 + "c",
        r"\s+$",
        ".*a",
        r"\ca*(b",
        "(" * 900 + ")" * 900,
        "a{}",
        "(?x: a +)",
        r"\X+",
        r"(?>a+)+b",
    ],
)
def test_45_a_pattern_that_can_run_away_is_refused(pattern: str, tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": True}
    path = write(tmp_path / "tokenizer.json", tiny_tokenizer.library, lambda s: s.update(pre_tokenizer=step))
    with pytest.raises(ArtefactError, match="could take for ever"):
        Tokenizer.load(path)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_75_a_long_word_takes_linear_time_of_a_foreign_tokenizer(kind: str, tmp_path: Path) -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    plain = {piece: id for id, piece in enumerate([*names, "e", "##e", "ee", "eeee"])}
    found: dict[str, Any] = {
        "bpe": lambda: models.BPE(plain, [("e", "e"), ("ee", "ee")], unk_token="[UNK]"),
        "unigram": lambda: models.Unigram([(piece, -float(id)) for piece, id in plain.items()], unk_id=1),
        "wordpiece": lambda: models.WordPiece(plain, unk_token="[UNK]", max_input_chars_per_word=256),
    }
    library = tokenizers.Tokenizer(found[kind]())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer.load(write(tmp_path / "tokenizer.json", library, lambda settings: None))
    assert_linear(lambda size: tokenizer.encode("e" * size), 50_000)


@pytest.mark.parametrize(
    "read",
    [
        lambda size: list(instances._STOP.finditer("." * size)),
        lambda size: list(conllu._BRACKET.finditer("a" * size)),
        lambda size: list(semcor._ATTRIBUTE.finditer(" " * size)),
        lambda size: word_similarity._wic_text("Word: " + ". Sentence 1: " * size + " Sentence 2: "),
        lambda size: word_similarity._between_tags(Path("x"), 1, "<b>a" + " " * size + "</b>"),
    ],
    ids=["full stops", "brackets", "attributes", "wic", "marks"],
)
def test_22_what_we_read_ourselves_takes_linear_time(read: Callable[[int], Any]) -> None:
    assert_linear(read, 2_000)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--workers", 999_999),
        ("--workers", -1),
        ("--steps", 10**22),
        ("--minutes", "inf"),
        ("--minutes", "nan"),
        ("--epochs", 1e300),
        ("--tokens", 10**30),
    ],
)
def test_75_a_run_that_no_machine_can_serve_is_refused_before_it_begins(
    larvatus: Any, tmp_path: Path, option: str, value: float
) -> None:
    (tmp_path / "text.txt").write_text("Some text.\n")
    run = ("pretrain", "bert", "--corpus", tmp_path / "text.txt", "--out", tmp_path / "run")
    code, said = larvatus(*run, option, value)
    assert code == 2, said
    assert option in said
    assert not (tmp_path / "run").exists()


def test_75_a_build_with_a_million_workers_is_refused(larvatus: Any, tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Some text.\n")
    tiny_tokenizer.save(tmp_path / "tokenizer")
    build = ("corpus", "build", tmp_path / "text.txt", "--tokenizer", tmp_path / "tokenizer", "--out", tmp_path / "c")
    code, said = larvatus(*build, "--workers", 999_999)
    assert code == 2
    assert "--workers" in said
    assert not (tmp_path / "c").exists()
