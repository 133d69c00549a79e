"""Tokens for people: byte-level vocabularies write `daÃŁ` for *daß*, in a letter for each byte."""

from __future__ import annotations

from collections.abc import Iterable

from larvatus.data.text.boundaries import byte_alphabet
from larvatus.data.text.tokenizer import Tokenizer

_BYTES = byte_alphabet()
SPACE = "Ġ"


def readable_piece(piece: str, tokenizer: Tokenizer) -> str:
    """A token as the vocabulary has it, with bytes decoded; the mark of a space before it stays.

    A part of a character is shown by its bytes: `\\xc3`. What is no byte-level token is as it was.
    """
    if tokenizer.kind != "byte-bpe" or not all(char in _BYTES for char in piece):
        return piece  # of another kind, or a special token with a character that no byte has
    if (index := tokenizer.id(piece)) is not None and index in tokenizer.special_ids:
        return piece
    mark, rest = (SPACE, piece[len(SPACE) :]) if piece.startswith(SPACE) else ("", piece)
    return mark + bytes(_BYTES[char] for char in rest).decode("utf-8", errors="backslashreplace")


def readable_pieces(pieces: Iterable[str], tokenizer: Tokenizer) -> list[str]:
    return [readable_piece(piece, tokenizer) for piece in pieces]
