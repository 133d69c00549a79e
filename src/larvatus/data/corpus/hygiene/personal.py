"""Personal data in text: e-mail and IP addresses, phone numbers, cards, accounts, national numbers.

    find_personal("Write to ann@example.org.")           # [PersonalSpan("email", 9, 24)]
    tag_personal("Write to ann@example.org.")            # the address becomes <email>
    find_ips("ping 10.0.0.1, not version 10.12.3.4")     # [(5, 13)]
    find_cards("4111 1111 1111 1111")                    # [(0, 19)]

A shape is looked for, then what it must hold: a check digit, which `python-stdnum` verifies, parts of an address in
their range, a number that a country has (`phones.py`). Names and street addresses are not looked for.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from larvatus.core.errors import UsageError
from larvatus.data.corpus.hygiene.phones import REGIONS, find_phones

KINDS = ("email", "iban", "card", "national", "ip", "phone")
"""In this order: characters that are one kind are not looked at for another."""
Handling = Literal["count", "tag", "remove"]
ROUNDS = 8
"""Times that text is searched again for what a removal put together."""


class PersonalSpan(NamedTuple):
    kind: str
    start: int
    end: int


_DIGITS = re.compile(
    r"[0-9](?:[A-Za-z]{0,2}[ .\-/()+\u00a0\u202f]{0,3}[0-9]){4}|[:.][0-9A-Fa-f]{0,4}[:.][0-9A-Fa-f]{1,4}"
)
"""Each kind but e-mail has five digits near each other, or colons: text far from such a place is skipped."""
_AROUND = 64


def find_personal(text: str, regions: Sequence[str] = REGIONS) -> list[PersonalSpan]:
    """Personal data in the order of the text, without overlaps.

    `regions`: countries whose phone numbers count without a country code.
    """
    places = [PersonalSpan("email", *span) for span in find_emails(text)]
    for start, end in _stretches(text):
        places += [PersonalSpan(kind, start + a, start + b) for kind, a, b in _numbers(text[start:end], regions)]
    taken: list[tuple[int, int, str]] = []  # in the order of the text, apart from each other
    for kind in KINDS:  # an account is no phone number
        taken = _added(taken, [place for place in places if place.kind == kind])
    return [PersonalSpan(kind, start, end) for start, end, kind in taken]


def _added(taken: list[tuple[int, int, str]], places: list[PersonalSpan]) -> list[tuple[int, int, str]]:
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


def _numbers(text: str, regions: Sequence[str]) -> list[PersonalSpan]:
    by_kind = {
        "iban": find_ibans(text),
        "card": find_cards(text),
        "national": find_national(text),
        "ip": find_ips(text),
        "phone": find_phones(text, regions),
    }
    return [PersonalSpan(kind, *span) for kind, spans in by_kind.items() for span in spans]


def check_can_find() -> None:
    """Refuse before the work where a library is missing."""
    for name, package in (("phonenumbers", "phonenumbers"), ("stdnum", "python-stdnum")):
        if find_spec(name) is None:
            raise UsageError(f'finding personal data needs {package}; pip install "larvatus[hygiene]"')


def count_personal(text: str, regions: Sequence[str] = REGIONS) -> Counter[str]:
    """How many of each kind."""
    return Counter(place.kind for place in find_personal(text, regions))


def tag_personal(text: str, regions: Sequence[str] = REGIONS) -> str:
    """Each replaced by its kind in angle brackets.

    >>> tag_personal("Call +44 20 7946 0958 or write to ann@example.org")
    'Call <phone> or write to <email>'
    """
    return _replaced(text, find_personal(text, regions), lambda kind: f"<{kind}>")


def remove_personal(text: str, regions: Sequence[str] = REGIONS) -> str:
    """Without any of it, and without what a removal puts together.

    Text that still has some after `ROUNDS` removals was made to: that is replaced by tags, which nothing joins across.

    >>> remove_personal("IBAN DE89 3704 0044 0532 0130 00.")
    'IBAN .'
    """
    for _ in range(ROUNDS):
        places = find_personal(text, regions)
        if not places:
            return text
        text = _replaced(text, places, lambda kind: "")
    return tag_personal(text, regions)


def handle_personal(text: str, handling: Handling, regions: Sequence[str] = REGIONS) -> str:
    """The text as it goes into a corpus."""
    return (
        text
        if handling == "count"
        else tag_personal(text, regions)
        if handling == "tag"
        else remove_personal(text, regions)
    )


def _replaced(text: str, places: list[PersonalSpan], by: Callable[[str], str]) -> str:
    parts, at = [], 0
    for place in places:
        parts += [text[at : place.start], by(place.kind)]
        at = place.end
    return "".join([*parts, text[at:]])


# E-mail and IP addresses.

_UNSPACED = "\u2e80-\u9fff\u3040-\u30ff\uac00-\ud7af"
"""Scripts that may continue without a space where an address ends."""
_DOMAIN = re.compile(
    r"(?:[^\W_](?:[^\W_]|-){0,62}\.){1,8}"
    rf"(?:(?:xn--[a-z0-9\-]{{1,59}}|[a-z]{{2,24}})(?![^\W{_UNSPACED}]|[_\-@])|[^\W\d_a-z]{{2,24}}(?![\w\-@]))",
    re.I,
)
_UNSPACED_SIGN = re.compile(f"[{_UNSPACED}]")
_LOCAL_MOST, _DOMAIN_MOST = 64, 255
_FILE = re.compile(r"(?i)\.(?:png|jpe?g|gif|svg|webp|avif|ico|js|mjs|ts|css|json|html?|md|txt|py)$")
"""Domains that are rather names of files: icon@2x.png."""

_IP4 = re.compile(r"(?<![0-9A-Za-z._])(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})(?![0-9A-Za-z_]|\.[0-9])")
_IP6 = re.compile(
    r"(?<![0-9A-Za-z:._])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9A-Fa-f]{1,4})?(?![0-9A-Za-z:]|\.[0-9])"
)
_NUMBERED = re.compile(
    r"(?i)(?:\b(?:version|ver|v|release|build|kernel|firmware|driver|sections?|sec|chapters?|clause|paragraph|theorem|"
    r"lemma|figure|fig|table|item|article|ec|oid)|[§/])\s?\.?\s?$"
)
"""What comes before the number of a version or a section."""
_HOST = re.compile(
    r"(?i)\b(?:ip|ips|ipv4|address|host|hosts|server|dns|nameserver|resolver|ping|ssh|from|gateway|router|route|via|netmask|"
    r"subnet|client|peer|port|proxy|curl|https?|traffic|listen|blocked?)\b"
)
_BEFORE = 32


def find_emails(text: str) -> list[tuple[int, int]]:
    """Addresses around each ``@``, in any script: what comes before and after is read no further than is allowed."""
    spans: list[tuple[int, int]] = []
    at = text.find("@")
    while at >= 0:
        span = _email(text, at)
        if span is not None and (not spans or span[0] >= spans[-1][1]):
            spans.append(span)
        at = text.find("@", at + 1)
    return spans


def _email(text: str, at: int) -> tuple[int, int] | None:
    domain = _DOMAIN.match(text, at + 1, at + 2 + _DOMAIN_MOST)
    if domain is None or _FILE.search(domain[0]):
        return None
    start = at
    while start and at - start <= _LOCAL_MOST and (text[start - 1].isalnum() or text[start - 1] in "_.+-%'&"):
        start -= 1
    if text[at - 1 : at].isascii() and domain[0].isascii():  # a sentence in Chinese runs into the address
        start = max([start, *(match.end() + start for match in _UNSPACED_SIGN.finditer(text[start:at]))])
    while start < at and not text[start].isalnum():
        start += 1
    if not 0 < at - start <= _LOCAL_MOST or text[at - 1] in ".'":
        return None
    is_remote = text[domain.end() : domain.end() + 1] == ":" and text[domain.end() + 1 : domain.end() + 2].isalnum()
    return None if is_remote else (start, domain.end())


def find_ips(text: str) -> list[tuple[int, int]]:
    """IPv4 and IPv6 addresses, but for those of this very host, and for numbers of versions and sections."""
    spans = [match.span() for match in _IP4.finditer(text) if _is_ip4(text, match)]
    return spans + [match.span() for match in _IP6.finditer(text) if _is_ip6(match[0])]


def _is_ip4(text: str, match: re.Match[str]) -> bool:
    address = _address(match[0])
    if address is None:
        return False
    before = text[max(0, match.start() - _BEFORE) : match.start()]
    if match[0].startswith("0."):
        return False
    if address.is_private:  # 10.0.0.1 and 192.168.1.1 too, unless they are said to be something else
        return _NUMBERED.search(before) is None or before.endswith("//")
    if len(match[0]) > 10 and _NUMBERED.search(before) is None:
        return True
    return _HOST.search(before[-20:]) is not None


def _is_ip6(written: str) -> bool:
    has_digit = any(each.isdigit() for each in written)
    return len(written) >= 7 and has_digit and _address(written) is not None  # 12::5 is rather a time or a verse


def _address(written: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return None
    return None if address.is_unspecified or address.is_loopback else address


# Account, card and national numbers.

_IBAN = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Z]{2}[0-9]{2}(?:[ \-]?[A-Z0-9]{4}){2,7}(?:[ \-]?[A-Z0-9]{1,3})?"
    r"|[a-z]{2}[0-9]{2}(?:[ \-]?[a-z0-9]{4}){2,7}(?:[ \-]?[a-z0-9]{1,3})?)(?![A-Za-z0-9])"
)
_CARD = re.compile(
    r"(?<![0-9A-Za-z.\-+])(?:[2-6][0-9]{12,18}"
    r"|[2-6][0-9]{3}([ \-])[0-9]{4}\1[0-9]{4}\1[0-9]{1,4}(?:\1[0-9]{1,3})?"
    r"|3[0-9]{3}([ \-])[0-9]{6}\2[0-9]{4,5})(?![0-9A-Za-z]|[.\-][0-9])"
)
_ISSUERS = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})"  # Visa
    r"|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}"  # Mastercard
    r"|3[47][0-9]{13}"  # American Express
    r"|(?:6011|65[0-9]{2}|64[4-9][0-9])[0-9]{12,15}"  # Discover
    r"|35(?:2[89]|[3-8][0-9])[0-9]{12,15}"  # JCB
    r"|3(?:0[0-5]|[68][0-9]|09)[0-9]{11}"  # Diners
    r"|62[0-9]{14,17}"  # UnionPay
    r"|(?:50|5[6-9]|6[0-9])[0-9]{11,17}"  # Maestro
)
_NATIONAL = {
    "br.cpf": r"(?<![0-9.])[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}(?![0-9])",
    "cn.ric": r"(?<![0-9A-Za-z])[1-9][0-9]{5}(?:19|20)[0-9]{9}[0-9X](?![0-9A-Za-z])",
    "es.dni": r"(?<![0-9A-Za-z])[0-9]{8}-?[A-HJ-NP-TV-Z](?![0-9A-Za-z])",
    "es.nie": r"(?<![0-9A-Za-z])[XYZ][0-9]{7}-?[A-HJ-NP-TV-Z](?![0-9A-Za-z])",
    "fi.hetu": r"(?<![0-9A-Za-z])[0-3][0-9][01][0-9]{3}[+\-A][0-9]{3}[0-9A-FHJ-NPR-Y](?![0-9A-Za-z])",
    "fr.nir": r"(?<![0-9A-Za-z])[12] ?[0-9]{2} ?[01][0-9] ?(?:[0-9]{2}|2[AB]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}"
    r"(?![0-9A-Za-z])",
    "it.codicefiscale": r"(?<![0-9A-Za-z])[A-Z]{6}[0-9]{2}[A-EHLMPR-T][0-9]{2}[A-Z][0-9]{3}[A-Z](?![0-9A-Za-z])",
    "pl.pesel": r"(?<![0-9A-Za-z.,\-+(])[0-9]{11}(?![0-9A-Za-z])",
    "se.personnummer": r"(?<![0-9A-Za-z])(?:19|20)?[0-9]{6}[\-+][0-9]{4}(?![0-9A-Za-z\-])",
    "us.ssn": r"(?<![0-9A-Za-z\-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?![0-9A-Za-z\-])",
}
_SHAPES = {name: re.compile(shape) for name, shape in _NATIONAL.items()}


def find_ibans(text: str) -> list[tuple[int, int]]:
    """Accounts by ISO 13616: the shape may run on into a word, so that shorter ends are tried too."""
    iban = _checks("iban")
    spans = []
    match = _IBAN.search(text)
    while match is not None:
        written = match[0]
        ends = [at for at in range(len(written), 14, -1) if at == len(written) or written[at] in " -"]
        end = next((end for end in ends if iban.is_valid(written[:end], check_country=False)), None)
        if end is not None:
            spans.append((match.start(), match.start() + end))
        match = _IBAN.search(text, match.start() + (end or 4))  # another may begin inside of one that is none
    return spans


def find_cards(text: str) -> list[tuple[int, int]]:
    """Payment cards: an issuer's first digits and length (ISO/IEC 7812), and Luhn's check digit."""
    luhn = _checks("luhn")
    spans = []
    for match in _CARD.finditer(text):
        digits = re.sub(r"[ \-]", "", match[0])
        if _ISSUERS.fullmatch(digits) and _varies(digits) and luhn.is_valid(digits):
            spans.append(match.span())
    return spans


def find_national(text: str) -> list[tuple[int, int]]:
    """National numbers of nine countries."""
    spans = []
    for name, shape in _SHAPES.items():
        valid = _checks(name).is_valid
        spans += [match.span() for match in shape.finditer(text) if _varies(match[0]) and valid(match[0])]
    return spans


def _varies(written: str) -> bool:
    """Whether it is more than one digit repeated, whose check digits often agree."""
    return len(set(re.findall(r"[0-9]", written))) > 1


@functools.cache
def _checks(name: str) -> Any:
    try:
        return import_module(f"stdnum.{name}")
    except ImportError as fault:
        raise UsageError('finding personal data needs python-stdnum; pip install "larvatus[hygiene]"') from fault
