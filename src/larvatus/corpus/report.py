"""What a corpus holds, language by language: how much, in which shares, and how finely the vocabulary cuts it.

for row in language_rows(corpus.manifest.languages, alpha=0.3):
    row.language, row.p, row.q, row.fertility
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from larvatus.corpus.format import Counts
from larvatus.corpus.mixture import mixture


@dataclass(frozen=True, kw_only=True)
class LanguageRow:
    language: str
    documents: int
    sentences: int
    tokens: int
    p: float
    """Share of the corpus' sentences."""
    q: float
    """Share of the sentences that training draws (eq. 11.7)."""
    fertility: float
    """Tokens a word: 1 where every word has a piece of its own."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.language}: {self.documents:,} documents · {self.sentences:,} sentences · {self.tokens:,} tokens · "
            f"p {self.p:.4f} → q {self.q:.4f} · {self.fertility:.2f} tokens a word"
        )


def language_rows(languages: Mapping[str, Counts], alpha: float) -> list[LanguageRow]:
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
