"""How a text or a pair of texts is dressed for a model: special tokens before, between and after, and every segment.

    frame = tokenizer.frame
    frame.pair.ids(question, passage)        # [CLS] question [SEP] passage [SEP], or <s> question </s></s> passage </s>
    frame.pair.room(512)                     # tokens of text in a sequence of 512: 509, or 508

BERT puts one separator into a pair and tells its texts apart by segments (Devlin et al. 2019, figure 2); RoBERTa, XLM-R
and MPNet put two and have no second segment (Liu et al. 2019); GPT adds nothing. Which it is, the tokenizer says: the
post-processor of its `tokenizer.json` is asked to dress two made-up texts, so that every kind of post-processor is
understood, and what `transformers` adds is what is added here. Packing, tasks, embed, cloze and probe all ask here.
S sequences of one or two texts, N tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import tokenizers
from tokenizers import processors
from tokenizers.models import WordLevel

from larvatus.core.arrays import Integers, Ints
from larvatus.core.errors import ArtefactError

MOST_SPECIALS = 16
"""Around a text or a pair; published models have up to four."""
TWO_SEPARATORS = ("Roberta", "XLMRoberta", "Camembert", "MPNet")
"""How the names of the `transformers` classes begin that put two separators into a pair and have no second segment."""
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
    summary: Literal[0, -1] = 0
    """Which token stands for the whole: the first ([CLS] of BERT), or the last (<cls> of XLNet)."""

    @property
    def specials(self) -> int:
        """Special tokens in all."""
        return sum(map(len, self.gaps))

    @property
    def opening(self) -> int:
        """Special tokens before the first text."""
        return len(self.gaps[0])

    @property
    def highest_segment(self) -> int:
        return max(chain(self.text_segments, *self.gap_segments))

    def room(self, limit: int) -> int:
        """Tokens of text that fit into a sequence of `limit`."""
        return limit - self.specials

    def summary_places(self, lengths: Ints) -> Ints:
        """Where the summary token stands in sequences of so many tokens, special ones included: [S] → [S]."""
        return lengths - 1 if self.summary else np.zeros_like(lengths)

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
        runs = np.concatenate(list(_alternating(kinds, [np.array([kind], np.int64) for kind in self.text_segments])))
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

    @property
    def highest_segment(self) -> int:
        return max(self.single.highest_segment, self.pair.highest_segment)

    @property
    def specials(self) -> frozenset[int]:
        """Every token that is added."""
        return frozenset(chain(*self.single.gaps, *self.pair.gaps))

    @property
    def encloses(self) -> bool:
        """Whether a special token stands before every text, and one after it."""
        return all(dress.gaps[0] and dress.gaps[-1] for dress in (self.single, self.pair))

    @classmethod
    def bert(cls, cls_id: int | None, sep_id: int | None) -> Frame:
        """`[CLS] text [SEP]`, and `[CLS] first [SEP] second [SEP]` in segments 0 and 1; without those that are None."""
        opening, end = _token(cls_id), _token(sep_id)
        return cls(
            single=Dress((opening, end), (_segment(opening, 0), _segment(end, 0)), (0,)),
            pair=Dress((opening, end, end), (_segment(opening, 0), _segment(end, 0), _segment(end, 1)), (0, 1)),
        )

    @classmethod
    def roberta(cls, cls_id: int | None, sep_id: int | None) -> Frame:
        """`<s> text </s>`, and `<s> first </s></s> second </s>`, all in segment 0; without those that are None."""
        opening, end = _token(cls_id), _token(sep_id)
        frame = cls(
            single=Dress((opening, end), ((), ()), (0,)), pair=Dress((opening, end * 2, end), ((), (), ()), (0, 0))
        )
        return frame.without_segments()

    @classmethod
    def xlnet(cls, cls_id: int, sep_id: int) -> Frame:
        """`text <sep> <cls>`, and `first <sep> second <sep> <cls>` in segments 0, 1 and, of <cls>, 2."""
        return cls(
            single=Dress(((), (sep_id, cls_id)), ((), (0, 2)), (0,), summary=-1),
            pair=Dress(((), (sep_id,), (sep_id, cls_id)), ((), (0,), (1, 2)), (0, 1), summary=-1),
        )

    def without_segments(self) -> Frame:
        """The same with every token in segment 0."""
        single, pair = (
            replace(
                dress,
                gap_segments=tuple(_segment(gap, 0) for gap in dress.gaps),
                text_segments=(0,) * (len(dress.gaps) - 1),
            )
            for dress in (self.single, self.pair)
        )
        return Frame(single, pair)

    def summarised_by(self, cls_id: int | None) -> Frame:
        """The same, its summary the token `cls_id` where that closes every text; without it, a text that nothing
        opens is summed up by its last token, any other by its first."""
        dresses = (self.single, self.pair)
        last = all(dress.gaps[-1][-1:] == (cls_id,) for dress in dresses) if cls_id is not None else False
        opened = any(dress.gaps[0] for dress in dresses)
        if not last and opened:
            return self
        return Frame(*(replace(dress, summary=-1) for dress in dresses))

    def post_processor(self, names: Mapping[int, str]) -> processors.TemplateProcessing:
        """What makes the `tokenizers` library dress texts in this way; `names` are those of all special tokens."""
        return processors.TemplateProcessing(
            single=_template(self.single, names),
            pair=_template(self.pair, names),
            special_tokens=[(name, id) for id, name in names.items()],
        )


def tokenizer_frame(
    library: tokenizers.Tokenizer, config: Mapping[str, Any], *, cls_id: int | None, sep_id: int | None, size: int
) -> Frame:
    """How texts and pairs are dressed: as the post-processor says; by the class where there is none; else as BERT.

    `config` is `tokenizer_config.json`, `size` the number of pieces.
    """
    frame = read_frame(library.post_processor)
    if frame is None:
        name = str(config.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
        frame = (Frame.roberta if name in TWO_SEPARATORS else Frame.bert)(cls_id, sep_id)
    frame = frame.summarised_by(cls_id)
    highest = max(frame.specials, default=0)
    if highest >= size:
        raise ArtefactError(
            f"the tokenizer's post-processor adds token {highest}, but ids go from 0 to {size - 1}; "
            "correct tokenizer.json"
        )
    names = config.get("model_input_names")
    if isinstance(names, list) and "token_type_ids" not in names:  # then `transformers` gives the model no segments
        return frame.without_segments()
    return frame


def read_frame(post_processor: Any) -> Frame | None:
    """What a post-processor of the `tokenizers` library adds to one text and to two; None where it adds nothing."""
    if post_processor is None:
        return None
    _check_templates(json.loads(post_processor.__getstate__()))
    probe = tokenizers.Tokenizer(WordLevel({"text": 0}, unk_token="text"))
    probe.post_processor = post_processor
    frame = Frame(_dress(_asked(probe, "text"), 1), _dress(_asked(probe, "text", "text"), 2))
    return frame if frame.specials else None


def _asked(probe: Any, *texts: str) -> tokenizers.Encoding:
    """What the post-processor makes of made-up texts."""
    encoding: tokenizers.Encoding = probe.encode(*texts)
    if len(encoding.ids) > MOST_SPECIALS + len(texts):
        raise ArtefactError(
            f"the tokenizer's post-processor puts {len(encoding.ids) - len(texts):,} special tokens around a text; "
            f"more than {MOST_SPECIALS} are refused"
        )
    return encoding


def _check_templates(processor: Any) -> None:
    """Templates must name the tokens that they use, at which the library panics, and each text once."""
    for inner in processor.get("processors", []):
        _check_templates(inner)
    if processor["type"] != "TemplateProcessing":
        return
    for name, texts in (("single", ["A"]), ("pair", ["A", "B"])):
        pieces = [next(iter(piece.items())) for piece in processor[name]]
        used = {piece["id"] for kind, piece in pieces if kind == "SpecialToken"}
        unknown = used - set(processor["special_tokens"])
        if unknown:
            raise ArtefactError(
                f"the tokenizer's post-processor uses {min(unknown)!r:.60}, which it does not define; correct "
                "tokenizer.json"
            )
        if [piece["id"] for kind, piece in pieces if kind == "Sequence"] != texts:
            raise ArtefactError(REPEATS)


def _dress(encoding: tokenizers.Encoding, texts: int) -> Dress:
    """From the probe's encoding, in which each text is one token."""
    owners = encoding.sequence_ids
    places = [at for at, owner in enumerate(owners) if owner is not None]
    if [owners[at] for at in places] != list(range(texts)):
        raise ArtefactError(REPEATS)
    borders = [-1, *places, len(owners)]
    gaps = [slice(low + 1, high) for low, high in pairwise(borders)]
    return Dress(
        gaps=tuple(tuple(encoding.ids[gap]) for gap in gaps),
        gap_segments=tuple(tuple(encoding.type_ids[gap]) for gap in gaps),
        text_segments=tuple(encoding.type_ids[at] for at in places),
    )


def _alternating(gaps: Sequence[Integers], texts: Iterable[Integers]) -> Iterator[Integers]:
    """A gap, a text, a gap, …, the last gap."""
    inner = iter(texts)
    yield gaps[0]
    for gap in gaps[1:]:
        yield next(inner)
        yield gap


def _token(id: int | None) -> tuple[int, ...]:
    return () if id is None else (id,)


def _segment(gap: Sequence[int], segment: int) -> tuple[int, ...]:
    return (segment,) * len(gap)


def _template(dress: Dress, names: Mapping[int, str]) -> str:
    """As the library writes it: ``[CLS]:0 $A:0 [SEP]:0``."""
    words = []
    for number, (gap, kinds) in enumerate(zip(dress.gaps, dress.gap_segments, strict=True)):
        words += [f"{names[id]}:{kind}" for id, kind in zip(gap, kinds, strict=True)]
        if number < len(dress.text_segments):
            words.append(f"${'AB'[number]}:{dress.text_segments[number]}")
    return " ".join(words)
