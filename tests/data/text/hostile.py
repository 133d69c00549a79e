"""Text that breaks aligners: accents composed and not, joiners, controls, right-to-left, unspaced scripts, spaces."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

from tests.data.text.conftest import SENTENCES

PIECES = [
    "é", "e\u0301", "ñ", "n\u0303", "ﬃ", "Å", "İ", "ß", "ǅ", "½", "㍿", "…", "™",  # accents and compatibility
    "😀", "👩‍👩‍👧", "👨🏽‍⚕️", "🏴‍☠️", "🇫🇷", "#️⃣", "❤️",  # emoji
    "\u200d", "\u200c", "\u200b", "\u2060", "\ufeff", "\u00ad", "\u202e", "\u200f", "\ufe0f",  # zero width
    "\x00", "\x01", "\x1b", "\x7f", "\x85", "\x0b", "\x1c", "\ue000", "\U000f0000", "\ufffd", "\uffff",  # controls
    "\u0301", "\u0e33", "\u093f", "\u0600", "\u1100\u1161\u11a8",  # marks, prepended, conjoining
    " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2028",  # spaces
    "中", "文字", "かな", "カナ", "한국어", "ไทย", "ที่", "ລາວ", "ខ្មែរ", "မြန်", "हिन्दी", "שלום", "مرحبا",
    "don't", "Mt.", "well-known", "[MASK]", "<mask>", "<s>", "[CLS]", "##ing", "▁x", "Ġ", "</w>", "a", "B", "7", "_",
    ".", "...", "!", "'", "(", "«", "—", "،", "。", "$", "~", "€",
]  # fmt: skip


def hostile_unicode() -> st.SearchStrategy[str]:
    anything = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8)
    return st.lists(st.one_of(st.sampled_from(PIECES), anything), max_size=12).map("".join)


def ordinary_text() -> st.SearchStrategy[str]:
    """Sentences and bits of them as people write: letters, digits and punctuation, one space between."""
    words = sorted(
        {word for sentence in SENTENCES for word in sentence.split() if "ไ" not in word and "日" not in word}
    )
    spaced = [word for word in words if not any(_unspaced_for_us_only(char) for char in word)]
    return (
        st.lists(st.sampled_from(spaced), max_size=12)
        .map(" ".join)
        .map(lambda text: unicodedata.normalize("NFC", text))
    )


def _unspaced_for_us_only(char: str) -> bool:
    """Scripts in which we cut every character and BERT does not: Kana, Thai."""
    return "\u3040" <= char <= "\u30ff" or "\u0e00" <= char <= "\u0e7f" or char == "\u200d"
