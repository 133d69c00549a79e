"""Trees of CoNLL-U: lines survive byte for byte, what is no tree is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from larvatus.core.errors import DataError
from larvatus.data.labelled.problems import Problems
from larvatus.data.labelled.trees import find_cycle, non_projective, raw_text, read_trees, rewrite_lines

FULL = """\
# newdoc id = d1
# sent_id = one
# text = Je vais au parc, "hein"?
1\tJe\tje\tPRON\tX\tPerson=1\t2\tnsubj\t2:nsubj|5:nsubj:xsubj\t_
2\tvais\taller\tVERB\t_\t_\t0\troot\t0:root\tGloss=go|Note=a b
3-4\tau\t_\t_\t_\t_\t_\t_\t_\tTypo=No
3\tà\tà\tADP\t_\t_\t5\tcase\t_\t_
4\tle\tle\tDET\t_\tDefinite=Def\t5\tdet\t_\t_
5\tparc\tparc\tNOUN\t_\t_\t2\tobl\t_\tSpaceAfter=No
5.1\tvais\taller\tVERB\t_\t_\t_\t_\t2:conj\tCopyOf=2
5.2\t_\t_\t_\t_\t_\t_\t_\t2:dep\t_
6\t,\t,\tPUNCT\t_\t_\t8\tpunct\t_\t_
7\t"\t"\tPUNCT\t_\t_\t8\tpunct\t_\tSpaceAfter=No
8\thein\thein\tINTJ\t_\t_\t2\tdiscourse\t_\tSpaceAfter=No
9\t"\t"\tPUNCT\t_\t_\t8\tpunct\t_\tSpaceAfter=No
10\t?\t?\tPUNCT\t_\t_\t2\tpunct\t_\t_

# sent_id = two
1\tOui\toui\tINTJ\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture
def full(tmp_path: Path) -> Path:
    path = tmp_path / "full.conllu"
    path.write_text(FULL, encoding="utf-8")
    return path


def row(number: int | str, head: int | str, relation: str = "dep", form: str = "w") -> str:
    return "\t".join([str(number), form, "_", "_", "_", "_", str(head), relation, "_", "_"])


def test_lines_come_back_byte_for_byte(full: Path) -> None:
    examples = read_trees(str(full)).examples
    assert "".join("\n".join(example.lines) + "\n\n" for example in examples) == FULL


def test_words_tree_and_annotations_are_read_and_empty_nodes_are_no_words(full: Path) -> None:
    first, second = read_trees(str(full)).examples
    assert first.words == ("Je", "vais", "à", "le", "parc", ",", '"', "hein", '"', "?")
    assert first.heads == (2, 0, 5, 5, 2, 8, 8, 2, 8, 2)
    assert first.relations is not None
    assert first.relations[:3] == ("nsubj", "root", "case")
    assert (first.lemmas[1], first.feats[3], first.upos[7], first.id) == ("aller", "Definite=Def", "INTJ", "one")
    assert (first.place.line, first.place.document, second.place.line) == (1, 1, 18)


def test_words_of_a_token_that_they_do_not_spell_have_its_characters(full: Path) -> None:
    first = read_trees(str(full)).examples[0]
    covered = [first.text[start:end] for start, end in first.word_places]
    assert covered == ["Je", "vais", "au", "au", "parc", ",", '"', "hein", '"', "?"]
    assert [token.space for token in first.tokens] == [True, True, True, False, True, False, False, False, True]


def test_a_text_comment_with_other_characters_is_replaced_by_what_the_tokens_make(tmp_path: Path) -> None:
    path = tmp_path / "other.conllu"
    path.write_text(FULL.replace("au parc,", "au  jardin,"), encoding="utf-8")
    assert read_trees(str(path)).examples[0].text == 'Je vais au parc, "hein"?'


def test_other_columns_are_rewritten_and_nothing_else(full: Path) -> None:
    first = read_trees(str(full)).examples[0]
    heads = [str((number + 2) % 10) for number in range(10)]
    old, new = first.lines, rewrite_lines(first.lines, {6: heads})
    changed = [(a.split("\t"), b.split("\t")) for a, b in zip(old, new, strict=True) if a != b]
    assert [b[6] for _, b in changed] == [
        head for head, own in zip(heads, first.heads or (), strict=True) if head != str(own)
    ]
    assert all(a[:6] == b[:6] and a[7:] == b[7:] and a[0].isdigit() for a, b in changed)


def test_running_text_has_every_sentence_where_it_says(full: Path) -> None:
    examples = read_trees(str(full)).examples
    text, spans = raw_text(examples)
    assert text == 'Je vais au parc, "hein"? Oui'
    assert [text[start:end] for start, end in spans] == [example.text for example in examples]


@pytest.mark.parametrize(
    ("rows", "line", "says"),
    [
        ([row(1, 2), row(2, 1)], 2, "heads form a cycle (1 → 2 → 1)"),
        ([row(1, 0), row(2, 3), row(3, 4), row(4, 2)], 3, "heads form a cycle (2 → 3 → 4 → 2)"),
        ([row(1, 1)], 2, "heads form a cycle (1 → 1)"),
        ([row(1, 0), row(2, 1), row(3, 0)], 4, "words 1 and 3 are both roots"),
        ([row(1, 0), row(2, 0), row(3, 0)], 3, "3 words are roots"),
        ([row(1, 0), row(2, 3)], 3, "the head of word 2 is 3, but the sentence has 2 words"),
        ([row(1, 0), row(2, "_")], 3, "the head of word 2 is '_', not a number"),
        ([row(1, 0), row(2, "-1")], 3, "the head of word 2 is '-1', not a number"),
        ([row(1, 0), row(2, 1, "_")], 3, "word 2 has no relation"),
        ([row(1, 0), row(3, 1)], 3, "id '3', but the next word is 2"),
        ([row(1, 0), row(2, 1) + "\tmore"], 3, "11 columns"),
        (["1\tw\t_"], 2, "3 columns"),
        ([], 1, "a sentence without words"),
        ([row("1-3", "_", "_"), row(1, 0), row(2, 1)], 2, "the multiword token 1-3 is not before its words"),
        ([row("1-2", "_"), row(1, 0), row("2-3", "_"), row(2, 1), row(3, 1)], 4, "overlaps another"),
        ([row(1, 0), row("2.1", "_"), row(2, 1)], 3, "the empty node 2.1 is out of place"),
        ([row(1, 0), row("1.2", "_"), row(2, 1)], 3, "the next here would be 1.1"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_line(tmp_path: Path, rows: list[str], line: int, says: str) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text("\n".join(["# sent_id = bad", *rows, "", row(1, 0, "root"), "", ""]), encoding="utf-8")
    with pytest.raises(DataError) as refused:
        read_trees(str(path))
    assert str(refused.value).startswith(f"{path}:{line}: ")
    assert says in str(refused.value)
    problems = Problems()
    assert len(read_trees(str(path), problems=problems)) == 1
    assert len(problems) == 1


def test_without_labels_the_tree_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "plain.conllu"
    path.write_text("\n".join([row(1, "_", "_"), row(2, 9), "", ""]), encoding="utf-8")
    (example,) = read_trees(str(path), labelled=False).examples
    assert example.heads is None


def test_cycles_and_crossing_arcs() -> None:
    assert find_cycle([0, 1, 2, 3]) is None
    assert find_cycle([0, 4, 2, 3]) == [2, 4, 3]
    assert [non_projective(heads) for heads in ([2, 0, 2, 3], [0, 4, 1, 1], [3, 4, 0, 3])] == [0, 2, 2]
