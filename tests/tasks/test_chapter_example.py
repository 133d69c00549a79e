"""The chapter's example 11.16, from gold tags on words to tags on subwords and back."""

from __future__ import annotations

import numpy as np
import pytest
import tokenizers as library
import torch
from tokenizers import models, normalizers, pre_tokenizers

from larvatus.core.targets import WordTags
from larvatus.data.labelled.records import Place, TaggedExample
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.heads import TaggingConfig
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.tasks.encoding.sequences import word_sequences
from larvatus.tasks.encoding.words import align_examples
from larvatus.tasks.scoring import ScoringOptions, head_of
from larvatus.tasks.tag.tag import TaggedWords, decode, tag, tag_array, words_read

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["Mt", ".", "San", "##itas", "is", "in", "Sunshine", "Canyon", "."]
TAGS = ["B-LOC", "I-LOC", "O", "O", "B-LOC", "I-LOC", "O"]
ON_PIECES = ["B-LOC", "B-LOC", "I-LOC", "I-LOC", "O", "O", "B-LOC", "I-LOC", "O"]
LABELS = ("O", "B-LOC", "I-LOC")
TEXT = "Mt. Sanitas is in Sunshine Canyon."
SPANS = ((0, 3), (4, 11), (12, 14), (15, 17), (18, 26), (27, 33), (33, 34))
WORDS = tuple(TEXT[start:end] for start, end in SPANS)
EXAMPLES = {
    "as written": TaggedExample(WORDS, tuple(TAGS), Place("chapter", 1), text=TEXT, spans=SPANS),
    "as words": TaggedExample(WORDS, tuple(TAGS), Place("chapter", 1)),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A vocabulary that cuts the sentence as the chapter does."""
    known = [*SPECIAL, *dict.fromkeys(PIECES)]
    made = library.Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(known)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Tokenizer.from_library(made)


def encoded(tokenizer: Tokenizer, example: TaggedExample) -> TaggedWords:
    sequences = word_sequences(tokenizer, align_examples(tokenizer, [example]), limit=32)
    return TaggedWords(sequences, tag_array([example], sequences, LABELS))


@pytest.mark.parametrize("name", EXAMPLES)
def test_in_training_each_subword_has_the_tag_of_its_word(tokenizer: Tokenizer, name: str) -> None:
    batch = encoded(tokenizer, EXAMPLES[name]).batch(np.array([0]))
    assert [tokenizer.token(id) for id in batch.tokens.ids] == ["[CLS]", *PIECES, "[SEP]"]
    words, tags = batch.tokens.word_tokens, batch.targets[WordTags].tags
    assert words.rows.tolist() == list(range(1, 10))  # every subword learns; [CLS] and [SEP] do not
    assert [LABELS[tag] for tag in tags[words.words]] == ON_PIECES
    assert [LABELS[tag] for tag in tags] == TAGS


def model(tokenizer: Tokenizer, **head: str) -> Network:
    shape = TransformerConfig(layers=1, hidden=4, heads=1, max_positions=32, dropout=0.0)
    built = Network.build(shape, [TaggingConfig(**{"labels": LABELS, "scheme": "BIO", **head})], tokenizer.size, seed=0)
    own = head_of(built)
    with torch.no_grad():  # the first three numbers of a vector are its scores
        own.classifier.weight.copy_(torch.eye(4)[:3])
        own.classifier.bias.zero_()
    return built


def test_what_learns_is_the_mean_over_the_nine_subwords(tokenizer: Tokenizer) -> None:
    """The gold tag on all subwords: −1/9 Σ log softmax(W_K z_i)[tag of the word of i], eq. 11.14."""
    built = model(tokenizer)
    batch = on_device(encoded(tokenizer, EXAMPLES["as written"]).batch(np.array([0])), "cpu")
    z_ND = torch.randn(11, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = head_of(built).double()
    naive = 0.0
    for piece, gold in enumerate(ON_PIECES, start=1):
        scores = [float(z_ND[piece, k]) for k in range(3)]
        naive -= scores[LABELS.index(gold)] - np.log(np.sum(np.exp(scores)))
    loss = own.eval().loss(z_ND, batch, built.encoder)
    assert loss.mean.item() == pytest.approx(naive / 9)
    assert float(loss.count) == own.size(batch) == 9


@pytest.mark.parametrize(
    ("pool", "mt", "sanitas"),
    [("first", "B-LOC", "I-LOC"), ("mean", "O", "O"), ("max", "O", "O")],
)
def test_in_decoding_the_first_subword_decides(tokenizer: Tokenizer, pool: str, mt: str, sanitas: str) -> None:
    """What is said of "." and "##itas" is not heard; mean and maximum hear it."""
    data = encoded(tokenizer, EXAMPLES["as written"])
    own = head_of(model(tokenizer, pool=pool).eval())
    said = ["B-LOC", "O", "I-LOC", "O", "O", "O", "B-LOC", "I-LOC", "O"]  # of "." and "##itas": O, loudly
    z_ND = torch.zeros(11, 4)
    for piece, name in enumerate(said, start=1):
        z_ND[piece, LABELS.index(name)] = 9.0 if piece in (2, 4) else 1.0
    scores = own.scores(z_ND, on_device(data.sequences.inputs(data.sequences.of([0])), "cpu"))
    found = decode(own, scores.detach().numpy(), words_read(data.sequences))
    assert [LABELS[tag] for tag in found] == [mt, sanitas, "O", "O", "B-LOC", "I-LOC", "O"]


def test_answers_speak_of_characters(tokenizer: Tokenizer) -> None:
    """A model that has learnt the sentence says it back, entities as the chapter brackets them."""
    built = model(tokenizer)
    for parameter in built.parameters():
        parameter.requires_grad_(True)
    data = encoded(tokenizer, EXAMPLES["as written"])
    batch = on_device(data.batch(np.array([0])), "cpu")
    optimizer = torch.optim.Adam(built.parameters(), lr=0.05)
    for _ in range(120):
        optimizer.zero_grad()
        head_of(built).loss(built.encoder(batch.tokens), batch, built.encoder).mean.backward()
        optimizer.step()
    found = align_examples(tokenizer, [EXAMPLES["as written"]])
    (answer,) = tag(built, found, data.sequences, scoring=ScoringOptions())
    assert list(answer.tags) == TAGS
    assert [(one.text, one.label, one.start, one.end) for one in answer.entities] == [
        ("Mt. Sanitas", "LOC", 0, 11),
        ("Sunshine Canyon", "LOC", 18, 33),
    ]
    assert answer.coverage.share == 1.0


def test_each_word_has_its_likeliest_tag(tokenizer: Tokenizer) -> None:
    """Eq. 11.15, t_i = argmax_k y_i,k, where no scheme forbids anything; where one does, the best that it allows."""
    scores = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    counts = np.array([7, 0, 1, 32])
    free = head_of(model(tokenizer, scheme="none"))
    naive = [max(range(3), key=lambda k: row[k]) for row in scores.tolist()]
    assert decode(free, scores, counts).tolist() == naive
    found = decode(head_of(model(tokenizer)), scores, counts).tolist()
    border = {0, 7, 8}  # where a text begins
    assert any(tag == 2 and (n in border or naive[n - 1] == 0) for n, tag in enumerate(naive))  # I-LOC after O
    assert not any(tag == 2 and (n in border or found[n - 1] == 0) for n, tag in enumerate(found))
