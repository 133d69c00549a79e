"""WordNet, read from its own database files: a folder, or Debian's `/usr/share/wordnet`.

    wordnet = WordNet.open("wordnet/")
    wordnet.senses("bank", "n")[0].key               # 'bank%1:17:01::', the first sense
    wordnet.synset("09213565-n").definition          # 'sloping land (especially the slope beside a body of water)'
    wordnet.lemmas("geese")                          # [('goose', 'n')]

`index.sense` contains what `index.noun` and the like do (lemma, synset, and the rank of the sense within its lemma and
part of speech) and also the sense keys, so it is the only index that is read. Synsets are parsed on demand: the name of
a synset is the byte at which its line begins in `data.*`. Lemmas of inflected words come from `morphy`, WordNet's own
morphology (`base_forms`). File formats: wndb(5WN), senseidx(5WN), lexnames(5WN), morphy(7WN).
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Literal

from msgspec import Struct

from larvatus.core import files
from larvatus.core.errors import DataError
from larvatus.core.regular_files import open_named
from larvatus.data.text.archives import ARCHIVE_ERRORS
from larvatus.data.text.streams import open_bytes
from larvatus.data.text.words import segment_words

POS = Literal["n", "v", "a", "r"]
"""Parts of speech: noun, verb, adjective, adverb."""


DETACHMENT: dict[str, tuple[tuple[str, str], ...]] = {
    "n": (
        ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"),
        ("ies", "y"),
    ),
    "v": (("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}  # fmt: skip
"""Endings and their replacements."""
MAX_FORMS = 64
"""Most forms of a phrase that are tried; each of its words may have several."""

Has = Callable[[str, POS], bool]


def base_forms(word: str, pos: POS, exceptions: Mapping[str, Sequence[str]], has: Has) -> list[str]:
    """The lemmas of this part of speech that a word (lower case, underscores for spaces) may be a form of.

    The word itself comes first; then the exception list or, if the word is not in it, what remains when endings are
    detached by rule. Forms that are not lemmas of WordNet are skipped. In a phrase, each word is taken to its lemma
    (`attorneys_general`, `took_place`).

    >>> base_forms("axes", "n", {"axes": ["ax", "axis"]}, lambda lemma, pos: lemma in ("ax", "axis", "axe"))
    ['ax', 'axis']
    """
    forms = [word, *_stems(word, pos, exceptions, has)]
    if "_" in word and len(forms) == 1:
        each = [[part, *_stems(part, pos, exceptions, has)] for part in word.split("_")]
        forms = ["_".join(parts) for _, parts in zip(range(MAX_FORMS), product(*each), strict=False)]
    return list(dict.fromkeys(form for form in forms if has(form, pos)))


def _stems(word: str, pos: POS, exceptions: Mapping[str, Sequence[str]], has: Has) -> list[str]:
    if word in exceptions:
        return list(exceptions[word])
    ending = ""
    if pos == "n":
        if word.endswith("ful"):  # boxesful: a boxful
            word, ending = word[:-3], "ful"
        elif word.endswith("ss") or len(word) <= 2:
            return []
    stems = [word[: len(word) - len(end)] + new for end, new in DETACHMENT[pos] if word.endswith(end)]
    return [stem + ending for stem in stems if has(stem, pos)]


NAMES: dict[POS, str] = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
"""Parts of speech, and the suffixes of their files."""
DEBIAN = Path("/usr/share/wordnet")
LEXNAMES = (
    "adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact", "noun.attribute",
    "noun.body", "noun.cognition", "noun.communication", "noun.event", "noun.feeling", "noun.food", "noun.group",
    "noun.location", "noun.motive", "noun.object", "noun.person", "noun.phenomenon", "noun.plant", "noun.possession",
    "noun.process", "noun.quantity", "noun.relation", "noun.shape", "noun.state", "noun.substance", "noun.time",
    "verb.body", "verb.change", "verb.cognition", "verb.communication", "verb.competition", "verb.consumption",
    "verb.contact", "verb.creation", "verb.emotion", "verb.motion", "verb.perception", "verb.possession",
    "verb.social", "verb.stative", "verb.weather", "adj.ppl",
)  # fmt: skip
"""Lexicographer classes, by the number of their file."""

_TYPES: dict[str, POS] = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
_UP = ("@", "@i")


class Sense(Struct, frozen=True, gc=False):
    """A sense of a lemma."""

    key: str
    """`lemma%type:lexicographer-file:id:head:head-id`."""
    synset: str
    """Name of its synset, such as `09213565-n`."""
    rank: int
    """Rank by frequency within its lemma and part of speech; 1 is WordNet's first sense."""
    count: int
    """Number of times it was tagged for WordNet."""

    @property
    def lemma(self) -> str:
        return self.key.partition("%")[0]

    @property
    def pos(self) -> POS:
        return _TYPES[self.key.partition("%")[2][0]]

    @property
    def lexname(self) -> str:
        """Lexicographer class, such as `noun.object`."""
        return LEXNAMES[int(self.key.partition("%")[2].split(":")[1])]


class Synset(Struct, frozen=True):
    """A set of synonyms, with its gloss and hypernyms."""

    name: str
    lexname: str
    words: tuple[str, ...]
    hypernyms: tuple[str, ...]
    """Names of the synsets above: hypernyms, and those that this is an instance of."""
    gloss: str
    """Definition and examples, unparsed."""

    @property
    def definition(self) -> str:
        return self.gloss.partition('; "')[0].strip()

    @property
    def examples(self) -> tuple[str, ...]:
        return tuple(self.gloss.split('"')[1::2])


class WordNet:
    """A WordNet database. The index is in memory; synsets are read on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._by_key: dict[str, Sense] = {}
        self._by_lemma: dict[tuple[str, POS], list[Sense]] = {}
        self._data: dict[str, bytes] = {}
        self._synsets: dict[str, Synset] = {}
        text = self._read("index.sense")
        self.fingerprint = hashlib.sha256(text).hexdigest()
        """Hash of the sense index: databases with equal hashes have the same keys."""
        self._index(text)

    @classmethod
    def open(cls, folder: str | Path | None = None) -> WordNet:
        """The database in a folder; None for Debian's."""
        path = DEBIAN if folder is None else Path(folder)
        if not path.is_dir():
            named = "check the path"
            absent = "name WordNet's with --wordnet, or install wordnet-base and wordnet-sense-index"
            raise DataError(f"{path} is not a folder of WordNet; {named if folder else absent}")
        wanted = ["index.sense", *(f"data.{name}" for name in NAMES.values()), *(f"{n}.exc" for n in NAMES.values())]
        missing = [name for name in wanted if not (path / name).is_file()]
        if missing:
            raise DataError(
                f"{path} lacks {', '.join(missing)} of WordNet's database files; take all of them from one WordNet "
                "(Debian: wordnet-base and wordnet-sense-index)"
            )
        return cls(path)

    def senses(self, lemma: str, pos: POS | None = None) -> Sequence[Sense]:
        """The senses of a lemma (spaces or underscores), most frequent first; without `pos`, of all parts of speech."""
        lemma = lemma.lower().replace(" ", "_")
        kinds = NAMES if pos is None else (pos,)
        return [sense for kind in kinds for sense in self._by_lemma.get((lemma, kind), ())]

    def sense(self, key: str) -> Sense | None:
        """The sense with a key; None if this WordNet does not have it."""
        return self._by_key.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def has(self, lemma: str, pos: POS) -> bool:
        return (lemma, pos) in self._by_lemma

    def lemmas(self, word: str, pos: POS | None = None) -> list[tuple[str, POS]]:
        """The lemmas that a word may be a form of, with their parts of speech (WordNet's `morphy`)."""
        word = word.lower().replace(" ", "_")
        kinds: Sequence[POS] = tuple(NAMES) if pos is None else (pos,)
        return [(form, kind) for kind in kinds for form in base_forms(word, kind, self._exceptions[kind], self.has)]

    @cached_property
    def phrase_heads(self) -> dict[str, int]:
        """The first word of each phrase (`take_place`, `well-known`), and the number of words of its longest phrase."""
        longest: dict[str, int] = {}
        for lemma in {lemma for lemma, _ in self._by_lemma if not lemma.isalnum()}:
            text = lemma.replace("_", " ")
            spans = segment_words(text).tolist()
            head = text[slice(*spans[0])]
            longest[head] = max(longest.get(head, 1), len(spans))
        return longest

    def synset(self, name: str) -> Synset:
        """A synset by its name (`offset-pos`)."""
        if name not in self._synsets:
            self._synsets[name] = self._parse(name)
        return self._synsets[name]

    @cached_property
    def _exceptions(self) -> dict[POS, dict[str, list[str]]]:
        exceptions: dict[POS, dict[str, list[str]]] = {}
        for pos, name in NAMES.items():
            lines = (line.split() for line in self._text(f"{name}.exc").splitlines())
            exceptions[pos] = {words[0]: words[1:] for words in lines if words}
        return exceptions

    def _index(self, text: bytes) -> None:
        for number, line in enumerate(_decoded(text, self.folder / "index.sense").splitlines(), start=1):
            try:
                key, offset, rank, count = line.split()
                lemma, _, rest = key.partition("%")
                pos = _TYPES[rest[0]]
                sense = Sense(key, f"{int(offset):08d}-{pos}", int(rank), int(count))
            except (ValueError, KeyError, IndexError) as fault:
                raise DataError(
                    f"{self.folder / 'index.sense'}:{number}: not a line of a sense index: {line}"
                ) from fault
            self._by_key[key] = sense
            self._by_lemma.setdefault((lemma, pos), []).append(sense)
        if not self._by_key:
            raise DataError(f"{self.folder / 'index.sense'} is empty; fetch WordNet's database files again")
        for senses in self._by_lemma.values():
            senses.sort(key=lambda sense: sense.rank)

    def _parse(self, name: str) -> Synset:
        offset, _, pos = name.partition("-")
        file = f"data.{NAMES.get(pos, pos)}"  # type: ignore[call-overload]
        if file not in self._data:
            self._data[file] = self._read(file)
        data, start = self._data[file], int(offset)
        line = data[start : max(start, data.find(b"\n", start))]
        fields, _, gloss = _decoded(line, self.folder / file).partition("|")
        parts = fields.split()
        try:
            if parts[0] != offset:
                raise ValueError(parts[0])
            words = parts[4 : 4 + 2 * int(parts[3], 16) : 2]
            place = 5 + 2 * len(words)
            pointers = [parts[at : at + 4] for at in range(place, place + 4 * int(parts[place - 1]), 4)]
            up = tuple(f"{target}-{kind}" for symbol, target, kind, _ in pointers if symbol in _UP)
            lexname = LEXNAMES[int(parts[1])]
        except (ValueError, IndexError) as fault:
            raise DataError(
                f"{self.folder / file} has no synset at {offset}, though index.sense names it; "
                "take all files from one WordNet"
            ) from fault
        return Synset(name, lexname, tuple(word.partition("(")[0] for word in words), up, gloss.strip())

    def _read(self, name: str) -> bytes:
        with open_named(str(self.folder / name), DataError) as file:
            try:
                return file.read()
            except OSError as fault:
                raise DataError(f"{self.folder / name} of WordNet cannot be read: {fault.strerror}") from fault

    def _text(self, name: str) -> str:
        return _decoded(self._read(name), self.folder / name)


def _decoded(text: bytes, path: Path) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise DataError(f"{path} is not UTF-8; fetch WordNet's database files again") from fault


LARGEST = 1 << 28
"""Most bytes of one file; WordNet's largest has 16 million."""


def unpack_wordnet(path: Path, folder: Path) -> Path:
    """The folder of the database files: `path` itself, or `folder` with the files of a `.tar` archive."""
    if path.is_dir() or folder.is_dir():
        return path if path.is_dir() else folder
    wanted = {"index.sense", *(f"data.{name}" for name in NAMES.values()), *(f"{name}.exc" for name in NAMES.values())}
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            files.new_directory(folder) as aside,
            open_bytes(str(path)) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in wanted and member.isfile():
                    if member.size > LARGEST:
                        raise DataError(f"{path}: {name} has {member.size:,} bytes; no WordNet is that large")
                    content = archive.extractfile(member)
                    assert content is not None
                    (aside / name).write_bytes(content.read())
    except (tarfile.TarError, *ARCHIVE_ERRORS) as fault:
        raise DataError(f"{path} cannot be read as an archive of WordNet: {fault}") from fault
    return folder
