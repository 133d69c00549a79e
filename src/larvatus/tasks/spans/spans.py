"""Spans of words and what they are (chapter §11.5.2): training examples, scores, answers.

    data = label_spans(tokenizer, examples, config, limit=512)
    found = span_candidates(model, data.encoded, ScoringOptions())          # spans that may be something, by text
    answers = spans(model, alignments, encoded, scoring=ScoringOptions())   # `Spanned`, with nested entities

E examples, S sequences, W words, M spans, G gold spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from larvatus.core.arrays import Floats, Ints
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import did_you_mean
from larvatus.core.targets import WordSpans
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.data.text.align import Alignment
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads import Spans, SpansConfig
from larvatus.models.heads.spans import NULL
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.nn.span_scorer import RelationScorer, SpanIndex
from larvatus.tasks.arguments import UnknownLabels
from larvatus.tasks.encoding.sequences import Sequences
from larvatus.tasks.encoding.words import WordExample, align_examples
from larvatus.tasks.results import Entity, Relation, Spanned, coverages
from larvatus.tasks.scoring import ScoringOptions, batches_by_length, head_as
from larvatus.tasks.spans.decoding import (
    RelationTuple,
    SpanCandidates,
    SpanTuple,
    decode_spans,
    find_candidates,
    gold_relations,
    kept_relations,
    learnt_relations,
    unknown_relations,
)
from larvatus.tasks.spans.sequences import GoldSpans, SpanSequences, span_sequences


@dataclass(frozen=True, eq=False)
class SpannedTexts:
    """Training examples of spans."""

    encoded: SpanSequences
    learnt: GoldSpans
    gold: tuple[frozenset[SpanTuple], ...]
    """All gold spans of each example, also those that cannot be trained on: first word, the word after the last, type.
    Types and relations that the model does not know are numbered after its own."""
    longer: int
    """Gold spans of more words than are looked at."""
    cut: int
    """Gold spans that no window holds whole."""
    doubled: int
    """Gold spans of several types, of which one is trained on."""
    related: tuple[frozenset[RelationTuple], ...]
    """All gold relations of each example, where the head looks for them."""
    unrelated: int
    """Gold relations that are not trained on."""
    unknown: UnknownLabels
    """Gold spans of types that the model does not know."""
    unknown_relations: UnknownLabels

    def __len__(self) -> int:
        return len(self.encoded.sequences)

    @property
    def sequences(self) -> Sequences:
        return self.encoded.sequences

    def batch(self, examples: Ints) -> TrainingBatch[Ints]:
        return self.encoded.batch(self.encoded.sequences.of(examples), self.learnt)

    def notes(self, longest: int, *, learning: bool = True) -> list[str]:
        """Gold spans that are not trained on or cannot be found, a line each."""
        total = sum(map(len, self.gold))
        way = "; --set longest=N looks at more" if learning else ""
        said = [(self.longer, f"are longer than {longest} words, so they are never found{way}")]
        if learning:
            said += [
                (self.cut, "are not complete in any window, so they are not trained on"),
                (self.doubled, "have several types, of which one is trained on"),
            ]
        else:
            said += [
                (self.cut, "are not complete in any window, so they are never found"),
                (self.doubled, "have several types, of which one can be found"),
            ]
        lines = [f"{count:,} of {total:,} spans {what}" for count, what in said if count]
        if self.unrelated and learning:
            lines.append(
                f"{self.unrelated:,} of {sum(map(len, self.related)):,} relations are not trained on: their spans are "
                "not, or are in different windows, or are related twice"
            )
        return lines


@dataclass(frozen=True, eq=False)
class AlignedSpans:
    """Texts as the model reads them, with their words, in windows that hold every span whole."""

    texts: list[Alignment]
    encoded: SpanSequences


def encode_words(
    tokenizer: Tokenizer, examples: Sequence[WordExample], config: SpansConfig, *, limit: int, truncate: bool = False
) -> AlignedSpans:
    """Texts, or words already cut, with spans or without: a space parts words with a common token (`words.py`)."""
    texts = align_examples(tokenizer, examples, spacing="apart")
    encoded = span_sequences(tokenizer, texts, limit=limit, longest=config.longest, truncate=truncate)
    return AlignedSpans(texts, encoded)


def label_spans(
    tokenizer: Tokenizer,
    examples: Sequence[SpannedWords],
    config: SpansConfig,
    *,
    limit: int,
    truncate: bool = False,
) -> SpannedTexts:
    """Examples as the model learns them."""
    encoded = encode_words(tokenizer, examples, config, limit=limit, truncate=truncate).encoded
    unknown = unknown_types(examples, config.labels)
    ids = {label: number for number, label in enumerate((*config.labels, *unknown.names))}
    gold = tuple(
        frozenset((start, end, ids[label]) for start, end, label in example.spans or ()) for example in examples
    )
    rows: list[list[tuple[int, int, int]]] = [[] for _ in encoded.words.counts]
    places: list[dict[SpanTuple, tuple[int, int]]] = [{} for _ in examples]
    longer = cut = doubled = 0
    borders = edges(encoded.sequences.parts).tolist()
    for number, labelled in enumerate(gold):
        seen: set[tuple[int, int]] = set()
        mine = np.arange(borders[number], borders[number + 1])
        for start, end, label in sorted(labelled):
            if label >= len(config.labels):
                continue
            if end - start > config.longest:
                longer += 1
                continue
            place = int(mine[0] + np.searchsorted(encoded.begins[mine], start, side="right") - 1)
            begin = int(encoded.begins[place])
            if start - begin >= encoded.words.starts[place] or end - begin > encoded.words.counts[place]:
                cut += 1
            elif (start, end) in seen:
                doubled += 1
            else:
                seen.add((start, end))
                places[number][start, end, label] = place, len(rows[place])
                rows[place].append((start - begin, end - 1 - begin, label))
    flat = np.array([span for row in rows for span in row], np.int64).reshape(-1, 3)
    counts = np.array([len(row) for row in rows], np.int64)
    foreign = unknown_relations(examples, config)
    relations = tuple(gold_relations(example, config, ids, foreign.names) for example in examples)
    links, unrelated = learnt_relations(relations, places, counts, config)
    learnt = GoldSpans(counts, flat[:, 0], flat[:, 1], flat[:, 2], links)
    return SpannedTexts(encoded, learnt, gold, longer, cut, doubled, relations, unrelated, unknown, foreign)


def unknown_types(examples: Sequence[SpannedWords], labels: Sequence[str]) -> UnknownLabels:
    """Spans of types that are none of the model's."""
    ids = set(labels)
    unknown: list[tuple[int, str]] = []
    first = ""
    for number, example in enumerate(examples):
        for start, end, label in example.spans or ():
            if label not in ids:
                unknown.append((number, label))
                words = " ".join(example.words[start:end])
                first = first or (
                    f"{example.place}: {words!r} is of the type {label!r}, which the model does not know"
                    f"{did_you_mean(label, ids)}"
                )
    return UnknownLabels.of(unknown, total=sum(len(each.spans or ()) for each in examples), first=first)


def spans_head(model: Network, name: str = "the model") -> Spans:
    """The head of a model that finds spans."""
    return head_as(model, Spans, "find spans", name)


@dataclass(frozen=True, eq=False)
class ScoredSpans:
    """All spans of some sequences."""

    first: Ints  # [M] counted from the first word of the example
    end: Ints  # [M] the word after the last
    owners: Ints  # [M] example
    scores: Floats  # [M, 1 + K]
    gold: Ints  # [M] NULL (0) or 1 + type; nothing where no gold is given
    sides: Callable[[Ints, Ints], Floats] | None
    """From numbers of spans and their types, what relations between them are scored from; None: none are looked for."""
    loss: Callable[[], tuple[float, float]]
    """Sum of the losses of these spans, and of relations between the gold ones, and what it is to be divided by."""

    def with_sides(self, predict_spans: SpanCandidates) -> SpanCandidates:
        """Some of the spans, ready to be related."""
        return (
            predict_spans
            if self.sides is None
            else replace(predict_spans, vectors=self.sides(predict_spans.numbers, predict_spans.types))
        )


@torch.inference_mode()
def scored_spans(
    model: Network, encoded: SpanSequences, scoring: ScoringOptions, gold: GoldSpans | None = None
) -> Iterator[ScoredSpans]:
    """Scores of NULL and the types for all spans, batch by batch, sequences of a length together."""
    head = spans_head(model)
    model.eval()
    sequences = encoded.sequences
    owner_S = sequences.owners
    for chosen in batches_by_length(sequences, scoring.budget):
        given = encoded.batch(chosen, gold)
        batch = on_device(given, scoring.device)
        with scoring.autocast():
            states = head.states(model.encoder, batch.tokens, limit=int(sequences.lengths[chosen[-1]]))
            index = head.index(batch)
            z_WD = head.trunk(head.features(states, batch))
            scores = head.scorer(z_WD, index)
        first, last = index.first_M.cpu().numpy(), index.last_M.cpu().numpy()
        counts = encoded.words.counts[chosen]
        shift_W = np.repeat(encoded.begins[chosen] - edges(counts)[:-1], counts)
        targets: WordSpans[torch.Tensor] | None = batch.targets.get(WordSpans)
        yield ScoredSpans(
            first=first + shift_W[first],
            end=last + 1 + shift_W[first],
            owners=np.repeat(owner_S[chosen], counts)[first],
            scores=scores.float().cpu().numpy(),
            gold=np.empty(0, np.int64) if targets is None else head.gold(targets, index).cpu().numpy(),
            sides=None if head.relations is None else partial(_sides, head.relations, z_WD, first, last),
            loss=partial(_loss, head, scores, z_WD, given, targets, index),
        )


@torch.inference_mode()
def _loss(
    head: Spans,
    scores_MK: torch.Tensor,
    z_WD: torch.Tensor,
    counted: TrainingBatch[Ints],
    targets: WordSpans[torch.Tensor] | None,
    index: SpanIndex,
) -> tuple[float, float]:
    assert targets is not None, "there is no loss without gold spans"
    total = head.span_loss(scores_MK.float(), z_WD, targets, index=index).total
    return float(total), head.size(counted, drawn=False)


@torch.inference_mode()
def _sides(scorer: RelationScorer, z_WD: torch.Tensor, first: Ints, last: Ints, numbers: Ints, types: Ints) -> Floats:
    tensors = (torch.from_numpy(array).to(z_WD.device) for array in (first[numbers], last[numbers], types))
    sides: Floats = scorer.project(z_WD, *tensors).float().cpu().numpy()
    return sides


def span_candidates(
    model: Network, encoded: SpanSequences, scoring: ScoringOptions, *, floor: float | None = None
) -> list[SpanCandidates]:
    """Spans of each example that are at least as sure as `floor` (the head's own threshold, where none is given)."""
    config = spans_head(model).config
    parts = []
    for batch in scored_spans(model, encoded, scoring):
        predict_spans = spans_with_probabilities(batch, config, floor)
        parts.append((batch.owners[predict_spans.numbers], predict_spans))
    return split_by_text(parts, len(encoded.sequences))


def spans_with_probabilities(batch: ScoredSpans, config: SpansConfig, floor: float | None = None) -> SpanCandidates:
    """Spans with at least the probability `floor`; at the head's own threshold they are prepared for relations."""
    least = config.threshold if floor is None else floor
    predict_spans = find_candidates(batch.first, batch.end, batch.scores, temperature=config.temperature, floor=least)
    return batch.with_sides(predict_spans) if floor is None else predict_spans


def split_by_text(parts: Sequence[tuple[Ints, SpanCandidates]], texts: int) -> list[SpanCandidates]:
    """Spans of several batches, each with the numbers of their texts, text by text."""
    owners = np.concatenate([numbers for numbers, _ in parts]) if parts else np.empty(0, np.int64)
    joined = SpanCandidates.join([predict_spans for _, predict_spans in parts])
    order = np.argsort(owners, kind="stable")
    borders = np.searchsorted(owners[order], np.arange(texts + 1)).tolist()
    return [joined.take(order[low:high]) for low, high in pairwise(borders)]


def given_spans(
    model: Network,
    encoded: SpanSequences,
    given: Sequence[Sequence[tuple[int, int]]],
    scoring: ScoringOptions,
) -> list[list[dict[str, float] | None]]:
    """Probabilities of the types for spans whose words are known, [first, end) of each example: classification.

    NULL is out of the question. None for a span that is longer than the head looks at, or that no window holds.
    """
    config = spans_head(model).config
    answers: list[list[dict[str, float] | None]] = [[None] * len(pairs) for pairs in given]
    places: dict[tuple[int, int, int], list[int]] = {}
    for text, pairs in enumerate(given):
        for number, (first, end) in enumerate(pairs):
            places.setdefault((text, first, end), []).append(number)
    room = 1 + max((end for pairs in given for _, end in pairs), default=0)  # so that a number identifies a span
    wanted = np.array([(text * room + first) * room + end for text, first, end in places], np.int64)
    for batch in scored_spans(model, encoded, scoring):
        keys = np.where(batch.end < room, (batch.owners * room + batch.first) * room + batch.end, -1)
        for row in np.flatnonzero(np.isin(keys, wanted)).tolist():
            scores = batch.scores[row, NULL + 1 :].astype(np.float64) / config.temperature
            shares = np.exp(scores - scores.max())
            by_type = dict(zip(config.labels, (shares / shares.sum()).tolist(), strict=True))
            text = int(batch.owners[row])
            for number in places[text, int(batch.first[row]), int(batch.end[row])]:
                answers[text][number] = by_type
    return answers


def predict_spans(
    model: Network, texts: Sequence[Alignment], encoded: SpanSequences, *, scoring: ScoringOptions
) -> list[Spanned]:
    """The answers of a model for texts that are aligned and encoded already."""
    head, sequences = spans_head(model), encoded.sequences
    config = head.config
    names = config.relations.labels if config.relations is not None else ()
    answers = []
    candidates = span_candidates(model, encoded, scoring)
    for text, likely, coverage in zip(texts, candidates, coverages(sequences), strict=True):
        kept = decode_spans(likely, config.decoding, config.threshold)
        entities = []
        for (first, end, label), score in zip(likely.spans(kept), likely.scores[kept].tolist(), strict=True):
            start, stop = int(text.word_spans[first, 0]), int(text.word_spans[end - 1, 1])
            entities.append(
                Entity(text=text.text[start:stop], label=config.labels[label], start=start, end=stop, score=score)
            )
        relations = [
            Relation(head=entities[a], tail=entities[b], label=names[label], score=score)
            for a, b, label, score in kept_relations(head, likely.take(kept))
        ]
        answers.append(Spanned(text=text.text, entities=tuple(entities), relations=tuple(relations), coverage=coverage))
    return answers
