"""The Unigram language model of pieces (Kudo 2018, *Subword Regularization*), trained so that runs give equal bits.

A word's probability is the sum over its segmentations of the product of its pieces' probabilities. Start from all
frequent substrings, then in turns: expectation-maximisation of the piece probabilities over a lattice of each word;
drop the quarter of the pieces whose loss hurts the likelihood least; until the wanted number is left. Characters stay.

The library's trainer adds its floats up in the order of a hash table, so scores, and pieces at a tie, differ from run
to run. Here the words are sorted, and a step's lattices are one set of flat arrays (`lattice.py`), summed in order.

Pieces are trained inside words (`words.py`): none crosses punctuation or joins a Latin word with a Chinese one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import regex
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from larvatus.core.arrays import Doubles, Integers
from larvatus.core.errors import DataError, RecipeError
from larvatus.core.ranges import Count, PositiveShare, Size
from larvatus.core.settings import Settings
from larvatus.data.text.counting import covered_characters
from larvatus.data.text.special_tokens import sentinel_name
from larvatus.data.text.template import Template
from larvatus.data.text.tokenizer_files import SpecialTokens
from larvatus.data.text.vocabularies.kind import (
    PLAIN_CLASS,
    ROBERTA,
    SpecialLayout,
    VocabularyKind,
    Words,
    tokens_left,
)
from larvatus.data.text.vocabularies.lattice import Lattice, build_lattice, inner_lattice, weighted_counts
from larvatus.data.text.words import EXTENDS, PUNCTUATION, UNSPACED

LONGEST_PIECE = 16
MOST_SEEDS = 500_000
MOST_SEGMENTS = 300_000
"""Number of different words that are trained on: the most frequent."""


# A piece stays within one of these: punctuation, unspaced script, or anything else, each with the space before it.
_SEGMENT = regex.compile(rf"▁?(?:[{PUNCTUATION}]{EXTENDS}*|[{UNSPACED}]+|[^▁{PUNCTUATION}{UNSPACED}]+)|▁")


class UnigramConfig(Settings, path="tokenizer.", error=RecipeError, tag="unigram"):
    size: Size = 250_002
    """Number of tokens, special ones included."""
    lowercase: bool = False
    """Lowercase and strip accents (ALBERT does, XLM-R does not)."""
    coverage: PositiveShare = 0.9999
    """Share of the text's characters that get a token; rarer ones become <unk>."""
    min_count: Count = 2
    """Least number of times that a candidate subword occurs in the text."""
    separators: Literal[1, 2] = 2
    """Separators between the texts of a pair: 1 with segments (ALBERT), 2 without (XLM-R)."""
    frame: Literal["xlnet", "t5"] | msgspec.UnsetType = msgspec.UNSET
    """xlnet: `text <sep> <cls>`, with XLNet's special tokens. t5: `text </s>`, and 100 sentinels <extra_id_0> … for
    hidden spans. Default: `<s> text </s>`."""


SENTINELS = 100
XLNET = SpecialLayout(
    SpecialTokens(cls="<cls>", sep="<sep>", mask="<mask>", pad="<pad>", unk="<unk>"),
    first=("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
    spaced_mask=True,
)
T5 = SpecialLayout(
    SpecialTokens(cls="", sep="</s>", mask="", pad="<pad>", unk="<unk>"),
    first=("<pad>", "</s>", "<unk>"),
    last=tuple(sentinel_name(number) for number in reversed(range(SENTINELS))),
)


class Unigram(VocabularyKind[UnigramConfig]):
    def special(self, config: UnigramConfig) -> SpecialLayout:
        if config.frame == "t5":
            return T5
        return XLNET if config.frame == "xlnet" else ROBERTA

    def set_pipeline(self, library: tokenizers.Tokenizer, config: UnigramConfig) -> None:
        folding = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()] if config.lowercase else []
        spaces = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
        library.normalizer = normalizers.Sequence([normalizers.Nmt(), *folding, normalizers.NFKC(), spaces])
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
        )

    def learn(self, words: Words, config: UnigramConfig) -> tuple[Any, list[str]]:
        special = self.special(config)
        size = tokens_left(config.size, special.count)
        scored = learn_unigram(words, size=size, coverage=config.coverage, min_count=config.min_count)
        entries = [(name, 0.0) for name in special.first] + scored + [(name, 0.0) for name in special.last]
        unknown = special.first.index(special.tokens.unk)
        return models.Unigram(entries, unk_id=unknown, byte_fallback=False), [token for token, _ in entries]

    def template(self, config: UnigramConfig, cls_id: int, sep_id: int) -> Template:
        if config.frame == "t5":
            return Template.bert(None, sep_id).without_segments()
        if config.frame == "xlnet":
            return Template.xlnet(cls_id, sep_id)
        return (Template.bert if config.separators == 1 else Template.roberta)(cls_id, sep_id)

    def decoder(self) -> decoders.Decoder:
        return decoders.Metaspace(replacement="▁", prepend_scheme="always")

    def transformers_config(self, config: UnigramConfig) -> dict[str, Any]:
        if config.frame == "t5":
            return {"tokenizer_class": PLAIN_CLASS, "eos_token": T5.tokens.sep}
        plain = super().transformers_config(config)
        if config.frame == "xlnet":  # padded before the text, so that <cls> is the last token of a padded batch too
            plain |= {"cls_token": XLNET.tokens.cls, "sep_token": XLNET.tokens.sep, "padding_side": "left"}
        if config.frame == "xlnet" or config.separators == 1:  # else the class gives the model no segments
            plain["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        return plain


@dataclass(frozen=True)
class Seeds:
    """Candidate pieces in alphabetical order, and where they occur: entry k is piece[k], at place[k] of the text."""

    pieces: list[str]
    place: Integers
    length: Integers
    piece: Integers


def learn_unigram(
    words: Sequence[tuple[str, int]], *, size: int, coverage: float, min_count: int
) -> list[tuple[str, float]]:
    """(piece, log probability), the likeliest first; fewer than `size` where the text does not support as many."""
    segments = _segments(words, coverage)
    alphabet = sorted({char for segment, _ in segments for char in segment})
    if len(alphabet) > size:
        raise DataError(
            f"the text has {len(alphabet):,} different characters, more than the {size:,} pieces that the vocabulary "
            f"leaves for them; use --set tokenizer.size={len(alphabet) + 5} "
            f"(tokenizer train: --size {len(alphabet) + 5}) or more"
        )
    names, lattice, inner, scores = _beginning(segments, min_count)
    required = np.asarray([len(name) == 1 for name in names])
    least = 0  # the first round shows how many pieces the text supports; later ones never fall below the wanted size
    while True:
        for _ in range(2):
            expected = lattice.expected(scores)
            keep = _best(expected, required, max(least, int((required | (expected >= 0.5)).sum())))
            names, required, expected, lattice, inner = _kept(keep, names, required, expected, lattice, inner)
            scores = _digamma(np.maximum(expected, 0.5)) - _digamma(np.asarray([expected.sum()]))
        least = min(size, len(names))
        if len(names) <= size * 1.1:
            break
        loss = _losses(scores, lattice, inner)
        keep = _best(loss, required, max(int(size * 1.1), int(len(names) * 0.75)))
        names, required, scores, lattice, inner = _kept(keep, names, required, scores, lattice, inner)
    keep = _best(scores, required, min(size, len(names)))
    final = [(name, round(float(score), 6)) for name, score, kept in zip(names, scores, keep, strict=True) if kept]
    return sorted(final, key=lambda item: (-item[1], item[0]))


def _beginning(segments: Sequence[tuple[str, int]], min_count: int) -> tuple[list[str], Lattice, Lattice, Doubles]:
    """Seeds, the lattices of the segments and of the seeds themselves, and first scores by frequency × length."""
    text = "".join(segment for segment, _ in segments)
    lengths = np.asarray([len(segment) for segment, _ in segments], dtype=np.int64)
    counts = np.asarray([count for _, count in segments], dtype=np.float64)
    seeds = _seeds(text, lengths, counts, min_count)
    lattice = build_lattice(lengths, counts, seeds.place, seeds.length, seeds.piece)
    inner = inner_lattice(seeds.place, seeds.length, seeds.piece, len(seeds.pieces))
    worth = weighted_counts(seeds.piece, np.repeat(counts, lengths)[seeds.place], len(seeds.pieces))
    worth *= np.asarray([len(name) for name in seeds.pieces])
    return seeds.pieces, lattice, inner, np.log(worth) - np.log(worth.sum())


def _segments(words: Sequence[tuple[str, int]], coverage: float) -> list[tuple[str, int]]:
    """Stretches that pieces may not cross, with counts, sorted; characters beyond the coverage cut as well."""
    kept = set(covered_characters(words, coverage))
    counts: Counter[str] = Counter()
    for word, count in words:
        for segment in _SEGMENT.findall(word):
            if not kept.issuperset(segment):
                for part in "".join(char if char in kept else "\n" for char in segment).split("\n"):
                    counts[part] += count
            else:
                counts[segment] += count
    del counts[""]
    commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_SEGMENTS]
    missing = kept.difference(*(segment for segment, _ in commonest))
    return sorted([*commonest, *((char, 1) for char in missing)])


def _seeds(text: str, lengths: Integers, counts: Doubles, min_count: int) -> Seeds:
    """Substrings that occur often and can be followed by more than one character, and all characters.

    Length by length: a substring is the pair (substring one shorter, next character), numbered by rank; no hashing.
    """
    alphabet, code = np.unique(np.asarray(list(text)), return_inverse=True)
    place = np.arange(len(text), dtype=np.int32)
    left = np.repeat(np.cumsum(lengths), lengths) - place  # characters up to the end of the segment
    weight = np.repeat(counts, lengths)
    substrings: list[
        tuple[Integers, Integers, Doubles]
    ] = []  # of each length: places, rank at each place, frequency of each rank
    rank, frequency = code.astype(np.int32), weighted_counts(code, weight, len(alphabet))
    substrings.append((place, rank, np.full(len(alphabet), np.inf)))
    for length in range(2, LONGEST_PIECE + 1):
        inside = left[place] >= length
        place, parent = place[inside], rank[inside]
        following = code[place + length - 1]
        pair, rank = np.unique(parent.astype(np.int64) * len(alphabet) + following, return_inverse=True)
        child = weighted_counts(rank, weight[place], len(pair))
        if length > 2:  # always followed by the same character: the longer one says it all
            longest = np.zeros(len(frequency))
            np.maximum.at(longest, pair // len(alphabet), child)
            substrings[-1][2][longest == frequency] = 0
        often = child >= min_count
        place, rank = place[often[rank]], (np.cumsum(often) - 1).astype(np.int32)[rank[often[rank]]]
        frequency = child[often]
        if not len(place):
            break
        substrings.append((place, rank, frequency.copy()))
    return _chosen(text, substrings)


def _chosen(text: str, substrings: list[tuple[Integers, Integers, Doubles]]) -> Seeds:
    """The best seeds by frequency × length, and their occurrences."""
    names: list[str] = []
    worth = []
    for length, (place, rank, frequency) in enumerate(substrings, start=1):
        example = np.zeros(len(frequency), dtype=np.int64)
        example[rank[::-1]] = place[::-1]
        names += [text[start : start + length] for start in example.tolist()]
        worth.append(frequency * length)
    value = np.concatenate(worth)
    order = sorted(np.flatnonzero(value > 0).tolist(), key=lambda index: (-value[index], names[index]))[:MOST_SEEDS]
    order.sort(key=names.__getitem__)
    number = np.full(len(names), -1, dtype=np.int32)
    number[order] = np.arange(len(order))
    places, lengths, pieces, before = [], [], [], 0
    for length, (place, rank, frequency) in enumerate(substrings, start=1):
        piece = number[before + rank]
        places.append(place[piece >= 0])
        pieces.append(piece[piece >= 0])
        lengths.append(np.full(len(places[-1]), length, dtype=np.int32))
        before += len(frequency)
    return Seeds(
        [names[index] for index in order], np.concatenate(places), np.concatenate(lengths), np.concatenate(pieces)
    )


def _losses(scores: Doubles, lattice: Lattice, inner: Lattice) -> Doubles:
    """How much the likelihood falls without each piece, when its best other segmentation replaces it."""
    used = lattice.best_counts(scores)
    total = used.sum()
    other, steps = inner.best_sums(scores, np.log(np.maximum(used, 1e-9)))
    best = inner.best_score(scores)
    with np.errstate(divide="ignore", invalid="ignore"):
        # log p of the others, once they have taken over this piece's occurrences
        alternative = other - steps * np.log(total + used * (steps - 1))
        loss = used * (np.log(used) - np.log(total) - alternative)
    loss[(used == 0) | (best > scores)] = -np.inf
    return np.asarray(np.round(loss, 6), dtype=np.float64)


def _best(value: Doubles, required: npt.NDArray[np.bool_], size: int) -> npt.NDArray[np.bool_]:
    """Keep the required and the best, `size` in all; ties go to the earlier in the alphabet."""
    order = np.argsort(np.where(required, -np.inf, -value), kind="stable")
    keep = required.copy()
    keep[order[: max(size, int(required.sum()))]] = True
    return keep


def _kept(
    keep: npt.NDArray[np.bool_],
    names: list[str],
    required: npt.NDArray[np.bool_],
    value: Doubles,
    lattice: Lattice,
    inner: Lattice,
) -> tuple[list[str], npt.NDArray[np.bool_], Doubles, Lattice, Lattice]:
    if keep.all():
        return names, required, value, lattice, inner
    names = [name for name, kept in zip(names, keep.tolist(), strict=True) if kept]
    return names, required[keep], value[keep], lattice.without(~keep), inner.without(~keep, words=keep)


def _digamma(x: Doubles) -> Doubles:
    """ψ(x) for x > 0: the recurrence up to 6, then the asymptotic series. Bayesian counts punish rare pieces."""
    shift = np.zeros_like(x)
    x = x.copy()
    for _ in range(6):
        small = x < 6
        shift[small] -= 1 / x[small]
        x[small] += 1
    square = 1 / (x * x)
    shift += np.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252))
    return shift
