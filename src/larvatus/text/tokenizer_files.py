"""How a tokenizer lies on disk: `tokenizer.json`, `tokenizer_config.json`, `vocab.txt`, `unigram_counts.json`.

Reading trusts nothing: size limits before parsing, no pattern that could run away (`patterns.py`), padding and
truncation off, no code named in a config is kept. Writing gives what `transformers.AutoTokenizer` loads, equal ids
included.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import tokenizers

from larvatus.errors import ArtefactError
from larvatus.files import read_json, saying_what_is_full, standing, write_json, write_text
from larvatus.regular_files import is_there, named, read_text, size_of
from larvatus.text.boundaries import Style
from larvatus.text.frame import Frame, read_frame
from larvatus.text.tokenizer_limits import check_limits

if TYPE_CHECKING:
    from larvatus.text.tokenizer import Tokenizer

LARGEST = 256 * 2**20
"""Bytes of the largest `tokenizer.json` that is read; XLM-R's has 9 MB."""

COUNTS = "unigram_counts.json"
ROLES = ("cls", "sep", "mask", "pad", "unk")
WELL_KNOWN = {
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
}
TWO_SEPARATORS = ("Roberta", "XLMRoberta", "Camembert", "MPNet")
"""How the names of the `transformers` classes begin that put two separators into a pair and have no second segment."""
_CODE = ("auto_map", "custom_pipelines", "trust_remote_code")
"""Settings by which a config names Python code: dropped, never followed."""


@dataclass(frozen=True)
class Read:
    library: tokenizers.Tokenizer
    config: dict[str, Any]
    counts: npt.NDArray[np.int64] | None


@dataclass(frozen=True)
class Traits:
    kind: str
    lowercase: bool
    style: Style | None
    special: dict[str, str]


def read(path: Path) -> Read:
    """Parse a directory's tokenizer, or a `tokenizer.json` alone."""
    file = standing(path) / "tokenizer.json" if path.is_dir() else named(path)
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
    return Read(_parse(text, str(file)), config, counts)


def _check_ids(settings: dict[str, Any], name: str) -> None:
    """Ids far beyond the number of pieces would make the library, and any embedding table, allocate for ever."""
    vocabulary = settings["model"].get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    added = settings.get("added_tokens")
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    highest = max((index for index in ids if isinstance(index, int)), default=0)
    if highest > 2 * max(len(ids), len(vocabulary or ())) + 1_000:
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
            found = read_json(directory / name)
            if not isinstance(found, dict):
                raise ArtefactError(f"{directory / name} is no JSON object")
            config |= {key: value for key, value in found.items() if value is not None}
    return {key: value for key, value in config.items() if key not in _CODE}


def _counts(file: Path) -> npt.NDArray[np.int64] | None:
    if not is_there(file):
        return None
    found = read_json(file)
    counts = found.get("counts") if isinstance(found, dict) else None
    if not isinstance(counts, list) or not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise ArtefactError(f"{file} holds no list of counts")
    return np.asarray(counts, dtype=np.int64)


def pieces(library: tokenizers.Tokenizer) -> list[str]:
    """Every piece by its id; ids that nothing has are empty."""
    vocabulary: dict[str, int] = library.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values(), default=-1) + 1
    found = [""] * size
    for piece, index in vocabulary.items():
        found[index] = piece
    return found


def traits(library: tokenizers.Tokenizer, config: dict[str, Any], name: str) -> Traits:
    """What a tokenizer is: kind, case, style of marking words, special tokens."""
    settings = msgspec.json.decode(library.to_str())
    model = settings["model"]
    parts = _types(settings.get("normalizer")) | _types(settings.get("pre_tokenizer"))
    style = _style(model, parts)
    kinds = {"WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "word-level"}
    kind = kinds.get(model["type"], "byte-bpe" if "ByteLevel" in parts else "bpe")
    special = {}
    for role in ROLES:
        given = config.get(f"{role}_token")
        given = given.get("content") if isinstance(given, dict) else given
        if given is not None and (not isinstance(given, str) or library.token_to_id(given) is None):
            raise ArtefactError(
                f"{name}: {role}_token {given!r} is not in the vocabulary; correct tokenizer_config.json"
            )
        found = [token for token in WELL_KNOWN[role] if library.token_to_id(token) is not None]
        special[role] = given or (found[0] if found else "")
    special["unk"] = special["unk"] or _unknown(model)
    return Traits(kind, _lowercases(settings.get("normalizer")), style, special)


def frame(tokenizer: Tokenizer) -> Frame:
    """How texts and pairs are dressed: as the post-processor says; by the class where there is none; else as BERT."""
    config = tokenizer.config
    kind = str(config.get("tokenizer_class", ""))
    double = kind.removesuffix("Fast").removesuffix("Tokenizer") in TWO_SEPARATORS
    frame = read_frame(tokenizer.library.post_processor)
    if frame is None:
        cls_id, sep_id = tokenizer.id(tokenizer.special.cls), tokenizer.id(tokenizer.special.sep)
        frame = (Frame.roberta if double else Frame.bert)(cls_id, sep_id)
    highest = max(frame.specials, default=0)
    if highest >= tokenizer.size:
        raise ArtefactError(
            f"the tokenizer's post-processor adds token {highest}, but ids go from 0 to {tokenizer.size - 1}; "
            "correct tokenizer.json"
        )
    names = config.get("model_input_names")
    if isinstance(names, list) and "token_type_ids" not in names:  # then `transformers` gives the model no segments
        return frame.without_segments()
    return frame


def _unknown(model: dict[str, Any]) -> str:
    if model["type"] == "Unigram" and isinstance(model.get("unk_id"), int):
        return str(model["vocab"][model["unk_id"]][0])
    return str(model.get("unk_token") or "")


def _style(model: dict[str, Any], parts: set[str]) -> Style | None:
    if model["type"] == "WordPiece":
        exact = "BertPreTokenizer" in parts and model.get("continuing_subword_prefix") == "##"
        return "##" if exact else None
    if model["type"] == "BPE" and model.get("end_of_word_suffix") == "</w>":
        return "</w>" if "BertPreTokenizer" in parts else None
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
"""Files that `write` may make, whatever stood there."""


def write(tokenizer: Tokenizer, directory: Path) -> None:
    """All files of a tokenizer, each whole or absent."""
    with saying_what_is_full(directory):
        directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / "tokenizer.json", tokenizer.library.to_str(pretty=True))
    roles = {f"{role}_token": name for role, name in vars(tokenizer.special).items() if name}
    write_json(
        directory / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"} | tokenizer.config | roles
    )
    if tokenizer.kind == "wordpiece":
        write_text(directory / "vocab.txt", "".join(f"{piece}\n" for piece in tokenizer.pieces))
    if tokenizer.counts is not None:
        write_text(directory / COUNTS, json.dumps({"counts": tokenizer.counts.tolist()}) + "\n")
