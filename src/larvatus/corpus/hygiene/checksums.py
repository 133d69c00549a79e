"""Check digits of cards, accounts and national numbers: what tells one from any run of digits.

luhn("4539578763621486"), iban("GB82WEST12345698765432"), NATIONAL["es"]("12345678Z")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

IBAN_LENGTHS = {
    **{"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28},
    **{"CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18},
    **{"FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22},
    **{"IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20},
    **{"LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18},
    **{"NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24},
    **{"SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24},
    **{"XK": 20},
}


def luhn(digits: str) -> bool:
    """Every second digit from the right is doubled; the sum of all digits is a multiple of ten (ISO/IEC 7812).

    >>> luhn("79927398713"), luhn("79927398714")
    (True, False)
    """
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def card(digits: str) -> bool:
    """A number of a payment card: 13 to 19 digits, a first digit that issuers use, Luhn; not one digit repeated.

    >>> card("4111111111111111"), card("4111111111111112")
    (True, False)
    """
    return 13 <= len(digits) <= 19 and digits[0] in "23456" and len(set(digits)) > 1 and luhn(digits)


def iban(account: str) -> bool:
    """An account by ISO 13616: the length of its country, and 1 modulo 97 with its head at the end.

    >>> iban("DE89370400440532013000"), iban("DE88370400440532013000")
    (True, False)
    """
    if IBAN_LENGTHS.get(account[:2]) != len(account):
        return False
    return int("".join(str(int(letter, 36)) for letter in account[4:] + account[:4])) % 97 == 1


def _weighted(digits: str, weights: tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def _day(month: str, day: str) -> bool:
    return 1 <= int(month) <= 12 and 1 <= int(day) <= 31


def spain(number: str) -> bool:
    """DNI and NIE: the letter is that of the number modulo 23."""
    plain = number.replace("X", "0", 1).replace("Y", "1", 1) if number[0] in "XY" else number
    plain = f"2{plain[1:]}" if plain[0] == "Z" else plain
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(plain[:-1]) % 23] == number[-1]


def brazil(number: str) -> bool:
    """CPF: two check digits modulo 11."""
    if len(set(number)) == 1:
        return False
    for length in (9, 10):
        rest = _weighted(number, tuple(range(length + 1, 1, -1))) * 10 % 11 % 10
        if rest != int(number[length]):
            return False
    return True


def italy(number: str) -> bool:
    """Codice fiscale: a letter of the other fifteen characters modulo 26."""
    odd = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
    values = [int(each) if each.isdigit() else ord(each) - 65 for each in number[:15]]
    total = sum(value if place % 2 else odd[value] for place, value in enumerate(values))
    return chr(65 + total % 26) == number[15]


def france(number: str) -> bool:
    """NIR: 97 less the first thirteen digits modulo 97; Corsica's letters count as 19 and 18."""
    body = number[:13].replace("2A", "19").replace("2B", "18")
    return body.isdigit() and 97 - int(body) % 97 == int(number[13:])


def china(number: str) -> bool:
    """Resident identity: ISO 7064, modulo 11-2, with a date of birth."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return _day(number[10:12], number[12:14]) and "10X98765432"[_weighted(number[:17], weights) % 11] == number[17]


def sweden(number: str) -> bool:
    """Personnummer: Luhn over ten digits that begin with a date (days from 61 on: coordination numbers)."""
    month, day = number[2:4], int(number[4:6])
    return _day(month, str(day - 60 if day > 60 else day)) and luhn(number)


def finland(number: str) -> bool:
    """Henkilötunnus: a date, a sign of the century, three digits, and their check character modulo 31."""
    return _day(number[2:4], number[:2]) and (
        "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(number[:6] + number[7:10]) % 31] == number[10]
    )


def poland(number: str) -> bool:
    """PESEL: a date whose month says the century, and a digit that makes the weighted sum a multiple of ten."""
    month = int(number[2:4]) % 20
    weights = (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)
    return _day(str(month), number[4:6]) and _weighted(number, weights) % 10 == 0


def united_states(number: str) -> bool:
    """Social security: no check digit; areas, groups and serials that are never issued are none."""
    area, group, serial = number[:3], number[3:5], number[5:]
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


NATIONAL: Mapping[str, Callable[[str], bool]] = {
    "br": brazil,
    "cn": china,
    "es": spain,
    "fi": finland,
    "fr": france,
    "it": italy,
    "pl": poland,
    "se": sweden,
    "us": united_states,
}
