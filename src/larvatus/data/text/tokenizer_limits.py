"""What a foreign `tokenizer.json` may ask of time and memory: refused, by name, before the library reads it.

    check_limits(settings, "model/tokenizer.json")

Forty steps that each double a text, a pattern that backtracks for ever, a word of a billion characters that WordPiece
goes through again from each of them, a piece so long that the library's trie overflows the stack: a file of a few
lines is enough. So the types of all steps must be known ones, there are few of them, how much longer they can make a
text is bounded (the product of the worst cases), patterns are linear (`patterns.py`), words and pieces have a limit.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Iterator
from typing import Any

from larvatus.core.errors import ArtefactError
from larvatus.data.text.patterns import is_linear, shortest_match

LARGEST_GROWTH = 128
"""Bytes that one byte of text may become by a file's own rules; those of ALBERT come to 66 at worst."""
MOST_STEPS = 32
DEEPEST = 4
"""Sequences of sequences."""
LONGEST_WORD = 256
"""Characters of a word that WordPiece takes apart; BERT's limit is 100. Time grows with its square."""
LONGEST_STRING = 2_000
LONGEST_MARK = 64
"""Characters of a prefix or suffix that marks pieces (``##``, ``</w>``)."""
LONGEST_PIECE = 4_096
LONGEST_UNIGRAM_PIECE = 128
"""Characters. Unigram looks so far ahead from each character, and its trie is freed by recursion."""
LARGEST_TRIE = 16 * 2**20
"""Bytes of all pieces of a Unigram vocabulary, or of all added tokens: tries take a hundred times as much."""
MOST_SPECIAL = 64
"""Special tokens around one text or two."""

Settings = dict[str, Any]


def check_limits(settings: Settings, name: str) -> None:
    """Refuse a parsed `tokenizer.json` that could take any amount of time or memory."""
    growth = 1.0
    for part, known in (("normalizer", _NORMALIZERS), ("pre_tokenizer", _PRE_TOKENIZERS)):
        growth = _growth(settings.get(part), known, growth, f"{name}: {part}")
    _growth(settings.get("decoder"), _DECODERS, 1.0, f"{name}: decoder")
    _check_special(settings.get("post_processor"), f"{name}: post_processor")
    _check_model(settings["model"], name)
    added = settings.get("added_tokens")
    contents = [token.get("content") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    _check_pieces(contents, f"{name}: added_tokens", longest=LONGEST_PIECE, trie=True)


# — how much longer each step can make a text, in bytes —


def _replace(step: Settings) -> float:
    """Replacement and its pattern; an empty pattern inserts after each character."""
    pattern = step.get("pattern")
    content = _bytes(step.get("content"))
    if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
        least = shortest_match(pattern["Regex"])
        return max(1.0, content / least) if least else 1.0 + content
    literal = _bytes(pattern.get("String") if isinstance(pattern, dict) else pattern)
    return max(1.0, content / literal) if literal else 1.0 + content


def _precompiled(step: Settings) -> float:
    """The longest entry of a SentencePiece table against the shortest text it can stand for.

    The table is a trie over bytes, then the entries, each ended by a zero byte. Which entries belong to one byte and to
    two is looked up; the others stand for three at least.
    """
    try:
        blob = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
        if not blob:
            return 1.0
        size = struct.unpack_from("<I", blob)[0]
        trie = struct.unpack_from(f"<{size // 4}I", blob, 4)
        entries = blob[4 + size :]
        growth = max(map(len, entries.split(b"\0"))) / 3
        for first, node in _children(trie, 0):
            values = [(1, _value(trie, first, node))]
            values += [(2, _value(trie, second, inner)) for second, inner in _children(trie, node)]
            for length, value in values:
                if value is not None:
                    end = entries.index(b"\0", value) if value < len(entries) else value
                    growth = max(growth, (end - value) / length)
    except (binascii.Error, struct.error, TypeError, ValueError, IndexError) as fault:
        raise ArtefactError(f"the table precompiled_charsmap is damaged ({fault})") from fault
    return max(1.0, growth)


def _children(trie: tuple[int, ...], node: int) -> Iterator[tuple[int, int]]:
    """The byte and the place of each child of a node of a double-array trie."""
    base = node ^ _offset(trie[node])
    for byte in range(1, 256):
        place = base ^ byte
        if place < len(trie) and trie[place] & 0x800000FF == byte:
            yield byte, place


def _value(trie: tuple[int, ...], byte: int, node: int) -> int | None:
    """Where the entry of a node begins, if it has one."""
    if not trie[node] >> 8 & 1:
        return None
    return trie[node ^ _offset(trie[node])] & 0x7FFFFFFF


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def _bytes(value: Any) -> int:
    return len(value.encode(errors="replace")) if isinstance(value, str) else 0


def _same(step: Settings) -> float:
    return 1.0


_NORMALIZERS: dict[str, Callable[[Settings], float]] = {
    "BertNormalizer": lambda step: 7.5,  # spaces around ideographs 5/3, decomposed 3, lower-cased 3/2
    "ByteLevel": lambda step: 2.0,  # half of all bytes are written as characters of two
    "NFC": lambda step: 3.0,
    "NFD": lambda step: 3.0,
    "NFKC": lambda step: 11.0,  # U+FDFA is eighteen letters
    "NFKD": lambda step: 11.0,
    "Lowercase": lambda step: 1.5,
    "Nmt": _same,
    "Strip": _same,
    "StripAccents": _same,
    "Precompiled": _precompiled,
    "Replace": _replace,
    "Prepend": lambda step: 1.0 + _bytes(step.get("prepend")),  # to each stretch between added tokens
}
_FORMS = frozenset(["NFC", "NFD", "NFKC", "NFKD", "Lowercase"])
"""Unicode's own: what they add to a text is that text's doing, and a second time they add nothing."""
_PRE_TOKENIZERS: dict[str, Callable[[Settings], float]] = {
    "ByteLevel": lambda step: 3.0 if step.get("add_prefix_space", True) else 2.0,
    "Metaspace": lambda step: 1.0 + max(_bytes(step.get("replacement")), _bytes(step.get("str_rep")), 3),
    **dict.fromkeys(
        (
            *("BertPreTokenizer", "CharDelimiterSplit", "Digits", "FixedLength", "Punctuation", "Split"),
            *("UnicodeScripts", "Whitespace", "WhitespaceSplit"),
        ),
        _same,
    ),
}
_DECODERS: dict[str, Callable[[Settings], float]] = {
    "Replace": _replace,
    **dict.fromkeys(
        ("BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Strip", "WordPiece"), _same
    ),
}


def _growth(part: Any, known: dict[str, Callable[[Settings], float]], growth: float, name: str) -> float:
    """How much longer a text can be after the steps of a part, given how much longer it was before."""
    counted: set[str] = set()
    for number, step in enumerate(_steps(part, name), start=1):
        kind = str(step.get("type"))
        if kind not in known:
            raise ArtefactError(f"{name}: {_short(kind)} is no step that is known here; there are: {', '.join(known)}")
        if number > MOST_STEPS:
            raise ArtefactError(f"{name} has more than {MOST_STEPS} steps; refused")
        _check_strings(step, name)
        try:
            factor = known[kind](step)
        except ArtefactError as fault:
            raise ArtefactError(f"{name}: {fault}") from fault
        if kind not in _FORMS:
            growth *= factor
            counted = counted if factor <= 1 else set()
        elif growth > 1 and kind not in counted:
            growth *= factor
            counted.add(kind)
        if growth > LARGEST_GROWTH:
            raise ArtefactError(
                f"{name}: its steps could make a text more than {LARGEST_GROWTH} times longer; refused (see {kind})"
            )
    return growth


def _steps(part: Any, name: str, depth: int = 0) -> Iterator[Settings]:
    """The steps of a part, those of sequences in sequences one after the other."""
    if part is None:
        return
    if not isinstance(part, dict):
        raise ArtefactError(f"{name} is no step: {_short(str(part))}")
    if part.get("type") != "Sequence":
        yield part
        return
    if depth >= DEEPEST:
        raise ArtefactError(f"{name} has sequences in sequences more than {DEEPEST} deep; refused")
    for key in ("normalizers", "pretokenizers", "decoders", "processors"):
        inner = part.get(key)
        for step in inner if isinstance(inner, list) else []:
            yield from _steps(step, name, depth + 1)


def _check_strings(step: Settings, name: str) -> None:
    """Patterns are linear, and other strings short."""
    pattern = step.get("pattern")
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    if expression is not None and not is_linear(str(expression)):
        raise ArtefactError(
            f"{name}: the pattern {_short(str(expression))} could take for ever on some text; "
            "only patterns that cannot backtrack far are run"
        )
    literal = pattern.get("String") if isinstance(pattern, dict) else pattern
    for key, value in [("pattern", literal), *step.items()]:
        if isinstance(value, str) and len(value) > LONGEST_STRING and key != "precompiled_charsmap":
            raise ArtefactError(
                f"{name}: {key} has {len(value):,} characters; more than {LONGEST_STRING:,} are refused"
            )


# — the rest —


def _check_special(part: Any, name: str) -> None:
    """A template may put any number of tokens around every text."""
    steps = list(_steps(part, name))
    if len(steps) > MOST_STEPS:
        raise ArtefactError(f"{name} has more than {MOST_STEPS} steps; refused")
    for step in steps:
        sizes = [len(step[key]) for key in ("single", "pair") if isinstance(step.get(key), list | str)]
        tokens = step.get("special_tokens")
        if isinstance(tokens, dict):
            ids = [token["ids"] for token in tokens.values() if isinstance(token, dict) and "ids" in token]
            sizes += [len(group) for group in ids if isinstance(group, list)]
        if max(sizes, default=0) > MOST_SPECIAL:
            raise ArtefactError(
                f"{name} puts {max(sizes):,} tokens around a text; more than {MOST_SPECIAL} are refused"
            )


def _check_model(model: Settings, name: str) -> None:
    """Words, pieces and their marks have a length that is bounded, and nothing is left to chance."""
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > LONGEST_WORD:
        raise ArtefactError(
            f"{name}: max_input_chars_per_word is {longest:,}, and time grows with its square; "
            f"set it to {LONGEST_WORD} or less (BERT: 100)"
        )
    for key in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        value = model.get(key)
        if isinstance(value, str) and len(value) > LONGEST_MARK:
            raise ArtefactError(f"{name}: {key} has {len(value):,} characters; more than {LONGEST_MARK} are refused")
    if model.get("dropout"):
        raise ArtefactError(
            f"{name}: dropout is {_short(str(model['dropout']))}, so that a text would get other tokens each time; "
            "set it to null"
        )
    _check_vocabulary(model, name)


def _check_vocabulary(model: Settings, name: str) -> None:
    """Pieces with their ids, or (Unigram) with their scores; among them the one of unknown words."""
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        if not all(type(index) is int and index >= 0 for index in vocabulary.values()):
            raise ArtefactError(f"{name}: the vocabulary gives a piece an id that is no number from 0 on")
        _check_pieces(list(vocabulary), f"{name}: the vocabulary", longest=LONGEST_PIECE, trie=False)
    elif isinstance(vocabulary, list):
        pieces = [entry[0] for entry in vocabulary if isinstance(entry, list) and entry]
        _check_pieces(pieces, f"{name}: the vocabulary", longest=LONGEST_UNIGRAM_PIECE, trie=True)
    elif vocabulary is not None:
        raise ArtefactError(f"{name}: the vocabulary is {_short(str(vocabulary))}, not pieces with their ids or scores")
    unknown = model.get("unk_token")
    if unknown is not None and vocabulary is not None and not (isinstance(unknown, str) and unknown in vocabulary):
        raise ArtefactError(
            f"{name}: unk_token {_short(str(unknown))} is not in the vocabulary, so no unknown word could be encoded; "
            "correct tokenizer.json"
        )


def _check_pieces(pieces: list[Any], name: str, *, longest: int, trie: bool) -> None:
    strings = [piece for piece in pieces if isinstance(piece, str)]
    for piece in strings:
        if len(piece) > longest:
            raise ArtefactError(f"{name} has a piece of {len(piece):,} characters; more than {longest:,} are refused")
    total = sum(map(len, strings))
    if trie and total > LARGEST_TRIE:
        raise ArtefactError(f"{name}: pieces of {total:,} characters in all; more than {LARGEST_TRIE:,} are refused")


def _short(words: str) -> str:
    return repr(words if len(words) <= 60 else words[:57] + "…")
