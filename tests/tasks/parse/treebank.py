"""A treebank of a few words whose trees follow a rule: a noun depends on the adjective, articles on their noun."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from larvatus.core.rng import stream


class Row(NamedTuple):
    form: str
    lemma: str
    upos: str
    feats: str
    head: int
    relation: str


def noun_phrase(random: object, start: int, head: int, relation: str) -> list[Row]:
    """An article, perhaps an adjective, and a noun, from word `start`."""
    number = int(random.integers(2))  # type: ignore[attr-defined]
    noun = str(random.choice(["river", "homework"]))  # type: ignore[attr-defined]
    adjective = bool(random.integers(2))  # type: ignore[attr-defined]
    place = start + 1 + adjective
    rows = [Row("the", "the", "DET", "Definite=Def|PronType=Art", place, "det")]
    if adjective:
        rows.append(Row("deep", "deep", "ADJ", "Degree=Pos", place, "amod"))
    feats = ("Number=Sing", "Number=Plur")[number]
    return [*rows, Row(noun + "s" * number, noun, "NOUN", feats, head, relation)]


def sentence(seed: int) -> list[Row]:
    """``the deep rivers was wide .``, perhaps with ``of the homework`` after the noun."""
    random = stream(seed, "test treebank")
    more = bool(random.integers(2))
    subject = noun_phrase(random, 1, 0, "nsubj")
    noun = len(subject)
    of: list[Row] = []
    if more:
        phrase = noun_phrase(random, noun + 2, noun, "nmod")
        of = [Row("of", "of", "ADP", "_", noun + 1 + len(phrase), "case"), *phrase]
    root = noun + len(of) + 2
    subject[-1] = subject[-1]._replace(head=root)
    return [
        *subject,
        *of,
        Row("was", "be", "AUX", "Tense=Past", root, "cop"),
        Row(str(random.choice(["wide", "deep"])), "wide", "ADJ", "Degree=Pos", 0, "root"),
        Row(".", ".", "PUNCT", "_", root, "punct"),
    ]


def lines(rows: list[Row], number: int, *, misc: str = "_") -> list[str]:
    """CoNLL-U; the full stop touches the word before it."""
    text = " ".join(row.form for row in rows[:-1]) + rows[-1].form
    made = [f"# sent_id = s{number}", f"# text = {text}"]
    for at, (form, lemma, upos, feats, head, relation) in enumerate(rows, start=1):
        last = "SpaceAfter=No" if at == len(rows) - 1 else misc
        made.append(
            "\t".join([str(at), form, lemma, upos, "_", feats, str(head), relation, f"{head}:{relation}", last])
        )
    return made


def treebank(path: Path, count: int = 60, seed: int = 0, *, document: int = 0) -> Path:
    """`count` sentences; with `document`, a new document begins after as many sentences."""
    blocks = []
    for number in range(count):
        block = lines(sentence(1_000 * seed + number), number)
        if document and number % document == 0:
            block.insert(0, f"# newdoc id = d{number}")
        blocks.append("\n".join(block) + "\n\n")
    path.write_text("".join(blocks), encoding="utf-8")
    return path
