"""Words of raw text by the rules that parsers and models of roles learn, against the words of development sets.

    python benchmarks/word_rules.py --trees en_ewt-ud-train.conllu en_ewt-ud-dev.conllu en [--trees …]
        [--roles propbank_ewt.train.jsonl propbank_ewt.dev.jsonl --text en_ewt-ud-train.conllu en_ewt-ud-dev.conllu]

Rules are learned from the whole training set, and cut the running text of each document of the development set: F1 of
tokens, words and sentences by the rules of CoNLL 2018 (`tasks/parse/scores.py`). PropBank has words without their text:
`--text` are treebanks of the same sentences, found by their ids. No seed is involved.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import groupby

from larvatus.data.labelled.trees import raw_text, read_trees
from larvatus.data.text.learned_words import learn_words, print_tokens
from larvatus.data.text.words import cut_sentences, segment_words, sentence_spans
from larvatus.tasks.parse.results import ParsedSentence, ParsedWord
from larvatus.tasks.parse.scores import answered_trees, f1, gold_trees, score_trees
from larvatus.tasks.roles.reader import read_frames


def trees(train: str, dev: str, language: str) -> None:
    """F1 of a treebank, with sentences cut again and as the splitter gives them."""
    rules, data = learn_words(example.tokens for example in read_trees(train)), read_trees(dev)
    figures = {}
    for name, split in (
        ("cut again", cut_sentences),
        ("splitter", lambda text, lang: sentence_spans(text, language=lang)),
    ):
        answers = []
        for _, document in groupby(data, key=lambda each: (each.place.source, each.place.document)):
            text = raw_text(list(document))[0]
            answers += [
                parsed(text, start, end, rules.tokens(text, start, end)) for start, end in split(text, language)
            ]
        counts = score_trees(gold_trees(data), answered_trees(answers))
        figures[name] = {kind: float(f1(counts[kind].sum(0))) for kind in ("tokens", "words", "sentences")}
    row = figures["cut again"]
    shown = " · ".join(f"{kind} {100 * value:.1f}" for kind, value in row.items())
    print(f"{dev}: {shown} · sentences of the splitter {100 * figures['splitter']['sentences']:.1f}", flush=True)


def parsed(text: str, start: int, end: int, tokens: list) -> ParsedSentence:  # type: ignore[type-arg]
    """A sentence whose words all depend on the root."""
    spans = [(word, *span) for token in tokens for word, span in zip(token.words, token.word_spans(), strict=True)]
    words = tuple(
        ParsedWord(
            id=n,
            text=word,
            head=0,
            relation="dep",
            lemma=None,
            upos=None,
            feats=None,
            start=low,
            end=high,
            probability=0.0,
        )
        for n, (word, low, high) in enumerate(spans, 1)
    )
    return ParsedSentence(text=text[start:end], start=start, end=end, words=words, tokens=tuple(tokens), lines=())


def roles(train: str, dev: str, texts: list[str]) -> None:
    """F1 of the words of sentences of PropBank in the text of treebanks, by both kinds of rules."""
    known = {example.id: example.text for name in texts for example in read_trees(name)}
    rules = learn_words(list(print_tokens(example.words)) for example in read_frames(train))
    pairs = [(known[each.id], each.words) for each in read_frames(dev) if each.id in known]
    pairs = [(text, words) for text, words in pairs if bare([text]) == bare(words)]
    for name, cut in (
        ("learned", lambda text: [(token.start, token.end) for token in rules.tokens(text)]),
        ("plain text", lambda text: segment_words(text).tolist()),
    ):
        right = given = gold = 0
        for text, words in pairs:
            wanted, found = spans(words), spans(text[low:high] for low, high in cut(text))
            right, given, gold = right + len(wanted & found), given + len(found), gold + len(wanted)
        print(
            f"{dev}: {len(pairs):,} sentences · words {200 * right / (given + gold):.1f} by rules: {name}", flush=True
        )


def bare(words: Iterable[str]) -> str:
    return "".join("".join(word.split()) for word in words)


def spans(words: Iterable[str]) -> set[tuple[int, int]]:
    """Characters of words, without white space."""
    found, place = set(), 0
    for word in words:
        found.add((place, place + len(bare([word]))))
        place += len(bare([word]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", nargs=3, action="append", default=[], metavar=("TRAIN", "DEV", "LANGUAGE"))
    parser.add_argument("--roles", nargs=2, metavar=("TRAIN", "DEV"))
    parser.add_argument("--text", nargs="+", default=[], metavar="TREEBANK")
    given = parser.parse_args()
    for train, dev, language in given.trees:
        trees(train, dev, language)
    if given.roles:
        roles(*given.roles, given.text)


if __name__ == "__main__":
    main()
