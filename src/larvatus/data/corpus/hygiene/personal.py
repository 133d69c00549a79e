"""Personal data in text: e-mail and IP addresses, phone numbers, cards, accounts, national numbers.

    find_personal("Write to ann@example.org.")           # [Personal("email", 9, 24)]
    tagged("Write to ann@example.org.")                  # "Write to <email>."
    removed("Write to ann@example.org, please.")         # "Write to , please."

A shape is looked for, then what it must hold: a check digit (`identifiers.py`), parts of an address in their range
(`addresses.py`), a number that a country has (`phones.py`). Names and street addresses are not looked for.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple

from larvatus.core.errors import UsageError
from larvatus.data.corpus.hygiene.addresses import find_emails, find_ips
from larvatus.data.corpus.hygiene.identifiers import find_cards, find_ibans, find_national
from larvatus.data.corpus.hygiene.phones import REGIONS, find_phones

KINDS = ("email", "iban", "card", "national", "ip", "phone")
"""In this order: characters that are one kind are not looked at for another."""
Handling = Literal["count", "tag", "remove"]
ROUNDS = 8
"""Times that text is searched again for what a removal put together."""


class Personal(NamedTuple):
    kind: str
    start: int
    end: int


_DIGITS = re.compile(
    r"[0-9](?:[A-Za-z]{0,2}[ .\-/()+\u00a0\u202f]{0,3}[0-9]){4}|[:.][0-9A-Fa-f]{0,4}[:.][0-9A-Fa-f]{1,4}"
)
"""Each kind but e-mail has five digits near each other, or colons: text far from such a place is skipped."""
_AROUND = 64


def find_personal(text: str, regions: Sequence[str] = REGIONS) -> list[Personal]:
    """Personal data in the order of the text, without overlaps.

    `regions`: countries whose phone numbers count without a country code.
    """
    places = [Personal("email", *span) for span in find_emails(text)]
    for start, end in _stretches(text):
        places += [Personal(kind, start + a, start + b) for kind, a, b in _numbers(text[start:end], regions)]
    taken: list[tuple[int, int, str]] = []  # in the order of the text, apart from each other
    for kind in KINDS:  # an account is no phone number
        taken = _added(taken, [place for place in places if place.kind == kind])
    return [Personal(kind, start, end) for start, end, kind in taken]


def _added(taken: list[tuple[int, int, str]], places: list[Personal]) -> list[tuple[int, int, str]]:
    """Those of one kind that overlap nothing yet."""
    new: list[tuple[int, int, str]] = []
    for kind, start, end in sorted(places, key=lambda place: (place.start, -place.end)):
        at = bisect(taken, (start, end, ""))
        after_last = (at == 0 or taken[at - 1][1] <= start) and (not new or new[-1][1] <= start)
        if after_last and (at == len(taken) or end <= taken[at][0]):
            new.append((start, end, kind))
    return sorted([*taken, *new])


def _stretches(text: str) -> list[tuple[int, int]]:
    """Where numbers may be, with the text around them."""
    stretches: list[tuple[int, int]] = []
    for match in _DIGITS.finditer(text):
        start, end = max(0, match.start() - _AROUND), min(len(text), match.end() + _AROUND)
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], end
        else:
            stretches.append((start, end))
    return stretches


def _numbers(text: str, regions: Sequence[str]) -> list[Personal]:
    by_kind = {
        "iban": find_ibans(text),
        "card": find_cards(text),
        "national": find_national(text),
        "ip": find_ips(text),
        "phone": find_phones(text, regions),
    }
    return [Personal(kind, *span) for kind, spans in by_kind.items() for span in spans]


def check_can_find() -> None:
    """Refuse before the work where a library is missing."""
    for name, package in (("phonenumbers", "phonenumbers"), ("stdnum", "python-stdnum")):
        if find_spec(name) is None:
            raise UsageError(f'finding personal data wants {package}; pip install "larvatus[hygiene]"')


def count_personal(text: str, regions: Sequence[str] = REGIONS) -> Counter[str]:
    """How many of each kind."""
    return Counter(place.kind for place in find_personal(text, regions))


def tagged(text: str, regions: Sequence[str] = REGIONS) -> str:
    """Each replaced by its kind in angle brackets.

    >>> tagged("Call +44 20 7946 0958 or write to ann@example.org")
    'Call <phone> or write to <email>'
    """
    return _replaced(text, find_personal(text, regions), lambda kind: f"<{kind}>")


def removed(text: str, regions: Sequence[str] = REGIONS) -> str:
    """Without any of it, and without what a removal puts together.

    Text that still has some after `ROUNDS` removals was made to: that is replaced by tags, which nothing joins across.

    >>> removed("IBAN DE89 3704 0044 0532 0130 00.")
    'IBAN .'
    """
    for _ in range(ROUNDS):
        places = find_personal(text, regions)
        if not places:
            return text
        text = _replaced(text, places, lambda kind: "")
    return tagged(text, regions)


def handled(text: str, handling: Handling, regions: Sequence[str] = REGIONS) -> str:
    """The text as it goes into a corpus."""
    return text if handling == "count" else tagged(text, regions) if handling == "tag" else removed(text, regions)


def _replaced(text: str, places: list[Personal], by: Callable[[str], str]) -> str:
    parts, at = [], 0
    for place in places:
        parts += [text[at : place.start], by(place.kind)]
        at = place.end
    return "".join([*parts, text[at:]])
