"""Which language a file is in, as its name or that of its folder says: dev-de.tsv, xquad.de.json, de/test.conll.

>>> language_of("xnli/dev-de.tsv.xz"), language_of("wikiann/de/test.conll.xz"), language_of("tydiqa.goldp.sw.dev.json")
('de', 'de', 'sw')
>>> language_of("de_gsd-ud-dev.conllu"), language_of("dev-zh-Hant.tsv"), language_of("pos/ewt/dev.conllu") is None
('de', 'zh-Hant', True)

A name is cut at dots, hyphens and underscores; a part that is a code of ISO 639-1 in lower case, or one of the codes of
three letters in `THREE_LETTERS`, names the language, and a script or region behind it (Hant, TW) belongs to it. Where
the file's name has no such part, its folder's name is read in the same way. A name with two languages tells neither.
"""

from __future__ import annotations

import re
from pathlib import PurePath

_TWO = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo es
et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj
kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv
ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th
ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
_THREE = "arz ast bar bho ceb ckb fil fur grc gsw hsb kmr lij mzn nap nds pcm pms pnb scn sme swa szl vec wuu yue"
TWO_LETTERS = frozenset(_TWO.split())
"""ISO 639-1."""
THREE_LETTERS = frozenset(_THREE.split())
"""Of languages in multilingual sets without a code of two letters; not all of ISO 639-3, in which dev is a language."""
_MORE = re.compile(r"[A-Z][a-z]{3}|[A-Z]{2}")
"""A script or a region."""


def languages_in(name: str) -> list[str]:
    """The languages that the parts of a name are codes of, each once."""
    parts = re.split(r"[._-]+", name)
    codes: dict[str, None] = {}
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if part in TWO_LETTERS or part in THREE_LETTERS:
            codes[f"{part}-{after}" if _MORE.fullmatch(after) else part] = None
    return list(codes)


def language_of(path: str | PurePath) -> str | None:
    """The language that the name of a file, else that of its folder, tells; None where neither does."""
    where = PurePath(path)
    codes = languages_in(where.name) or languages_in(where.parent.name)
    return codes[0] if len(codes) == 1 else None
