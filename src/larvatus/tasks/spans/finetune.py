"""Fine-tune for spans (chapter §11.5.2): from examples to a calibrated model.

    tuned = finetune_spans(bundle, read_spanned("train.conllu"), read_spanned("dev.conllu"), Job(), SpanOptions())
    tuned.bundle, tuned.scores

`Job` is that of the other tasks; what is chosen of a head of spans stands in `SpanOptions`. After training, temperature
and threshold are fitted to the held-out spans, in this order. Where the training set has relations between spans, they
are learnt by the same model.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec
from msgspec import Struct

from larvatus.bundle.directory import Bundle
from larvatus.errors import DataError, UsageError
from larvatus.heads import SpansConfig
from larvatus.heads.relations import RelationsConfig
from larvatus.heads.spans import Decoding
from larvatus.labelled.records import Dataset, SpannedWords
from larvatus.labelled.spanned import binary
from larvatus.nn.span_scorer import Representation
from larvatus.ranges import PositiveShare, PositiveWeight, Size, SizeOrNone, check_ranges
from larvatus.tasks.fit.finetune import Job, Tuned, parted, tell_unknown, tuned_with_head, window_of
from larvatus.tasks.fit.head_options import HeadOptions
from larvatus.tasks.fit.loop import scoring_of
from larvatus.tasks.spans.held_out import HeldOutSpans, metric_of_spans
from larvatus.tasks.spans.spans import SpannedTexts, spanned_texts, spans_head

COVERED = 0.995
LONGEST = 32
"""Where nothing is said, the longest span is as long as this share of the training ones, at most so many words."""


class SpanOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be chosen of a head of spans."""

    longest: Size | None = None
    """Words of the longest span; None: by the training set."""
    representation: Representation = "boundaries"
    hidden: Size = 256
    widths: bool = True
    negatives: PositiveShare = 1.0
    null_weight: PositiveWeight = 1.0
    decoding: Decoding | None = None
    """None: nested, or flat where no training spans overlap."""
    least_precision: PositiveShare | None = None
    """Wished on the held-out spans; None: the threshold with the best F1."""
    binary: bool = False
    """Whether all types are read as one: are these words something, or not?"""
    relations: bool | None = None
    """Whether relations between spans are learnt too; None: where the training set has some."""
    relation_weight: PositiveWeight = 1.0
    """How much a pair of spans counts in the loss, where a span counts 1."""
    reach: SizeOrNone | None = None
    """Words from one span of a relation to the other, at most; None: by the training set."""

    def __post_init__(self) -> None:
        check_ranges(self, "")


def finetune_spans(
    bundle: Bundle,
    train: Dataset[SpannedWords],
    dev: Dataset[SpannedWords] | None,
    job: Job,
    options: SpanOptions | None = None,
) -> Tuned:
    """Spans of words and what they are."""
    options = options or SpanOptions()
    if options.binary:
        train, dev = binary(train), binary(dev) if dev else None
    train, dev = parted(train, dev, job)
    job = dataclasses.replace(job, config=job.config.settled("spans", len(train)))
    config = spans_config(train, job.head, options)
    for line in conflicts(train, config.decoding):
        job.watch.say(line)
    data = encode_spans(bundle, train, config, job)
    held = None
    if dev:
        held = HeldOutSpans(encode_spans(bundle, dev, config, job), config, metric_of_spans(config, job.metric))
    tuned = tuned_with_head(bundle, config, data, job, held=held, train=train, dev=dev)
    return tuned if held is None else _with_threshold(tuned, held, job, options)


def _with_threshold(tuned: Tuned, held: HeldOutSpans, job: Job, options: SpanOptions) -> Tuned:
    """The threshold fitted, and the scores that it gives."""
    model, scoring = tuned.bundle.network, scoring_of(job.runtime)
    fitted = held.threshold(model, scoring, precision=options.least_precision)
    head = spans_head(model)
    head.config = msgspec.structs.replace(head.config, threshold=fitted.threshold)
    job.watch.say(
        f"threshold {fitted.threshold:g}: precision {fitted.precision:.3f}, recall {fitted.recall:.3f} on held-out ones"
    )
    if head.config.relations is not None:
        fitted = held.relation_threshold(model, scoring)
        own = msgspec.structs.replace(head.config.relations, threshold=fitted.threshold)
        head.config = msgspec.structs.replace(head.config, relations=own)
        job.watch.say(
            f"threshold of relations {fitted.threshold:g}: precision {fitted.precision:.3f}, "
            f"recall {fitted.recall:.3f} on held-out ones"
        )
    bundle = dataclasses.replace(tuned.bundle, objectives=(head.config,))
    return dataclasses.replace(tuned, bundle=bundle, scores=held.scores(model, scoring))


def encode_spans(bundle: Bundle, data: Dataset[SpannedWords], config: SpansConfig, job: Job) -> SpannedTexts:
    limit = window_of(bundle, job.config)
    found = spanned_texts(bundle.tokenizer, data.examples, config, limit=limit, truncate=job.config.truncate)
    for line in found.notes(config.longest):
        job.watch.say(f"{data.source}: {line}")
    tell_unknown(job, data.source, found.unknown, ("spans", "of types"), "count as missed")
    tell_unknown(job, data.source, found.unknown_relations, ("relations", "of kinds"), "count as missed")
    return found


def spans_config(train: Dataset[SpannedWords], head: HeadOptions, options: SpanOptions) -> SpansConfig:
    """The types of the training set, and what was chosen."""
    unfit = {
        "class weights, focal loss, smoothing and dense belong to finetune classify": bool(
            head.balanced or head.class_weights or head.focal or head.smoothing or head.dense
        ),
        "a CRF, an LSTM and schemes of tags belong to finetune tag": bool(head.crf or head.lstm or head.scheme),
    }
    for said, asked in unfit.items():
        if asked:
            raise UsageError(f"{said}, not spans")
    if head.pool == "cls":
        raise UsageError("a word is pooled by first, mean or max of its subwords, not cls")
    if not train.labels():
        raise DataError(f"{train.source}: no span is labelled; give texts with spans to learn from")
    return SpansConfig(
        labels=train.label_names(),
        longest=natural_longest(train) if options.longest is None else options.longest,
        representation=options.representation,
        hidden=options.hidden,
        widths=options.widths,
        pool=head.pool or "first",
        dropout=0.1 if head.dropout is None else head.dropout,
        mix=head.mix,
        negatives=options.negatives,
        null_weight=options.null_weight,
        decoding=options.decoding or natural_decoding(train),
        relations=relations_config(train, options),
    )


def relations_config(train: Dataset[SpannedWords], options: SpanOptions) -> RelationsConfig | None:
    """The relations of the training set, where they are to be learnt."""
    labels = train.relation_names()
    if options.relations and not labels:
        raise DataError(f"{train.source}: no spans are related; give texts with relations, or leave them out")
    if options.relations is False or not labels:
        return None
    reach = natural_reach(train) if options.reach is None else options.reach
    return RelationsConfig(labels=labels, reach=reach, hidden=options.hidden, weight=options.relation_weight)


def natural_reach(train: Dataset[SpannedWords]) -> int:
    """As far as the spans of any relation lie apart: words from the end of one to the beginning of the other."""
    found = 0
    for example in train:
        for head, tail, _ in example.relations:
            a, b = (example.spans or ())[head], (example.spans or ())[tail]
            found = max(found, b.start - a.end + 1, a.start - b.end + 1)
    return found


def natural_longest(train: Dataset[SpannedWords]) -> int:
    """The shortest L that covers nearly all spans."""
    lengths = Counter(end - start for one in train for start, end, _ in one.spans or ())
    covered, wanted = 0, COVERED * lengths.total()
    for length in sorted(lengths):
        covered += lengths[length]
        if covered >= wanted or length >= LONGEST:
            return min(length, LONGEST)
    return 1


def natural_decoding(train: Dataset[SpannedWords]) -> Decoding:
    return "nested" if any(_pairs(one, "flat") for one in train) else "flat"


def conflicts(train: Dataset[SpannedWords], decoding: Decoding) -> list[str]:
    """Gold spans that the decoding cannot give together, in a line with the first of them."""
    found = [(one, pair) for one in train for pair in _pairs(one, decoding)]
    if not found:
        return []
    example, (a, b) = found[0]
    words = " and ".join(repr(" ".join(example.words[start:end])) for start, end, _ in (a, b))
    what, way = ("overlap", "nested") if decoding == "flat" else ("cross", "free")
    said = f"{example.place}: {words} {what}, and {decoding} decoding keeps one of two ({len(found):,} pairs in all)"
    return [f"{said}; --set decoding={way} keeps both"]


def _pairs(example: SpannedWords, decoding: Decoding) -> list[tuple[tuple[int, int, str], tuple[int, int, str]]]:
    """Pairs of spans that exclude each other; the same words under two types do not."""
    if decoding == "free":
        return []
    order = sorted({(start, end, "") for start, end, _ in example.spans or ()}, key=lambda one: (one[0], -one[1]))
    pairs = []
    for number, a in enumerate(order):
        for b in order[number + 1 :]:  # begins later, or is shorter
            if b[0] >= a[1]:
                break
            if decoding == "flat" or (a[0] < b[0] and a[1] < b[1]):
                pairs.append((a, b))
    return pairs
