"""Train vocabularies, and build and check corpora.

tokenizer = train_tokenizer("judgments/", size=16_000, out="vocabulary/")
build_corpus("judgments/", tokenizer=tokenizer, out="corpus/")
check_corpus("judgments/", against=["test.jsonl"]).reasons["near"].documents
contamination("corpus/", "test.jsonl")[0].share
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from larvatus.core.errors import UsageError
from larvatus.core.files import saying_what_is_full
from larvatus.core.outputs import check_directory, check_outputs, write_output
from larvatus.core.rng import stream
from larvatus.core.signals import resumable
from larvatus.data.bulk.executor import BulkSettings
from larvatus.data.bulk.parts import ignoring_bad_rows, write_errors_to
from larvatus.data.corpus.build import BuildOptions, CorpusSummary
from larvatus.data.corpus.build import build_corpus as build_shards
from larvatus.data.corpus.hygiene.check import CorpusCheck, CorpusChecker, SharedSet, describe_reason
from larvatus.data.corpus.hygiene.check import contamination as find_contamination
from larvatus.data.corpus.hygiene.filtering import Hygiene
from larvatus.data.corpus.hygiene.settings import CanarySettings, HygieneSettings
from larvatus.data.corpus.mixture import MixtureConfig
from larvatus.data.corpus.processes import check_count
from larvatus.data.corpus.sources import SourceText
from larvatus.data.text.documents import Document, Skipped
from larvatus.data.text.languages import path_of, read_languages, train_mixed_vocabulary
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.tokenizer_files import WRITTEN
from larvatus.data.text.vocabularies import BPEConfig, ByteBPEConfig, TokenizerConfig, UnigramConfig, WordPieceConfig
from larvatus.data.text.vocabularies.characters import CharactersConfig
from larvatus.inference.web_page import asset, build_page
from larvatus.interfaces.settings import Corpus, TextSettings, VocabularySettings, read_settings, text_given
from larvatus.models.bundle.model_names import model_path

if TYPE_CHECKING:
    from larvatus.interfaces.api.keywords import BuildCorpusKeywords, CheckCorpusKeywords, TrainTokenizerKeywords


def build_corpus(
    corpus: Corpus,
    *,
    tokenizer: str | Path | Tokenizer,
    out: str | Path,
    workers: int | None = None,
    watch: BuildOptions | None = None,
    **settings: Unpack[BuildCorpusKeywords],
) -> CorpusSummary:
    """Turn documents into checksummed shards of token ids. Called again after a kill, it resumes.

    Args:
        corpus: Text, several, or a mapping from languages to text.
        tokenizer: The vocabulary to encode with, or its directory.
        out: Directory of the corpus.
        workers: Processes; one a core by default.
        watch: Callbacks of the build: its `progress` and `notice` are called.
        **settings: How text is read: `language`, `sentences`, `split`, `on_bad`, `encoding`, `text` (column of tables),
            `language_field`, `licence`; where it is encoded: `ray` (the address of a Ray cluster, or `"auto"`), and
            `errors`, a file that bad rows go to while the build continues; what is skipped: `filter`, `personal` and
            the other settings of `check_corpus`, `sketch`; what is planted: `canaries`, `canary_repeats`,
            `canary_digits`, `canary_format`, `canary_seed`.

    Returns:
        Counts of documents, sentences, words and tokens, by language too.

    Example:
        >>> build_corpus(texts, tokenizer=vocabulary, out=folder / "corpus", workers=1).counts.documents
        60
    """
    text, bulk, hygiene, canaries = read_settings(
        settings, TextSettings, BulkSettings, HygieneSettings, CanarySettings, function="build_corpus"
    )
    watch = replace(watch or BuildOptions(), workers=workers)
    return run_corpus_build(corpus, text, bulk, hygiene, canaries, tokenizer=tokenizer, out=out, watch=watch)


def run_corpus_build(
    corpus: Corpus,
    text: TextSettings,
    bulk: BulkSettings,
    hygiene: HygieneSettings,
    canaries: CanarySettings,
    *,
    tokenizer: str | Path | Tokenizer,
    out: str | Path,
    watch: BuildOptions,
) -> CorpusSummary:
    """Run `build_corpus` from structs; `watch` holds the callbacks and the number of workers."""
    text = text.for_job(bulk)
    check_outputs(bulk.errors, overwrite=True, inputs=map(path_of, text_given(corpus)))
    options = BuildOptions(
        language=text.language,
        sentences=text.sentences,
        reading=text.reading(),
        licence=text.licence,
        workers=watch.workers,
        executor=bulk.executor(workers=watch.workers) if bulk.ray else None,
        hygiene=Hygiene(hygiene, canaries.draw()),
        checked=watch.checked,
        progress=watch.progress,
        notice=watch.notice,
    )
    pieces = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(Path(model_path(tokenizer)))
    way = "run the same command again: it resumes after the last finished shard"
    with resumable(way), write_errors_to(bulk.errors):
        return build_shards(text_given(corpus), pieces, Path(out), options)


@dataclass
class Read:
    """Counts of what was read, updated while reading."""

    documents: int = 0
    characters: int = 0
    skipped: Skipped = field(default_factory=Skipped)

    def count(self, documents: Iterable[Document]) -> Iterator[Document]:
        for document in documents:
            self.documents += 1
            self.characters += len(document.text)
            yield document


def train_tokenizer(
    corpus: Corpus,
    *,
    out: str | Path | None = None,
    read: Read | None = None,
    **settings: Unpack[TrainTokenizerKeywords],
) -> Tokenizer:
    """Learn a vocabulary from text: the same one for the same text, every time.

    Args:
        corpus: Text, several, or a mapping from languages to text.
        out: A new directory to save it in.
        read: Counts what was read and what was skipped.
        **settings: `kind` (`wordpiece`, `byte-bpe`, `bpe`, `unigram`, `characters`), `size` (pieces in all),
            `lowercase`, `digits` (`together`, `apart`), `alpha` (exponent of the language mixture), `sample` (share of
            the documents that are counted),
            `overwrite`; how text is read and where words are counted, as in `build_corpus`.

    Returns:
        The tokenizer.

    Example:
        >>> train_tokenizer(texts, kind="bpe", size=80).kind
        'bpe'
    """
    chosen, text, bulk = read_settings(
        settings, VocabularySettings, TextSettings, BulkSettings, function="train_tokenizer"
    )
    return run_tokenizer_training(corpus, chosen, text, bulk, out=out, read=read or Read())


def run_tokenizer_training(
    corpus: Corpus,
    chosen: VocabularySettings,
    text: TextSettings,
    bulk: BulkSettings,
    *,
    out: str | Path | None,
    read: Read,
) -> Tokenizer:
    """Run `train_tokenizer` from structs."""
    text = text.for_job(bulk)
    given, mixture = text_given(corpus), MixtureConfig(alpha=chosen.alpha)
    case: dict[str, Any] = (
        {} if chosen.lowercase is None or chosen.kind == "byte-bpe" else {"lowercase": chosen.lowercase}
    )
    if chosen.digits == "apart":
        case["digits"] = chosen.digits
    config = VOCABULARIES[chosen.kind](size=chosen.size, **case)
    if out is not None:
        check_directory(Path(out), WRITTEN, overwrite=chosen.overwrite, inputs=map(path_of, given))
        with saying_what_is_full(Path(out)):
            Path(out).mkdir(parents=True, exist_ok=True)  # what cannot be written is refused before text is read
    documents = read.count(_drawn(read_languages(given, options=text.reading(), skipped=read.skipped), chosen.sample))
    repeats = mixture.repeats if mixture.alpha < 1 else None
    with write_errors_to(bulk.errors):
        tokenizer = train_mixed_vocabulary(documents, config, repeats, language=text.language, executor=bulk.executor())
    if out is not None:
        tokenizer.save(Path(out))
    return tokenizer


def _drawn(documents: Iterable[Document], share: float) -> Iterator[Document]:
    """Documents sampled at random, each with the same probability: the same ones every time."""
    for number, document in enumerate(documents):
        if share >= 1 or stream(0, "vocabulary sample", item=number).random() < share:
            yield document


VOCABULARIES: Mapping[str, type[TokenizerConfig]] = {
    "byte-bpe": ByteBPEConfig,
    "characters": CharactersConfig,
    "wordpiece": WordPieceConfig,
    "bpe": BPEConfig,
    "unigram": UnigramConfig,
}


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
            `most_listed`, `least_words`, `most_words`, `least_letters`, `most_damaged`; what would be skipped:
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
    text = text.for_job(bulk)
    given = text_given(corpus)
    if any(path_of(path) == "-" for path in given):
        raise UsageError("a check reads the text twice; give files in place of standard input")
    inputs = [*map(path_of, given), *hygiene.against]
    check_outputs(None if out is None else Path(out), bulk.errors, overwrite=overwrite, inputs=inputs)
    check_count(workers or 0)
    documents = SourceText.of(given, text.reading())
    checking = CorpusChecker(
        settings=hygiene,
        language=text.language,
        workers=workers or len(os.sched_getaffinity(0)),
        executor=bulk.executor(workers=workers) if bulk.ray else None,
        progress=progress,
    )
    with write_errors_to(bulk.errors):
        check = checking(_Readings(documents.read))
    if out is not None:
        write_output(Path(out), corpus_page(documents.names, check))
    return check


class _Readings:
    """The text, which can be read repeatedly; bad rows are noted only in the first pass."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read, self._times = read, 0

    def __call__(self) -> Any:
        self._times += 1
        if self._times == 1:
            yield from self._read()
            return
        with ignoring_bad_rows():
            yield from self._read()


def contamination(
    corpus: str | Path, evaluation: str | Path | Sequence[str | Path], *, words: int = 13
) -> list[SharedSet]:
    """Report what a built corpus shares with evaluation sets, from the sketch of `build_corpus(…, sketch=True)`.

    Args:
        corpus: A built corpus; its text is not needed.
        evaluation: The set, or several: tables, JSON, or lines of text. All strings of a row count.
        words: An example is shared if a run of this many of its words is in the corpus: 8 or more.

    Returns:
        For each set: examples, those that can be judged, those that share a run, and those that share half of theirs.

    Example:
        >>> from larvatus import build_corpus
        >>> _ = build_corpus(texts, tokenizer=vocabulary, out=folder / "sketched", workers=1, sketch=True)
        >>> contamination(folder / "sketched", texts, words=8)[0].share
        1.0
    """
    paths = [evaluation] if isinstance(evaluation, str | Path) else list(evaluation)
    return find_contamination(Path(corpus), [str(path) for path in paths], words=words)


def corpus_page(name: str, check: CorpusCheck) -> str:
    """The result of a corpus check as an HTML page with tables and examples. Corpus text is data, never markup."""
    package = "larvatus.evaluation.audit"
    data = {
        "name": name,
        "check": check.to_dict(),
        "words": {reason: describe_reason(reason) for reason in check.reasons},
    }
    body, script = asset(package, "corpus.html"), asset(package, "corpus.js")
    return build_page(f"{name} · corpus check", body=body, script=script, data=data)
