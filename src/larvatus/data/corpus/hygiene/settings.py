"""Settings of corpus hygiene: what is checked, and which documents are skipped.

    HygieneSettings(filter=("exact", "near", "language"), personal="remove")
    larvatus corpus build texts/ … --filter exact --filter near --filter language --personal remove

`larvatus corpus check` takes the same settings, to see first what they would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from larvatus.core import files
from larvatus.core.errors import DataError, UsageError, did_you_mean
from larvatus.core.ranges import Count, CountOrNone, PositiveShare, Seed, Share, whole
from larvatus.core.regular_files import read_named
from larvatus.core.settings import Flag, Settings
from larvatus.data.corpus.canaries import DIGITS, FORMAT, MOST_REPEATS, REPEATS, Canaries, Digits, draw_canaries
from larvatus.data.corpus.hygiene.personal import Handling
from larvatus.data.corpus.hygiene.phones import REGIONS, check_regions

REASONS = ("exact", "near", "overlap", "language", "words", "length", "characters", "encoding")
"""For which documents are left out."""
PERMUTATIONS = 128

Words = Annotated[int, whole(1, 1_000)]


class HygieneSettings(Settings):
    """Checks to run, and which documents to skip."""

    filter: Annotated[tuple[str, ...], Flag("--filter", metavar="REASON")] = ()
    """Leave documents out: exact, near, overlap, language, words, length, characters, encoding, or all; repeatable."""
    near: PositiveShare = 0.25
    """Jaccard similarity of runs of words from which documents are near duplicates (estimated)."""
    shingle: Words = 3
    """Words of a run, for near duplicates."""
    against: Annotated[tuple[str, ...], Flag("--against", metavar="FILE")] = ()
    """Evaluation sets that the text must not hold: tables, JSON or lines; repeatable."""
    overlap_words: Annotated[int, whole(2, 1_000)] = 13
    """Words of a run in common with an evaluation set that make an overlap."""
    confidence: Share = 0.8
    """Score of the language identifier from which a document counts as being in another language than stated."""
    word_list: Annotated[Path | None, Flag(metavar="FILE")] = None
    """Words to look for, one a line."""
    most_listed: Share = 0.01
    """Share of its words that a document may have on the list."""
    least_words: CountOrNone = 5
    """Words that a document has at least."""
    most_words: Count | None = None
    """Words that a document has at most."""
    least_letters: Share = 0.5
    """Share of letters and digits among its visible characters."""
    most_damaged: Share = 0.001
    """Most damaged characters, as a share: controls, unreadable bytes, UTF-8 read as something else."""
    personal: Handling | None = None
    """E-mail and IP addresses, phone, card, account and national numbers: count, tag (<email>) or remove them."""
    region: Annotated[tuple[str, ...], Flag("--region", metavar="CC")] = ()
    """Countries whose phone numbers count without a country code, such as US; repeatable, 17 by default."""

    sketch: bool = False
    """Keep a sketch of the text with the shards: `larvatus corpus contamination` reads it later, without the text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [name for word in self.filter for name in word.split(",")]
        for name in names:
            if name not in (*REASONS, "all"):
                raise UsageError(f"--filter {name:.40} is no reason{did_you_mean(name, (*REASONS, 'all'))}")
        if self.region:
            check_regions(self.regions)
        if "overlap" in names and not self.against:
            raise UsageError("--filter overlap needs an evaluation set; name it with --against FILE")
        if "words" in names and self.word_list is None:
            raise UsageError("--filter words needs a list; name it with --word-list FILE")

    @property
    def reasons(self) -> tuple[str, ...]:
        """For which documents are left out, in a fixed order; of all, those for which there is something to go by."""
        names = {name for word in self.filter for name in word.split(",")}
        if "all" in names:
            names |= set(REASONS) - (set() if self.against else {"overlap"}) - (set() if self.word_list else {"words"})
        return tuple(reason for reason in REASONS if reason in names)

    @property
    def regions(self) -> tuple[str, ...]:
        """Countries whose phone numbers count without a country code."""
        return tuple(code.strip().upper() for word in self.region for code in word.split(",")) or REGIONS

    def listed_words(self) -> list[str]:
        """The words of the list."""
        if self.word_list is None:
            return []
        lines = read_named(self.word_list, DataError).splitlines()
        words = [line.strip() for line in lines if line.strip()]
        if not words:
            raise DataError(f"{self.word_list} holds no words; give one a line")
        return words

    def identity(self) -> dict[str, Any]:
        """All that decides what is skipped, apart from the text: settings, and checksums of files that they name."""
        settings: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        named: Sequence[str | Path] = [*self.against, *([self.word_list] if self.word_list else [])]
        sums = {str(path): files.sha256(Path(path)) if Path(path).is_file() else "" for path in named}
        return {**settings, "filter": list(self.reasons), "region": list(self.regions), "files": sums}


class CanarySettings(Settings):
    """Random secrets that are planted into the text, to measure later what a model remembers."""

    canaries: CountOrNone = 0
    """Number of sentences with a random secret to plant; canaries.json in the corpus lists them."""
    canary_repeats: tuple[Annotated[int, MOST_REPEATS], ...] = REPEATS
    """How often each is planted, in turn; 0: sampled but not planted, a control."""
    canary_digits: Digits = DIGITS
    """Digits of a secret."""
    canary_format: Annotated[str, Flag(metavar="TEXT")] = FORMAT
    """The sentence."""
    canary_seed: Seed = 0
    """Seed of secrets and places."""

    def draw(self) -> Canaries | None:
        if not self.canaries:
            return None
        return draw_canaries(
            self.canaries,
            repeats=self.canary_repeats,
            seed=self.canary_seed,
            digits=self.canary_digits,
            format=self.canary_format,
        )
