"""Measures each document, block by block: a pure function of the block, for any executor.

    measures = DocumentMeasures.of(settings, language="en", everything=True)
    records, hits = measure_block(measures, documents)         # a row for each document (`record_type`)

`LanguageIdentifier` identifies the language of a document by its bytes (`py3langid`, which includes its model). It
reads the beginning and the middle. Short documents, and languages that the model does not know, are not judged.

    LanguageIdentifier().language("Der Bach fließt durch das Tal.")        # ("de", 0.98)
    LanguageIdentifier().knows("ee")                                       # False
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from larvatus.core.arrays import Bits, Ints, Records
from larvatus.core.errors import UsageError
from larvatus.data.corpus.hygiene.overlap import EvaluationSets, MinHashScheme
from larvatus.data.corpus.hygiene.personal import KINDS, check_can_find, count_personal
from larvatus.data.corpus.hygiene.settings import PERMUTATIONS, HygieneSettings
from larvatus.data.corpus.hygiene.shingles import (
    WORDS,
    HashedWords,
    ShingleCharacters,
    count_per_document,
    hashed_words,
    n_grams,
)
from larvatus.data.text.documents import Document

MIN_CHARACTERS = 40
"""Characters below which no language is identified."""
_STRETCH = 250  # characters from the beginning, and from the middle


@dataclass(frozen=True)
class LanguageIdentifier:
    def language(self, text: str) -> tuple[str, float]:
        """Code and confidence; an empty code where the text is too short."""
        if len(text) < MIN_CHARACTERS:
            return "", 0.0
        middle = len(text) // 2
        stretch = text if len(text) <= 2 * _STRETCH else f"{text[:_STRETCH]} {text[middle : middle + _STRETCH]}"
        code, confidence = _model().classify(stretch)
        return str(code), float(confidence)

    def knows(self, language: str) -> bool:
        return base_language(language) in _labels()


def base_language(language: str) -> str:
    """Without script or country: ``zh`` of ``zh-Hant``."""
    return language.replace("_", "-").split("-")[0].lower()


def check_can_identify() -> None:
    """Before the work, not after it."""
    if find_spec("py3langid") is None:
        raise UsageError('identifying languages needs py3langid; pip install "larvatus[hygiene]"')


@functools.cache
def _model() -> Any:
    check_can_identify()
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # its model takes a moment

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@functools.cache
def _labels() -> frozenset[str]:
    return frozenset(_model().labels)


_READ_AS_LATIN = re.compile("[ÂÃ][\u0080-\u00bf\u0152-\u0178\u2013-\u2122]|â€|ï¿½")


def record_type(permutations: int) -> np.dtype[Any]:
    return np.dtype(
        [
            ("digest", "<u8", (2,)),  # of the text, white space around it left out
            ("signature", "<u4", (permutations,)),
            ("words", "<i8"),
            ("characters", "<i8"),
            ("bytes", "<i8"),
            ("letters", "<f4"),  # share of the visible characters
            ("damaged", "<f4"),  # share of the characters
            ("listed", "<i8"),  # words on the user's list
            ("stated", "S16"),
            ("language", "S16"),  # identified; empty: not judged
            ("confidence", "<f4"),
            ("overlap", "<i8"),  # n-grams in common with evaluation sets
            ("grams", "<i8"),  # n-grams for a sketch
            ("personal", "<i8", (len(KINDS),)),
        ]
    )


@dataclass(frozen=True)
class DocumentMeasures:
    """What a worker must have."""

    scheme: MinHashScheme | None
    """None: no near duplicates are looked for."""
    shingle: int
    listed: Bits
    sets: EvaluationSets
    overlap_words: int
    identifier: LanguageIdentifier | None
    personal: bool
    regions: tuple[str, ...]
    """Countries whose phone numbers count without a country code."""
    language: str
    """Language of documents that state none."""

    @classmethod
    def of(cls, settings: HygieneSettings, *, language: str, everything: bool) -> DocumentMeasures:
        """`everything`: not only what the filter needs."""
        reasons = settings.reasons
        near, judged = everything or "near" in reasons, everything or "language" in reasons
        if judged:
            check_can_identify()
        personal = everything or settings.personal is not None
        if personal:
            check_can_find()
        listed = hashed_words(ShingleCharacters.of(settings.listed_words()))
        return cls(
            scheme=MinHashScheme.of(threshold=settings.near, permutations=PERMUTATIONS) if near else None,
            shingle=settings.shingle,
            listed=np.unique(listed.hashes),
            sets=EvaluationSets.read(settings.against, n=settings.overlap_words),
            overlap_words=settings.overlap_words,
            identifier=LanguageIdentifier() if judged else None,
            personal=personal,
            regions=settings.regions,
            language=language,
        )

    @property
    def permutations(self) -> int:
        return 0 if self.scheme is None else PERMUTATIONS


def measure_block(measures: DocumentMeasures, documents: Sequence[Document]) -> tuple[Records, Ints]:
    """A record for each document, and which n-grams of the evaluation sets they hold."""
    texts = [document.text for document in documents]
    records = np.zeros(len(texts), record_type(measures.permutations))
    if not texts:
        return records, np.empty(0, np.int64)
    characters = ShingleCharacters.of(texts)
    words = hashed_words(characters)
    lengths = np.array([len(text) for text in texts])
    records["digest"] = [_digest(text) for text in texts]
    records["words"], records["characters"] = words.counts, lengths
    records["bytes"] = [len(text.encode(errors="surrogatepass")) for text in texts]
    records["letters"] = characters.letters() / np.maximum(1, characters.visible())
    latin = [_read_as_latin(text) for text in texts]
    records["damaged"] = (characters.damaged() + latin) / np.maximum(1, lengths)
    records["grams"] = np.maximum(words.counts - WORDS + 1, 0)
    if len(measures.listed):
        records["listed"] = count_per_document(np.isin(words.hashes, measures.listed), words.counts)
    if measures.scheme is not None:
        records["signature"] = measures.scheme.signatures(*n_grams(words, measures.shingle))
    hits = _overlap(measures, words, records)
    for record, document in zip(records, documents, strict=True):
        record["stated"] = base_language(document.language or measures.language).encode()[:16]
        if measures.identifier is not None and measures.identifier.knows(record["stated"].decode()):
            code, record["confidence"] = measures.identifier.language(document.text)
            record["language"] = code.encode()
        if measures.personal:
            counts = count_personal(document.text, measures.regions)
            record["personal"] = [counts[kind] for kind in KINDS]
    return records, hits


def _digest(text: str) -> tuple[int, int]:
    digest = hashlib.blake2b(text.strip().encode(errors="surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _read_as_latin(text: str) -> int:
    """How often UTF-8 was read as Latin-1 or Windows-1252, and written again: ``Ã©`` for ``é``."""
    if text.isascii() or not any(sign in text for sign in ("Ã", "Â", "â€", "ï¿½")):
        return 0
    return len(_READ_AS_LATIN.findall(text))


def _overlap(measures: DocumentMeasures, words: HashedWords, records: Records) -> Ints:
    if not measures.sets.sets:
        return np.empty(0, np.int64)
    grams, counts = n_grams(words, measures.overlap_words)
    places = measures.sets.places(grams)
    records["overlap"] = count_per_document(places >= 0, counts)
    return np.unique(places[places >= 0])
