"""What a corpus holds, language by language: how much, in which shares, and how finely the vocabulary cuts it.

for row in language_rows(corpus.manifest.languages, alpha=0.3):
    row.language, row.p, row.q, row.fertility
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from larvatus.data.corpus.format import CorpusCounts, CorpusManifest
from larvatus.data.corpus.mixture import mixture


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
    """Of the reasons that were asked for, what decides them."""
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
