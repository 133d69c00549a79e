"""Text in several languages: paths with their language, and their words counted language by language.

    given = [LanguagePath.of("sw=swahili/"), LanguagePath.of("en=english.txt.xz")]       # --language sw=swahili/ …
    tokenizer = train_mixed_vocabulary(read_languages(given), UnigramConfig(), MixtureConfig(alpha=0.3).repeats)

A vocabulary for several languages is trained on a sample in which they have the shares of eq. 11.7. Here the
whole text is counted and each language's counts are scaled to its share: what such a sample would hold on average,
without its chance, and without leaving out text of a small language.

Which language a file is in, as its name or that of its folder says: dev-de.tsv, xquad.de.json, de/test.conll.

>>> language_of("xnli/dev-de.tsv.xz"), language_of("wikiann/de/test.conll.xz"), language_of("tydiqa.goldp.sw.dev.json")
('de', 'de', 'sw')
>>> language_of("de_gsd-ud-dev.conllu"), language_of("dev-zh-Hant.tsv"), language_of("pos/ewt/dev.conllu") is None
('de', 'zh-Hant', True)

A name is cut at dots, hyphens and underscores; a part that is a code of ISO 639-1 in lower case, or one of the codes of
three letters in `THREE_LETTERS`, names the language, and a script or region behind it (Hant, TW) belongs to it. Where
the file's name has no such part, its folder's name is read in the same way. A name with two languages counts as none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

import msgspec
import numpy as np
import tokenizers

from larvatus.core.errors import DataError, UsageError
from larvatus.core.text_inputs import refuse_surrogates
from larvatus.data.bulk.executor import Executor, LocalExecutor
from larvatus.data.text import counting
from larvatus.data.text.documents import Document, ReadOptions, Skipped
from larvatus.data.text.readers import list_files, read_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import TokenizerConfig, Words, learn_vocabulary, pipeline, train_vocabulary
from larvatus.data.text.words import Mode, is_language, split_sentences

Repeats = Callable[[Mapping[str, int]], Mapping[str, float]]
"""From the sentences of each language to how often its text is to count."""


@dataclass(frozen=True)
class LanguagePath:
    """Text with its language: a file, folder, glob or URL."""

    language: str
    path: str

    @classmethod
    def of(cls, given: str) -> LanguagePath:
        """From ``sw=swahili/``."""
        language, equals, path = given.partition("=")
        if not equals or not path:
            raise UsageError(f"--language {given} names no text; give its path: --language {language or 'xx'}=PATH")
        if not is_language(language):
            raise UsageError(f"--language {given}: {language!r} is no language code; use one such as en, sw or zh-Hant")
        return cls(language, path)

    def __str__(self) -> str:
        return f"{self.language}={self.path}"


LanguageSource = str | Path | LanguagePath


def first_languages(given: Sequence[LanguageSource], count: int) -> frozenset[str]:
    """The first `count` of the languages that paths are named with.

    >>> sorted(first_languages([LanguagePath("sw", "a"), LanguagePath("en", "b"), LanguagePath("de", "c")], 2))
    ['en', 'sw']
    """
    named = list(dict.fromkeys(path.language for path in given if isinstance(path, LanguagePath)))
    if len(named) < count:
        there = f"{len(named)} are named ({', '.join(named)})" if named else "none is named"
        raise UsageError(f"mixture.languages = {count}, but {there}; name as many with their text: --language xx=PATH")
    return frozenset(named[:count])


def path_of(given: LanguageSource) -> str | Path:
    return given.path if isinstance(given, LanguagePath) else given


def read_languages(
    given: Sequence[LanguageSource], *, options: ReadOptions | None = None, skipped: Skipped | None = None
) -> Iterator[Document]:
    """All documents, those of plain paths first. A path with a language and no text is refused: it would be missed."""
    options, skipped = options or ReadOptions(), skipped if skipped is not None else Skipped()
    plain = [path for path in given if not isinstance(path, LanguagePath)]
    if plain:
        yield from read_documents(plain, options=options, skipped=skipped)
    seen: set[tuple[str, str | Path]] = set()
    for tagged in given:
        if not isinstance(tagged, LanguagePath):
            continue
        files = list_files([tagged.path], skipped=skipped)
        new = [file for file in files if (tagged.language, file) not in seen]
        seen.update((tagged.language, file) for file in new)
        in_language = msgspec.structs.replace(options, language=tagged.language)
        documents = 0
        for document in read_documents(new, options=in_language, skipped=skipped) if new else ():
            documents += 1
            yield document
        if new and not documents:
            raise DataError(f"{tagged.path} holds no text for --language {tagged.language}; give files that hold some")


def train_mixed_vocabulary(
    documents: Iterable[Document],
    config: TokenizerConfig,
    repeats: Repeats | None,
    *,
    language: str = "en",
    sentences: Mode = "library",
    executor: Executor = LocalExecutor(),
) -> Tokenizer:
    """Learn a vocabulary from documents whose languages count as often as `repeats` says (none: as they come).

    Shares are by sentences, as in the training mixture. `language` is that of documents for which none is given.
    Deterministic, whatever the executor.
    """
    if repeats is None:
        return train_vocabulary((document.text for document in documents), config, executor=executor)
    bare = pipeline(config)
    counted = LanguageCounts(bare)

    def portions() -> Iterator[tuple[str, list[str]]]:
        for number, document in enumerate(documents, start=1):
            refuse_surrogates(document.text, f"document {number}")
            yield from counted.due(replace(document, language=document.language or language), sentences)
        yield from counted.left()

    with executor.pool(lambda: bare, _count, what="a counting worker", fix="run the command again") as pool:
        for named, counts in pool.map(portions()):
            counted.take(named, counts)
    return learn_vocabulary(counted.words(repeats), bare, config)


def _count(library: tokenizers.Tokenizer, portion: tuple[str, list[str]]) -> tuple[str, dict[str, int]]:
    language, texts = portion
    return language, counting.count_portion(library, texts)


@dataclass
class LanguageCounts:
    """Words and sentences of each language, in memory that does not grow with the text or with the languages."""

    library: tokenizers.Tokenizer
    sentences: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, list[str]] = field(default_factory=dict)
    _sizes: Counter[str] = field(default_factory=Counter)
    _tables: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, document: Document, mode: Mode) -> None:
        for language, portion in self.due(document, mode):
            self.take(language, counting.count_portion(self.library, portion))

    def due(self, document: Document, mode: Mode) -> Iterator[tuple[str, list[str]]]:
        """Take a document up; texts that are many enough to be counted, with their language."""
        language = document.language or ""
        self.sentences[language] += len(split_sentences(document.text, language, mode))
        for part in counting.parts(document.text):
            self._waiting.setdefault(language, []).append(part)
            self._sizes[language] += len(part)
            while self._sizes.total() >= counting.PORTION:
                yield self._portion(max(self._sizes, key=lambda name: self._sizes[name]))

    def left(self) -> Iterator[tuple[str, list[str]]]:
        """Texts that still wait to be counted."""
        for language in list(self._waiting):
            yield self._portion(language)

    def words(self, repeats: Repeats) -> Words:
        """(word, count) over all languages, each scaled, ordered by the word."""
        for language, portion in self.left():
            self.take(language, counting.count_portion(self.library, portion))
        total: Counter[str] = Counter()
        factors = repeats(self.sentences) if len(self.sentences) > 1 else {}
        for language, table in self._tables.items():
            for word, count in scale_counts(sorted(table.items()), factors.get(language, 1.0)):
                total[word] += count
        return sorted(total.items())

    def _portion(self, language: str) -> tuple[str, list[str]]:
        del self._sizes[language]
        return language, self._waiting.pop(language)

    def take(self, language: str, counts: Mapping[str, int]) -> None:
        """Add what was counted; where the tables are too large, the largest is cut back."""
        counting.add_words(self._tables.setdefault(language, Counter()), counts)
        while sum(map(len, self._tables.values())) > counting.MOST_WORDS:
            largest = max(self._tables, key=lambda name: len(self._tables[name]))
            self._tables[largest] = counting.commoner_half(self._tables[largest])


def scale_counts(words: Words, factor: float) -> Words:
    """Counts times a factor, in whole numbers whose running sums are right: what rare words share is not rounded away.

    >>> scale_counts([("a", 1), ("b", 1), ("c", 1), ("d", 5)], 0.5)
    [('b', 1), ('d', 3)]
    """
    if factor == 1 or not words:
        return words
    sums = np.floor(np.cumsum([count for _, count in words], dtype=np.float64) * factor + 1e-9).astype(np.int64)
    counts = np.diff(sums, prepend=0).tolist()
    return [(word, count) for (word, _), count in zip(words, counts, strict=True) if count]


_TWO = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj
kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv
ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_THREE = "arz ast bar bho ceb ckb fil fur grc gsw hsb kmr lij mzn nap nds pcm pms pnb scn sme swa szl vec wuu yue"
TWO_LETTERS = frozenset(_TWO.split())
"""ISO 639-1."""
THREE_LETTERS = frozenset(_THREE.split())
"""Languages of multilingual sets without a two-letter code. Not all of ISO 639-3, where `dev` is a language."""
_MORE = re.compile(r"[A-Z][a-z]{3}|[A-Z]{2}")
"""A script or a region."""


def languages_in(name: str) -> list[str]:
    """The languages that the parts of a name are codes of, each once."""
    parts = re.split(r"[._-]+", name)
    codes: dict[str, None] = {}
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if part in TWO_LETTERS or part in THREE_LETTERS:
            codes[f"{part}-{after}" if _MORE.fullmatch(after) else part] = None
    return list(codes)


def language_of(path: str | PurePath) -> str | None:
    """The language in the name of a file, else in that of its folder; None if neither has one."""
    where = PurePath(path)
    codes = languages_in(where.name) or languages_in(where.parent.name)
    return codes[0] if len(codes) == 1 else None
