"""What a text is: words, scripts, languages, duplicates, and what a plan must warn of.

    scan = scan_text(source.read, language="uk")
    scan.words, scan.scripts, scan.near_words
    scan.warnings()                    # "12% of the letters are Latin, although uk is mostly written in Cyrillic: …"

The text is read once. Duplicates are those of `larvatus corpus check` (exact, and by MinHash where datasketch is
installed). Languages are identified in a random sample of documents, the same every time, where py3langid is installed.
A sample of pieces of about 20 lines is kept, for a vocabulary and for timing (`pieces`); every tenth is held out.
"""

from __future__ import annotations

import functools
import heapq
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import regex

from larvatus.core.errors import DataError
from larvatus.core.rng import derive
from larvatus.data.bulk.parts import PartsFolder
from larvatus.data.corpus.hygiene.first_pass import MeasuringPass, PassProgress, judge_documents
from larvatus.data.corpus.hygiene.measure import DocumentMeasures, LanguageIdentifier, base_language
from larvatus.data.corpus.hygiene.settings import HygieneSettings
from larvatus.data.text.documents import Document
from larvatus.data.text.words import UNSPACED_SCRIPTS, segment_words

SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Tamil",
    "Telugu", "Kannada", "Malayalam", "Sinhala", "Georgian", "Armenian", "Ethiopic", "Hangul", *UNSPACED_SCRIPTS,
)  # fmt: skip
USUAL = {
    "Cyrillic": "ab av ba be bg ce cv kk kv ky mk mn os ru tg tt uk",
    "Arabic": "ar arz ckb fa ks pnb ps sd ug ur",
    "Greek": "el grc",
    "Hebrew": "he yi",
    "Devanagari": "bho hi mr ne sa",
    "Bengali": "as bn",
    "Gurmukhi": "pa",
    "Gujarati": "gu",
    "Tamil": "ta",
    "Telugu": "te",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Sinhala": "si",
    "Georgian": "ka",
    "Armenian": "hy",
    "Ethiopic": "am ti",
    "Hangul": "ko",
    "Thai": "th",
    "Lao": "lo",
    "Khmer": "km",
    "Myanmar": "my",
    "Tibetan": "bo dz",
    "Han": "ja wuu yue zh",
}
"""Languages by the script that they are mostly written in; all others are taken for Latin, or not judged."""
TOGETHER = {"Han": ("Hiragana", "Katakana", "Bopomofo", "Hangul")}
"""Scripts that are written together."""
COUNTED = 20_000_000
"""Characters whose words are counted one by one; the words of further text are estimated from its characters."""
SAMPLED, IDENTIFIED = 1_000_000, 300
"""Characters of the sample of pieces, and documents whose language is identified."""
PIECE_LINES, PIECE_CHARACTERS, EVERY = 20, 4_000, 10
"""Largest piece of the sample; every tenth piece is held out."""
MIXED, OTHER = 0.02, 0.05
"""Shares of letters of another script, and of documents in another language, that are warned of."""
MIXED_WORDS = 0.002
"""Share of words with letters of two alphabets that is warned of."""
_MIXED = regex.compile(r"\p{Latin}[\p{Cyrillic}\p{Greek}]|[\p{Cyrillic}\p{Greek}]\p{Latin}")


@functools.lru_cache(maxsize=65_536)
def script_of(char: str) -> str | None:
    """The script of a letter; None for anything else, "other" for a script without a name here.

    >>> script_of("a"), script_of("ж"), script_of("1")
    ('Latin', 'Cyrillic', None)
    """
    if not unicodedata.category(char).startswith("L"):
        return None
    return next((name for name in SCRIPTS if regex.match(rf"\p{{Script={name}}}", char)), "other")


def count_words(text: str) -> int:
    """Words with a letter or a digit.

    >>> count_words("Mt. Sanitas, 山")
    3
    """
    return sum(any(map(str.isalnum, text[start:end])) for start, end in segment_words(text).tolist())


def pieces(text: str) -> Iterator[str]:
    """A document in pieces of at most 20 lines or 4,000 characters, cut at spaces."""
    part: list[str] = []
    size = 0
    for line in text.splitlines():
        for stretch in _stretches(line.strip()):
            if part and (len(part) == PIECE_LINES or size + len(stretch) > PIECE_CHARACTERS):
                yield "\n".join(part)
                part, size = [], 0
            part.append(stretch)
            size += len(stretch)
    if part:
        yield "\n".join(part)


def _stretches(line: str) -> Iterator[str]:
    while len(line) > PIECE_CHARACTERS:
        space = line.rfind(" ", PIECE_CHARACTERS // 2, PIECE_CHARACTERS)
        cut = space if space > 0 else PIECE_CHARACTERS
        yield line[:cut]
        line = line[cut:].lstrip()
    if line:
        yield line


@dataclass(frozen=True, kw_only=True)
class TextScan:
    """Counts of a text, and a sample of it."""

    documents: int
    characters: int
    words: int
    """Words, repeated documents included."""
    exact_words: int
    """Words of documents that repeat an earlier one."""
    near_words: int | None
    """Words of further documents that nearly repeat an earlier one; None if datasketch is not installed."""
    scripts: Mapping[str, float]
    """Shares of the letters, largest first."""
    mixed_words: int
    """Words with letters of Latin and of Cyrillic or Greek."""
    languages: Mapping[str, float] | None
    """Shares of the sampled documents by identified language, largest first; None if py3langid is not installed."""
    language: str
    """Language of most of the text, as the user named it; English if not."""
    training: tuple[str, ...] = ()
    """Sampled pieces."""
    held_out: tuple[str, ...] = ()

    @property
    def unique_words(self) -> int:
        """Words without those of repeated documents."""
        return self.words - self.exact_words - (self.near_words or 0)

    @property
    def unspaced(self) -> float:
        """Share of letters in scripts that do not separate words by spaces."""
        return sum(share for name, share in self.scripts.items() if name in UNSPACED_SCRIPTS)

    def warnings(self) -> list[str]:
        """What the user should look at before training."""
        return [line for line in (*self._of_scripts(), *self._of_languages(), *self._of_duplicates()) if line]

    def _of_scripts(self) -> Iterator[str]:
        usual = next((name for name, codes in USUAL.items() if base_language(self.language) in codes.split()), None)
        latin = self.scripts.get("Latin", 0.0)
        first = next(iter(self.scripts), None)
        if usual is not None and latin >= OTHER:
            yield (
                f"{latin:.0%} of the letters are Latin, although {self.language} is mostly written in {usual}: "
                "romanised text or other languages, which share no token with the rest; transliterate or remove them"
            )
        elif first is not None:
            family = {first, *TOGETHER.get(first, ()), *(main for main, others in TOGETHER.items() if first in others)}
            others = {name: share for name, share in self.scripts.items() if name not in family and share >= MIXED}
            if others:
                shares = ", ".join(f"{name} {share:.0%}" for name, share in others.items())
                main = f"{first} {self.scripts[first]:.0%}"
                yield f"letters of several scripts: {main}, {shares}; each needs tokens of its own"
        if self.mixed_words > MIXED_WORDS * max(1, self.words):
            yield (
                f"{self.mixed_words:,} words mix Latin letters with Cyrillic or Greek ones, often look-alikes from "
                "scanned text: they are cut into rare tokens"
            )
        if self.unspaced > MIXED:
            yield (
                f"{self.unspaced:.0%} of the letters are of scripts without spaces between words: each character "
                "counts as a word, here and in whole-word masks, so losses do not compare with other languages"
            )

    def _of_languages(self) -> Iterator[str]:
        if not self.languages:
            return
        first, share = next(iter(self.languages.items()))
        if 1 - share >= OTHER:
            named = ", ".join(f"{code} {part:.0%}" for code, part in list(self.languages.items())[:4])
            yield f"documents look like several languages ({named}); name each with --language xx=PATH, or filter them"
        known = base_language(self.language)
        if self.languages.get(known, 0.0) < 0.5 and find_spec("py3langid") and LanguageIdentifier().knows(known):
            yield f"the text looks like {first}, not {known}; name its language with --language {first}"

    def _of_duplicates(self) -> Iterator[str]:
        repeated = self.exact_words + (self.near_words or 0)
        if repeated >= 0.01 * max(1, self.words):
            yield (
                f"{repeated / self.words:.0%} of the words are in documents that repeat others; build the corpus with "
                "--filter exact --filter near"
            )


@dataclass
class _Counting:
    """Counts that grow while the documents pass."""

    documents: int = 0
    characters: int = 0
    counted: int = 0
    words: int = 0
    mixed: int = 0
    letters: Counter[str] = field(default_factory=Counter)
    stated: Counter[str] = field(default_factory=Counter)
    """Characters of each language that the user named."""
    sample: list[tuple[int, int, str]] = field(default_factory=list)
    """A heap of documents with the smallest random numbers, negated: they are identified."""
    kept: list[tuple[int, int, str]] = field(default_factory=list)
    """The same of pieces, up to a number of characters."""
    kept_characters: int = 0
    pieces: int = 0

    def pass_on(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            self._count(document.text)
            self.stated[document.language or ""] += len(document.text)
            yield document

    def _count(self, text: str) -> None:
        if self.counted < COUNTED:
            self.counted += len(text)
            self.words += count_words(text)
            self.mixed += len(_MIXED.findall(text))
            self.letters.update(text)
        entry = (-derive(0, "plan documents", 0, self.documents), self.documents, text[:1_000])
        (heapq.heappush if len(self.sample) < IDENTIFIED else heapq.heappushpop)(self.sample, entry)
        for piece in pieces(text):
            heapq.heappush(self.kept, (-derive(0, "plan pieces", 0, self.pieces), self.pieces, piece))
            self.kept_characters += len(piece)
            self.pieces += 1
            while self.kept_characters - len(self.kept[0][2]) >= SAMPLED:
                self.kept_characters -= len(heapq.heappop(self.kept)[2])
        self.documents += 1
        self.characters += len(text)

    @property
    def scripts(self) -> dict[str, float]:
        counts: Counter[str] = Counter()
        for char, count in self.letters.items():
            if (name := script_of(char)) is not None:
                counts[name] += count
        return {name: count / counts.total() for name, count in counts.most_common()}

    @property
    def languages(self) -> dict[str, float] | None:
        if find_spec("py3langid") is None:
            return None
        identifier = LanguageIdentifier()
        codes = Counter(code for _, _, text in self.sample if (code := identifier.language(text)[0]))
        return {code: count / codes.total() for code, count in codes.most_common()}


def scan_text(
    read: Callable[[], Iterable[Document]],
    *,
    language: str,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda documents, size: None,
) -> TextScan:
    """Read a text once; `progress` gets documents and bytes so far."""
    settings = HygieneSettings(filter=("exact", "near") if find_spec("datasketch") else ("exact",))
    measures = DocumentMeasures.of(settings, language=language, everything=False)
    counting = _Counting()
    with tempfile.TemporaryDirectory(prefix="larvatus-") as folder:
        parts: PartsFolder[Any] = PartsFolder(Path(folder), {}, kind=PassProgress, suffix=".npy")
        run = MeasuringPass(measures, parts, workers=workers, progress=progress)
        measured = run.run(counting.pass_on(read()), resume=False)
        if not len(measured) or not counting.words:
            raise DataError("there are no words to plan with; give files that hold text")
        flags = judge_documents(measured, settings, measures).flags
        words = measured.column("words")
        shares = {name: float(words[flag].sum()) / max(1, int(words.sum())) for name, flag in flags.items()}
    total = round(counting.words * counting.characters / max(1, counting.counted))
    kept = sorted(counting.kept, key=lambda entry: entry[1])
    return TextScan(
        documents=counting.documents,
        characters=counting.characters,
        words=total,
        exact_words=round(shares["exact"] * total),
        near_words=round(shares["near"] * total) if "near" in shares else None,
        scripts=counting.scripts,
        mixed_words=counting.mixed,
        languages=counting.languages,
        language=counting.stated.most_common(1)[0][0] or language,
        training=tuple(text for place, (_, _, text) in enumerate(kept) if place % EVERY != EVERY // 2),
        held_out=tuple(text for place, (_, _, text) in enumerate(kept) if place % EVERY == EVERY // 2),
    )
