"""How often a model warns of another language: a row for each text, by the number of words of a sentence.

    python benchmarks/other_language.py --model DIR en=valid.txt.xz de=novels.txt.xz

A sentence of the model's own language that is warned of is a false alarm, one of another that is not is missed.
"""

from __future__ import annotations

import argparse
from itertools import islice

from larvatus.data.text.other_language import FEWEST_WORDS, looks_foreign
from larvatus.data.text.readers import read_documents
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.words import sentence_spans

RANGES = ((FEWEST_WORDS, 7), (8, 14), (15, 10_000))


def sentences(path: str, language: str):
    """Those that end like one, so that headings and fragments are not among them; verses and Chinese as they come."""
    for document in read_documents([path]):
        for start, end in sentence_spans(document.text, language=language):
            text = document.text[start:end].strip()
            if text.rstrip("\"'”’)").endswith((".", "?", "!", "。", "？", "！", ";", ":", ",")):
                yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+", metavar="xx=FILE")
    parser.add_argument("--model", required=True)
    parser.add_argument("--most", type=int, default=20_000, help="sentences of each text")
    given = parser.parse_args()
    tokenizer = Tokenizer.load(given.model)
    print("text", *(f"{low} to {high} words" for low, high in RANGES[:-1]), f"{RANGES[-1][0]} and more", sep=" | ")
    for text in given.texts:
        language, _, path = text.partition("=")
        cells: dict[tuple[int, int], list[bool]] = {bounds: [] for bounds in RANGES}
        for sentence in islice(sentences(path, language), given.most):
            words = sum(any(map(str.isalpha, word)) for word in sentence.split())
            words = words if language != "zh" else sum(map(str.isalpha, sentence))
            for (low, high), warned in cells.items():
                if low <= words <= high:
                    warned.append(looks_foreign(sentence, tokenizer))
        rates = (f"{sum(warned) / len(warned):.1%} of {len(warned):,}" if warned else "–" for warned in cells.values())
        print(path.rpartition("/")[2], *rates, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
