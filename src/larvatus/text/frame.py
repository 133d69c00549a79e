"""How a text or a pair of texts is dressed for a model: special tokens before, between and after, and every segment.

    frame = tokenizer.frame
    frame.pair.ids(question, passage)        # [CLS] question [SEP] passage [SEP], or <s> question </s></s> passage </s>
    frame.pair.room(512)                     # tokens of text in a sequence of 512: 509, or 508

BERT puts one separator into a pair and tells its texts apart by segments (Devlin et al. 2019, figure 2); RoBERTa, XLM-R
and MPNet put two and have no second segment (Liu et al. 2019). Which it is, the tokenizer says: the post-processor of
its `tokenizer.json` is asked to dress two made-up texts, so that every kind of post-processor is understood, and what
`transformers` adds is what is added here. Only the packings of pretraining have a way of their own: one separator.
S sequences of one or two texts, N tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import tokenizers
from tokenizers.models import WordLevel

from larvatus.arrays import Integers, Ints
from larvatus.errors import ArtefactError

MOST_SPECIALS = 16
"""Around a text or a pair; published models have up to four."""
REPEATS = "the tokenizer's post-processor repeats, drops or swaps texts; correct tokenizer.json"


@dataclass(frozen=True)
class Dress:
    """The special tokens around one text, or around the two of a pair.

    >>> pair = Dress(gaps=((2,), (3,), (3,)), gap_segments=((0,), (0,), (1,)), text_segments=(0, 1))
    >>> pair.ids(np.array([7, 8]), np.array([9])).tolist()
    [2, 7, 8, 3, 9, 3]
    >>> pair.segments(2, 1).tolist(), pair.starts(2, 1)
    ([0, 0, 0, 0, 1, 1], (1, 4))
    """

    gaps: tuple[tuple[int, ...], ...]
    """Special tokens before the first text, between two texts, after the last."""
    gap_segments: tuple[tuple[int, ...], ...]
    """Segment of each."""
    text_segments: tuple[int, ...]
    """Segment of the tokens of each text."""

    @property
    def specials(self) -> int:
        """Special tokens in all."""
        return sum(map(len, self.gaps))

    @property
    def opening(self) -> int:
        """Special tokens before the first text."""
        return len(self.gaps[0])

    def room(self, limit: int) -> int:
        """Integers of text that fit into a sequence of `limit`."""
        return limit - self.specials

    def starts(self, *lengths: int) -> tuple[int, ...]:
        """Where each text begins, given how many tokens each has."""
        places, at = [], 0
        for gap, length in zip(self.gaps, lengths, strict=False):
            places.append(at + len(gap))
            at += len(gap) + length
        return tuple(places)

    def woven(self, *texts: Integers) -> list[Integers]:
        """The arrays that make the sequence when laid end to end: special tokens and texts in turn."""
        return list(_alternating(self._gap_arrays, texts))

    def ids(self, *texts: Integers) -> Ints:
        """One whole sequence."""
        return np.concatenate(self.woven(*texts)).astype(np.int64)

    def filled(self, value: int, *texts: Integers) -> Ints:
        """Something else that texts have for each token (its word), and `value` for the special tokens."""
        fill = [np.full(len(gap), value, np.int64) for gap in self.gaps]
        return np.concatenate(list(_alternating(fill, texts))).astype(np.int64)

    def segments(self, *lengths: int | Ints) -> Ints:
        """The segment of each token of a sequence whose texts have so many tokens.

        Lengths may be arrays [S]: then those of S sequences, end to end: [N].
        """
        sizes = np.stack(np.broadcast_arrays(*(np.asarray(length, np.int64).reshape(-1) for length in lengths)), 1)
        fixed = [np.ones((len(sizes), len(gap)), np.int64) for gap in self.gap_segments]
        columns = np.concatenate(list(_alternating(fixed, np.hsplit(sizes, sizes.shape[1]))), axis=1)
        kinds = [np.array(gap, np.int64) for gap in self.gap_segments]
        runs = np.concatenate(list(_alternating(kinds, [np.array([one], np.int64) for one in self.text_segments])))
        return np.repeat(np.tile(runs, len(columns)), columns.ravel())

    @cached_property
    def _gap_arrays(self) -> tuple[Ints, ...]:
        return tuple(np.array(gap, dtype=np.int64) for gap in self.gaps)


@dataclass(frozen=True)
class Frame:
    """How one text is dressed, and how a pair is; a question with its passage is a pair."""

    single: Dress
    pair: Dress

    def of(self, texts: int) -> Dress:
        """For one text or two."""
        return self.single if texts == 1 else self.pair

    @classmethod
    def bert(cls, cls_id: int, sep_id: int) -> Frame:
        """`[CLS] text [SEP]`, and `[CLS] first [SEP] second [SEP]` in segments 0 and 1."""
        opening, end = (cls_id,), (sep_id,)
        return cls(
            single=Dress((opening, end), ((0,), (0,)), (0,)),
            pair=Dress((opening, end, end), ((0,), (0,), (1,)), (0, 1)),
        )

    @classmethod
    def roberta(cls, cls_id: int, sep_id: int) -> Frame:
        """`<s> text </s>`, and `<s> first </s></s> second </s>`, all in segment 0."""
        opening, end = (cls_id,), (sep_id,)
        return cls(
            single=Dress((opening, end), ((0,), (0,)), (0,)),
            pair=Dress((opening, end * 2, end), ((0,), (0, 0), (0,)), (0, 0)),
        )

    def without_segments(self) -> Frame:
        """The same with every token in segment 0."""
        return Frame(
            *(Dress(one.gaps, _zeros(one.gaps), (0,) * (len(one.gaps) - 1)) for one in (self.single, self.pair))
        )


def read_frame(post_processor: Any) -> Frame | None:
    """What a post-processor of the `tokenizers` library adds to one text and to two; None where it adds nothing."""
    if post_processor is None:
        return None
    _check_templates(json.loads(post_processor.__getstate__()))
    probe = tokenizers.Tokenizer(WordLevel({"text": 0}, unk_token="text"))
    probe.post_processor = post_processor
    frame = Frame(_dress(_asked(probe, "text"), 1), _dress(_asked(probe, "text", "text"), 2))
    if not frame.single.specials and not frame.pair.specials:
        return None
    for dress in (frame.single, frame.pair):
        if not dress.gaps[0] or not dress.gaps[-1]:
            raise ArtefactError(
                "the tokenizer's post-processor puts no special token before a text, or none after it, and models here "
                "read both; correct post_processor in tokenizer.json"
            )
    return frame


def _asked(probe: Any, *texts: str) -> tokenizers.Encoding:
    """What the post-processor makes of made-up texts."""
    found: tokenizers.Encoding = probe.encode(*texts)
    if len(found.ids) > MOST_SPECIALS + len(texts):
        raise ArtefactError(
            f"the tokenizer's post-processor puts {len(found.ids) - len(texts):,} special tokens around a text; more "
            f"than {MOST_SPECIALS} are refused"
        )
    return found


def _check_templates(processor: Any) -> None:
    """Templates must name the tokens that they use, at which the library panics, and each text once."""
    for inner in processor.get("processors", []):
        _check_templates(inner)
    if processor["type"] != "TemplateProcessing":
        return
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = [next(iter(piece.items())) for piece in processor[name]]
        unknown = {own["id"] for kind, own in pieces if kind == "SpecialToken"} - set(processor["special_tokens"])
        if unknown:
            raise ArtefactError(
                f"the tokenizer's post-processor uses {min(unknown)!r:.60}, which it does not define; correct "
                "tokenizer.json"
            )
        if [own["id"] for kind, own in pieces if kind == "Sequence"] != texts:
            raise ArtefactError(REPEATS)


def _dress(found: tokenizers.Encoding, texts: int) -> Dress:
    """From the probe's encoding, in which each text is one token."""
    owners = found.sequence_ids
    places = [at for at, owner in enumerate(owners) if owner is not None]
    if [owners[at] for at in places] != list(range(texts)):
        raise ArtefactError(REPEATS)
    borders = [-1, *places, len(owners)]
    gaps = [slice(low + 1, high) for low, high in pairwise(borders)]
    return Dress(
        gaps=tuple(tuple(found.ids[gap]) for gap in gaps),
        gap_segments=tuple(tuple(found.type_ids[gap]) for gap in gaps),
        text_segments=tuple(found.type_ids[at] for at in places),
    )


def _alternating(gaps: Sequence[Integers], texts: Iterable[Integers]) -> Iterator[Integers]:
    """A gap, a text, a gap, …, the last gap."""
    inner = iter(texts)
    yield gaps[0]
    for gap in gaps[1:]:
        yield next(inner)
        yield gap


def _zeros(gaps: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple((0,) * len(gap) for gap in gaps)
