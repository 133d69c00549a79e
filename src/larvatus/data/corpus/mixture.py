"""The mixture of languages (Conneau & Lample 2019; chapter eq. 11.7): small ones are sampled more often than they come.

    p_i = n_i / Σ n_j              share of language i among the sentences
    q_i = p_i^α / Σ p_j^α          share among the sampled sentences; α = 1 leaves p, α = 0 makes all equal

    >>> {name: round(q, 3) for name, q in mixture({"en": 9_900, "sw": 100}, alpha=0.3).items()}
    {'en': 0.799, 'sw': 0.201}

Sampling is systematic, not random: each language has an endless row of its text, one random order of its chunks after
another, and every block of an epoch takes the next part of each row. Parts are as long as q requires, cut at sentences,
so each block has the mixture to a sentence, and no text of a language comes again before all of it has come. An epoch
samples as many sentences as the corpus has. Everything is a function of (seed, epoch, block).

Text of a model's old domain that is replayed while the model adapts to new text is a row of its own, under the name
`REPLAYED`: it has a fixed share of the tokens of every block, and α does not apply to it.

`language_rows` describes the languages of a corpus, `hygiene_lines` what was filtered from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import edges
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.ranges import Count, Share, ShareBetween
from larvatus.core.settings import Settings
from larvatus.data.corpus.format import REBUILD, ChunkInfo, CorpusCounts, CorpusManifest

REPLAYED = "und-x-replay"
"""Language tag (BCP 47, private use) of replayed text: its chunks are kept apart from those of new text."""


class MixtureConfig(Settings, path="mixture.", error=RecipeError):
    alpha: Share = 1.0
    """Exponent of eq. 11.7, from 0 (all languages alike) to 1 (as they come); XLM-R: 0.3."""
    languages: Count | msgspec.UnsetType = msgspec.UNSET
    """Read only the first N of the named languages (--language xx=PATH), for ablations; unset: all."""
    replay: ShareBetween | msgspec.UnsetType = msgspec.UNSET
    """Share of the tokens that are replayed text of the old domain (--replay); unset: none."""

    @property
    def replay_share(self) -> float:
        """Share of replayed text; 0 for none."""
        return 0.0 if self.replay is msgspec.UNSET else self.replay

    def repeats(self, sentences: Mapping[str, int]) -> dict[str, float]:
        """How often each language's text comes in an epoch: q_i / p_i."""
        p, q = mixture(sentences, 1.0), mixture(sentences, self.alpha)
        return {name: q[name] / p[name] for name in p}


def mixture(sentences: Mapping[str, int], alpha: float) -> dict[str, float]:
    """q_i of eq. 11.7 from the number of sentences of each language; languages without any are left out."""
    total = sum(sentences.values())
    powers = {name: (n / total) ** alpha for name, n in sentences.items() if n}
    return {name: power / sum(powers.values()) for name, power in powers.items()}


def epoch_tokens(languages: Mapping[str, CorpusCounts], config: MixtureConfig) -> dict[str, int]:
    """Tokens of each language in an epoch; replayed text fills its share on top of them."""
    repeats = config.repeats({name: counts.sentences for name, counts in new_languages(languages).items()})
    tokens = {name: max(1, round(languages[name].tokens * times)) for name, times in repeats.items()}
    if REPLAYED in languages and (share := config.replay_share):
        tokens[REPLAYED] = max(1, round(sum(tokens.values()) * share / (1 - share)))
    return tokens


def new_languages(languages: Mapping[str, CorpusCounts]) -> dict[str, CorpusCounts]:
    """Languages of a corpus without replayed text."""
    return {name: counts for name, counts in languages.items() if name != REPLAYED}


class ChunkPart(NamedTuple):
    """A stretch of a chunk, in tokens: the sentences that begin in it."""

    chunk: int
    first: int
    last: int


Shuffle = Callable[[str, int, Ints], Ints]
"""The order of a language's chunks on a pass over its text: (language, number of the pass, chunks)."""


def mixed_plan(
    chunks: Sequence[ChunkInfo], tokens: Mapping[str, int], *, epoch: int, size: int, shuffle: Shuffle
) -> list[list[ChunkPart]]:
    """The blocks of an epoch, of about `size` tokens each; `tokens` of every language, spread over all blocks."""
    count = max(1, round(sum(tokens.values()) / size))
    mine: dict[str, list[int]] = {name: [] for name in sorted(tokens)}
    for number, chunk in enumerate(chunks):
        mine[chunk.language].append(number)
    rows = {name: _Row(name, chunks, np.array(numbers, np.int64), shuffle) for name, numbers in mine.items()}
    blocks: list[list[ChunkPart]] = []
    for block in range(epoch * count, (epoch + 1) * count):
        ends = {name: (block * n // count, (block + 1) * n // count) for name, n in tokens.items()}
        blocks.append([part for name, row in rows.items() for part in row.parts(*ends[name])])
    return blocks


@dataclass
class _Row:
    """A language's text without end: pass after pass over its chunks, each in its own order."""

    language: str
    chunks: Sequence[ChunkInfo]
    mine: Ints  # which of the chunks are of the language
    shuffle: Shuffle
    _pass: tuple[int, list[int], list[int]] = field(init=False, default=(-1, [], []))  # number, chunks, their edges

    def __post_init__(self) -> None:
        self._length = sum(self.chunks[i].tokens for i in self.mine.tolist())

    def parts(self, first: int, last: int) -> Iterator[ChunkPart]:
        """Tokens first … last − 1 of the row."""
        while first < last:
            number, at = divmod(first, self._length)
            order, edge = self._order(number)
            k = bisect_right(edge, at) - 1
            taken = min(edge[k + 1] - at, last - first)
            yield ChunkPart(order[k], at - edge[k], at - edge[k] + taken)
            first += taken

    def _order(self, number: int) -> tuple[list[int], list[int]]:
        if self._pass[0] != number:
            order = self.shuffle(self.language, number, self.mine)
            edge = edges(np.array([self.chunks[i].tokens for i in order.tolist()], np.int64))
            self._pass = (number, order.tolist(), edge.tolist())
        return self._pass[1:]


def check_chunk_languages(name: str, chunks: Sequence[ChunkInfo], languages: Mapping[str, CorpusCounts]) -> None:
    """Old corpora have chunks of several languages: those cannot be mixed."""
    if len(languages) > 1 and any(not chunk.language for chunk in chunks):
        raise DataError(f"{name} was built when its chunks did not keep languages apart; {REBUILD}")


@dataclass(frozen=True, kw_only=True)
class LanguageRow:
    language: str
    documents: int
    sentences: int
    tokens: int
    p: float
    """Share of the corpus' sentences."""
    q: float
    """Share of the sentences in training (eq. 11.7)."""
    fertility: float
    """Tokens per word: 1 if every word is one token."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.language}: {self.documents:,} documents · {self.sentences:,} sentences · {self.tokens:,} tokens · "
            f"p {self.p:.4f} → q {self.q:.4f} · {self.fertility:.2f} tokens a word"
        )


def language_rows(languages: Mapping[str, CorpusCounts], alpha: float) -> list[LanguageRow]:
    """A row for each language, the largest first."""
    sentences = {name: counts.sentences for name, counts in languages.items()}
    p, q = mixture(sentences, 1.0), mixture(sentences, alpha)
    rows = [
        LanguageRow(
            language=name,
            documents=languages[name].documents,
            sentences=languages[name].sentences,
            tokens=languages[name].tokens,
            p=p[name],
            q=q[name],
            fertility=languages[name].tokens / max(1, languages[name].words),
        )
        for name in p
    ]
    return sorted(rows, key=lambda row: (-row.sentences, row.language))


def filtered_count(manifest: CorpusManifest) -> int:
    """Documents that were left out on purpose."""
    return 0 if manifest.hygiene is msgspec.UNSET else sum(manifest.hygiene["left_out"].values())


def hygiene_lines(manifest: CorpusManifest) -> list[str]:
    """What was left out of a corpus, removed from it and planted in it, and by which settings; nothing of others.

    The reasons for which documents were left out, with their numbers, are among `manifest.skipped`.
    """
    told, by = manifest.hygiene, manifest.settings.hygiene
    if told is msgspec.UNSET or by is msgspec.UNSET:
        return []
    settings, lines = by["settings"], []
    if settings["filter"]:
        left = ", ".join(f"{reason} {count:,}" for reason, count in told["left_out"].items()) or "none"
        lines.append(f"left out of {told['documents']:,} documents: {left} ({_settings(settings)})")
    if "personal" in told:
        personal = told["personal"]
        what = {"count": "counted", "tag": "replaced by tags", "remove": "removed"}[personal["handling"]]
        counts = ", ".join(f"{kind} {count:,}" for kind, count in personal["counts"].items()) or "none"
        lines.append(f"personal data, {what}: {counts}")
    if "canaries" in told:
        lines.append(
            f"canaries: {told['canaries']['drawn']:,} drawn, {told['canaries']['planted']:,} sentences planted"
        )
    return lines


def _settings(settings: Mapping[str, Any]) -> str:
    """Settings that decide the requested reasons."""
    decides = {
        "near": ("near", "shingle"),
        "overlap": ("against", "overlap_words"),
        "language": ("confidence",),
        "words": ("word_list", "most_listed"),
        "length": ("least_words", "most_words"),
        "characters": ("least_letters",),
        "encoding": ("most_damaged",),
    }
    names = [name for reason in settings["filter"] for name in decides.get(reason, ())]
    chosen = {name: settings[name] for name in names if settings[name] is not None}
    words = [f"{name} {', '.join(value) if isinstance(value, list) else value}" for name, value in chosen.items()]
    return "; ".join([f"filter {', '.join(settings['filter'])}", *words])
