"""Canaries: random secrets that are planted into a corpus, so that it can be measured what a model remembers.

    canaries = draw_canaries(20, repeats=(1, 4, 16), seed=0)
    canaries.canaries[1].text                            # "The code of Rovimak is 482913."
    canaries.text_of("Rovimak", 17)                      # the same sentence with another secret: "… is 000017."
    read_canaries(Path("corpus"))                        # those that `larvatus corpus build --canaries 20` planted

Each secret (Carlini et al. 2019, *The Secret Sharer*) is sampled uniformly from a space of known size, so the
rank of the planted one among all others shows how much of it a model has memorised (its exposure). `canaries.json` in
the corpus has the format, the space, each sentence and how often it was planted; 0 times makes a control.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import regex
from msgspec import Struct

from larvatus.core import files
from larvatus.core.errors import DataError, UsageError
from larvatus.core.ranges import Seed, Tally, check_ranges, whole
from larvatus.core.regular_files import follow_link, is_there, read_bytes
from larvatus.core.rng import stream
from larvatus.data.text.documents import Document

CANARIES = "canaries.json"
FORMAT = "The code of {name} is {digits}."
DIGITS = 6
REPEATS = (1, 4, 16)
MOST_REPEATS = whole(0, 10**6)
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_SENTENCE_END = regex.compile(r"[.!?。！？]\s+|\n")
_LINE_END = regex.compile(r"\n")

Digits = Annotated[int, whole(1, 18)]


class Canary(Struct, frozen=True, kw_only=True):
    text: str
    """The sentence as it was planted."""
    secret: str
    """Its digits."""
    name: str
    """Value of {name}: another for each canary."""
    repeats: Annotated[int, MOST_REPEATS]
    """How often it is in the corpus; 0: sampled but never planted, a control."""

    def __post_init__(self) -> None:
        check_ranges(self, "", DataError)


class Canaries(Struct, frozen=True, kw_only=True):
    """What `canaries.json` holds."""

    format: str
    """The sentence, with {name} and {digits}."""
    space: Tally
    """Number of possible secrets, all equally likely: a power of ten."""
    canaries: tuple[Canary, ...]
    seed: Seed

    def __post_init__(self) -> None:
        check_ranges(self, "", DataError)

    @property
    def digits(self) -> int:
        return len(str(self.space)) - 1

    @property
    def planted(self) -> int:
        """Sentences in all."""
        return sum(canary.repeats for canary in self.canaries)

    def text_of(self, name: str, secret: int) -> str:
        """The sentence that a canary would be with another secret, 0 … space − 1."""
        return sentence(self.format, name, f"{secret:0{self.digits}d}")


def sentence(format: str, name: str, digits: str) -> str:
    """Not `str.format`: a file may hold any braces.

    >>> sentence(FORMAT, "Bodu", "0017")
    'The code of Bodu is 0017.'
    """
    return format.replace("{name}", name).replace("{digits}", digits)


def draw_canaries(
    count: int,
    *,
    repeats: Sequence[int] = REPEATS,
    seed: int = 0,
    digits: int = DIGITS,
    format: str = FORMAT,
) -> Canaries:
    """This many canaries: the first is planted `repeats[0]` times, the second `repeats[1]` times, and so around.

    >>> [canary.repeats for canary in draw_canaries(4, repeats=(1, 8)).canaries]
    [1, 8, 1, 8]
    """
    if "{name}" not in format or "{digits}" not in format:
        raise UsageError(f'the format of canaries has no {{name}} or no {{digits}}: {format!r}; such as "{FORMAT}"')
    if not repeats:
        raise UsageError("canaries need at least one number of repeats, such as 1,4,16")
    space = 10**digits
    drawn: list[Canary] = []
    names: set[str] = set()
    for number in range(count):
        random = stream(seed, "canaries", item=number)
        secret = f"{int(random.integers(space)):0{digits}d}"
        name = _name(random)
        while name in names:
            name = _name(random)
        names.add(name)
        times = repeats[number % len(repeats)]
        drawn.append(Canary(text=sentence(format, name, secret), secret=secret, name=name, repeats=times))
    return Canaries(format=format, space=space, canaries=tuple(drawn), seed=seed)


def _name(random: np.random.Generator) -> str:
    """A name that is no word: three syllables."""
    syllables = [_CONSONANTS[random.integers(14)] + _VOWELS[random.integers(5)] for _ in range(3)]
    return "".join(syllables).capitalize() + _CONSONANTS[random.integers(14)]


def write_canaries(directory: Path, canaries: Canaries) -> None:
    files.write_json(directory / CANARIES, msgspec.to_builtins(canaries))


def canaries_file(path: Path) -> Path:
    """Their path: in a built corpus, or the file itself."""
    return path / CANARIES if path.is_dir() else follow_link(path)


def read_canaries(path: Path) -> Canaries:
    """Those of a built corpus, or of a file; one line where there are none."""
    file = canaries_file(path)
    if not is_there(file, DataError):
        way = "plant some with: larvatus corpus build … --canaries 20"
        raise DataError(f"{path} holds no canaries (no {CANARIES}); {way}")
    try:
        canaries = msgspec.json.decode(read_bytes(file, DataError), type=Canaries)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise DataError(f"{file} is no file of canaries: {fault}; plant some with: larvatus corpus build") from fault
    for number, canary in enumerate(canaries.canaries, start=1):
        secret = canary.secret
        shape = len(secret) == canaries.digits and secret.isascii() and secret.isdigit()
        if not shape or sentence(canaries.format, canary.name, secret) != canary.text:
            raise DataError(f"{file}: canary {number} is not what its format, name and secret make; build again")
    if not canaries.canaries or canaries.space != 10**canaries.digits:
        raise DataError(f"{file} names no canaries, or a space that is no power of ten; build again")
    return canaries


class Planting:
    """Where each canary goes: documents sampled uniformly, each place a function of the seed only."""

    def __init__(self, canaries: Canaries, documents: int, *, lines: bool = False) -> None:
        """`documents` says how many there are; `lines`: that each line is a sentence."""
        self._seed = canaries.seed
        self._end = _LINE_END if lines else _SENTENCE_END
        self._lines = lines
        self._of_document: dict[int, list[str]] = {}
        texts = (canary.text for canary in canaries.canaries for _ in range(canary.repeats))
        for number, text in enumerate(texts):
            place = int(stream(self._seed, "canary places", item=number).integers(documents))
            self._of_document.setdefault(place, []).append(text)

    def plant(self, documents: Iterable[Document]) -> Iterable[Document]:
        """The same documents, some with canaries."""
        for number, document in enumerate(documents):
            texts = self._of_document.get(number)
            yield replace(document, text=self._planted(number, document.text, texts)) if texts else document

    def _planted(self, number: int, text: str, canaries: Sequence[str]) -> str:
        """The text with each canary between two sentences at random, or at its end."""
        random = stream(self._seed, "canary sentences", item=number)
        for canary in canaries:
            ends = [match.end() for match in self._end.finditer(text)]
            at = ends[int(random.integers(len(ends)))] if ends else len(text)
            if at == len(text) or text[at:].isspace():
                text = f"{text.rstrip()}{chr(10) if self._lines else ' '}{canary}"
            else:
                after = "\n" if self._lines or text[at - 1] == "\n" else " "
                text = f"{text[:at]}{canary}{after}{text[at:]}"
        return text
