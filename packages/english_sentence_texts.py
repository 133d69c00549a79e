"""Texts that belong together, from which the English model learns sentence vectors of a teacher.

    for group in pair_groups(DATA, random): …            # ["Paris", "Paris is the capital …", …]

A group is a document's title, paragraphs and sentences with keywords and edited sentences; turns of talk; a paper's
title and abstract; a question and its answer; a sentence and its halves; made-up sentences about scenes and headlines
that differ in a word or two (`english_scenes.toml`), and made-up requests of customers (`english_requests.toml`). No
labels are read. Documents are those of `english_text.py`; licences of the files under DATA/pairs and DATA/qa: CC BY-SA
(WikiSplit, questions on news and Reddit) and CC BY (papers, medical questions).
"""

from __future__ import annotations

import json
import lzma
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SENTENCE_END = re.compile(r"(?<![A-Z][a-z])(?<!\b[A-Z])(?<!Mr)(?<!Mrs)(?<!Dr)(?<!St)([.!?][\"')\]]?) (?=[A-Z\"'(])")
CLAUSE_END = re.compile(r", | and | which | who | but | because | while | when | after | where |; ")
TITLE = re.compile(r"^(?:The |A |An )?(.{2,70}?)(?: \(|, | is | was | are | were )")
FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "the a an is was were are has have had been be of that which by to and in on at for with its his her their it"
        " this as from",
    )
)
LONGEST = 170
"""Words of a paragraph."""
TALK = {"chat": (4, 0.8), "service_dialogues": (4, 0.5), "podcasts": (3, 0.45)}
WRITTEN = {"textbooks": (3, 0.9), "children": (4, 1.0), "novels": (3, 0.12)}
"""Lines of a group, and the share of the groups that are kept."""


def read_lines(path: Path) -> Iterator[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def shortened(text: str, words: int = LONGEST) -> str:
    """The first words of a text, up to the end of a sentence if there is one in the second half."""
    kept = text.split()
    if len(kept) <= words:
        return " ".join(kept)
    text = " ".join(kept[:words])
    end = max(text.rfind(". "), text.rfind("? "))
    return text[: end + 1] if end > len(text) // 2 else text


def sentences(paragraph: str) -> list[str]:
    return [part for part in SENTENCE_END.sub(r"\1\n", paragraph).split("\n") if 12 < len(part) < 600]


def with_parts(paragraph: str, random_: random.Random, *, all_sentences: bool = True) -> Iterator[str]:
    """A paragraph, its sentences, sometimes two of them as one text, and sometimes some of its words as keywords."""
    yield paragraph
    parts = sentences(paragraph)
    if len(parts) > 1:
        yield from parts if all_sentences else parts[:2]
        if len(parts) > 3 and random_.random() < 0.5:
            first = random_.randrange(len(parts) - 1)
            yield f"{parts[first]} {parts[first + 1]}"
    words = [word for word in re.findall(r"[A-Za-z][A-Za-z-]+", paragraph) if len(word) > 3]
    words = [word for word in words if word.lower() not in FUNCTION_WORDS]
    if len(words) > 25 and random_.random() < 0.35:
        first, count = random_.randrange(len(words) - 8), random_.randint(2, 6)
        near = words[first : first + 8]
        keywords = " ".join(random_.sample(near, count) if random_.random() < 0.5 else near[:count])
        yield keywords if random_.random() < 0.5 else keywords.lower()


def edited(sentence: str, random_: random.Random) -> str:
    """The sentence with words left out, as a headline, a clause of it, in lower case, or with two words swapped."""
    words, kind = sentence.split(), random_.random()
    if kind < 0.3:
        share = random_.uniform(0.1, 0.4)
        words = [word for word in words if random_.random() > share]
    elif kind < 0.5:
        words = [word for word in words if word.lower() not in FUNCTION_WORDS]
    elif kind < 0.75:
        clauses = [part for part in CLAUSE_END.split(sentence) if part.count(" ") > 2]
        return random_.choice(clauses) if len(clauses) > 1 else ""
    elif kind < 0.85:
        words = re.sub(r"[^\w\s'-]", "", sentence).lower().split()
    else:
        long = [place for place, word in enumerate(words) if len(word) > 4]
        if len(long) < 3:
            return ""
        first, second = random_.sample(long, 2)
        words[first], words[second] = words[second], words[first]
    return " ".join(words) if len(words) > 2 else ""


def document_groups(source: str, document: list[str], random_: random.Random) -> Iterator[list[str]]:
    """The groups of a document."""
    return article_group(document, random_) if source.startswith("wiki") else line_groups(source, document, random_)


def some_edited(group: list[str], random_: random.Random) -> list[str]:
    """One sentence of a group in five, edited."""
    short = [text for text in group if 25 < len(text) < 260 and random_.random() < 0.22]
    return [edited(text, random_) for text in short]


def article_group(document: list[str], random_: random.Random) -> Iterator[list[str]]:
    """Title, a heading, and some paragraphs with their parts, the first one always."""
    paragraphs = [line for line in document if len(line) > 200]
    if not paragraphs:
        return
    title = match[1] if (match := TITLE.match(document[0])) else ""
    headings = [line for line in document if 3 < len(line) < 60]
    group = [title, f"{title} {random_.choice(headings)}" if headings and random_.random() < 0.5 else ""]
    some = random_.sample(paragraphs[1:], min(len(paragraphs) - 1, random_.randrange(8)))
    for paragraph in [paragraphs[0], *some]:
        group += with_parts(shortened(paragraph), random_)
    yield group


def line_groups(source: str, lines: list[str], random_: random.Random) -> Iterator[list[str]]:
    """Some neighbouring lines with their parts."""
    size, share = {**TALK, **WRITTEN}[source]
    for first in range(0, len(lines), size):
        if random_.random() < share:
            turns = [shortened(line) for line in lines[first : first + size] if len(line) > 12]
            yield [text for turn in turns for text in with_parts(turn, random_, all_sentences=source not in TALK)]


def pair_groups(data: Path, random_: random.Random) -> Iterator[list[str]]:
    """Groups of files of pairs."""
    for name, words in (("acl_title_abstract", LONGEST), ("medquad", 120)):
        for line in read_lines(data / f"pairs/{name}.tsv.xz"):
            first, _, second = line.partition("\t")
            if len(second) > 60:
                yield [first, *with_parts(shortened(second.split("\t")[0], words), random_)]
    for line in read_lines(data / "pairs/wikisplit.tsv.xz"):
        whole, _, halves = re.sub(r" ([.,;:!?)'])", r"\1", line.replace("''", '"')).partition("\t")
        yield [whole, *(" ".join(half.split()) for half in halves.split("<::::>"))]
    for name in ("nyt", "reddit"):
        articles = json.loads("".join(read_lines(data / f"qa/squad_shifts/{name}_v1.0.json.xz")))["data"]
        for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
            questions = [question["question"] for question in paragraph["qas"]][:4]
            yield [*questions, *with_parts(shortened(paragraph["context"]), random_)]


class Scenes:
    """Made-up sentences about what somebody does where, and headlines."""

    def __init__(self, path: Path, random_: random.Random) -> None:
        words: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        self.verbs: dict[str, list[str]] = words.pop("verbs")
        self.words = {name: listed.split("|") for name, listed in words.items()}
        self.random = random_

    def pick(self, name: str) -> str:
        return self.random.choice(self.words[name])

    def scene_group(self) -> list[str]:
        """One scene, and others that share most of it with it."""
        first = self._scene()
        group = [self._said(*first)]
        for _ in range(self.random.randrange(2, 6)):
            other, changed = list(self._scene()), self.random.randrange(5)
            mixed = [*first]
            if changed == 2:
                mixed[1:3] = other[1:3]
            elif changed == 1:
                mixed[2] = self.random.choice(self.verbs[mixed[1]][3].split("|"))
            elif changed < 4:
                mixed[changed] = other[changed]
            group.append(self._said(*mixed))
        return group

    def headline_group(self) -> list[str]:
        country, kind = self.pick("countries"), self.random.randrange(4)
        group = [self._headline(kind, country)]
        for _ in range(self.random.randrange(2, 6)):
            other = kind if self.random.random() < 0.75 else self.random.randrange(4)
            group.append(self._headline(other, country if self.random.random() < 0.7 else self.pick("countries")))
        return [*group, self._lead(group[0], country)]

    def _scene(self) -> tuple[str, str, str, str]:
        verb = self.random.choice(list(self.verbs))
        return (self.pick("people"), verb, self.random.choice(self.verbs[verb][3].split("|")), self.pick("places"))

    def _said(self, who: str, verb: str, what: str, where: str) -> str:
        several = who.startswith(("two", "three", "several", "people", "the children"))
        be, (ing, third, past, _) = "are" if several else "is", self.verbs[verb]
        forms = {f"{who} {be} {ing}": 55, f"{who} {verb if several else third}": 13, f"{who} {past}": 10}
        forms |= {f"{who} {ing}": 8, f"there {be} {who} {ing}": 6, f"{who} {be} not {ing}": 4}
        forms |= {f"there {be} no {re.sub('^(a|an|the) ', '', who)} {ing}": 4}
        text = f"{self.random.choices(list(forms), list(forms.values()))[0]} {what}{where}"
        return text[0].upper() + text[1:] + ("." if self.random.random() < 0.75 else "")

    def _headline(self, kind: int, country: str) -> str:
        pick, number = self.pick, self.random.randint(2, 60)
        text = (
            f"{country} {pick('offices')} {pick('says')} {pick('topics')}",
            f"{number} {pick('harm')} in {country} {pick('accidents')}",
            f"{country} {pick('results')} {pick('countries')} in {pick('matches')}",
            f"{country} {pick('relations')} {pick('countries')} over {pick('topics')}",
        )[kind]
        return text[0].upper() + text[1:]

    def _lead(self, headline: str, country: str) -> str:
        """The first sentence of the article."""
        agency, day = (
            self.random.choice(("Reuters", "AP", "AFP")),
            self.random.choice(("Monday", "Tuesday", "Friday")),
        )
        begin = f"{country.upper()} ({agency}) - " if self.random.random() < 0.5 else f"{agency} - "
        return f"{begin}{headline} on {day}, {self.pick('offices')} officials said, after {self.pick('topics')}."


class Requests:
    """Made-up requests of customers: aims in several wordings, about the things of many services."""

    def __init__(self, path: Path, random_: random.Random) -> None:
        words: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        self.services = {name: items.split("|") for name, items in words.pop("services").items()}
        self.aims = [aim["say"].split("|") for aim in words.pop("aims")]
        self.words = {name: listed.split("|") for name, listed in words.items()}
        self.random = random_

    def group(self) -> list[str]:
        """Wordings of an aim about one thing, the same aim about another thing, and another aim about that thing."""
        random_ = self.random
        service = random_.choice(list(self.services))
        item, other = (random_.choice(self.services[service]), random_.choice(self.services[service]))
        aim = random_.choice(self.aims)
        texts = random_.sample(aim, random_.randint(2, min(4, len(aim))))
        changed = [(random_.choice(aim), other), (random_.choice(random_.choice(self.aims)), item)]
        return [self._said(text, thing, service) for text, thing in [*((text, item) for text in texts), *changed]]

    def _said(self, text: str, item: str, service: str) -> str:
        random_, picked = (self.random, {name: self.random.choice(listed) for name, listed in self.words.items()})
        text = text.format(item=item, service=service, **picked)
        if before := picked["before"]:
            text = before + (text if text.startswith("I ") else text[0].lower() + text[1:])
        text += picked["after"] if text.endswith((".", "?")) else random_.choice(("", "", ".", "!"))
        return text.lower() if random_.random() < 0.15 else text


def made_groups(random_: random.Random) -> Iterator[list[str]]:
    """Scenes, headlines and requests."""
    scenes = Scenes(Path(__file__).with_name("english_scenes.toml"), random_)
    yield from (scenes.scene_group() for _ in range(26_000))
    yield from (scenes.headline_group() for _ in range(12_000))
    requests = Requests(Path(__file__).with_name("english_requests.toml"), random_)
    yield from (requests.group() for _ in range(30_000))
