"""Baselines of a table over languages (docs/transfer.md): the commonest tag of the training set, and of each word form.

    python benchmarks/transfer_baselines.py train.conllu en=dev.conllu dev-de.tsv dev-fr.tsv

Both know the training set alone: the first gives every word its commonest tag; the second gives a word that the set
has, as it is written, its commonest tag there, and any other word the tag of the first. Words that both languages
share, punctuation and numbers are all that can be carried over.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict

from larvatus.data.labelled.tagged import read_tagged
from larvatus.evaluation.compare.languages import files_by_language


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("files", nargs="+")
    given = parser.parse_args()
    tags: Counter[str] = Counter()
    by_form: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in read_tagged(given.train):
        for word, tag in zip(example.words, example.tags or (), strict=True):
            tags[tag] += 1
            by_form[word][tag] += 1
    common = tags.most_common(1)[0][0]
    form_tags = {word: counts.most_common(1)[0][0] for word, counts in by_form.items()}
    print(f"language  words      {common:5}  word form  forms seen")
    for language, file in files_by_language(given.files).items():
        pairs = [pair for example in read_tagged(file) for pair in zip(example.words, example.tags or (), strict=True)]
        majority = sum(tag == common for _, tag in pairs) / len(pairs)
        lookup = sum(tag == form_tags.get(word, common) for word, tag in pairs) / len(pairs)
        seen = sum(word in form_tags for word, _ in pairs) / len(pairs)
        print(f"{language:8}  {len(pairs):7,}  {majority:.4f}  {lookup:9.4f}  {seen:10.1%}")


if __name__ == "__main__":
    main()
