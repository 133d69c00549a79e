"""Fill blanks with the masked-LM head (BERT, Devlin et al. 2019, §3.1; chapter §11.2.1).

    for fill in fill_blanks(network, tokenizer, "Please turn your [MASK] in."):
        print(fill.token, fill.probability)

Several blanks are filled together: a masked-LM gives each blank's distribution with the others open (the marginals),
so we fill one, run the encoder again, fill the next, and so on, and score a complete filling by the chain rule

    p(x_1, …, x_m | text) = p(x_σ1 | text) · p(x_σ2 | text, x_σ1) · …

A masked-LM does not give the same product for every order σ. Ours begins with the blank whose marginal is most certain
and is the same for all fillings of a text, so that their probabilities are comparable (over all fillings they sum to
one). A beam keeps the best few. All of them go through the encoder as one flat batch, and the head sees only blanks.

The literal mask token (`[MASK]`) marks each blank; elsewhere it is plain text. If a text does not contain the model's
own mask token, `[MASK]` and `<mask>` are both read as blanks.

**Candidates** are tokens that are whole words at a blank, unless subwords are requested. A token is a word by form if
it begins one (`Ġ`, `▁`, no `##`), has a letter or a digit, and is a single word. The text after the blank makes the
model end the word there, with one exception: before a period, `St` may be the most likely "word", as in *St. Louis*. A
token is taken for such an abbreviation if both the sentence splitter, which has a list of them, and the model say so:
the model gives an abbreviation little probability if the sentence ends with an exclamation mark. Probabilities are
never renormalised: an excluded token keeps its share.

K fillings in the beam, L tokens in the window with [CLS] and [SEP], V tokens in the vocabulary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import regex
import torch
from torch import Tensor

from larvatus.core.arrays import Ints
from larvatus.core.batch import NO_WORD, edges, runs
from larvatus.core.errors import UsageError
from larvatus.core.ranges import short_repr, whole
from larvatus.data.text.special_tokens import wrap_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.tokenizer_files import WELL_KNOWN
from larvatus.data.text.words import ALONE, segment_words, split_sentences
from larvatus.inference.cloze.results import Fill, Fills, JointFill
from larvatus.models.masked_prediction import MaskedPredictor, require_predictor
from larvatus.models.network import Network
from larvatus.models.nn.device import check_fits, on_device

Candidates = Literal["words", "word-starts", "tokens"]
PERIOD, OTHER_END = ".", "!"
LONGEST = 6
"""Characters of an abbreviation that a vocabulary has as one token."""
LESS = 1 / 3
"""An abbreviation keeps less than this share of its probability without its period. In 14 sentences, with the weights
packaged before these, St, Mr, Dr and initials kept 0.00 to 0.29 (once 0.38), and words that look like an abbreviation
(me, no, ill, May, art) 0.40 or more."""
_ALONE = regex.compile(ALONE)


def glued_tokens(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """[V] tokens without a space before them, by the marker of the vocabulary."""
    if tokenizer.style in ("Ġ", "▁"):
        return np.array([not piece.startswith(tokenizer.style) for piece in tokenizer.tokens])
    return np.array([piece.startswith("##") for piece in tokenizer.tokens])


@lru_cache(maxsize=8)
def allowed_tokens(tokenizer: Tokenizer, candidates: Candidates) -> npt.NDArray[np.bool_]:
    """[V] tokens that may fill a blank; special tokens never do."""
    allowed = np.ones(tokenizer.size, dtype=np.bool_)
    if candidates != "tokens":
        glued = glued_tokens(tokenizer)
        allowed = ~glued
    if candidates == "words":
        surfaces = (tokenizer.decode([id]).strip() for id in range(tokenizer.size))
        allowed = np.array([_is_word(text, bool(g)) for text, g in zip(surfaces, glued, strict=True)], dtype=np.bool_)
    allowed[sorted(tokenizer.special_ids)] = False
    return allowed


def surface(tokenizer: Tokenizer, id: int) -> str:
    """A token in readable form; `##` stays."""
    return tokenizer.decode([id]).strip() or tokenizer.readable(tokenizer.token(id))


def _is_word(text: str, glued: bool) -> bool:
    """Whether a token is one word; characters of scripts without spaces are words anywhere."""
    if glued and not _ALONE.match(text):
        return False
    if text.isalnum():
        return True
    if "\ufffd" in text or not any(char.isalnum() for char in text):
        return False
    spans = segment_words(text)
    return len(spans) == 1 and (int(spans[0, 0]), int(spans[0, 1])) == (0, len(text))


@lru_cache(maxsize=8)
def abbreviations(tokenizer: Tokenizer, language: str = "en") -> npt.NDArray[np.int64]:
    """Ids of words that the sentence splitter of a language takes for abbreviations before a period."""
    words = ((int(id), surface(tokenizer, int(id))) for id in np.flatnonzero(allowed_tokens(tokenizer, "words")))
    known = [
        id
        for id, word in words
        if len(word) <= LONGEST and len(split_sentences(f"It is {word}{PERIOD} Paul was near.", language)) == 1
    ]
    return np.array(known, dtype=np.int64)


def without_periods(pieces: tuple[str, ...], mask: str) -> str | None:
    """The text (`Blanks.pieces`) with another sentence end right after its blanks; None if no period follows them.

    >>> without_periods(("It is ", ". So ", " is it."), "[MASK]")
    'It is [MASK]! So [MASK] is it.'
    """
    first, *after = pieces
    if not any(map(ends_sentence, after)):
        return None
    ends = (piece.replace(PERIOD, OTHER_END, 1) if ends_sentence(piece) else piece for piece in after)
    return mask.join([first, *ends])


def ends_sentence(after: str) -> bool:
    """Whether the text after a blank begins with a period."""
    after = after.lstrip(" ")
    return after.startswith(PERIOD) and not after.startswith(PERIOD * 2)


def needs_period(log_V: Tensor, other_V: Tensor, known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Abbreviations whose log-probability falls if the sentence ends with another mark."""
    falls: npt.NDArray[np.bool_] = ((other_V[known] - log_V[known]).exp() < LESS).cpu().numpy()
    return np.compress(falls, known)


# Blanks, and their fillings.


@dataclass(frozen=True, eq=False)
class Blanks:
    text: str
    pieces: tuple[str, ...]
    """The text between the blanks: one more than there are blanks."""
    ids: Ints  # [T] tokens of the text, the mask token at each blank
    words: Ints  # [T]
    places: tuple[int, ...]
    """Index of each blank among the tokens."""
    word_spans: Ints
    """[W, 2] characters of each word of the text; a blank is a word."""

    def filled(self, tokens: Sequence[str], glued: Sequence[bool]) -> str:
        """The text with its blanks filled. A token that continues the previous word removes the space before it."""
        text = self.pieces[0]
        for token, joins, after in zip(tokens, glued, self.pieces[1:], strict=True):
            text = (text.rstrip() if joins else text) + token + after
        return text


def mark_of(text: str, tokenizer: Tokenizer) -> str:
    """The mask token that this text uses."""
    marks = (tokenizer.special.mask, *WELL_KNOWN["mask"])
    return next((mark for mark in marks if mark in text), tokenizer.special.mask)


def read_blanks(text: str, tokenizer: Tokenizer) -> Blanks:
    """Tokens of a text and the positions of its blanks; refused if it has none."""
    mask = mark_of(text, tokenizer)
    pieces = re.split(re.escape(mask), text)
    if len(pieces) == 1:
        raise UsageError(f"nothing to fill: mark each blank of the text with {mask}")
    ids: list[int] = []
    words: list[int] = []
    places: list[int] = []
    spans: list[Ints] = []
    before = start = 0  # words and characters so far
    for number, piece in enumerate(pieces):
        if number:
            places.append(len(ids))
            ids.append(tokenizer.mask_id)
            words.append(before)
            spans.append(np.array([[start, start + len(mask)]]))
            before, start = before + 1, start + len(mask)
        # A space before a blank belongs to the blank: in byte-level vocabularies it is part of the word that follows.
        encoding = tokenizer.encode(piece.rstrip() if number < len(pieces) - 1 else piece)
        ids += encoding.ids.tolist()
        words += np.where(encoding.words == NO_WORD, NO_WORD, encoding.words + before).tolist()
        spans.append(encoding.word_spans + start)
        before, start = before + len(encoding.word_spans), start + len(piece)
    numbers = (np.array(ids, np.int64), np.array(words, np.int64))
    return Blanks(text, tuple(pieces), *numbers, tuple(places), np.concatenate(spans))


def window(total: int, places: Sequence[int], longest: int) -> tuple[int, int]:
    """A window of at most `longest` of `total` tokens around the places, centred on them; they must fit into it.

    >>> window(100, [50], 11), window(100, [2], 11), window(100, [97, 99], 11), window(5, [2], 11)
    ((45, 56), (0, 11), (89, 100), (0, 5))
    """
    first, last = min(places), max(places) + 1
    start = first - (longest - (last - first)) // 2
    start = max(0, min(start, total - longest))
    return start, min(total, start + longest)


TOKENS_AT_ONCE = 16_384
"""Tokens of a flat batch: bounds the memory of a wide beam."""


@torch.inference_mode()
def fill_blanks(
    network: Network,
    tokenizer: Tokenizer,
    text: str,
    *,
    top: int = 5,
    beam: int = 10,
    joint: bool = True,
    candidates: Candidates = "tokens",
) -> Fills:
    """The `top` best fills of a text.

    `joint=False` gives only the marginals of several blanks. `candidates` selects the tokens that may fill a blank:
    whole words (`fill.py`), tokens that begin a word, or all. Probabilities are always over the whole
    vocabulary.
    """
    for name, number in (("top", top), ("beam", beam)):
        if number not in whole(1, tokenizer.size):
            size = f"{tokenizer.size:,}, the size of the vocabulary"
            raise UsageError(f"{name} must be a whole number from 1 to {size}, not {short_repr(number)}")
    blanks = read_blanks(text, tokenizer)
    reader = BlankReader.of(network, tokenizer, blanks, candidates=candidates)
    windows = _windows(blanks, longest=reader.predictor.longest_text(tokenizer), joint=joint)
    log_BV = reader.marginals(blanks, windows)
    if candidates == "words":
        reader.leave_out_abbreviations(blanks, log_BV, count=max(beam, top), joint=joint)
    marginals_BV = log_BV.masked_fill(~reader.allowed_BV, -math.inf)
    each = tuple(
        tuple(
            reader.fill(blanks, number, log_V, id)
            for id in log_V.topk(min(top, reader.candidates(number))).indices.tolist()
        )
        for number, log_V in enumerate(marginals_BV)
    )
    best: Sequence[Fill | JointFill]
    if len(blanks.places) == 1:
        best = each[0]
    else:
        best = reader.beam(blanks, windows[0], marginals_BV, width=max(beam, top))[:top] if joint else ()
    covered = {place for start, end in windows for place in range(start, end)}
    return Fills(text=text, best=tuple(best), marginals=each, read=len(covered), total=len(blanks.ids))


def _windows(blanks: Blanks, *, longest: int, joint: bool) -> list[tuple[int, int]]:
    """For each blank the window of tokens to read it in; one window for all if they fit."""
    total, places = len(blanks.ids), blanks.places
    apart = places[-1] + 1 - places[0]
    if apart <= longest:
        return [window(total, places, longest)] * len(places)
    if joint:
        raise UsageError(
            f"the blanks are {apart:,} tokens apart and the model's window has {longest:,}: too far to fill jointly; "
            "use the marginals of each blank (joint=False, --marginals), or fill parts of the text"
        )
    return [window(total, [place], longest) for place in places]


@dataclass(frozen=True, eq=False)
class BlankReader:
    """The parts of a model that fill blanks."""

    predictor: MaskedPredictor
    tokenizer: Tokenizer
    allowed_BV: Tensor  # which tokens may fill each blank
    glued_V: npt.NDArray[np.bool_]  # which tokens continue the previous word

    @classmethod
    def of(cls, network: Network, tokenizer: Tokenizer, blanks: Blanks, *, candidates: Candidates) -> BlankReader:
        predictor = require_predictor(network, tokenizer, what="fill blanks")
        allowed = np.zeros(
            (len(blanks.places), len(predictor.words_VE)), dtype=bool
        )  # a padded vocabulary has more ids
        for number, before in enumerate(blanks.pieces[:-1]):
            inside = before[-1:].isalnum()  # "un[MASK]": the fill continues a word
            kinds: Candidates = "tokens" if candidates == "words" and inside else candidates
            allowed[number, : tokenizer.size] = allowed_tokens(tokenizer, kinds)
        return cls(predictor, tokenizer, torch.from_numpy(allowed).to(predictor.device), glued_tokens(tokenizer))

    def candidates(self, blank: int) -> int:
        return int(self.allowed_BV[blank].sum())

    def leave_out_abbreviations(self, blanks: Blanks, log_BV: Tensor, *, count: int, joint: bool) -> None:
        """Exclude tokens that are likely only because of the period after the blank (`St`)."""
        other = without_periods(blanks.pieces, self.tokenizer.special.mask)
        if other is None or self.tokenizer.id(OTHER_END) is None:
            return
        known = abbreviations(self.tokenizer)
        best_BC = log_BV.masked_fill(~self.allowed_BV, -math.inf).topk(min(count, self.tokenizer.size)).indices
        if not len(known) or not torch.isin(best_BC, torch.from_numpy(known).to(best_BC.device)).any():
            return
        changed = read_blanks(other, self.tokenizer)
        windows = _windows(changed, longest=self.predictor.longest_text(self.tokenizer), joint=joint)
        other_BV = self.marginals(changed, windows)
        for number, after in enumerate(blanks.pieces[1:]):
            if ends_sentence(after):
                self.allowed_BV[number, needs_period(log_BV[number], other_BV[number], known)] = False

    def log_probabilities(self, rows: Sequence[tuple[Ints, Ints]], places: Sequence[Sequence[int]]) -> Tensor:
        """Log-probabilities at the given positions of each row (ids, words): [M, V]."""
        parts, template = [], self.tokenizer.template.single
        lengths = np.array([len(ids) for ids, _ in rows]) + template.special_count
        for first, last in runs(lengths, TOKENS_AT_ONCE):
            starts = edges(lengths[first:last])
            flat = [
                int(starts[k]) + template.opening + place for k, row in enumerate(places[first:last]) for place in row
            ]
            device = self.predictor.device
            batch = on_device(wrap_batch(self.tokenizer, [[row] for row in rows[first:last]]), device)
            logits_MV = self.predictor.logits(batch, torch.tensor(flat, device=device))
            parts.append(torch.log_softmax(logits_MV.float(), dim=-1))
        return torch.cat(parts)

    def marginals(self, blanks: Blanks, windows: Sequence[tuple[int, int]]) -> Tensor:
        """Distribution of each blank with the others open: [blanks, V]. Blanks that share a window are read once."""
        rows, places = [], []
        for start, end in dict.fromkeys(windows):
            rows.append((blanks.ids[start:end], blanks.words[start:end]))
            shared = [place for place, w in zip(blanks.places, windows, strict=True) if w == (start, end)]
            places.append([place - start for place in shared])
        return self.log_probabilities(rows, places)

    def beam(self, blanks: Blanks, span: tuple[int, int], marginals_BV: Tensor, *, width: int) -> list[JointFill]:
        """The best joint fillings, by beam search with the given width."""
        start, end = span
        order = torch.argsort(marginals_BV.amax(dim=1), descending=True, stable=True).tolist()
        ids_KL, scores_K = blanks.ids[None, start:end], torch.zeros(1, device=marginals_BV.device)
        for step, blank in enumerate(order):
            place = blanks.places[blank] - start
            if step == 0:
                log_KV = marginals_BV[blank, None]
            else:
                need = 2 * 4 * len(ids_KL) * self.allowed_BV.shape[1]  # logits and their log-probabilities
                check_fits(need, marginals_BV.device, what=f"a beam of {len(ids_KL):,}", lower="lower --beam or --top")
                words = blanks.words[start:end]
                log_KV = self.log_probabilities([(ids, words) for ids in ids_KL], [[place]] * len(ids_KL))
                log_KV = log_KV.masked_fill(~self.allowed_BV[blank], -math.inf)
            best_KC = log_KV.topk(min(width, self.candidates(blank)), dim=-1)
            totals = (scores_K[:, None] + best_KC.values).flatten()
            scores_K, kept = totals.topk(min(width, len(totals)))
            rows = torch.div(kept, best_KC.values.shape[1], rounding_mode="floor").cpu().numpy()
            ids_KL = ids_KL[rows].copy()
            ids_KL[:, place] = best_KC.indices.flatten()[kept].cpu().numpy()
        places = [place - start for place in blanks.places]
        return [self._joint(blanks, ids[places], score) for ids, score in zip(ids_KL, scores_K.tolist(), strict=True)]

    def _joint(self, blanks: Blanks, ids: Ints, score: float) -> JointFill:
        chosen = [int(id) for id in ids]
        return JointFill(
            tokens=tuple(self.token(id) for id in chosen),
            probability=math.exp(score),
            ids=tuple(chosen),
            text=blanks.filled([self.surface(id) for id in chosen], [bool(self.glued_V[id]) for id in chosen]),
        )

    def fill(self, blanks: Blanks, number: int, log_V: Tensor, id: int) -> Fill:
        """One candidate for one blank; the other blanks stay."""
        tokens = [self.tokenizer.special.mask] * len(blanks.places)
        glued = [False] * len(tokens)
        tokens[number], glued[number] = self.surface(id), bool(self.glued_V[id])
        probability = math.exp(float(log_V[id]))
        return Fill(token=self.token(id), probability=probability, id=id, text=blanks.filled(tokens, glued))

    def token(self, id: int) -> str:
        """A token in readable form: bytes decoded, no space marker. `##` stays: it marks the continuation of a word."""
        return surface(self.tokenizer, id)

    def surface(self, id: int) -> str:
        """The characters that a token adds to the text."""
        return self.token(id).removeprefix("##") if self.glued_V[id] else self.token(id)
