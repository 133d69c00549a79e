"""Fertility (tokens a word) of each language under vocabularies learnt with different mixtures of eq. 11.7.

    python benchmarks/fertility.py en=en.txt.xz@4000000 sw=sw.txt.xz@90000 ee=ee.txt.xz@20000 --size 16000

Each argument is a language, a file or folder, and how many characters to learn from (all without @). Fertility is
measured on held-out text: the first characters of each, which no vocabulary sees.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

from larvatus.data.corpus.mixture import MixtureConfig, mixture
from larvatus.data.text.documents import Document
from larvatus.data.text.languages import LanguagePath, read_languages, train_mixed_vocabulary
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import UnigramConfig
from larvatus.data.text.words import split_sentences


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", metavar="xx=PATH[@CHARACTERS]")
    parser.add_argument("--size", type=int, default=16_000, help="pieces of the Unigram vocabulary")
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.0, 0.3])
    parser.add_argument("--held-out", type=int, default=40_000, help="characters of each language to measure on")
    given = parser.parse_args()

    held, learnt = {}, {}
    for one in given.texts:
        name, _, limit = one.partition("@")
        path = LanguagePath.of(name)
        held[path.language], learnt[path.language] = split(path, given.held_out, int(limit) if limit else None)
    sentences = {language: len(split_sentences(text, language)) for language, text in learnt.items()}
    found = {}
    for alpha in given.alphas:
        began = time.monotonic()
        documents = [Document(text, language, language=language) for language, text in learnt.items()]
        tokenizer = train_mixed_vocabulary(
            documents, UnigramConfig(size=given.size), MixtureConfig(alpha=alpha).repeats
        )
        found[alpha] = {language: fertility(tokenizer, text, language) for language, text in held.items()}
        print(f"α = {alpha:g}: {tokenizer.size:,} pieces in {time.monotonic() - began:.0f} s")

    table = Table(
        "language", "characters", "p", *(f"q, α {a:g}" for a in found), *(f"fertility, α {a:g}" for a in found)
    )
    for language in sorted(sentences, key=lambda name: -sentences[name]):
        p = mixture(sentences, 1.0)[language]
        q = [f"{mixture(sentences, alpha)[language]:.4f}" for alpha in found]
        cells = [f"{values[language]:.3f}" for values in found.values()]
        table.add_row(language, f"{len(learnt[language]):,}", f"{p:.4f}", *q, *cells)
    Console(width=140).print(table)


def split(path: LanguagePath, held_out: int, limit: int | None) -> tuple[str, str]:
    """The first characters to measure on, and those after them to learn from."""
    size = held_out + limit if limit else None
    parts: list[str] = []
    read = 0
    for document in read_languages([path]):
        parts.append(document.text)
        read += len(document.text) + 2
        if size and read > size:
            break
    text = "\n\n".join(parts)
    return text[:held_out], text[held_out:size]


def fertility(tokenizer: Tokenizer, text: str, language: str) -> float:
    sentences = split_sentences(text, language)
    encoded = [tokenizer.encode(sentence) for sentence in sentences]
    return sum(len(one.ids) for one in encoded) / sum(len(one.word_spans) for one in encoded)


if __name__ == "__main__":
    main()
