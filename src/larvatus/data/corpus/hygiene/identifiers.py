"""Account, card and national numbers in text: shapes, and the check digits that `python-stdnum` verifies.

find_ibans("IBAN de89 3704 0044 0532 0130 00")            # [(5, 32)]
find_cards("4111 1111 1111 1111")                         # [(0, 19)]
find_national("CPF 390.533.447-05")                       # [(4, 18)]
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from typing import Any

from larvatus.core.errors import UsageError

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
        raise UsageError('finding personal data wants python-stdnum; pip install "larvatus[hygiene]"') from fault
