"""Tokens that two vocabularies share, although they mark words differently: `the`, `##ing`, `▁the`, `Ġthe`, `the</w>`.

    shared_tokens(new, old)                       # [V] id in the old vocabulary of each new token; -1: it has none
    old_subwords(new, old)                        # for each new token, the old tokens of the same text

A token is compared by its text and by whether it opens a word, as FOCUS does (Dobler & de Melo 2023, section 2.1).
Where only one of the two marks openings, or the text has no letters (`.` opens a word in WordPiece, but follows one in
SentencePiece), the text decides. A cased token without a counterpart is also looked up as an uncased vocabulary spells
it. Special tokens correspond by role: `[CLS]` to `<s>`.

>>> token_form("##ing", "##"), token_form("▁the", "▁"), token_form("Ġthe", "Ġ")
(TokenForm(text='ing', opens=False), TokenForm(text='the', opens=True), TokenForm(text='the', opens=True))

V tokens of the new vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import regex

from larvatus.core.arrays import Ints
from larvatus.core.errors import UsageError
from larvatus.data.text.boundaries import Style, byte_alphabet, token_body
from larvatus.data.text.extend import Parts, subword_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import ALONE

_BYTES = byte_alphabet()
_CHARACTERS = {byte: char for char, byte in _BYTES.items()}
_ALONE_FIRST = regex.compile(ALONE)
_STYLES: Mapping[str, Style] = {"wordpiece": "##", "unigram": "▁", "byte-bpe": "Ġ"}
"""Marks of vocabularies whose pre-tokeniser the aligner does not know."""


class TokenForm(NamedTuple):
    """A token without the marks of its vocabulary."""

    text: str
    opens: bool | None
    """Whether it opens a word; None where the vocabulary does not say."""


def token_form(token: str, style: Style | None) -> TokenForm | None:
    """The form of a token; None where it is no text, such as half a character."""
    if style is None:
        return TokenForm(token, None)
    body = token_body(token, style, _BYTES)
    if body is None or not body[0]:
        return None
    return TokenForm(body[0], None if style == "</w>" else body[1])


def token_forms(tokenizer: Tokenizer) -> list[TokenForm | None]:
    """The forms of all tokens, None for special ones."""
    style = tokenizer.style or _STYLES.get(tokenizer.kind)
    return [
        None if number in tokenizer.special_ids or not token else token_form(token, style)
        for number, token in enumerate(tokenizer.tokens)
    ]


def shared_tokens(new: Tokenizer, old: Tokenizer) -> Ints:
    """[V] the old id of each new token; -1 where the old vocabulary has no such token."""
    for tokenizer in (new, old):
        if tokenizer.kind == "characters":
            raise UsageError("a vocabulary of characters has no tokens to share; leave out --vocabulary")
    shared = np.full(new.size, -1, np.int64)
    if (new.kind, new.style) == (old.kind, old.style):  # also bytes that are no characters by themselves
        known = {token: number for number, token in enumerate(old.tokens) if number not in old.special_ids}
        shared[:] = [known.get(token, -1) for token in new.tokens]
    table = _FormTable(old)
    for number, form in enumerate(token_forms(new)):
        if form is not None and shared[number] < 0:
            shared[number] = table.find(form)
    shared[sorted(new.special_ids)] = -1
    for number, known_id in _special_pairs(new, old).items():
        shared[number] = known_id
    return shared


def _special_pairs(new: Tokenizer, old: Tokenizer) -> dict[int, int]:
    """Special tokens of the same name, or else of the same role."""
    pairs: dict[int, int] = {}
    for role in vars(new.special):
        here, there = new.id(getattr(new.special, role)), old.id(getattr(old.special, role))
        if here is not None and there is not None:
            pairs[here] = there
    for number in new.special_ids - pairs.keys():
        known = old.id(new.tokens[number])
        if known is not None and known in old.special_ids:
            pairs[number] = known
    return pairs


class _FormTable:
    """Ids of a vocabulary by form."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[TokenForm, int] = {}
        for number, form in enumerate(token_forms(tokenizer)):
            if form is not None:
                self._ids.setdefault(form, number)

    def find(self, form: TokenForm) -> int:
        """The id of a form, or of what the vocabulary's normaliser makes of it; -1 where there is none."""
        number = self._find(form)
        if number < 0 and self._tokenizer.lowercase:
            number = self._find(form._replace(text=normalised(form.text, self._tokenizer)))
        return number

    def _find(self, form: TokenForm) -> int:
        tried = [form, form._replace(opens=None)]
        if form.opens is None or not _has_spaced_letters(form.text):
            tried += [form._replace(opens=True), form._replace(opens=False)]
        return next((self._ids[each] for each in tried if each in self._ids), -1)


def _has_spaced_letters(text: str) -> bool:
    """Whether a text has letters of a script that writes spaces between words.

    >>> _has_spaced_letters("the"), _has_spaced_letters("12."), _has_spaced_letters("山")
    (True, False, False)
    """
    return any(char.isalpha() and not _ALONE_FIRST.match(char) for char in text)


def normalised(text: str, tokenizer: Tokenizer) -> str:
    """A text as the normaliser of a vocabulary rewrites it, without marks of spaces."""
    normaliser = tokenizer.library.normalizer
    return text if normaliser is None else str(normaliser.normalize_str(text)).strip().strip("▁")


def old_subwords(new: Tokenizer, old: Tokenizer) -> list[Parts]:
    """For each new token, the old tokens that its text is cut into; empty where the old vocabulary cannot spell it."""
    forms = token_forms(new)
    unknown = old.id(old.special.unk)
    parts: list[Parts] = [()] * new.size
    opening = [number for number, form in enumerate(forms) if form is not None and _opens_for(form, old)]
    for number, ids in zip(opening, old.encode_fast([f" {_text(forms[n])}" for n in opening]), strict=True):
        parts[number] = tuple(ids.tolist())
    inside = [number for number, form in enumerate(forms) if form is not None and not parts[number]]
    for number, cut in zip(inside, _continuations([_text(forms[n]) for n in inside], old), strict=True):
        parts[number] = cut
    return [tuple(each for each in ids if each != unknown and each not in old.special_ids) for ids in parts]


def _text(form: TokenForm | None) -> str:
    assert form is not None
    return form.text


def _opens_for(form: TokenForm, old: Tokenizer) -> bool:
    """Whether the old vocabulary meets the text of a token at the beginning of a word."""
    alone = old.style == "##" and _ALONE_FIRST.match(form.text) is not None  # WordPiece cuts at punctuation
    return form.opens is not False or alone


def _continuations(texts: Sequence[str], old: Tokenizer) -> list[Parts]:
    """Old tokens of texts in the middle of words."""
    texts = [normalised(text, old) for text in texts]
    style = old.style or _STYLES.get(old.kind)
    if style == "##":
        table = {token[2:]: number for number, token in enumerate(old.tokens) if token.startswith("##")}
        return [longest_matches(text, table) for text in texts]
    if style == "Ġ":
        texts = ["".join(_CHARACTERS[byte] for byte in text.encode()) for text in texts]
    return subword_ids(old, texts)


def longest_matches(text: str, table: Mapping[str, int]) -> Parts:
    """Greedy longest-match tokens of a text (WordPiece); characters that the table lacks are skipped.

    >>> longest_matches("abcb", {"ab": 0, "b": 1})
    (0, 1)
    """
    ids: list[int] = []
    start = 0
    while start < len(text):
        end = next((end for end in range(len(text), start, -1) if text[start:end] in table), None)
        if end is None:
            start += 1
        else:
            ids.append(table[text[start:end]])
            start = end
    return tuple(ids)
