"""Phone numbers in text: `phonenumbers` judges what a cheap scan proposes.

    find_phones("Call 212 555 0123 or +44 20 7946 0958.", REGIONS)      # [(5, 17), (21, 37)]

Digit groups that are close together form a chain; windows of a chain are candidates. A number with `+` and a country
code counts wherever it is possible. A number without one is only a number in some country: it counts where one of the
`regions` has such a number, and where its grouping is that country's or a word such as *phone* comes before it.
Dates, sequences, prices and whatever follows words such as *version* or *ISBN* do not count. A candidate has at most
`MOST_GROUPS` groups and `MOST_DIGITS` digits, so the time is linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from larvatus.core.errors import UsageError, did_you_mean

REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "BE", "CH", "AT", "PL", "PT", "SE", "BR", "AU", "IN", "JP")
"""Countries whose national formats count by default."""
FEWEST_DIGITS, MOST_DIGITS = 8, 16
MOST_GROUPS = 8

_GROUP = re.compile(r"[0-9]+")
_GAP = re.compile(r"[ \u00a0\u202f]?[.\-–\u2011/]?[ \u00a0\u202f]?|[ \u00a0\u202f.\-/]?\(|\)[ \u00a0\u202f.\-/]?|\(\)")
_SPACES = (" ", "\u00a0", "\u202f")
_CUE = re.compile(
    r"(?i)(?:(?<!<)\b(?:tele?|phone|telephone|call(?:ed)?|ring|fax|mobile|mob|cell(?:ular|phone)?|whatsapp|sms|"
    r"text(?= )|dial|reach|contact|kontakt|hotline|helpline|telefon\w*|teléfono|téléphone|tél|tlf|rufen|ruf|anruf\w*|"
    r"handy|servicenummer|appelez|joindre|portable|llam[ea]\w*|móvil|chiam\w+|cellulare|bel(?:len)?|telefoon|[tmf]:)"
    r"(?:\b|(?<=:))|電話|☎|📞)[^0-9\n]{0,24}$"
)
"""A word that announces a phone number; not the tag `<phone>`."""
_OTHER = re.compile(
    r"(?i)(?:\b(?:isbn(?:-1[03])?|issn|ean|upc|doi|arxiv|pmid|no|nr|nos|num|version|order(?: no)?|invoice|inv|docket|"
    r"case|ticket|part(?: number)?|item|model|serial|s/n|sku|lot|batch|account|customer|id|uid|ref|reference|patent|"
    r"article|section|pages?|pp?|vol|table(?: [0-9]+)?|row|cas|ec|utm|box|zip|postcode|lines|code|pin|record|score|"
    r"tracking|register|usd|eur|gbp|chf|rs)|[§#$€£¥])[\s.:#=]{0,3}$"
)
"""A word that announces another number."""
_UNIT = re.compile(
    r"(?i)\s?(?:[%€$£¥°]"
    r"|(?:k?m|kg|cm|mm|km|eur|usd|euros?|dollars?|kronor|people|inhabitants|bytes|hours|years|percent)\b)"
)


@dataclass(frozen=True)
class _Window:
    """Neighbouring digit groups, and the text before and after them."""

    text: str
    groups: tuple[tuple[int, int], ...]
    start: int
    """With a plus sign or a bracket."""
    has_cue: bool
    """Whether a word such as *phone* comes before it."""

    @property
    def begin(self) -> int:
        """Its start, without a bracket that closes after it."""
        opened = self.text[self.start] == "(" and not any(")" in gap for gap in self.gaps)
        return self.start + 1 if opened else self.start

    @property
    def end(self) -> int:
        return self.groups[-1][1]

    @functools.cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.text[start:end] for start, end in self.groups)

    @functools.cached_property
    def gaps(self) -> tuple[str, ...]:
        return tuple(self.text[left[1] : right[0]] for left, right in pairwise(self.groups))

    @functools.cached_property
    def digits(self) -> str:
        return "".join(self.parts)

    @property
    def is_spaced(self) -> bool:
        """Whether only spaces separate its groups, as in any row of numbers."""
        return self.text[self.start] not in "+(" and all(gap in _SPACES for gap in self.gaps)


def find_phones(text: str, regions: Sequence[str]) -> list[tuple[int, int]]:
    """Start and end of each number, in the order of the text."""
    spans = []
    for chain in _chains(text):
        first = 0
        while first < len(chain):
            window = _longest(text, chain, first, regions)
            if window is None:
                first += 1
            else:
                spans.append((window.begin, window.end))
                first += len(window.groups)
    return spans


def check_regions(regions: Sequence[str]) -> None:
    """Refuse codes that no country has."""
    known = _library().SUPPORTED_REGIONS
    for region in regions:
        if region not in known:
            raise UsageError(
                f"--region {region:.20} is no country code{did_you_mean(region.upper(), sorted(known))}; "
                "give two letters such as US or DE"
            )


def _chains(text: str) -> Iterator[list[tuple[int, int]]]:
    """Runs of digit groups with no more than a separator between them."""
    chain: list[tuple[int, int]] = []
    for match in _GROUP.finditer(text):
        start, end = match.span()
        gap = text[chain[-1][1] : start] if chain and start - chain[-1][1] <= 3 else None
        if chain and (gap is None or not gap or _GAP.fullmatch(gap) is None):
            yield chain
            chain = []
        chain.append((start, end))
    if chain:
        yield chain


def _longest(text: str, chain: list[tuple[int, int]], first: int, regions: Sequence[str]) -> _Window | None:
    start = _begin(text, chain[first][0])
    if start is None:
        return None
    last, digits = first, chain[first][1] - chain[first][0]
    while last + 1 < len(chain) and last + 1 < first + MOST_GROUPS and digits <= MOST_DIGITS:
        last += 1
        digits += chain[last][1] - chain[last][0]
    has_cue = _has_cue(text, start)
    for end in range(last, first - 1, -1):
        if FEWEST_DIGITS <= digits <= MOST_DIGITS:
            window = _Window(text, tuple(chain[first : end + 1]), start, has_cue)
            if _is_apart(window, chain, first, end) and _is_phone(window, regions):
                return window
        digits -= chain[end][1] - chain[end][0]
    return None


def _has_cue(text: str, start: int) -> bool:
    before = text[max(0, start - 40) : start].rstrip(" (/-")
    return bool(before) and not before[-1].isdigit() and _CUE.search(before) is not None


def _begin(text: str, at: int) -> int | None:
    """Where a number begins whose first digit is at a place; None where a word or another number runs into it."""
    if at and text[at - 1] == "(":
        at -= 1
        at -= 2 if text[max(0, at - 2) : at] == "+ " else 0
    if at and text[at - 1] in "+＋":
        at -= 1
    before = text[at - 1] if at else " "
    if text[at] in "+＋":
        return at if not before.isdigit() else None
    joined = before.isalnum() or before in "_.,-–/:'’\u2011@=%&"
    colon = before in ":=" and not text[max(0, at - 2) : at - 1].isdigit()
    return None if joined and not colon else at


def _is_apart(window: _Window, chain: list[tuple[int, int]], first: int, last: int) -> bool:
    """Whether nothing that belongs to it comes before or after."""
    text = window.text
    after = text[window.end : window.end + 2]
    if after[:1].isalpha() or (after[:1] in ("_", ":", "@") and after[1:].isalnum()) or re.match(r"[,'’.][0-9]", after):
        return False
    inner = [(chain[last][1], chain[last + 1][0])] if last + 1 < len(chain) else []
    inner += [(chain[first - 1][1], chain[first][0])] if first else []
    for start, end in inner:
        gap = text[start:end].rstrip("(+")
        if gap not in (*_SPACES, " / ", " - ", ") "):
            return False
        if window.is_spaced and gap in _SPACES and not window.has_cue:
            return False
    return True


def _is_phone(window: _Window, regions: Sequence[str]) -> bool:
    if window.text[window.start] in "+＋":
        return _is_possible(window.digits)
    if _OTHER.search(window.text[max(0, window.start - 24) : window.start]):
        return False
    if _UNIT.match(window.text, window.end) or _is_date(window) or _is_sequence(window.parts):
        return False
    if "." in window.gaps and (set(window.gaps) != {"."} or window.parts[0] == "0"):  # 13.674 63 78, 0.333251953
        return False
    brackets = "".join(window.gaps)
    if brackets.count("(") > brackets.count(")"):
        return False
    if window.digits.startswith("00"):
        return (len(window.parts) > 1 or window.has_cue) and _is_valid(f"+{window.digits[2:]}", None)
    if window.digits.startswith("011") and "US" in regions and _is_valid(f"+{window.digits[3:]}", None):
        return len(window.parts) > 1
    return any(_is_national(window, region) for region in regions)


def _is_date(window: _Window) -> bool:
    """Whether three of its groups are a day, or two of them years."""
    parts = window.parts
    years = sum(len(part) == 4 and part[:2] in ("18", "19", "20") for part in parts)
    if years >= 2 and (len(parts) == 2 or not window.has_cue):
        return True
    for place in range(len(parts) - 2):
        gaps = window.gaps[place : place + 2]
        if gaps[0] == gaps[1] and _is_day(*parts[place : place + 3], spaced=gaps[0] in _SPACES):
            return True
    return False


def _is_day(first: str, second: str, third: str, *, spaced: bool) -> bool:
    if len(first) == 4:
        first, third = third, first
    if len(third) not in ((4,) if spaced else (2, 4)) or len(first) > 2 or len(second) > 2:
        return False
    if len(third) == 4 and third[:2] not in ("17", "18", "19", "20"):
        return False
    low, high = sorted((int(first), int(second)))
    return 1 <= low <= 12 and high <= 31 and len(third) == 4


def _is_sequence(parts: tuple[str, ...]) -> bool:
    """Whether it counts up or down by equal steps: 01 02 03 04 05."""
    if len(parts) < 3:
        return False
    numbers = [int(part) for part in parts]
    steps = {right - left for left, right in pairwise(numbers)}
    return len(steps) == 1 or len(set("".join(parts))) == 1


def _is_national(window: _Window, region: str) -> bool:
    shape, trunk = _shape(region)
    digits = window.digits
    has_trunk = bool(trunk) and digits.startswith(trunk)
    if not (shape.fullmatch(digits) or (has_trunk and shape.fullmatch(digits[len(trunk) :]))):
        return False
    if not _is_valid(digits, region):
        return False
    if window.has_cue:
        return True
    if len(window.parts) == 1:
        return False
    return _is_grouped(window, region, trunk)


def _is_grouped(window: _Window, region: str, trunk: str) -> bool:
    """Whether it is written as its country writes it; a row of equal groups could be any number."""
    library = _library()
    number = library.parse(window.digits, region)
    national = library.format_number(number, library.PhoneNumberFormat.NATIONAL)
    wanted = _GROUP.findall(national)
    parts = list(window.parts)
    if trunk == "1" and parts[0] == "1":
        parts = parts[1:]
    elif trunk == "1" and parts[0].startswith("1"):
        return False
    bracketed = window.text[window.start] == "("
    if trunk == "0" and window.digits.startswith("0") and len(window.digits) > FEWEST_DIGITS:
        area = parts[0] in (wanted[0], "0") or (wanted[0].startswith(parts[0]) and (bracketed or len(parts[0]) > 3))
        extension = window.gaps[-1] == "-"  # 040 42838-0: the exchange of a company
        if area and all(len(part) > 1 for part in (parts[1:-1] if extension else parts[1:])):
            return True
    if parts != wanted or (window.digits.startswith("0") and len(window.digits) <= FEWEST_DIGITS):
        return False
    thousands = not bracketed and len(parts[0]) <= 3 and {len(part) for part in parts[1:]} == {3}
    return not thousands or window.digits.startswith("0")


def _is_possible(digits: str) -> bool:
    library = _library()
    try:
        number = library.parse(f"+{digits}", None)
    except library.NumberParseException:
        return False
    return bool(library.is_possible_number(number))


def _is_valid(digits: str, region: str | None) -> bool:
    library = _library()
    try:
        number = library.parse(digits, region)
    except library.NumberParseException:
        return False
    return bool(library.is_valid_number(number))


@functools.cache
def _shape(region: str) -> tuple[re.Pattern[str], str]:
    """Digits that a number of a region may have, and the prefix of national calls: a cheap test before parsing."""
    metadata = _library().PhoneMetadata.metadata_for_region(region)
    return re.compile(metadata.general_desc.national_number_pattern), metadata.national_prefix or ""


@functools.cache
def _library() -> Any:
    try:
        import phonenumbers  # half a second, with its tables
    except ImportError as fault:
        raise UsageError('finding personal data needs phonenumbers; pip install "larvatus[hygiene]"') from fault
    return phonenumbers
