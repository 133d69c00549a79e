"""Words of a text: what whole-word masking, word vectors and tags are about.

The rule is that of BERT's basic tokenizer (Devlin et al. 2019), made safe for every script:

- white space separates; a word never holds any;
- a punctuation character is a word by itself (Unicode category P, and the ASCII symbols ``$+<=>^`|~``);
- where the script does not write spaces (Han, Kana, Thai, Lao, Khmer, Burmese, Tibetan, …) each character is a word;
- anything else runs on until one of these;
- a grapheme cluster is never cut: accents stay with their letter, joiners hold an emoji family together;
- characters that nobody sees (zero-width space, controls) do not form words.

>>> text = "Mt. Sanitas, 山"
>>> [text[start:end] for start, end in segment_words(text).tolist()]
['Mt', '.', 'Sanitas', ',', '山']
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import regex

UNSPACED_SCRIPTS = (
    "Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan",
    "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet", "Javanese", "Balinese",
)  # fmt: skip
UNSPACED = "".join(rf"\p{{Script={script}}}" for script in UNSPACED_SCRIPTS)
SPACE = r"\s\x1c-\x1f"
"""White space as `str.isspace` says; the regular expression's own leaves out four separators."""
PUNCTUATION = r"\p{P}$+<=>^`|~"
ALONE = f"[{PUNCTUATION}{UNSPACED}]"
"""A character that is a word by itself (with what extends it)."""
EXTENDS = r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
"""A character that belongs to the one before it, never the first of a cluster."""

# A run is one character class, so a ten-megabyte word costs linear time and no backtracking memory.
# An unspaced script's own combining marks (Thai vowels above) extend the cluster before them, or start a run.
_WORD = regex.compile(rf"(?V1)(?!{EXTENDS})(?={ALONE})\X|[{EXTENDS}||[^{SPACE}{PUNCTUATION}{UNSPACED}]]++")
_JOINS_FORWARD = regex.compile(r"[\p{GCB=Prepend}\p{GCB=ZWJ}]")
_CLUSTER = regex.compile(r"\X")
_UNSEEN = r"[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]"
_ANY_UNSEEN = regex.compile(_UNSEEN)
_ALL_UNSEEN = regex.compile(f"{_UNSEEN}+")

_SPACES = np.zeros(0x3001, dtype=np.bool_)
_SPACES[[code for code in range(0x3001) if chr(code).isspace()]] = True


def segment_words(text: str) -> npt.NDArray[np.int64]:
    """Character spans of the words of a text, in order: [W, 2]."""
    spans = [match.span() for match in _WORD.finditer(text)]
    if not text.isascii() and _JOINS_FORWARD.search(text):
        spans = _uncut(text, spans)
    if _ANY_UNSEEN.search(text):
        spans = [(start, end) for start, end in spans if not _ALL_UNSEEN.fullmatch(text, start, end)]
    return np.asarray(spans, dtype=np.int64).reshape(-1, 2)


def _uncut(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbours whose border is inside a grapheme cluster: rare (prepended marks, hostile joiners)."""
    borders = {match.start() for match in _CLUSTER.finditer(text)}
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and joined[-1][1] == start and start not in borders:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """The code points of a text: [N]. Lone surrogates pass: naming them is the caller's business."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def is_space(text: str) -> npt.NDArray[np.bool_]:
    """Which characters are white space, as `str.isspace` says: [N]."""
    codes = code_points(text)
    return _SPACES[np.minimum(codes, 0x3000)] & (codes <= 0x3000)
