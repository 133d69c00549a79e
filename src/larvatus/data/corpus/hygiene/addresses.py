"""E-mail and IP addresses in text.

find_emails("Write to josé@ejemplo.es.")                  # [(9, 24)]
find_ips("ping 10.0.0.1, not version 10.12.3.4")          # [(5, 13)]
"""

from __future__ import annotations

import ipaddress
import re

_UNSPACED = "\u2e80-\u9fff\u3040-\u30ff\uac00-\ud7af"
"""Scripts that may go on without a space where an address ends."""
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
