"""Readers and writers of coreference: round trips, what is refused with its line, what is handled and said."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems
from larvatus.tasks.coref.examples import CorefExample, count_crossing, sort_clusters
from larvatus.tasks.coref.lines import conll_lines, conllu_lines, jsonl_lines
from larvatus.tasks.coref.reader import read_documents
from tests.tasks.coref_documents import document, documents

CONLL = """\
#begin document (novel/1); part 000
novel/1\t0\t0\tSir\tx\t_\t(0
novel/1\t0\t1\tWalter\tx\t_\t0)
novel/1\t0\t2\tsaw\tx\t_\t
novel/1\t0\t3\this\tx\t_\t(1|(0)
novel/1\t0\t4\tbook\tx\t_\t1)

novel/1   0   0   It   x   _   (1)
novel/1   0   1   fell   x   _   -
#end document
#begin document (novel/1); part 001
novel/1 0 0 She x _ (5)
#end document
"""
CONLLU = """\
# newdoc id = one
# global.Entity = eid-etype-head
# text = Ann didn't run.
1\tAnn\t_\t_\t_\t_\t_\t_\t_\tEntity=(e1-person-1)
2-3\tdidn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdid\t_\t_\t_\t_\t_\t_\t_\t_
3\tn't\t_\t_\t_\t_\t_\t_\t_\t_
4\trun\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No|Entity=(e2-event-1(e1[1/2]-person-1)e2)
5\t.\t_\t_\t_\t_\t_\t_\t_\t_

# text = She sat.
1\tShe\t_\t_\t_\t_\t_\t_\t_\tEntity=(e1-person-1)
1.1\tnobody\t_\t_\t_\t_\t_\t_\t_\tEntity=(e9-person-1)
2\tsat\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No
3\t.\t_\t_\t_\t_\t_\t_\t_\t_
"""


def spoken(example: CorefExample) -> CorefExample:
    """With a speaker in every other sentence."""
    starts = [*example.sentences, len(example.words)]
    names = [("Ann", "")[number % 2] for number, (a, b) in enumerate(pairwise(starts)) for _ in range(a, b)]
    return dataclasses.replace(example, speakers=tuple(names))


def read(path: Path, text: str, **how: Any) -> tuple[CorefExample, ...]:
    path.write_text(text, encoding="utf-8")
    return read_documents([str(path)], **how).examples


def test_columns_of_conll_2012(tmp_path: Path) -> None:
    first, second = read(tmp_path / "a.conll", CONLL)
    assert first.words == ("Sir", "Walter", "saw", "his", "book", "It", "fell")
    assert first.clusters == (((0, 2), (3, 4)), ((3, 5), (5, 6)))
    assert (first.id, first.sentences, str(first.place)) == ("novel/1", (0, 5), f"{tmp_path / 'a.conll'}:1")
    assert (second.id, second.clusters) == ("novel/1_1", (((0, 1),),))
    bare = read(tmp_path / "a.conll", CONLL, labelled=False)
    assert [example.clusters for example in bare] == [None, None]


def test_brackets_of_corefud(tmp_path: Path) -> None:
    (only,) = read(tmp_path / "a.conllu", CONLLU)
    assert only.text == "Ann didn't run. She sat."
    assert only.words == ("Ann", "did", "n't", "run", ".", "She", "sat", ".")
    assert only.clusters == (((0, 1), (5, 6)), ((3, 4),))
    assert only.id == "one"
    text, places = only.located()
    assert [text[slice(*place)] for place in places] == list(only.words)
    data = read_documents([str(tmp_path / "a.conllu")])
    assert data.notes == ("1 mentions in several pieces are left out",)


@pytest.mark.parametrize("lines", [conll_lines, conllu_lines, jsonl_lines])
def test_what_is_written_reads_back(tmp_path: Path, lines: Any) -> None:
    made = [*documents(3, sentences=5), spoken(document(3, sentences=5))]
    ending = lines.__name__.removesuffix("_lines")
    text = "\n".join(line for example in made for line in lines(example)) + "\n"
    back = read(tmp_path / f"a.{ending}", text)
    for one, other in zip(made, back, strict=True):
        assert dataclasses.replace(one, place=other.place, text=other.text, places=other.places) == other


def test_json_of_words_and_of_characters(tmp_path: Path) -> None:
    rows = [
        {"doc_key": "a", "sentences": [["Ann", "ran"], ["She", "sat"]], "clusters": [[[2, 2], [0, 0]]]},
        {"text": "Ann Lee ran. She sat.", "clusters": [[[0, 7], [13, 16]]]},
        {"text": "Ann ran.", "clusters": [{"mentions": [{"start": 0, "end": 3, "text": "Ann"}]}]},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    words, characters, record = read(tmp_path / "a.jsonl", text)
    assert (words.clusters, words.sentences, words.id) == ((((0, 1), (2, 3)),), (0, 2), "a")
    assert characters.words == ("Ann", "Lee", "ran", ".", "She", "sat", ".")
    assert characters.clusters == (((0, 2), (4, 5)),)
    assert record.clusters == (((0, 1),),)


@pytest.mark.parametrize(
    ("ending", "text", "says"),
    [
        ("conll", CONLL.replace("0)\n", "7)\n", 1), r":3: 7\) closes what nothing opened"),
        ("conll", CONLL.replace("\t1)\n", "\t-\n"), r":5: \(1 is never closed in its document"),
        ("conll", CONLL.replace("(1|(0)", "((1"), r":5: \(\(1 is no row of brackets such as"),
        ("conll", CONLL.replace("#end document\n#begin", "#begin").replace("\t1)\n", "\t_\n"), "never closed"),
        ("conll", "a b\n", ":1: 2 columns; CoNLL-2012 has words in the 4th column, brackets in the last"),
        ("conllu", CONLLU.replace("(e2-event-1", "(e2-event-1(e3"), r":8: \(e3 is never closed"),
        ("jsonl", '{"words": ["a"], "clusters": [[[0, 1]]]}\n', ":1: the mention at 0 is empty or outside the 1 words"),
        ("jsonl", '{"words": ["a"], "clusters": [[[0]]]}\n', r":1: \[0\] is no mention; write two whole numbers"),
        ("jsonl", '{"words": ["a"], "clusters": [3]}\n', ":1: a cluster is no list of mentions"),
        ("jsonl", '{"words": ["a"]}\n', ":1: no clusters; give a list of clusters"),
        ("jsonl", '{"words": ["", "a"], "clusters": []}\n', ":1: words are no list of words"),
        ("jsonl", '{"text": "a b", "clusters": [[[1, 9]]]}\n', ":1: the mention at 1 is empty or outside the 3 chara"),
        ("jsonl", '{"clusters": []}\n', ":1: no document; give words, sentences of words, or text"),
        ("jsonl", '{"words": ["a"], "clusters": []}\n', "no mention is marked"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path: Path, ending: str, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(tmp_path / f"bad.{ending}", text)


def test_broken_documents_are_collected_and_the_others_are_read(tmp_path: Path) -> None:
    problems = Problems()
    kept = read(tmp_path / "a.conll", CONLL.replace("\t1)\n", "\t-\n"), problems=problems)
    assert [example.id for example in kept] == ["novel/1_1"]
    assert dict(problems.counts) == {"broken brackets": 1}


def test_a_mention_stays_in_one_cluster_and_what_is_odd_is_counted() -> None:
    groups = {"a": [(4, 5), (0, 2), (0, 2)], "b": [(4, 5), (1, 3)], "c": [(0, 2)]}
    clusters, notes = sort_clusters(groups, (0, 2))
    assert clusters == (((0, 2), (4, 5)), ((1, 3),))
    assert (notes.repeated, notes.shared, notes.crossing, notes.across) == (1, 2, 1, 1)
    assert len(notes.lines()) == 4
    assert count_crossing([(0, 4), (1, 2), (2, 6), (4, 5), (5, 8)]) == 2


GAP = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"


def test_gap_is_known_by_its_header_and_checked(tmp_path: Path) -> None:
    row = "v-1\tAnn saw Bea and she ran.\tshe\t16\tAnn\t0\tTRUE\tBea\t8\tFALSE\tpage\n"
    (only,) = read(tmp_path / "gap.tsv", GAP + row)
    assert (only.pronoun, only.names_in_text, only.coreferent) == ((16, 19), ((0, 3), (8, 11)), (True, False))
    assert only.feminine
    for wrong, says in (("\t16\t", "'she' is not at character"), ("TRUE", "is TRUE or FALSE"), ("\tpage", "")):
        bad = row.replace(wrong, {"\t16\t": "\t15\t", "TRUE": "YES"}.get(wrong, ""))
        if says:
            with pytest.raises(DataError, match=f"gap.tsv:2: .*{says}"):
                read(tmp_path / "gap.tsv", GAP + bad)
