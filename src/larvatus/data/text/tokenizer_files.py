"""Files of a tokenizer: `tokenizer.json`, `tokenizer_config.json`, `vocab.txt`, `unigram_counts.json`.

Reading trusts nothing: size limits before parsing, no pattern that could run away (`patterns.py`), padding and
truncation off, no code named in a config is kept. Writing gives what `transformers.AutoTokenizer` loads, with equal
ids. `run_library` calls the `tokenizers` library and reports bad texts as our errors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models
from tokenizers.pre_tokenizers import Sequence as Sequential
from tokenizers.pre_tokenizers import Split

from larvatus.core.arrays import Ints
from larvatus.core.errors import ArtefactError, DataError
from larvatus.core.files import read_json, saying_what_is_full, standing, write_json, write_text
from larvatus.core.regular_files import follow_link, is_there, read_text, size_of
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.text.boundaries import Style
from larvatus.data.text.tokenizer_limits import check_limits

LARGEST = 256 * 2**20
"""Bytes of the largest `tokenizer.json` that is read; XLM-R's has 9 MB."""

COUNTS = "unigram_counts.json"
WELL_KNOWN = {
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
}
_CODE = ("auto_map", "custom_pipelines", "trust_remote_code")
"""Settings by which a config names Python code: dropped, never followed."""


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens; an empty name where a vocabulary has none."""

    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str = "[MASK]"
    pad: str = "[PAD]"
    unk: str = "[UNK]"


@dataclass(frozen=True)
class StoredTokenizer:
    """What the files of a tokenizer hold."""

    library: tokenizers.Tokenizer
    config: dict[str, Any]
    counts: npt.NDArray[np.int64] | None


@dataclass(frozen=True)
class TokenizerTraits:
    kind: str
    lowercase: bool
    style: Style | None
    special: SpecialTokens


def read(path: Path) -> StoredTokenizer:
    """Parse a directory's tokenizer, or a single `tokenizer.json`."""
    file = standing(path) / "tokenizer.json" if path.is_dir() else follow_link(path)
    if not is_there(file):
        raise ArtefactError(
            f"{path} holds no tokenizer.json; make one with: larvatus tokenizer train TEXT --out {path}"
        )
    text = _text(file)
    try:
        settings = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise ArtefactError(f"{file} is no whole JSON file: {fault}") from fault
    if not isinstance(settings, dict) or not isinstance(settings.get("model"), dict):
        raise ArtefactError(f"{file} is no tokenizer: it describes no model")
    check_limits(settings, str(file))
    _check_ids(settings, str(file))
    config = _config(file.parent) if path.is_dir() else {}
    counts = _counts(file.parent / COUNTS) if path.is_dir() else None
    return StoredTokenizer(_parse(text, str(file)), config, counts)


def _check_ids(settings: dict[str, Any], name: str) -> None:
    """Ids far beyond the number of pieces would make the library, and any embedding table, allocate for ever."""
    vocabulary = settings["model"].get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    added = settings.get("added_tokens")
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    highest = max((index for index in ids if isinstance(index, int)), default=0)
    if highest > 2 * max(len(ids), len(vocabulary) if isinstance(vocabulary, list) else 0) + 1_000:
        raise ArtefactError(f"{name} has {len(ids):,} pieces but ids up to {highest:,}; refused")


def _text(file: Path) -> str:
    size = size_of(file)
    if size > LARGEST:
        raise ArtefactError(f"{file} has {size:,} bytes; a tokenizer of more than {LARGEST:,} is refused")
    return read_text(file, most=LARGEST)


def _parse(text: str, name: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as fault:  # the library panics on some broken files, and a panic is no Exception
        if not isinstance(fault, Exception) and type(fault).__name__ != "PanicException":
            raise
        raise ArtefactError(f"{name} is no tokenizer that the tokenizers library reads: {fault}") from fault


def _config(directory: Path) -> dict[str, Any]:
    """`tokenizer_config.json`, completed by `special_tokens_map.json`."""
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if is_there(directory / name):
            settings = read_json(directory / name)
            if not isinstance(settings, dict):
                raise ArtefactError(f"{directory / name} is no JSON object")
            config |= {key: value for key, value in settings.items() if value is not None}
    return {key: value for key, value in config.items() if key not in _CODE}


def _counts(file: Path) -> npt.NDArray[np.int64] | None:
    if not is_there(file):
        return None
    stored = read_json(file)
    counts = stored.get("counts") if isinstance(stored, dict) else None
    if not isinstance(counts, list) or not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise ArtefactError(f"{file} holds no list of counts")
    return np.asarray(counts, dtype=np.int64)


def token_list(library: tokenizers.Tokenizer) -> list[str]:
    """Every piece by its id; ids that nothing has are empty."""
    vocabulary: dict[str, int] = library.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values(), default=-1) + 1
    by_id = [""] * size
    for piece, index in vocabulary.items():
        by_id[index] = piece
    return by_id


def read_traits(library: tokenizers.Tokenizer, config: dict[str, Any], name: str) -> TokenizerTraits:
    """What a tokenizer is: kind, case, style of marking words, special tokens."""
    settings = msgspec.json.decode(library.to_str())
    model = settings["model"]
    parts = _types(settings.get("normalizer")) | _types(settings.get("pre_tokenizer"))
    style = _style(model, parts)
    kinds = {"WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "word-level"}
    kind = kinds.get(model["type"], "byte-bpe" if "ByteLevel" in parts else "bpe")
    kind = "characters" if _is_character_model(model, parts) else kind
    special = {}
    for role, customary in WELL_KNOWN.items():
        given = config.get(f"{role}_token")
        given = given.get("content") if isinstance(given, dict) else given
        if given is not None and (not isinstance(given, str) or library.token_to_id(given) is None):
            raise ArtefactError(
                f"{name}: {role}_token {given!r} is not in the vocabulary; correct tokenizer_config.json"
            )
        known = (token for token in customary if library.token_to_id(token) is not None)
        special[role] = given or next(known, "")
    special["unk"] = special["unk"] or _unknown(model)
    return TokenizerTraits(kind, _lowercases(settings.get("normalizer")), style, SpecialTokens(**special))


def _unknown(model: dict[str, Any]) -> str:
    if model["type"] == "Unigram" and isinstance(model.get("unk_id"), int):
        return str(model["vocab"][model["unk_id"]][0])
    return str(model.get("unk_token") or "")


def _is_character_model(model: dict[str, object], parts: set[str]) -> bool:
    """Whether tokens are the bytes of words, never merged (`vocabularies/characters.py`)."""
    whole = model["type"] == "BPE" and model.get("continuing_subword_prefix") == "##" and not model.get("merges")
    return bool(whole and {"ByteLevel", "BertPreTokenizer"} <= parts)


def _style(model: dict[str, Any], parts: set[str]) -> Style | None:
    if model["type"] == "WordPiece":
        exact = "BertPreTokenizer" in parts and model.get("continuing_subword_prefix") == "##"
        return "##" if exact else None
    if model["type"] == "BPE" and model.get("end_of_word_suffix") == "</w>":
        return "</w>" if "BertPreTokenizer" in parts else None
    if _is_character_model(model, parts):
        return "##bytes"
    if "ByteLevel" in parts:
        return "Ġ"
    return "▁" if "Metaspace" in parts else None


def _types(part: Any) -> set[str]:
    """The types of a component and of those it is a sequence of."""
    if not isinstance(part, dict):
        return set()
    inner = part.get("normalizers") or part.get("pretokenizers") or []
    return {part["type"]}.union(*map(_types, inner))


def _lowercases(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    if part["type"] == "BertNormalizer":
        return bool(part.get("lowercase"))
    return part["type"] == "Lowercase" or any(map(_lowercases, part.get("normalizers") or []))


WRITTEN = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", COUNTS)
"""Files that `write` may create, whatever was there before."""


def write(directory: Path, stored: StoredTokenizer, *, special: SpecialTokens) -> None:
    """All files of a tokenizer, each whole or absent."""
    with saying_what_is_full(directory):
        directory.mkdir(parents=True, exist_ok=True)
    library, counts = stored.library, stored.counts
    write_text(directory / "tokenizer.json", library.to_str())
    roles = {f"{role}_token": name for role, name in vars(special).items() if name}
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | stored.config | roles
    write_json(directory / "tokenizer_config.json", config)
    if isinstance(library.model, models.WordPiece):
        write_text(directory / "vocab.txt", "".join(f"{piece}\n" for piece in token_list(library)))
    if counts is not None:
        write_text(directory / COUNTS, json.dumps({"counts": counts.tolist()}) + "\n")


def run_library(encode: Any, texts: Sequence[str]) -> list[Any]:
    """Encode by a method of the library, which says nothing useful of a text that is no text: find it."""
    try:
        encodings: list[Any] = encode(list(texts), add_special_tokens=False)
    except TypeError:
        for index, text in enumerate(texts):
            refuse_surrogates(text, f"text {index + 1}" if len(texts) > 1 else "the text")
        raise
    except BaseException as fault:
        refuse_panic(fault)
        raise
    return encodings


def refuse_panic(fault: BaseException) -> None:
    """The library panics where its pattern engine gives up, and a panic is no Exception."""
    if type(fault).__name__ == "PanicException":
        raise DataError(f"the tokenizers library gave up on a text ({fault}); cut it into shorter ones") from fault


def arrays_of(encoding: Any) -> tuple[Ints, Ints]:
    """Ids and spans of the library's encoding; spans are made monotone, which normalisation may break in theory."""
    ids = np.asarray(encoding.ids, dtype=np.int64)
    spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return ids, np.maximum.accumulate(spans, axis=0)


def cutting_copy(library: tokenizers.Tokenizer, characters: set[str]) -> tokenizers.Tokenizer:
    """A copy that reads special names as text, and makes each of the characters a separate token."""
    copy = tokenizers.Tokenizer.from_str(library.to_str())
    copy.encode_special_tokens = True
    steps = [] if copy.pre_tokenizer is None else [copy.pre_tokenizer]
    copy.pre_tokenizer = Sequential([*steps, *(Split(last, "isolated") for last in sorted(characters))])
    return copy
