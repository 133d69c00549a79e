"""What may be chosen where spans are found, and the head that the training texts then ask for.

config = spans_config(train, SpansOptions(longest=8))
"""

from __future__ import annotations

from collections import Counter

from larvatus.core.errors import DataError
from larvatus.core.ranges import DropoutRate, PositiveShare, PositiveWeight, Size, SizeOrNone
from larvatus.core.settings import Settings
from larvatus.data.labelled.records import Dataset
from larvatus.data.labelled.span_records import SpannedWords
from larvatus.models.heads import SpansConfig
from larvatus.models.heads.pooling import WordPool
from larvatus.models.heads.spans import Decoding, RelationsConfig
from larvatus.models.nn.span_scorer import Representation
from larvatus.tasks.encoding.words import check_word_pool

COVERED = 0.995
LONGEST = 32
"""Where nothing is said, the longest span is as long as this share of the training ones, at most so many words."""


class SpansOptions(Settings):
    """What may be chosen of a head of spans."""

    longest: Size | None = None
    """Words of the longest span; None: by the training set."""
    representation: Representation = "boundaries"
    """What a span is scored from: mean, boundaries, attention or self-attention."""
    hidden: Size = 256
    """Size of the hidden layer that spans are scored by."""
    widths: bool = True
    """A learned vector for each length of spans."""
    negatives: PositiveShare = 1.0
    """Share of the spans that are nothing of which a step learns; 1: all."""
    null_weight: PositiveWeight = 1.0
    """How much a span that is nothing counts."""
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

    pool: WordPool | None = None
    """Which of a word's subwords speak for it: first, mean or max; default: first."""
    dropout: DropoutRate | None = None
    """Dropout on the vectors of words; default: 0.1."""
    mix: bool | None = None
    """Read a learned mix of all layers; default: with ELMo."""


def spans_config(train: Dataset[SpannedWords], options: SpansOptions) -> SpansConfig:
    """The types of the training set, and what was chosen."""
    check_word_pool(options.pool)
    if not train.labels():
        raise DataError(f"{train.source}: no span is labelled; give texts with spans to learn from")
    return SpansConfig(
        labels=train.label_names(),
        longest=natural_longest(train) if options.longest is None else options.longest,
        representation=options.representation,
        hidden=options.hidden,
        widths=options.widths,
        pool=options.pool or "first",
        dropout=0.1 if options.dropout is None else options.dropout,
        mix=bool(options.mix),
        negatives=options.negatives,
        null_weight=options.null_weight,
        decoding=options.decoding or natural_decoding(train),
        relations=relations_config(train, options),
    )


def relations_config(train: Dataset[SpannedWords], options: SpansOptions) -> RelationsConfig | None:
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
    reach = 0
    for example in train:
        for head, tail, _ in example.relations:
            a, b = (example.spans or ())[head], (example.spans or ())[tail]
            reach = max(reach, b.start - a.end + 1, a.start - b.end + 1)
    return reach


def natural_longest(train: Dataset[SpannedWords]) -> int:
    """The shortest L that covers nearly all spans."""
    lengths = Counter(end - start for example in train for start, end, _ in example.spans or ())
    covered, wanted = 0, COVERED * lengths.total()
    for length in sorted(lengths):
        covered += lengths[length]
        if covered >= wanted or length >= LONGEST:
            return min(length, LONGEST)
    return 1


def natural_decoding(train: Dataset[SpannedWords]) -> Decoding:
    return "nested" if any(_pairs(example, "flat") for example in train) else "flat"


def conflicts(train: Dataset[SpannedWords], decoding: Decoding) -> list[str]:
    """Gold spans that the decoding cannot give together, in a line with the first of them."""
    pairs = [(each, pair) for each in train for pair in _pairs(each, decoding)]
    if not pairs:
        return []
    example, (a, b) = pairs[0]
    words = " and ".join(repr(" ".join(example.words[start:end])) for start, end, _ in (a, b))
    what, way = ("overlap", "nested") if decoding == "flat" else ("cross", "free")
    said = f"{example.place}: {words} {what}, and {decoding} decoding keeps one of two ({len(pairs):,} pairs in all)"
    return [f"{said}; --set decoding={way} keeps both"]


def _pairs(example: SpannedWords, decoding: Decoding) -> list[tuple[tuple[int, int, str], tuple[int, int, str]]]:
    """Pairs of spans that exclude each other; the same words under two types do not."""
    if decoding == "free":
        return []
    order = sorted({(start, end, "") for start, end, _ in example.spans or ()}, key=lambda span: (span[0], -span[1]))
    pairs = []
    for number, a in enumerate(order):
        for b in order[number + 1 :]:  # begins later, or is shorter
            if b[0] >= a[1]:
                break
            if decoding == "flat" or (a[0] < b[0] and a[1] < b[1]):
                pairs.append((a, b))
    return pairs
