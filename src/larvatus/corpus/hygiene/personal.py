"""Personal data in text: e-mail and IP addresses, phone numbers, cards, accounts, national numbers.

    find_personal("Write to ann@example.org.")           # [Personal("email", 9, 24)]
    tagged("Write to ann@example.org.")                  # "Write to <email>."
    removed("Write to ann@example.org, please.")         # "Write to , please."

A shape is looked for, then what the shape must hold: a check digit (`checksums.py`), a length, parts of an address in
their range. Phone numbers have none of these; only unmistakable ways to write them count. Names and street addresses
are not looked for.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable
from typing import Literal, NamedTuple

from larvatus.corpus.hygiene import checksums

KINDS = ("email", "iban", "card", "national", "ip", "phone")
"""In this order: characters that are one kind are not looked at for another."""
Handling = Literal["count", "tag", "remove"]


class Personal(NamedTuple):
    kind: str
    start: int
    end: int


_SEPARATOR = re.compile(r"[ .\-/()\u00a0]")
_EMAIL = re.compile(
    r"(?<![\w.+\-])[A-Za-z0-9][\w.+\-]{0,63}@(?:[A-Za-z0-9\-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w\-])", re.ASCII
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
_CARD = re.compile(r"(?<![0-9A-Za-z.\-])[2-6](?:[ \-]?[0-9]){12,18}(?![0-9A-Za-z]|[.\-][0-9])")
_IP4 = re.compile(r"(?<![0-9A-Za-z.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9A-Za-z]|\.[0-9])")
_IP6 = re.compile(r"(?<![0-9A-Za-z:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{1,4}(?![0-9A-Za-z:])")
_PHONE = re.compile(
    r"(?<![0-9A-Za-z+.\-/])(?:"
    r"\+[1-9][0-9]{0,3}(?:[ .\-/]?\(?[0-9]{1,5}\)?){2,6}"  # +44 20 7946 0958
    r"|\([0-9]{3}\) ?[0-9]{3}[ .\-][0-9]{4}"  # (212) 555-0123
    r"|[2-9][0-9]{2}[.\-][0-9]{3}[.\-][0-9]{4}"  # 212-555-0123
    r"|0[0-9]{1,4}[ \-/][0-9]{2,4}(?:[ \-][0-9]{2,4}){1,3}"  # 030 123 45 67
    r")(?![0-9A-Za-z]|[.\-][0-9])"
)
_NATIONAL = {
    "br": re.compile(r"(?<![0-9.])[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}(?![0-9])"),
    "cn": re.compile(r"(?<![0-9A-Za-z])[1-9][0-9]{5}(?:19|20)[0-9]{9}[0-9X](?![0-9A-Za-z])"),
    "es": re.compile(r"(?<![0-9A-Za-z])(?:[0-9]{8}|[XYZ][0-9]{7})-?[A-HJ-NP-TV-Z](?![0-9A-Za-z])"),
    "fi": re.compile(r"(?<![0-9A-Za-z])[0-3][0-9][01][0-9]{3}[+\-A][0-9]{3}[0-9A-FHJ-NPR-Y](?![0-9A-Za-z])"),
    "fr": re.compile(
        r"(?<![0-9A-Za-z])[12] ?[0-9]{2} ?[01][0-9] ?(?:[0-9]{2}|2[AB]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}(?![0-9A-Za-z])"
    ),
    "it": re.compile(r"(?<![0-9A-Za-z])[A-Z]{6}[0-9]{2}[A-EHLMPR-T][0-9]{2}[A-Z][0-9]{3}[A-Z](?![0-9A-Za-z])"),
    "pl": re.compile(r"(?<![0-9A-Za-z.,\-])[0-9]{11}(?![0-9A-Za-z])"),
    "se": re.compile(r"(?<![0-9A-Za-z])(?:19|20)?[0-9]{6}[\-+][0-9]{4}(?![0-9A-Za-z\-])"),
    "us": re.compile(r"(?<![0-9A-Za-z\-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![0-9A-Za-z\-])"),
}
_DIGITS = re.compile(r"[0-9](?:[A-Z]?[ .\-/()+]{0,2}[0-9]){5}|:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]")
"""All but e-mail addresses has six digits near each other, or colons: what is far from such a place is not looked at.
So 1.2.3.4 is the number of a version rather than an address."""
_AROUND = 64


def find_personal(text: str) -> list[Personal]:
    """All of it, in the order of the text, nothing twice."""
    places: list[Personal] = []
    if "@" in text:
        places += [Personal("email", *match.span()) for match in _EMAIL.finditer(text)]
    for start, end in _stretches(text):
        places += [Personal(kind, start + a, start + b) for kind, a, b in _numbers(text[start:end])]
    taken: list[tuple[int, int, str]] = []  # in the order of the text, apart from each other
    for kind, start, end in sorted(places, key=lambda place: KINDS.index(place.kind)):  # an account is no phone number
        at = bisect(taken, (start, end, ""))
        after_last = at == 0 or taken[at - 1][1] <= start
        if after_last and (at == len(taken) or end <= taken[at][0]):
            taken.insert(at, (start, end, kind))
    return [Personal(kind, start, end) for start, end, kind in taken]


def _stretches(text: str) -> list[tuple[int, int]]:
    """Where numbers may be, with what stands around them."""
    stretches: list[tuple[int, int]] = []
    for match in _DIGITS.finditer(text):
        start, end = max(0, match.start() - _AROUND), min(len(text), match.end() + _AROUND)
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], end
        else:
            stretches.append((start, end))
    return stretches


def _numbers(text: str) -> list[Personal]:
    places = [Personal("iban", *span) for span in _ibans(text)]
    places += _checked(text, "card", _CARD, checksums.card)
    for country, pattern in _NATIONAL.items():
        whole = _last_ten if country == "se" else str if country == "fi" else _bare
        places += _checked(text, "national", pattern, checksums.NATIONAL[country], whole)
    places += [Personal("ip", *m.span()) for shape in (_IP4, _IP6) for m in shape.finditer(text) if _is_ip(m[0])]
    return places + _checked(text, "phone", _PHONE, _phone)


def count_personal(text: str) -> Counter[str]:
    """How many of each kind."""
    return Counter(place.kind for place in find_personal(text))


def tagged(text: str) -> str:
    """Each replaced by its kind in angle brackets.

    >>> tagged("Call +44 20 7946 0958 or write to ann@example.org")
    'Call <phone> or write to <email>'
    """
    return _replaced(text, find_personal(text), lambda kind: f"<{kind}>")


def removed(text: str) -> str:
    """Without any of it; again, where what is left stands together so that it looks like some.

    >>> removed("IBAN DE89 3704 0044 0532 0130 00.")
    'IBAN .'
    """
    while places := find_personal(text):
        text = _replaced(text, places, lambda kind: "")
    return text


def handled(text: str, handling: Handling) -> str:
    """The text as it goes into a corpus."""
    return text if handling == "count" else tagged(text) if handling == "tag" else removed(text)


def _replaced(text: str, places: list[Personal], by: Callable[[str], str]) -> str:
    parts, at = [], 0
    for place in places:
        parts += [text[at : place.start], by(place.kind)]
        at = place.end
    return "".join([*parts, text[at:]])


def _bare(written: str) -> str:
    return _SEPARATOR.sub("", written)


def _last_ten(written: str) -> str:
    return re.sub(r"[+\-]", "", written)[-10:]


def _checked(
    text: str,
    kind: str,
    pattern: re.Pattern[str],
    holds: Callable[[str], bool],
    whole: Callable[[str], str] = _bare,
) -> list[Personal]:
    return [Personal(kind, *match.span()) for match in pattern.finditer(text) if holds(whole(match[0]))]


def _ibans(text: str) -> list[tuple[int, int]]:
    """The shape may run on into a word in capitals: the length of the country says where it ends."""
    spans = []
    for match in _IBAN.finditer(text):
        wanted = checksums.IBAN_LENGTHS.get(match[0][:2], 0)
        ends = [at + 1 for at, each in enumerate(match[0]) if each != " "][:wanted]
        if len(ends) == wanted and wanted and checksums.iban(match[0][: ends[-1]].replace(" ", "")):
            spans.append((match.start(), match.start() + ends[-1]))
    return spans


def _is_ip(written: str) -> bool:
    if ":" in written and len(written) < 7:  # 12::5 is rather a time or a verse
        return False
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_loopback)


def _phone(digits: str) -> bool:
    return 9 <= len(digits.lstrip("+")) <= 15 and len(set(digits.lstrip("+"))) > 2
