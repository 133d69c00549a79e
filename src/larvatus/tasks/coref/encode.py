"""Documents as the model reads them: words of all windows end to end, their forms and speakers, gold mentions.

    data = encode_documents(tokenizer, segments(train.examples, 4096, singletons=True), config, windows)
    data.batch(np.array([3]))                  # one document, all of its windows

A document longer than the model reads at once is several windows that overlap; each word is taken from the one where
it sees most on either side (`data/text/windows.py`), so a document is scored as one row of words however long it is.
Training documents longer than `segment` words are cut into parts where sentences begin. All parts are trained on in
every epoch, each as a document by itself: links from one part to another are not learned. A step has documents of
`WORDS_PER_TEXT` words on average for each text of ``--batch``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.rng import stream
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.coreference import CoreferenceConfig, CoreferenceTargets
from larvatus.tasks.coref.examples import CorefExample
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions, run_indices, word_sequences
from larvatus.tasks.encoding.words import WordExample, align_examples

WORDS_PER_TEXT = 32
"""Words that count as one text of a step."""


@dataclass(frozen=True, eq=False)
class CorefDocuments:
    """Documents and their gold mentions, if they have any."""

    texts: list[Alignment]
    sequences: Sequences
    forms: Ints
    """[W, 2] a number for the form of each word that is read, whatever its case, and for who says it, 0 if unknown."""
    mentions: tuple[Ints, ...]
    """[G, 3] first word, last word and cluster of the mentions of each document, where they are read."""

    def __len__(self) -> int:
        return len(self.sequences)

    @cached_property
    def words(self) -> Ints:
        """[E] words of each document that are read."""
        counts = self.sequences.words.counts if self.sequences.words is not None else np.empty(0, np.int64)
        before = edges(counts)[edges(self.sequences.parts)]
        return np.diff(before)

    def targets(self, documents: Ints) -> CoreferenceTargets[Ints]:
        golds = [self.mentions[document] for document in documents.tolist()]
        flat = np.concatenate([np.empty((0, 3), np.int64), *golds])
        words = self.words[documents]
        return CoreferenceTargets(
            windows=self.sequences.parts[documents],
            forms=self.forms[run_indices(edges(self.words)[:-1][documents], words)],
            first=flat[:, 0],
            last=flat[:, 1],
            clusters=flat[:, 2],
            words=tuple(words.tolist()),
            golds=tuple(map(len, golds)),
        )

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        tokens = self.sequences.batch(self.sequences.of(examples))
        whole = replace(tokens, groups=self.sequences.parts[examples])  # no microbatch cuts a document
        return TrainingBatch(tokens=whole, targets={CoreferenceTargets: self.targets(examples)})

    # ---- steps of training

    def steps(self, size: int) -> int:
        """Steps of an epoch: as many as all words make."""
        return max(1, min(len(self), int(self.words.sum()) // (size * WORDS_PER_TEXT)))

    def epoch_batches(self, seed: int, epoch: int, size: int) -> list[Ints]:
        """Documents in random order, shared out evenly by their words."""
        order = stream(seed, "finetune order", epoch).permutation(len(self))
        steps = self.steps(size)
        middles = np.cumsum(self.words[order]) - self.words[order] / 2
        step = np.minimum((middles * steps / max(1, int(self.words.sum()))).astype(np.int64), steps - 1)
        parts = [order[step == number] for number in range(steps)]
        for number, part in enumerate(parts):
            if not len(part):  # next to a very long document
                longest = max(range(steps), key=lambda at: len(parts[at]))
                parts[number], parts[longest] = parts[longest][:1], parts[longest][1:]
        return parts

    def remarks(self, size: int) -> Sequence[str]:
        mean = int(self.words.sum()) / self.steps(size)
        return [f"{self.steps(size):,} steps an epoch, of {mean:,.0f} words on average"]


def encode_documents(
    tokenizer: Tokenizer, examples: Sequence[WordExample], config: CoreferenceConfig, windows: WindowOptions
) -> CorefDocuments:
    """Documents, texts or words, with clusters or without."""
    texts = align_examples(tokenizer, examples, spacing=config.spacing)
    sequences = word_sequences(
        tokenizer, texts, limit=windows.limit, truncate=windows.truncate, overlap=windows.overlap
    )
    assert sequences.words is not None
    read = np.diff(edges(sequences.words.counts)[edges(sequences.parts)]).tolist()
    forms = [
        (form_number(text.text[start:end].casefold()), form_number(speaker) if speaker else 0)
        for text, example, count in zip(texts, examples, read, strict=True)
        for (start, end), speaker in zip(text.word_spans[:count].tolist(), _speakers(example, count), strict=True)
    ]
    mentions = tuple(_mentions(example, count) for example, count in zip(examples, read, strict=True))
    return CorefDocuments(texts, sequences, np.array(forms, np.int64).reshape(-1, 2), mentions)


def _speakers(example: WordExample, read: int) -> Sequence[str]:
    speakers = example.speakers if isinstance(example, CorefExample) else ()
    return speakers[:read] or ("",) * read


def _mentions(example: WordExample, read: int) -> Ints:
    clusters = example.clusters or () if isinstance(example, CorefExample) else ()
    rows = [(a, b - 1, number) for number, cluster in enumerate(clusters) for a, b in cluster if b <= read]
    return np.array(rows, np.int64).reshape(-1, 3)


@lru_cache(maxsize=1 << 16)
def form_number(form: str) -> int:
    """A number of 64 bits for a word form, the same in every process."""
    return int.from_bytes(hashlib.blake2b(form.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True)


def segments(examples: Sequence[CorefExample], longest: int, *, singletons: bool) -> Iterator[CorefExample]:
    """Documents cut into even parts of about `longest` words at most, where sentences begin."""
    for example in examples:
        count = -(-len(example.words) // longest)
        if count <= 1:
            yield example if singletons else _without_singletons(example)
            continue
        starts = np.array(example.sentences or range(len(example.words)))
        wanted = np.arange(1, count) * len(example.words) / count
        cuts = sorted({0, *(int(starts[np.abs(starts - place).argmin()]) for place in wanted)})
        for begin, end in zip(cuts, [*cuts[1:], len(example.words)], strict=True):
            part = _part(example, begin, end)
            yield part if singletons else _without_singletons(part)


def _part(example: CorefExample, begin: int, end: int) -> CorefExample:
    inside = [
        tuple((a - begin, b - begin) for a, b in cluster if begin <= a and b <= end)
        for cluster in example.clusters or ()
    ]
    text, places = example.located()
    low, high = places[begin][0], places[end - 1][1]
    return replace(
        example,
        words=example.words[begin:end],
        clusters=tuple(cluster for cluster in inside if cluster),
        text=text[low:high],
        places=tuple((a - low, b - low) for a, b in places[begin:end]),
        speakers=example.speakers[begin:end],
        sentences=tuple(start - begin for start in example.sentences if begin <= start < end),
    )


def _without_singletons(example: CorefExample) -> CorefExample:
    return replace(example, clusters=tuple(cluster for cluster in example.clusters or () if len(cluster) > 1))
