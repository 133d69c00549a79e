"""Tagging words (chapter §11.4.3): sentences of words as training batches, scores as tags and entities.

Learning, a tag stands on every subword (example 11.16). Answering, each word has the scores of its first subword (or
the mean or maximum), taken from the window where it sees most; the best sequence of tags is then found over the whole
text, among those that the scheme allows: I-PER never follows O. A CRF adds its transitions.
E examples, S sequences, W words, K tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import did_you_mean
from larvatus.core.targets import WordTags
from larvatus.data.labelled.records import TaggedExample
from larvatus.data.text.align import Alignment
from larvatus.data.text.tag_schemes import detect_scheme, legal_transitions, read_leniently
from larvatus.models.bundle.directory import Bundle
from larvatus.models.heads import Tagging, TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn.compiling import IGNORE
from larvatus.models.nn.crf import AllowedTransitions, constrained_viterbi
from larvatus.tasks.encoding.sequences import Sequences, word_sequences
from larvatus.tasks.encoding.unknown import UnknownLabels
from larvatus.tasks.encoding.windows import WindowOptions
from larvatus.tasks.encoding.words import WordExample, align_examples
from larvatus.tasks.results import Coverage, Entity, Tagged, TaggedWord
from larvatus.tasks.scoring import ScoringOptions, head_as, score_sequences


@dataclass(frozen=True, eq=False)
class TaggedWords:
    """Training examples of tagging."""

    sequences: Sequences
    tags: Ints  # [W] of all words of all sequences; IGNORE of a tag that is unknown
    unknown: UnknownLabels = field(default_factory=UnknownLabels)

    def __len__(self) -> int:
        return len(self.sequences)

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        sequences = self.sequences.of(examples)
        tokens = self.sequences.batch(sequences)
        assert tokens.word_tokens is not None
        tags = self.sequences.of_words(sequences, self.tags)
        return TrainingBatch(tokens=tokens, targets={WordTags: WordTags(tags=tags, counts=tokens.word_tokens.counts)})


def tag_array(examples: Sequence[TaggedExample], sequences: Sequences, labels: Sequence[str]) -> Ints:
    """Gold tags of the words that are read, as numbers: [W]. A truncated example's later words are not there.

    A tag that the model does not know is IGNORE; see `unknown_tags`.
    """
    ids = {label: number for number, label in enumerate(labels)}
    tags: list[int] = []
    for example, count in zip(examples, words_read(sequences).tolist(), strict=True):
        tags += [IGNORE] * count if example.tags is None else [ids.get(tag, IGNORE) for tag in example.tags[:count]]
    return np.array(tags, dtype=np.int64)


def unknown_tags(examples: Sequence[TaggedExample], sequences: Sequences, labels: Sequence[str]) -> UnknownLabels:
    """The tags of words that are read which are none of the model's."""
    ids = set(labels)
    unknown: list[tuple[int, str]] = []
    first, before = "", 0
    for example, count in zip(examples, words_read(sequences).tolist(), strict=True):
        for word, tag in enumerate((example.tags or ())[:count]):
            if tag not in ids:
                unknown.append((before + word, tag))
                first = first or (
                    f"{example.place}: word {word + 1} ({example.words[word]}) is tagged {tag!r}, which the model "
                    f"does not know{did_you_mean(tag, ids)}"
                )
        before += count
    return UnknownLabels.of(unknown, total=before, first=first)


def tagger_of(model: Network, name: str = "the model") -> Tagging:
    """The head of a model that tags words."""
    return head_as(model, Tagging, "tag words", name)


def words_read(sequences: Sequences) -> Ints:
    """[E] how many words of each example the model reads."""
    assert sequences.words is not None
    starts = edges(sequences.parts)[:-1]
    return np.add.reduceat(sequences.words.counts, starts) if len(starts) else np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class AlignedWords:
    """Texts as the model reads them, with their words."""

    texts: list[Alignment]
    sequences: Sequences


def encode_words(
    bundle: Bundle, examples: Sequence[WordExample], config: TaggingConfig, windows: WindowOptions
) -> AlignedWords:
    """Texts, or words already cut, tagged or not: all are aligned as the model's training data were (`words.py`)."""
    texts = align_examples(bundle.tokenizer, examples, spacing=config.spacing)
    sequences = word_sequences(
        bundle.tokenizer, texts, limit=windows.limit, truncate=windows.truncate, overlap=windows.overlap
    )
    return AlignedWords(texts, sequences)


def tagged_words(
    bundle: Bundle, examples: Sequence[TaggedExample], config: TaggingConfig, windows: WindowOptions
) -> TaggedWords:
    """The same with the tags of the words that are read."""
    sequences = encode_words(bundle, examples, config, windows).sequences
    tags = tag_array(examples, sequences, config.labels)
    return TaggedWords(sequences, tags, unknown_tags(examples, sequences, config.labels))


def allowed_by(config: TaggingConfig) -> AllowedTransitions | None:
    """What may follow what; None: anything."""
    return None if config.scheme == "none" else AllowedTransitions.of(legal_transitions(config.labels, config.scheme))


@torch.inference_mode()
def decode(head: Tagging, scores_WK: Floats, counts_E: Ints) -> Ints:
    """The best legal sequence of tags for the words of each example: [W, K] → [W]."""
    e_WK, lengths_E = torch.from_numpy(scores_WK), torch.from_numpy(counts_E)
    allowed = allowed_by(head.config)
    if head.crf is not None:
        best_path: Ints = head.crf.viterbi(e_WK, lengths_E, allowed=allowed).numpy()
        return best_path
    best = e_WK.argmax(-1) if allowed is None else constrained_viterbi(e_WK, lengths_E, allowed)
    return np.asarray(best.numpy(), dtype=np.int64)


@torch.inference_mode()
def tag_probabilities(head: Tagging, scores_WK: Floats, counts_E: Ints) -> Floats:
    """Probabilities [W, K] of every tag for every word: the softmax of its scores, or under a CRF its marginals."""
    e_WK = torch.from_numpy(scores_WK) / head.config.temperature
    if head.crf is None:
        return torch.softmax(e_WK, -1).numpy()
    marginals: Floats = head.crf.marginals(e_WK, torch.from_numpy(counts_E)).float().numpy()
    return marginals


def tag(model: Network, texts: Sequence[Alignment], sequences: Sequences, *, scoring: ScoringOptions) -> list[Tagged]:
    """The answers of a model for texts that are aligned and encoded already."""
    head = tagger_of(model)
    scores = score_sequences(model, sequences, scoring)
    counts = words_read(sequences)
    tags = decode(head, scores, counts)
    sure = tag_probabilities(head, scores, counts)[np.arange(len(tags)), tags]
    borders = edges(counts)
    answers = []
    for number, text in enumerate(texts):
        place = slice(int(borders[number]), int(borders[number + 1]))
        coverage = Coverage(
            tokens=int(sequences.tokens[number]),
            read=int(sequences.read[number]),
            windows=int(sequences.parts[number]),
        )
        answers.append(_answer(text, tags[place].tolist(), sure[place].tolist(), coverage, head.config))
    return answers


def _answer(text: Alignment, tags: list[int], sure: list[float], coverage: Coverage, config: TaggingConfig) -> Tagged:
    outside = "O" if "O" in config.labels else config.labels[0]
    words = []
    for number, (start, end) in enumerate(text.word_spans.tolist()):
        read = number < len(tags)
        words.append(
            TaggedWord(
                text=text.text[start:end],
                tag=config.labels[tags[number]] if read else outside,
                start=start,
                end=end,
                probability=sure[number] if read else 0.0,
                read=read,
            )
        )
    return Tagged(text=text.text, words=tuple(words), entities=_entities(text.text, words, config), coverage=coverage)


def _entities(text: str, words: Sequence[TaggedWord], config: TaggingConfig) -> tuple[Entity, ...]:
    """Read leniently, as `evaluate` does: the tags of models of others may be out of place, those of ours never are."""
    tags, scheme = [word.tag for word in words], config.scheme
    if scheme == "none":  # models of others do not say: by the letters of their tags
        scheme = detect_scheme([config.labels])
    entities = []
    for first, last, label in read_leniently(tags, scheme):
        start, end = words[first].start, words[last - 1].end
        score = min(word.probability for word in words[first:last])
        entities.append(Entity(text=text[start:end], label=label, start=start, end=end, score=score))
    return tuple(entities)
