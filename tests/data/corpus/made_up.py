"""A small vocabulary, text made up of its words, and a corruption to try the loader with."""

from __future__ import annotations

import functools

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from larvatus.core import rng
from larvatus.core.arrays import Ints
from larvatus.core.batch import TrainingBatch
from larvatus.core.pretraining_targets import MaskedTokens
from larvatus.data.corpus.build import BuildOptions
from larvatus.data.text.tokenizer import Tokenizer

SMALL = BuildOptions(workers=1, unit_characters=4000, shard_bytes=40_000)
SENTENCE = "the river was wide and old men sat on its bank for hours while boats went by in silence under a low sun"
WORDS = SENTENCE.split()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;[]-"


@functools.cache
def small_tokenizer() -> Tokenizer:
    pieces = [*SPECIAL, *WORDS[:12], *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(SPECIAL)
    return Tokenizer.from_library(library)


def sentence(number: int) -> str:
    stream = rng.stream(0, "sentence", 0, number)
    words = [WORDS[i] for i in stream.integers(len(WORDS), size=int(stream.integers(1, 14)))]
    return " ".join(words).capitalize() + "."


def made_up_text(documents: int, seed: int = 0) -> str:
    """Documents of one to nine sentences, with a blank line between them."""
    counts = rng.stream(seed, "documents").integers(1, 10, size=documents).tolist()
    number = seed << 20
    texts = []
    for count in counts:
        texts.append(" ".join(sentence(number + i) for i in range(count)))
        number += count
    return "\n\n".join(texts) + "\n"


def hide(batch: TrainingBatch[Ints], epoch: int, first: int) -> TrainingBatch[Ints]:
    """Hide a tenth of the tokens, each by the name of its sequence and its place there; a stand-in for `corrupt/`."""
    t = batch.tokens
    items = np.repeat(first + np.arange(t.count), t.lengths)
    bits = rng.random_bits(7, "hide", epoch, items=items, draws=t.positions)[0]
    places = np.flatnonzero((bits < 2**32 // 10) & (t.words >= 0))
    ids = t.ids.copy()
    ids[places] = 4
    tokens = type(t)(ids=ids, lengths=t.lengths, positions=t.positions, segments=t.segments, words=t.words)
    hidden = MaskedTokens(places=places, ids=t.ids[places])
    return TrainingBatch(tokens=tokens, targets={**batch.targets, MaskedTokens: hidden})
