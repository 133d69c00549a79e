"""Texts and pairs are dressed as the tokenizer of each family in `transformers` dresses them: text on both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors

from larvatus.core import rng
from larvatus.core.batch import TrainingBatch, edges
from larvatus.core.errors import ArtefactError, RecipeError
from larvatus.data.corpus.block import TextBlock
from larvatus.data.corpus.packing import SentenceOrderPackingConfig, pack
from larvatus.data.corruption import MaskingConfig, NoiseConfig
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.template import read_template
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import ByteBPEConfig, UnigramConfig, WordPieceConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.nn.device import on_device
from larvatus.tasks.answers.passages import encode_passages
from larvatus.tasks.encoding.sequences import text_sequences
from larvatus.training.pretraining.evaluation import build_corruption
from tests.models.bundle.families import FAMILIES, save
from tests.models.bundle.their_tokenizers import prose, their_model, their_tokenizer
from tests.models.bundle.theirs import their_directory, transformers

SINGLE = ["The module defines a class.", 'It isn\'t "wide", is it?', "a", "Values of objects, in order: 3.14."]
PAIRS = [("What does it return?", "It returns a list."), ("Really?!", "No, it doesn't."), ("a", "b " * 30)]
NO_SEGMENTS = ("roberta", "xlm-roberta", "mpnet", "modernbert")


def theirs_of(family: str, directory: Path) -> Any:
    """The tokenizer that `transformers` finds in a directory with a model of the family."""
    model = FAMILIES[family][0]
    getattr(transformers, f"{model}Config")().save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


def rows_of(ids: np.ndarray, segments: np.ndarray, lengths: np.ndarray) -> list[tuple[list[int], list[int]]]:
    borders = edges(lengths)[1:-1]
    pairs = zip(np.split(ids, borders), np.split(segments, borders), strict=True)
    return [(row.tolist(), own.tolist()) for row, own in pairs]


def check(ours: Tokenizer, theirs: Any) -> None:
    """Ids and segments of single texts, pairs, and questions with passages."""
    texts = [*SINGLE, *PAIRS]
    wanted = []
    names = theirs.model_input_names  # what is given to the model
    if type(theirs).__name__ == "AlbertTokenizer":  # version 5 hands no segments on, though its template has them
        names = ["token_type_ids"]
    for text in texts:
        one = theirs(*((text,) if isinstance(text, str) else text), return_token_type_ids=True)
        kinds = one["token_type_ids"] if "token_type_ids" in names else [0] * len(one["input_ids"])
        wanted.append((one["input_ids"], kinds))
    batch, sequences = encode_batch(ours, texts), text_sequences(ours, texts, limit=256)
    assert rows_of(batch.ids, batch.segments, batch.lengths) == wanted
    assert rows_of(sequences.ids, sequences.segments, sequences.lengths) == wanted
    asked = encode_passages(ours, PAIRS, limit=256).sequences
    assert rows_of(asked.ids, asked.segments, asked.lengths) == wanted[len(SINGLE) :]
    assert ours.template.single.special_count == theirs.num_special_tokens_to_add(pair=False)
    assert ours.template.pair.special_count == theirs.num_special_tokens_to_add(pair=True)
    for pair, row in zip(PAIRS, wanted[len(SINGLE) :], strict=True):  # and so pretraining packs the same two texts
        block = TextBlock.of([[ids.tolist() for ids in ours.encode_fast(pair)]])
        order = SentenceOrderPackingConfig(short=0.0, swapped=0.0)
        packed = pack(block, order, length=256, template=ours.template, random=rng.stream(0, "test")).tokens
        assert rows_of(packed.ids, packed.segments, packed.lengths) == [row]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_directory_that_transformers_saved_is_read_as_transformers_reads_it(family: str, tmp_path: Path) -> None:
    their_tokenizer(family).save_pretrained(tmp_path)
    theirs = theirs_of(family, tmp_path)
    ours = Tokenizer.load(tmp_path)
    check(ours, theirs)
    two = family in ("roberta", "xlm-roberta", "mpnet")
    assert ours.template.pair.special_count == (4 if two else 3)
    assert set(ours.template.pair.segments(2, 2).tolist()) == ({0} if family in NO_SEGMENTS else {0, 1})
    ours.save(tmp_path / "again")  # and what we make of it, `transformers` still reads in the same way
    check(Tokenizer.load(tmp_path / "again"), theirs_of(family, tmp_path / "again"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tokenizer_of_a_model_directory_that_we_write_is_read_alike_by_both(family: str, tmp_path: Path) -> None:
    directory = save(tmp_path / "ours", load_bundle(their_model(tmp_path / "theirs", family, "Model")))
    check(load_bundle(directory).tokenizer, transformers.AutoTokenizer.from_pretrained(directory))


OURS = {
    "bert": WordPieceConfig(size=300),
    "electra": WordPieceConfig(size=300),
    "distilbert": WordPieceConfig(size=300),
    "roberta": ByteBPEConfig(size=300),
    "modernbert": ByteBPEConfig(size=300),
    "mpnet": UnigramConfig(size=120),
    "xlm-roberta": UnigramConfig(size=120),
    "albert": UnigramConfig(size=120, lowercase=True, separators=1),
}


@pytest.mark.parametrize("family", OURS)
def test_a_vocabulary_that_we_trained_is_read_alike_by_both(family: str, tmp_path: Path) -> None:
    train_vocabulary(prose(), OURS[family], allow_smaller=True).save(tmp_path)
    check(Tokenizer.load(tmp_path), theirs_of(family, tmp_path))


def test_the_pairs_of_albert_are_told_apart_by_segments_as_in_its_pretraining() -> None:
    one, two = (
        train_vocabulary(
            ["the river was wide"], UnigramConfig(size=30, separators=number), allow_smaller=True
        ).template.pair
        for number in (1, 2)
    )
    assert (one.special_count, one.segments(1, 2).tolist()) == (3, [0, 0, 0, 1, 1, 1])
    assert (two.special_count, two.segments(1, 2).tolist()) == (4, [0] * 7)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("limit", [8, 11, 16])
def test_long_pairs_are_cut_to_the_room_that_two_separators_leave(limit: int, truncate: bool, tmp_path: Path) -> None:
    """Held against `transformers`, which cuts the longer text of a pair too."""
    their_tokenizer("roberta").save_pretrained(tmp_path)
    theirs, ours = theirs_of("roberta", tmp_path), Tokenizer.load(tmp_path)
    pair = ("a", "b " * 30)
    found = text_sequences(ours, [pair], limit=limit, truncate=truncate)
    wanted = theirs(*pair, truncation="longest_first", max_length=limit)["input_ids"]
    assert rows_of(found.ids, found.segments, found.lengths)[0][0] == wanted
    assert (found.lengths <= limit).all()
    assert (len(found.lengths) == 1) == truncate


def test_a_model_with_one_segment_reads_pairs(tmp_path: Path) -> None:
    """`transformers` stops with an index error at the second text, since its tokenizer asks for a second segment."""
    tokenizer = their_tokenizer("bert")
    tokenizer.save_pretrained(tmp_path / "vocabulary")
    ours = Tokenizer.load(tmp_path / "vocabulary")
    sizes = {**FAMILIES["bert"][2], "type_vocab_size": 1}
    directory, theirs = their_directory(tmp_path / "model", ours, "BertModel", **sizes)
    tokens = tokenizer(*PAIRS[0], return_tensors="pt")
    with pytest.raises(IndexError), torch.no_grad():
        theirs(**tokens)
    del tokens["token_type_ids"]
    bundle = load_bundle(directory)
    with torch.no_grad():
        wanted = theirs(**tokens).last_hidden_state[0]
        found = bundle.network.encoder(on_device(encode_batch(bundle.tokenizer, PAIRS[:1]), "cpu"))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_every_kind_of_post_processor_is_understood() -> None:
    special = [("[CLS]", 5), ("[SEP]", 6)]
    bert = processors.BertProcessing(("[SEP]", 6), ("[CLS]", 5))
    template = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    both = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    assert read_template(bert) == read_template(template) == read_template(both)
    template = read_template(processors.RobertaProcessing(("[SEP]", 6), ("[CLS]", 5)))
    assert template is not None
    assert template.pair.ids(np.array([8]), np.array([9, 9])).tolist() == [5, 8, 6, 6, 9, 9, 6]
    assert template.pair.starts(1, 2) == (1, 4)
    assert read_template(None) is read_template(processors.ByteLevel()) is None
    one_sided = processors.TemplateProcessing(single="$A [SEP]", pair="$A $B [SEP]", special_tokens=special[1:])
    closing = read_template(one_sided)
    assert closing is not None
    assert closing.single.ids(np.array([8, 9])).tolist() == [8, 9, 6]
    assert closing.pair.starts(2, 1) == (0, 2)
    assert not closing.encloses
    with pytest.raises(ArtefactError, match="swaps texts"):
        read_template(
            processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $B $A [SEP]", special_tokens=special)
        )


def gpt_like(directory: Path) -> Path:
    """A byte-level vocabulary as GPT-2 has it: no token of those that BERT adds, one for the end of a text."""
    pieces, merges = sorted(pre_tokenizers.ByteLevel.alphabet()), [("t", "h"), ("th", "e")]
    names = [*pieces, "th", "the", "<|endoftext|>"]
    library = tokenizers.Tokenizer(models.BPE({piece: number for number, piece in enumerate(names)}, merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    library.add_special_tokens(["<|endoftext|>"])
    end = "<|endoftext|>"
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=library, bos_token=end, eos_token=end)
    made.save_pretrained(directory)
    return directory


def test_a_vocabulary_without_special_tokens_dresses_texts_in_nothing(tmp_path: Path) -> None:
    ours = Tokenizer.load(gpt_like(tmp_path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["the thin man", ("the", "other")]
    batch = encode_batch(ours, texts)
    ids = [row for row, _ in rows_of(batch.ids, batch.segments, batch.lengths)]
    assert ids == [theirs("the thin man")["input_ids"], theirs("the", "other")["input_ids"]]
    assert not ours.template.special_ids
    assert ours.template.pair.text_length(64) == 64
    assert (batch.words >= 0).all()
    ours.save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").template == ours.template


def test_what_hides_tokens_behind_a_mask_is_refused_where_the_vocabulary_has_none(tmp_path: Path) -> None:
    ours = Tokenizer.load(gpt_like(tmp_path))
    with pytest.raises(RecipeError, match='corruption "tokens" needs a mask token, but the vocabulary has none'):
        build_corruption(MaskingConfig(), ours, 1, limit=64)
    noise = build_corruption(NoiseConfig(mask=0.0, reorder=1.0, units="tokens"), ours, 1, limit=64)
    assert noise is not None
    noisy = noise(TrainingBatch(tokens=encode_batch(ours, ["the thin man"]), targets={}), 0, 0)
    assert sorted(noisy.tokens.ids.tolist()) == sorted(ours.encode("the thin man").ids.tolist())
    assert build_corruption(None, ours, 1, limit=64) is None


def test_an_encoder_whose_tokenizer_encloses_no_text_is_refused(tmp_path: Path) -> None:
    directory = their_model(tmp_path, "bert", "Model")
    path = directory / "tokenizer.json"
    settings = json.loads(path.read_text())
    settings["post_processor"]["single"] = settings["post_processor"]["single"][1:]
    path.write_text(json.dumps(settings))
    with pytest.raises(ArtefactError, match="no special token before a text"):
        load_bundle(directory)
