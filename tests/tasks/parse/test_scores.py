"""Scores by the rules of CoNLL 2018: against naive counts, and against figures of the official script.

The figures of the official `conll18_ud_eval.py` (version 1.2) were computed on the trees that these tests make.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from larvatus.core.errors import DataError
from larvatus.core.rng import stream
from larvatus.data.labelled.trees import TreeExample, read_trees
from larvatus.data.text.learned_words import WordToken
from larvatus.tasks.parse.results import ParsedSentence, ParsedWord, split_feats
from larvatus.tasks.parse.scores import align_words, answered_trees, f1, gold_trees, score_trees, universal
from tests.tasks.parse.treebank import treebank

OFFICIAL = {
    "tokens": (204, 204, 204),
    "sentences": (30, 30, 30),
    "words": (204, 204, 204),
    "upos": (137, 204, 204),
    "ufeats": (125, 204, 204),
    "lemmas": (145, 204, 204),
    "uas": (177, 204, 204),
    "las": (136, 204, 204),
    "clas": (67, 122, 90),
}
"""Words of the damaged trees: right, in the answer, in the gold trees."""


def chain(segments: list[str]) -> list[ParsedSentence]:
    """One sentence; ``abc a bc`` is the token abc of the words a and bc. The first word is the head of the others."""
    tokens, place = [], 0
    for segment in segments:
        form, *words = segment.split(" ")
        tokens.append(WordToken(form, tuple(words) or (form,), place, place + len(form), space=False))
        place += len(form)
    words = [
        ParsedWord(
            id=number,
            text=word,
            head=int(number > 1),
            relation="dep" if number > 1 else "root",
            lemma="_",
            upos="X",
            feats={},
            start=0,
            end=0,
            probability=1.0,
        )
        for number, word in enumerate([word for token in tokens for word in token.words], start=1)
    ]
    text = "".join(token.form for token in tokens)
    return [ParsedSentence(text=text, start=0, end=len(text), words=tuple(words), tokens=tuple(tokens))]


@pytest.mark.parametrize(
    ("gold", "answer", "words", "las"),  # right ones by the official script
    [
        (["a", "b", "c"], ["a", "b", "c"], 3, 3),
        (["abcd"], ["a", "b", "c", "d"], 0, 0),
        (["abc", "d"], ["a", "b", "c", "d"], 1, 0),
        (["abc a b c"], ["a", "b", "c"], 3, 3),
        (["abcd a b c d"], ["ab a b", "cd c d"], 4, 4),
        (["a", "bc b c", "d"], ["a", "b", "cd"], 2, 2),
        (["abc a BX c", "def d EX f"], ["ab a b", "cd c d", "ef e f"], 4, 4),
        (["ab a b", "cd bc d"], ["a", "bc", "d"], 2, 2),
        (["a", "bc b c", "d"], ["ab AX BX", "cd CX a"], 1, 0),
        (["aaaa", "bc b c"], ["a", "a", "a", "a", "b", "c"], 2, 0),
        (["abab", "abc b ab c"], ["ab", "a", "b", "ab", "c"], 3, 0),
    ],
)
def test_words_are_aligned_as_the_official_script_aligns_them(
    gold: list[str], answer: list[str], words: int, las: int
) -> None:
    counts = score_trees(answered_trees(chain(gold)), answered_trees(chain(answer)))
    assert counts["words"][0, 0] == words
    assert counts["las"][0, 0] == las


def damaged(examples: tuple[TreeExample, ...]) -> list[ParsedSentence]:
    """Trees with other relations, parts of speech, features and lemmas, and some words hung on their head's head."""
    random = stream(0, "damage")
    sentences = []
    for example in examples:
        assert example.heads is not None
        assert example.relations is not None
        words = []
        for number, text in enumerate(example.words):
            wrong = random.random(5) < 0.3
            head = example.heads[number]
            above = example.heads[head - 1] if head else 0
            words.append(
                ParsedWord(
                    id=number + 1,
                    text=text,
                    head=above if wrong[0] and above else head,
                    relation="obl:tmod" if wrong[1] and head else example.relations[number],
                    lemma="x" if wrong[2] else example.lemmas[number],
                    upos="X" if wrong[3] else example.upos[number],
                    feats=split_feats("Number=Dual|Typo=Yes" if wrong[4] else example.feats[number]),
                    start=0,
                    end=0,
                    probability=1.0,
                )
            )
        sentences.append(
            ParsedSentence(text=example.text, start=0, end=len(example.text), words=tuple(words), tokens=example.tokens)
        )
    return sentences


def test_gold_words_score_as_a_naive_count_and_the_official_script_score_them(tmp_path: Path) -> None:
    examples = read_trees(treebank(tmp_path / "gold.conllu", 30)).examples
    answer = damaged(examples)
    counts = {
        name: tuple(table.sum(0).astype(int).tolist())
        for name, table in score_trees(gold_trees(examples), answered_trees(answer)).items()
    }
    pairs = [
        (example, number, word)
        for example, sentence in zip(examples, answer, strict=True)
        for number, word in enumerate(sentence.words)
    ]
    heads = [word.head == (example.heads or ())[number] for example, number, word in pairs]
    both = [
        same and word.relation.split(":")[0] == (example.relations or ())[number].split(":")[0]
        for same, (example, number, word) in zip(heads, pairs, strict=True)
    ]
    assert counts["uas"] == (sum(heads), len(pairs), len(pairs))
    assert counts["las"] == (sum(both), len(pairs), len(pairs))
    assert {name: counts[name] for name in OFFICIAL} == OFFICIAL


def test_other_sentences_count_for_the_gold_sentences_that_they_begin_in(tmp_path: Path) -> None:
    examples = read_trees(treebank(tmp_path / "gold.conllu", 4)).examples
    whole = damaged(examples)
    tokens = tuple(token for sentence in whole for token in sentence.tokens)
    words = []
    for sentence in whole:
        before = len(words)
        for word in sentence.words:
            head = word.head + before if word.head else 0
            words.append(
                ParsedWord(
                    **{name: getattr(word, name) for name in ParsedWord.__slots__ if name not in ("id", "head")},
                    id=before + word.id,
                    head=head if head or not before else 1,
                )
            )
    joined = [ParsedSentence(text="", start=0, end=0, words=tuple(words), tokens=tokens)]
    counts = score_trees(gold_trees(examples), answered_trees(joined))
    assert counts["sentences"].sum(0).tolist() == [0, 1, 4]
    assert counts["words"][:, 1].tolist() == [len(example.words) for example in examples]
    assert counts["uas"][:, 0].sum() < score_trees(gold_trees(examples), answered_trees(whole))["uas"][:, 0].sum()


def test_scores_of_sums_are_f1() -> None:
    np.testing.assert_allclose(f1(np.array([[3.0, 4.0, 5.0], [0.0, 0.0, 0.0]])), [2 * 3 / 9, 0.0])


def test_only_universal_features_count() -> None:
    assert universal("_") == universal("Typo=Yes") == ""


def test_trees_of_two_texts_are_refused() -> None:
    with pytest.raises(DataError, match="characters differ"):
        score_trees(answered_trees(chain(["ab"])), answered_trees(chain(["ac"])))
    assert align_words([], []) == []
