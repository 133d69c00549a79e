"""What is in a corpus that should perhaps not be, and what it shares with evaluation sets, as one call each.

check_corpus("judgments/", against=["test.jsonl"]).reasons["near"].documents
contamination("corpus/", "test.jsonl")[0].share
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from larvatus.core.errors import UsageError
from larvatus.core.outputs import check_outputs, write_output
from larvatus.data.bulk.set_aside import errors_to, noting_nothing
from larvatus.data.bulk.settings import BulkSettings
from larvatus.data.corpus.hygiene import contamination as sketches
from larvatus.data.corpus.hygiene.check import Checking, CorpusCheck, SharedSet
from larvatus.data.corpus.hygiene.settings import HygieneSettings
from larvatus.data.corpus.processes import check_count
from larvatus.data.corpus.sources import Text
from larvatus.data.text.languages import path_of
from larvatus.evaluation.audit.corpus_page import corpus_page
from larvatus.interfaces.settings import Corpus, TextSettings, read_settings, text_given

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import CheckCorpusKeywords


def check_corpus(
    corpus: Corpus,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda documents, size: None,
    **settings: Unpack[CheckCorpusKeywords],
) -> CorpusCheck:
    """Count duplicates, overlaps with evaluation sets, other languages, personal data and outliers in text.

    Args:
        corpus: Text, several, or a mapping from languages to text.
        out: An HTML page of the result, with examples.
        overwrite: Replace it if it exists.
        workers: Processes; one a core by default.
        progress: Called with the documents and bytes so far.
        **settings: What is looked for: `near`, `shingle`, `against`, `overlap_words`, `confidence`, `word_list`,
            `most_listed`, `least_words`, `most_words`, `least_letters`, `most_damaged`; what would be left out:
            `filter`; how text is read and where the work is done, as in `build_corpus`.

    Returns:
        Counts and a few examples for each reason, by language, kind of personal data and evaluation set.

    Example:
        >>> check = check_corpus(texts, workers=1)
        >>> check.documents, check.reasons["exact"].documents
        (60, 0)
    """
    text, bulk, hygiene = read_settings(settings, TextSettings, BulkSettings, HygieneSettings, function="check_corpus")
    return run_corpus_check(
        corpus, text, bulk, hygiene, out=out, overwrite=overwrite, workers=workers, progress=progress
    )


def run_corpus_check(
    corpus: Corpus,
    text: TextSettings,
    bulk: BulkSettings,
    hygiene: HygieneSettings,
    *,
    out: str | Path | None,
    overwrite: bool,
    workers: int | None,
    progress: Callable[[int, int], None],
) -> CorpusCheck:
    """Run `check_corpus` from structs."""
    text = text if bulk.errors is None else msgspec.structs.replace(text, on_bad="skip")
    given = text_given(corpus)
    if any(path_of(path) == "-" for path in given):
        raise UsageError("a check reads the text twice; give files in place of standard input")
    inputs = [*map(path_of, given), *hygiene.against]
    check_outputs(None if out is None else Path(out), bulk.errors, overwrite=overwrite, inputs=inputs)
    check_count(workers or 0)
    documents = Text.of(given, text.reading())
    checking = Checking(
        settings=hygiene,
        language=text.language,
        workers=workers or len(os.sched_getaffinity(0)),
        executor=bulk.executor(workers=workers) if bulk.ray else None,
        progress=progress,
    )
    with errors_to(bulk.errors):
        check = checking(_Readings(documents.read))
    if out is not None:
        write_output(Path(out), corpus_page(documents.names, check))
    return check


class _Readings:
    """The text, read as often as it is asked for; bad rows are noted at the first reading alone."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read, self._times = read, 0

    def __call__(self) -> Any:
        self._times += 1
        if self._times == 1:
            yield from self._read()
            return
        with noting_nothing():
            yield from self._read()


def contamination(
    corpus: str | Path, evaluation: str | Path | Sequence[str | Path], *, words: int = 13
) -> list[SharedSet]:
    """What a built corpus shares with evaluation sets, asked of the sketch that `build_corpus(…, sketch=True)` kept.

    Args:
        corpus: A built corpus; its text is not needed.
        evaluation: The set, or several: tables, JSON, or lines of text. All strings of a row count.
        words: An example is shared where a run of so many of its words is in the corpus: 8 or more.

    Returns:
        For each set: examples, those that can be judged, those that share a run, and those that share half of theirs.

    Example:
        >>> from larvatus import build_corpus
        >>> _ = build_corpus(texts, tokenizer=vocabulary, out=folder / "sketched", workers=1, sketch=True)
        >>> contamination(folder / "sketched", texts, words=8)[0].share
        1.0
    """
    paths = [evaluation] if isinstance(evaluation, str | Path) else list(evaluation)
    return sketches.contamination(Path(corpus), [str(path) for path in paths], words=words)
