"""SemCor and the unified format: what is read, what is counted, and what is refused by file and line."""

from __future__ import annotations

import html
import lzma
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larvatus.core.errors import DataError
from larvatus.inference.senses.tagged import ReadingCounts, gold_of, read_keys, read_semcor, read_unified, surface
from tests.inference.senses.conftest import DATA, GOLD, SEMCOR


def found(sentences):
    return [(s.text, [(s.text[i.start : i.end], i.lemmas, i.keys) for i in s.instances]) for s in sentences]


def test_semcor_is_read_with_and_without_quotation_marks(semcor, wordnet):
    reading = ReadingCounts()
    first, second, third = found(read_semcor(semcor, wordnet, reading))
    assert first == (
        "The bank of the river was wide .",
        [
            ("bank", (("bank", "n"),), ("bank%1:17:01::",)),
            ("river", (("river", "n"),), ("river%1:17:00::",)),
            ("wide", (("wide", "a"),), ("wide%3:00:00::",)),
        ],
    )
    assert second[0] == '" Wide River Bank bank run bank "'
    assert second[1] == [
        ("bank", (("bank", "n"),), ("bank%1:14:00::", "bank%1:06:02::")),  # two tags: both count
        ("bank", (("shore", "n"),), ("shore%1:17:00::",)),
    ]
    assert third[0] == "bank deep wide &"
    assert third[1][2][2] == ("broad%5:00:00:wide:00",)
    assert (reading.sentences, reading.instances) == (3, 8)
    assert dict(reading.unknown) == {"run%2:99:00::": 1}


def test_names_count_as_their_class_when_asked(semcor, wordnet):
    second = found(read_semcor(semcor, wordnet, ReadingCounts(), names=True))[1]
    assert second[1][0] == ("Wide River Bank", (("firm", "n"),), ("firm%1:14:00::",))


def test_semcor_as_an_archive_gives_the_same(semcor, wordnet, tmp_path):
    with tarfile.open(tmp_path / "semcor.tar.xz", "w:xz") as archive:
        archive.add(semcor / "brown1_br-a01", "semcor/brown1_br-a01")
    packed = found(read_semcor(tmp_path / "semcor.tar.xz", wordnet, ReadingCounts()))
    assert packed == found(read_semcor(semcor, wordnet, ReadingCounts()))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<punc>.</punc>", "<punc>.<punc>", r"br-a01:12: not an element of SemCor: <punc>\.<punc>"),
        ('<wf cmd="ignore" pos="DT">The</wf>', "The", r"br-a01:5: not an element of SemCor: The"),
        (' lemma="river"', "", r"br-a01:9: a word has lexsn=1:17:00:: but no lemma"),
        ("river</wf>", "riv\udcff</wf>", r"br-a01:9: not UTF-8"),
        ("</s>\n</p>", "</p>", r"br-a01: the file ends within a sentence"),
    ],
)
def test_broken_semcor_is_refused_by_its_line(wordnet, tmp_path, old, new, said):
    assert old in SEMCOR
    file = tmp_path / "br-a01"
    file.write_bytes(SEMCOR.replace(old, new).encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=said):
        list(read_semcor(file, wordnet, ReadingCounts()))


def test_what_is_no_semcor_is_refused(wordnet, tmp_path):
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(DataError, match="holds no file of SemCor"):
        list(read_semcor(tmp_path, wordnet, ReadingCounts()))
    (tmp_path / "semcor.tar.xz").write_text("no archive")
    with pytest.raises(DataError, match=r"semcor.tar.xz is no whole .xz file"):
        list(read_semcor(tmp_path / "semcor.tar.xz", wordnet, ReadingCounts()))
    with pytest.raises(DataError, match=r"absent cannot be opened"):
        list(read_semcor(tmp_path / "absent", wordnet, ReadingCounts()))


def test_the_unified_format_is_read(made_set, tmp_path):
    first, second = read_unified(made_set)
    assert (first.document, first.text) == ("d000", "The bank of river .")
    assert [(i.id, first.text[i.start : i.end], i.lemmas) for i in first.instances] == [
        ("d000.s000.t000", "bank", (("bank", "n"),)),
        ("d000.s000.t001", "river", (("river", "n"),)),
    ]
    assert second.text == "( banks turn'd in"
    assert read_keys(gold_of(made_set))["d000.s001.t000"] == ("bank%1:14:00::", "bank%1:06:02::")
    with lzma.open(tmp_path / "made.data.xml.xz", "wt") as file:
        file.write(DATA)
    with lzma.open(tmp_path / "made.gold.key.txt.xz", "wt") as file:
        file.write(GOLD)
    packed = tmp_path / "made.data.xml.xz"
    assert list(read_unified(packed)) == [first, second]
    assert read_keys(gold_of(packed)) == read_keys(gold_of(made_set))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("</sentence>\n</text>", "</text>", r"bad.data.xml:15: broken XML: mismatched tag"),
        ("</corpus>\n", "", r"bad.data.xml:1[67]: broken XML: no element found"),
        (' lemma="river"', "", r"bad.data.xml:8: an instance without lemma"),
        (">river<", "><", r"bad.data.xml:8: an instance without a word"),
        (
            'lemma="river" pos="NOUN"',
            'lemma="river" pos="X"',
            r"bad.data.xml:8: an instance has pos 'X'; there are: NOUN",
        ),
        ("d000.s000.t001", "d000.s000.t000", r"bad.data.xml:8: the id d000.s000.t000 comes twice"),
        (
            '<corpus lang="en"',
            '<!DOCTYPE a [<!ENTITY b "c">]>\n<corpus lang="en"',
            r"bad.data.xml:2: the file declares",
        ),
    ],
)
def test_a_broken_test_set_is_refused_by_its_line(tmp_path, old, new, said):
    assert old in DATA
    file = tmp_path / "bad.data.xml"
    file.write_text(DATA.replace(old, new))
    with pytest.raises(DataError, match=said):
        list(read_unified(file))


def test_odd_key_files_are_refused(tmp_path):
    keys = tmp_path / "made.gold.key.txt"
    keys.write_text("d000.s000.t000 bank%1:17:01::\nd000.s000.t001\n")
    with pytest.raises(DataError, match=r"key.txt:2: not an id and its sense keys: d000.s000.t001"):
        read_keys(keys)
    keys.write_text("\n")
    with pytest.raises(DataError, match="holds no answers"):
        read_keys(keys)
    (tmp_path / "other.data.xml").write_text("<corpus/>")
    with pytest.raises(DataError, match=r"other.gold.key.txt is not there; put the answers next to other.data.xml"):
        gold_of(tmp_path / "other.data.xml")
    with pytest.raises(DataError, match="has no <sentence>"):
        list(read_unified(tmp_path / "other.data.xml"))


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cn", "Cs", "Z"], exclude_characters="_"), min_size=1
)
ITEMS = st.lists(st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=6), min_size=1, max_size=4)


@given(sentences=ITEMS)
def test_hostile_words_come_back_from_both_formats(sentences, wordnet, tmp_path_factory):
    """What is written is read: every word, and the characters of every tagged one."""
    folder = tmp_path_factory.mktemp("hostile")
    own, made = ["<contextfile>"], ["<corpus><text id='d'>"]
    for number, words in enumerate(sentences):
        own.append(f"<s snum={number}>")
        made.append(f"<sentence id='s{number}'>")
        for place, (word, tagged) in enumerate(words):
            attributes = " lemma=bank lexsn=1:17:01::" if tagged else ""
            own.append(f"<wf cmd=done{attributes}>{html.escape(word)}</wf>")
            kind = f"instance id='{number}.{place}' lemma='bank' pos='NOUN'" if tagged else "wf"
            made.append(f"<{kind}>{html.escape(word)}</{kind.partition(' ')[0]}>")
        own.append("</s>")
        made.append("</sentence>")
    (folder / "semcor").write_text("\n".join([*own, "</contextfile>"]), encoding="utf-8")
    (folder / "a.data.xml").write_text("\n".join([*made, "</text></corpus>"]), encoding="utf-8")
    expected = [(" ".join(map(surface, words)), tagged) for words, tagged in (_split(one) for one in sentences)]
    unified = [(s.text, [s.text[i.start : i.end] for i in s.instances]) for s in read_unified(folder / "a.data.xml")]
    assert unified == expected
    read = read_semcor(folder / "semcor", wordnet, ReadingCounts())
    assert [(s.text, [s.text[i.start : i.end] for i in s.instances]) for s in read] == [e for e in expected if e[1]]


def _split(words):
    return [word for word, _ in words], [surface(word) for word, tagged in words if tagged]
