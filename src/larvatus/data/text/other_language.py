"""Whether a text is in another language than the one a vocabulary was trained on, by the vocabulary's token counts.

In text like that of its training, a vocabulary spends h nats a byte on average, if each piece is coded by how frequent
it is: h = E[-log p(piece)] / E[bytes of a piece], both from `unigram_counts.json`. A word that costs more than
`DEAR` · h a byte is strange to the vocabulary. Names and rare terms are strange in any language, which is why words are
counted, not nats: a text looks foreign where more than `SHARE` of its words, and `MORE` more, are strange.

    looks_foreign("Das ist ein kleines Haus am Fluss.", tokenizer)        # True of an English vocabulary
    warn_of_other_language(texts, tokenizer)                              # one `OtherLanguageWarning`, or none

Rates of both kinds of mistakes are in docs/english.md. Vocabularies without counts, or trained on little text, know
too little, and nothing is said.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from larvatus.core.arrays import Doubles
from larvatus.core.errors import OtherLanguageWarning, printable
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.tokenizer_files import WELL_KNOWN

DEAR, SHARE, MORE = 1.3, 0.55, 1.3
"""Calibrated on English sentences against eleven other languages."""
FEWEST_WORDS = 4
"""Fewest words of a text that is judged."""
FEWEST_TOKENS = 1_000_000
"""Fewest tokens that the counts must cover."""
MOST_TEXTS, MOST_CHARACTERS = 64, 1_000
"""Most texts of a call that are inspected, which costs milliseconds."""
HEADLINE = 0.6
"""Share of capitalised words from which a text is judged in lower case as well: a headline or title."""
WARNED_SHARE = 0.1
"""Share of foreign-looking texts from which a call warns."""
MARKS = re.compile("|".join(map(re.escape, (*WELL_KNOWN["mask"], "*"))))
"""Blanks, and stars around words: no text."""
SHOWN = 40  # characters of a text


@dataclass(frozen=True, eq=False)
class TokenStatistics:
    """Statistics of the text that a vocabulary was trained on, from its token counts."""

    nats: Doubles  # [V] -log p of each piece, one more occurrence of each assumed
    per_byte: float
    """h: nats a byte of text like that of the training."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TokenStatistics | None:
        """None where the vocabulary has no counts, or few."""
        counts = tokenizer.counts
        if counts is None or counts.sum() < FEWEST_TOKENS:
            return None
        nats = -np.log((counts + 1) / (counts.sum() + len(counts)))
        if (unknown := tokenizer.id(tokenizer.special.unk)) is not None:
            nats[unknown] = np.inf  # its text may be of any length
        lengths = np.array([_bytes(piece, tokenizer) for piece in tokenizer.tokens])
        known = np.isfinite(nats)
        spent = float(counts[known] @ nats[known])
        return cls(nats, spent / max(1, int(counts[known] @ lengths[known])))


_known: WeakKeyDictionary[Tokenizer, TokenStatistics | None] = WeakKeyDictionary()


def _statistics(tokenizer: Tokenizer) -> TokenStatistics | None:
    if tokenizer not in _known:
        _known[tokenizer] = TokenStatistics.of(tokenizer)
    return _known[tokenizer]


def _bytes(piece: str, tokenizer: Tokenizer) -> int:
    """How much text a piece covers, the space before a word included."""
    if tokenizer.kind == "byte-bpe":
        return len(piece)  # a letter for each byte
    if tokenizer.style == "##":
        return len(piece.removeprefix("##").encode()) + (not piece.startswith("##"))
    return len(piece.replace("▁", " ").replace("</w>", " ").encode())


def looks_foreign(text: str, tokenizer: Tokenizer) -> bool:
    """Whether most words of a text are strange to the vocabulary."""
    return any(_foreign([text], tokenizer))


def warn_of_other_language(texts: Sequence[str | Sequence[str]], tokenizer: Tokenizer, *, frames: int = 3) -> None:
    """Warn once where a share of the texts looks foreign; `frames` up is the caller whom the warning is for."""
    if _statistics(tokenizer) is None:
        return
    sample = [text if isinstance(text, str) else " ".join(text) for text in texts[:MOST_TEXTS]]
    foreign = [text for text, strange in zip(sample, _foreign(sample, tokenizer), strict=True) if strange]
    if foreign and len(foreign) >= WARNED_SHARE * len(sample):
        start = foreign[0].strip()
        said = printable(start[:SHOWN] + ("…" if len(start) > SHOWN else ""))
        several = f"{len(foreign)} of {len(sample)} texts look" if len(sample) > 1 else "the text looks"
        warnings.warn(
            f"{several} foreign to this model: most words of “{said}” are strange to its vocabulary, as those of "
            "another language or script are; what it says of them may mean little",
            OtherLanguageWarning,
            stacklevel=frames,
        )


def _foreign(texts: Sequence[str], tokenizer: Tokenizer) -> list[bool]:
    statistics = _statistics(tokenizer)
    if statistics is None:
        return [False] * len(texts)
    plain = [MARKS.sub(" ", text[:MOST_CHARACTERS]) for text in texts]
    strange = [_is_foreign(alignment, statistics) for alignment in tokenizer.encode_many(plain)]
    headlines = [n for n, text in enumerate(plain) if strange[n] and _is_headline(text)]
    for n, alignment in zip(headlines, tokenizer.encode_many([plain[n].lower() for n in headlines]), strict=True):
        strange[n] = _is_foreign(alignment, statistics)
    return strange


def _is_headline(text: str) -> bool:
    """Whether Most Words Are Written Like This, which makes common words rare."""
    capitals = [word[0].isupper() for word in text.split() if word[0].isalpha()]
    return sum(capitals) > HEADLINE * len(capitals)


def _is_foreign(alignment: Alignment, statistics: TokenStatistics) -> bool:
    words = strange = 0
    text = alignment.text
    for (start, end), (first, last) in zip(alignment.word_spans.tolist(), alignment.word_tokens.tolist(), strict=True):
        word = text[start:end]
        if not any(map(str.isalpha, word)) or (len(word) > 1 and word.isupper()):  # numbers, signs; WORDS THAT SHOUT
            continue
        size = len(word.encode()) + (start == 0 or text[start - 1].isspace())
        words += 1
        strange += float(statistics.nats[alignment.ids[first:last]].sum()) > DEAR * statistics.per_byte * size
    return words >= FEWEST_WORDS and strange > SHARE * words + MORE
