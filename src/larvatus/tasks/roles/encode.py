"""Sentences as a model of semantic roles reads them: one function for training, evaluation and prediction.

    data = encode_frames(tokenizer, sentences, config, windows)           # training examples with their targets
    read = encode_sentences(tokenizer, words, windows)                    # words alone, to be searched for predicates

A sentence is read with single spaces between its words. With `one_by_one` it is read again for each predicate, which
has a mark before and after it that is counted as no word. Words are numbered within the sentence over all these
readings. A predicate is scored with the words up to `reach` words from it.
E sentences, F predicates, R rows: a predicate with a word near it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from larvatus.core.arrays import Ints
from larvatus.core.batch import TokenBatch, TrainingBatch, edges, ranges
from larvatus.core.errors import UsageError
from larvatus.data.text.align import join_words
from larvatus.data.text.tag_schemes import write_tags
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads.roles import FrameIndex, FrameTargets, RolesConfig
from larvatus.tasks.encoding.sequences import Sequences, WindowOptions, run_indices, word_sequences
from larvatus.tasks.roles.examples import Frame, FramedSentence
from larvatus.tasks.roles.lexicon import PredicateLexicon

MARK = "*"
"""Read before and after a predicate."""


@dataclass(frozen=True, eq=False)
class ReadSentences:
    """Sentences in sequences: of each, those of the sentence, then those of each reading with a marked predicate."""

    sequences: Sequences
    """Every reading is an example of these."""
    readings: Ints  # [E] readings of each sentence

    def __len__(self) -> int:
        return len(self.readings)

    def of(self, sentences: Ints) -> Ints:
        """The sequences of some sentences."""
        return self.sequences.of(run_indices(edges(self.readings)[:-1][sentences], self.readings[sentences]))

    def counts(self, sentences: Ints) -> tuple[Ints, Ints]:
        """Sequences and words of some sentences."""
        assert self.sequences.words is not None
        readings = edges(self.readings)
        sequences = edges(self.sequences.parts)[readings]
        words = edges(self.sequences.words.counts)[sequences]
        return np.diff(sequences)[sentences], np.diff(words)[sentences]

    def batch(self, sentences: Ints) -> TokenBatch[Ints]:
        """Some sentences, whose sequences are never in different microbatches."""
        batch = self.sequences.batch(self.of(sentences))
        return dataclasses.replace(batch, groups=self.counts(sentences)[0])

    @property
    def tokens(self) -> Ints:
        """[E] tokens of each sentence."""
        assert self.sequences.words is not None
        sequences = edges(self.sequences.parts)[edges(self.readings)]
        return np.diff(edges(self.sequences.lengths)[sequences])

    @property
    def words_read(self) -> Ints:
        """[E] words of each sentence that are read, where each is read once."""
        return self.counts(np.arange(len(self)))[1]


def encode_sentences(
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    windows: WindowOptions,
    *,
    marks: Sequence[Sequence[int]] | None = None,
    plain: bool = True,
) -> ReadSentences:
    """Words of sentences: each as it is, if `plain`, then once for each predicate of `marks`, which is marked."""
    if marks is not None and windows.truncate:
        raise UsageError("a model that reads each predicate by itself reads whole sentences; leave out --truncate")
    texts, spans, readings = list[str](), list[Ints](), list[int]()
    for number, words in enumerate(sentences):
        marked = () if marks is None else marks[number]
        several = ([_joined_words(words, None)] if plain else []) + [_joined_words(words, word) for word in marked]
        texts += [text for text, _ in several]
        spans += [places for _, places in several]
        readings.append(len(several))
    aligned = tokenizer.encode_many(texts, spans)
    sequences = word_sequences(
        tokenizer, aligned, limit=windows.limit, truncate=windows.truncate, overlap=windows.overlap
    )
    return ReadSentences(sequences, np.array(readings, np.int64))


def _joined_words(words: Sequence[str], marked: int | None) -> tuple[str, Ints]:
    """The words with single spaces between them, and the characters of each, without the marks around a predicate."""
    if marked is None:
        return join_words(words)
    text, places = join_words([*words[:marked], MARK, words[marked], MARK, *words[marked + 1 :]])
    return text, np.delete(places, [marked, marked + 2], axis=0)


@dataclass(frozen=True, eq=False)
class FrameSpots:
    """Where predicates and the words near them are among the words of their sentences."""

    counts: Ints  # [E] predicates of each sentence
    predicates: Ints  # [F]
    contexts: Ints  # [F] first word near it
    lengths: Ints  # [F] words near it

    def index(self, words: Ints, device: torch.device) -> FrameIndex:
        """The predicates of a batch in which the sentences have so many words."""
        begins = np.repeat(edges(words)[:-1], self.counts)
        arrays = (self.predicates + begins, self.contexts + begins, self.lengths)
        predicates, first, lengths = (torch.from_numpy(array).to(device) for array in arrays)
        return FrameIndex(predicates, first, lengths, count=int(self.lengths.sum()))


def frame_spots(
    predicates: Sequence[Sequence[int]], words: Ints, *, reach: int, marked: bool, plain: bool = True
) -> FrameSpots:
    """The predicates of each sentence of so many words, each with the words within reach of it.

    With `marked`, the words of a predicate are those of its own reading, which come after the sentence's own, if that
    is read too (`plain`).
    """
    counts = np.array([len(chosen) for chosen in predicates], np.int64)
    flat = np.array([word for chosen in predicates for word in chosen], np.int64)
    size = np.repeat(words, counts)
    first = np.maximum(flat - reach, 0)
    shift = size * (int(plain) + ranges(counts)) if marked else 0
    return FrameSpots(counts, flat + shift, first + shift, np.minimum(flat + reach + 1, size) - first)


@dataclass(frozen=True, eq=False)
class EncodedFrames:
    """Training examples of semantic roles."""

    read: ReadSentences
    sentences: tuple[FramedSentence, ...]
    targets: FrameTargets[Ints]
    """Frames of all sentences."""
    lost: tuple[int, int]
    """Arguments that are not trained on, and all: beyond the reach of their predicate, or longer than spans may be."""
    unread: int
    """Predicates beyond the cut of a truncated sentence."""

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def sequences(self) -> Sequences:
        return self.read.sequences

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        chosen = np.asarray(examples, np.int64)
        return TrainingBatch(tokens=self.read.batch(chosen), targets={FrameTargets: self._targets(chosen)})

    def _targets(self, chosen: Ints) -> FrameTargets[Ints]:
        t = self.targets
        frames = run_indices(edges(t.frames)[:-1][chosen], t.frames[chosen])
        searched = run_indices(edges(t.searched)[:-1][chosen], t.searched[chosen])
        return FrameTargets(
            **{name: getattr(t, name)[chosen] for name in ("sequences", "words", "searched", "frames")},
            **{name: getattr(t, name)[frames] for name in ("predicates", "contexts", "lengths", "senses", "choices")},
            is_predicate=t.is_predicate[searched],
            candidates=t.candidates[run_indices(edges(t.choices)[:-1][frames], t.choices[frames])],
            tags=t.tags[run_indices(edges(t.lengths)[:-1][frames], t.lengths[frames])],
        )

    def notes(self) -> list[str]:
        """What is not trained on, a line each."""
        lines = []
        if self.lost[0]:
            lines.append(
                f"{self.lost[0]:,} of {self.lost[1]:,} arguments are longer than spans may be, or beyond the words "
                "near their predicate, so they are never found; --set reach=N and longest=N allow more"
            )
        if self.unread:
            lines.append(f"{self.unread:,} predicates are in words that are not read")
        return lines


def encode_frames(
    tokenizer: Tokenizer, examples: Sequence[FramedSentence], config: RolesConfig, windows: WindowOptions
) -> EncodedFrames:
    """Sentences with their predicates and arguments as training examples; unknown roles and rolesets are left out."""
    words = [example.words for example in examples]
    read = encode_sentences(tokenizer, words, windows)
    size = read.words_read
    kept = [[frame for frame in e.frames or () if frame.predicate < n] for e, n in zip(examples, size, strict=True)]
    predicates = [[frame.predicate for frame in frames] for frames in kept]
    if config.one_by_one:
        read = encode_sentences(tokenizer, words, windows, marks=predicates)
    spots = frame_spots(predicates, size, reach=config.reach, marked=config.one_by_one)
    sequences, all_words = read.counts(np.arange(len(examples)))
    lexicon = PredicateLexicon.of(config)
    numbers = {roleset: number for number, roleset in enumerate(config.rolesets)}
    candidates, senses, tags = list[list[int]](), list[int](), list[list[int]]()
    ids = {tag: number for number, tag in enumerate(config.tags)}
    place, lost, total = 0, 0, 0
    for example, frames in zip(examples, kept, strict=True):
        for frame in frames:
            possible, sense = _choices(example.words[frame.predicate], frame, lexicon, numbers)
            candidates.append(possible)
            senses.append(sense)
            first = frame.predicate - min(frame.predicate, config.reach)
            names = _frame_tags(frame, first, int(spots.lengths[place]), config)
            tags.append([ids[name] for name in names])
            known = sum(argument.role in config.labels for argument in frame.arguments)
            total += known
            lost += known - sum(name.startswith("B-") for name in names)
            place += 1
    is_predicate = np.zeros(int(size.sum()), np.int64)
    flat = np.array([word for chosen in predicates for word in chosen], np.int64)
    is_predicate[np.repeat(edges(size)[:-1], spots.counts) + flat] = 1
    targets = FrameTargets(
        sequences=sequences,
        words=all_words,
        searched=size,
        frames=spots.counts,
        is_predicate=is_predicate,
        predicates=spots.predicates,
        contexts=spots.contexts,
        lengths=spots.lengths,
        senses=np.array(senses, np.int64),
        choices=np.array([len(possible) for possible in candidates], np.int64),
        candidates=np.array([number for possible in candidates for number in possible], np.int64),
        tags=np.array([tag for row in tags for tag in row], np.int64),
    )
    unread = sum(len(example.frames or ()) for example in examples) - len(candidates)
    return EncodedFrames(read, tuple(examples), targets, (lost, total), unread)


def _choices(form: str, frame: Frame, lexicon: PredicateLexicon, numbers: dict[str, int]) -> tuple[list[int], int]:
    """Rolesets that a form may have, and the one that it has; the first of those where it is unknown."""
    possible = list(lexicon.candidates(form)) or [0]
    gold = numbers.get(frame.roleset, possible[0])
    return (possible if gold in possible else [*possible, gold]), gold


def _frame_tags(frame: Frame, first: int, length: int, config: RolesConfig) -> list[str]:
    """BIO tags of the words near a predicate; arguments that reach beyond them or are too long are left out."""
    most = config.longest if config.decoder == "spans" else length
    spans = [
        (argument.first - first, argument.last + 1 - first, argument.role)
        for argument in frame.arguments
        if argument.role in config.labels and argument.last - argument.first < most
    ]
    return write_tags([span for span in spans if span[0] >= 0 and span[1] <= length], length, "BIO")
