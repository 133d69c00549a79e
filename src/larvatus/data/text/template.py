"""Templates: the special tokens before, between and after the texts of a sequence, and the segment of every token.

    template = tokenizer.template
    template.pair.ids(question, passage)     # [CLS] question [SEP] passage [SEP], or <s> question </s></s> passage </s>
    template.pair.text_length(512)           # tokens of text in a sequence of 512: 509, or 508

BERT puts one separator into a pair and distinguishes its texts by segments (Devlin et al. 2019, figure 2). RoBERTa,
XLM-R and MPNet put two and have no second segment (Liu et al. 2019). GPT adds nothing. The tokenizer decides: the
post-processor of its `tokenizer.json` wraps two made-up texts, so every kind of post-processor is understood, and
Larvatus adds what `transformers` adds. Packing, tasks and inference all use this module.
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
"""Limit for the special tokens around a text or a pair; published models have up to four."""
TWO_SEPARATORS = ("Roberta", "XLMRoberta", "Camembert", "MPNet")
"""Names of `transformers` tokenizers that put two separators into a pair and have no second segment."""
REPEATS = "the tokenizer's post-processor repeats, drops or swaps texts; correct tokenizer.json"


@dataclass(frozen=True)
class SequenceTemplate:
    """The special tokens around one text, or around the two of a pair.

    >>> pair = SequenceTemplate(gaps=((2,), (3,), (3,)), gap_segments=((0,), (0,), (1,)), text_segments=(0, 1))
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
    """Position of the token that summarises the sequence: first ([CLS] of BERT) or last (<cls> of XLNet)."""

    @property
    def special_count(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.gaps))

    @property
    def opening(self) -> int:
        """Special tokens before the first text."""
        return len(self.gaps[0])

    @property
    def highest_segment(self) -> int:
        return max(chain(self.text_segments, *self.gap_segments))

    def text_length(self, limit: int) -> int:
        """Tokens of text that fit into a sequence of `limit` tokens."""
        return limit - self.special_count

    def summary_places(self, lengths: Ints) -> Ints:
        """Position of the summary token in sequences of these lengths, special tokens included: [S] → [S]."""
        return lengths - 1 if self.summary else np.zeros_like(lengths)

    def starts(self, *lengths: int) -> tuple[int, ...]:
        """Position where each text begins, from the number of tokens of each."""
        places, at = [], 0
        for gap, length in zip(self.gaps, lengths, strict=False):
            places.append(at + len(gap))
            at += len(gap) + length
        return tuple(places)

    def interleave(self, *texts: Integers) -> list[Integers]:
        """Special tokens and texts in turn: arrays that make the sequence when concatenated."""
        return list(_alternating(self._gap_arrays, texts))

    def ids(self, *texts: Integers) -> Ints:
        """One whole sequence."""
        return np.concatenate(self.interleave(*texts)).astype(np.int64)

    def fill(self, value: int, *texts: Integers) -> Ints:
        """One whole sequence of other token properties (such as their words), with `value` for the special tokens."""
        fill = [np.full(len(gap), value, np.int64) for gap in self.gaps]
        return np.concatenate(list(_alternating(fill, texts))).astype(np.int64)

    def segments(self, *lengths: int | Ints) -> Ints:
        """The segment of each token of a sequence whose texts have these lengths.

        Lengths may be arrays [S]: the result covers S sequences, end to end: [N].
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
class Template:
    """Special tokens around one text and around a pair; a question with its passage is a pair."""

    single: SequenceTemplate
    pair: SequenceTemplate

    def for_texts(self, texts: int) -> SequenceTemplate:
        """The template of one text or two."""
        return self.single if texts == 1 else self.pair

    @property
    def highest_segment(self) -> int:
        return max(self.single.highest_segment, self.pair.highest_segment)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of all tokens that are added."""
        return frozenset(chain(*self.single.gaps, *self.pair.gaps))

    @property
    def encloses(self) -> bool:
        """Whether every text has a special token before and after it."""
        return all(template.gaps[0] and template.gaps[-1] for template in (self.single, self.pair))

    @classmethod
    def bert(cls, cls_id: int | None, sep_id: int | None) -> Template:
        """`[CLS] text [SEP]`, and `[CLS] first [SEP] second [SEP]` in segments 0 and 1. A None id is left out."""
        opening, end = _token(cls_id), _token(sep_id)
        return cls(
            single=SequenceTemplate((opening, end), (_segment(opening, 0), _segment(end, 0)), (0,)),
            pair=SequenceTemplate(
                (opening, end, end), (_segment(opening, 0), _segment(end, 0), _segment(end, 1)), (0, 1)
            ),
        )

    @classmethod
    def roberta(cls, cls_id: int | None, sep_id: int | None) -> Template:
        """`<s> text </s>`, and `<s> first </s></s> second </s>`, all in segment 0. A None id is left out."""
        opening, end = _token(cls_id), _token(sep_id)
        template = cls(
            single=SequenceTemplate((opening, end), ((), ()), (0,)),
            pair=SequenceTemplate((opening, end * 2, end), ((), (), ()), (0, 0)),
        )
        return template.without_segments()

    @classmethod
    def xlnet(cls, cls_id: int, sep_id: int) -> Template:
        """`text <sep> <cls>`, and `first <sep> second <sep> <cls>` in segments 0, 1 and 2 (<cls>)."""
        return cls(
            single=SequenceTemplate(((), (sep_id, cls_id)), ((), (0, 2)), (0,), summary=-1),
            pair=SequenceTemplate(((), (sep_id,), (sep_id, cls_id)), ((), (0,), (1, 2)), (0, 1), summary=-1),
        )

    def without_segments(self) -> Template:
        """The same template with every token in segment 0."""
        single, pair = (
            replace(
                template,
                gap_segments=tuple(_segment(gap, 0) for gap in template.gaps),
                text_segments=(0,) * (len(template.gaps) - 1),
            )
            for template in (self.single, self.pair)
        )
        return Template(single, pair)

    def summarised_by(self, cls_id: int | None) -> Template:
        """The same template with the position of its summary token.

        It is the last token where `cls_id` closes every text, or where no special token opens a text, else the first.
        """
        templates = (self.single, self.pair)
        last = all(template.gaps[-1][-1:] == (cls_id,) for template in templates) if cls_id is not None else False
        opened = any(template.gaps[0] for template in templates)
        if not last and opened:
            return self
        return Template(*(replace(template, summary=-1) for template in templates))

    def post_processor(self, names: Mapping[int, str]) -> processors.TemplateProcessing:
        """Post-processor of the `tokenizers` library with this template; `names` of all special tokens by id."""
        return processors.TemplateProcessing(
            single=_template(self.single, names),
            pair=_template(self.pair, names),
            special_tokens=[(name, id) for id, name in names.items()],
        )


def tokenizer_template(
    library: tokenizers.Tokenizer, config: Mapping[str, Any], *, cls_id: int | None, sep_id: int | None, size: int
) -> Template:
    """Template of a tokenizer: from its post-processor, else by its class, else as BERT.

    `config` is `tokenizer_config.json`, `size` the number of tokens in the vocabulary.
    """
    template = read_template(library.post_processor)
    if template is None:
        name = str(config.get("tokenizer_class", "")).removesuffix("Fast").removesuffix("Tokenizer")
        template = (Template.roberta if name in TWO_SEPARATORS else Template.bert)(cls_id, sep_id)
    template = template.summarised_by(cls_id)
    highest = max(template.special_ids, default=0)
    if highest >= size:
        raise ArtefactError(
            f"the tokenizer's post-processor adds token {highest}, but ids go from 0 to {size - 1}; "
            "correct tokenizer.json"
        )
    names = config.get("model_input_names")
    if isinstance(names, list) and "token_type_ids" not in names:  # then `transformers` gives the model no segments
        return template.without_segments()
    return template


def read_template(post_processor: Any) -> Template | None:
    """Template of a post-processor of the `tokenizers` library; None where it adds nothing."""
    if post_processor is None:
        return None
    _check_templates(json.loads(post_processor.__getstate__()))
    probe = tokenizers.Tokenizer(WordLevel({"text": 0}, unk_token="text"))
    probe.post_processor = post_processor
    template = Template(
        _sequence_template(_probed(probe, "text"), 1), _sequence_template(_probed(probe, "text", "text"), 2)
    )
    return template if template.special_ids else None


def _probed(probe: Any, *texts: str) -> tokenizers.Encoding:
    """Made-up texts as the post-processor wraps them."""
    encoding: tokenizers.Encoding = probe.encode(*texts)
    if len(encoding.ids) > MOST_SPECIALS + len(texts):
        raise ArtefactError(
            f"the tokenizer's post-processor puts {len(encoding.ids) - len(texts):,} special tokens around a text; "
            f"more than {MOST_SPECIALS} are refused"
        )
    return encoding


def _check_templates(processor: Any) -> None:
    """Templates must define the tokens that they use (else the library panics) and use each text once."""
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


def _sequence_template(encoding: tokenizers.Encoding, texts: int) -> SequenceTemplate:
    """Template from the encoding of a probe, in which each text is one token."""
    owners = encoding.sequence_ids
    places = [at for at, owner in enumerate(owners) if owner is not None]
    if [owners[at] for at in places] != list(range(texts)):
        raise ArtefactError(REPEATS)
    borders = [-1, *places, len(owners)]
    gaps = [slice(low + 1, high) for low, high in pairwise(borders)]
    return SequenceTemplate(
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


def _template(template: SequenceTemplate, names: Mapping[int, str]) -> str:
    """Template string of the library: ``[CLS]:0 $A:0 [SEP]:0``."""
    words = []
    for number, (gap, kinds) in enumerate(zip(template.gaps, template.gap_segments, strict=True)):
        words += [f"{names[id]}:{kind}" for id, kind in zip(gap, kinds, strict=True)]
        if number < len(template.text_segments):
            words.append(f"${'AB'[number]}:{template.text_segments[number]}")
    return " ".join(words)
