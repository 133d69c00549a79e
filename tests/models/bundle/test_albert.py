"""ALBERT directories, both ways: shared layers, small embeddings and both heads compute what theirs compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from torch.testing import assert_close

from larvatus import load
from larvatus.core.batch import TokenBatch, TrainingBatch
from larvatus.core.errors import ArtefactError
from larvatus.core.pretraining_targets import MaskedTokens, OrderLabels
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.network import Network, ObjectiveConfig
from larvatus.models.nn.device import on_device
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig, SentenceOrderConfig
from tests.models.bundle.families import FAMILIES
from tests.models.bundle.theirs import (
    LIMIT,
    PROSE,
    TEXTS,
    edit_config,
    edit_weights,
    equal_tensors,
    scramble,
    their_directory,
    theirs_from,
    transformers,
)
from tests.tiny import save_model

BOTH = (MaskedLMConfig(), SentenceOrderConfig())
HEADS = {"AlbertForPreTraining": BOTH, "AlbertForMaskedLM": BOTH[:1], "AlbertModel": ()}
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
SMALL = {**FAMILIES["albert"][2], "num_hidden_layers": 3}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary([PROSE], UnigramConfig(size=60, lowercase=True), allow_smaller=True)


def saved_by_them(path: Path, tokenizer: Tokenizer, name: str = "AlbertForPreTraining", **fields: Any) -> Any:
    """A model that `transformers` saved in the directory."""
    _, theirs = their_directory(path, tokenizer, name, **SMALL | fields, pad_token_id=tokenizer.padding_id)
    return theirs


def our_model(tokenizer: Tokenizer, objectives: tuple[ObjectiveConfig, ...] = BOTH, **model: Any) -> Network:
    plain = {"layers": 3, "hidden": 16, "heads": 2, "embedding": 8, "shared": True, "max_positions": LIMIT}
    config = TransformerConfig(**{**plain, "activation": "gelu-tanh", **model})
    return scramble(Network.build(config, objectives, tokenizer.size, 0))


def save_ours(
    path: Path, network: Network, tokenizer: Tokenizer, objectives: tuple[ObjectiveConfig, ...] = BOTH
) -> Path:
    return save_model(path, network, tokenizer, objectives)


@torch.no_grad()
def equal(network: Network, theirs: Any, tokenizer: Tokenizer) -> None:
    """Every hidden state, the logits of all tokens and those of the order; theirs padded, ours not."""
    batch = encode_batch(tokenizer, TEXTS)
    segments = torch.from_numpy(batch.positions > 3).long()
    tensors = on_device(batch, "cpu")
    object.__setattr__(tensors, "segments", segments)
    lengths = batch.lengths.tolist()
    ids, kinds, real = (
        torch.nn.utils.rnn.pad_sequence(list(torch.split(flat, lengths)), batch_first=True, padding_value=fill)
        for flat, fill in ((tensors.ids, tokenizer.padding_id), (segments, 0), (torch.ones_like(segments), 0))
    )
    answer = theirs.eval()(input_ids=ids, token_type_ids=kinds, attention_mask=real, output_hidden_states=True)
    states = network.encoder(tensors, layers=range(network.encoder.depth + 1))
    assert states[-1].std() > 0.1  # not equal for being nothing
    for ours, other in zip(states, answer.hidden_states, strict=True):
        assert_close(ours, other[real.bool()], rtol=1e-4, atol=1e-4)
    if "masked-lm" in network.objectives:
        logits = network.objectives["masked-lm"].logits(states[-1], network.encoder.embeddings.words.weight)
        found = answer.logits if "logits" in answer else answer.prediction_logits
        assert_close(logits, found[real.bool()], rtol=1e-4, atol=1e-4)
    if "sentence-order" in network.objectives:
        order = network.objectives["sentence-order"].logits(states[-1], tensors.lengths)
        assert order.std() > 0.01
        assert_close(order, answer.sop_logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_what_transformers_saves_we_load_with_equal_logits(tmp_path: Path, tokenizer: Tokenizer, name: str) -> None:
    theirs = saved_by_them(tmp_path, tokenizer, name)
    bundle = load_bundle(tmp_path)
    assert (bundle.model.embedding, bundle.model.shared, bundle.model.activation) == (8, True, "gelu-tanh")
    assert bundle.objectives == HEADS[name]
    assert bundle.unused == (("albert.pooler.bias", "albert.pooler.weight") if name == "AlbertModel" else ())
    equal(bundle.network, theirs, tokenizer)


@pytest.mark.parametrize("name", ["AlbertForPreTraining", "AlbertForMaskedLM"])
@pytest.mark.parametrize("model", [{"feedforward": 24}, {"embedding": 0}, {"embedding": 16, "activation": "gelu"}])
def test_what_we_save_transformers_loads_with_equal_logits(
    tmp_path: Path, tokenizer: Tokenizer, name: str, model: dict[str, Any]
) -> None:
    network = our_model(tokenizer, HEADS[name], **model)
    directory = save_ours(tmp_path / "ours", network, tokenizer, HEADS[name])
    theirs = theirs_from(getattr(transformers, name), directory)
    assert (theirs.config.pad_token_id, theirs.config.bos_token_id) == (tokenizer.padding_id, None)
    equal(network, theirs, tokenizer)
    bundle = load_bundle(directory)
    assert bundle.objectives == HEADS[name]
    assert bundle.model.word_width == network.encoder.config.word_width
    equal_tensors(network, bundle.network)


def test_what_we_load_and_save_again_is_theirs_still(tmp_path: Path, tokenizer: Tokenizer) -> None:
    theirs = saved_by_them(tmp_path / "theirs", tokenizer)
    again = save_ours(tmp_path / "again", load_bundle(tmp_path / "theirs").network, tokenizer)
    assert type(transformers.AutoModelForPreTraining.from_pretrained(again)) is transformers.AlbertForPreTraining
    equal(load_bundle(again).network, theirs, tokenizer)
    ids = transformers.AutoTokenizer.from_pretrained(again)("The river's bank")["input_ids"]
    assert ids == encode_batch(tokenizer, ["The river's bank"]).ids.tolist()


@torch.no_grad()
def test_both_losses_are_theirs_labels_included(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """0 is the order of the text, 1 is swapped, as their `sentence_order_label` has it."""
    theirs = saved_by_them(tmp_path, tokenizer)
    model = load_bundle(tmp_path).network
    ids = torch.arange(5, 5 + 24).reshape(4, 6)
    labels = torch.full_like(ids, -100).index_fill(1, torch.tensor([2, 4]), 7)
    order = torch.tensor([0, 0, 0, 1])
    batch = TrainingBatch(
        tokens=TokenBatch.of(ids.tolist()),
        targets={
            MaskedTokens: MaskedTokens(
                places=(labels.flatten() != -100).nonzero().flatten().numpy(), ids=np.full(8, 7)
            ),
            OrderLabels: OrderLabels(labels=order.numpy()),
        },
    )
    total, losses = model.loss(on_device(batch, "cpu"), {"masked-lm": 8, "sentence-order": 4})
    assert_close(total, theirs(input_ids=ids, labels=labels, sentence_order_label=order).loss, rtol=1e-5, atol=1e-5)
    flipped = theirs(input_ids=ids, labels=labels, sentence_order_label=1 - order).loss
    assert abs(total - flipped) > 0.01
    assert int(losses["sentence-order"].count) == 4


def test_shared_layers_may_be_more_than_there_are_tensors_but_not_just_any_number(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    directory = save_ours(tmp_path, our_model(tokenizer, layers=48), tokenizer)
    assert load_bundle(directory).model.layers == 48
    (directory / "larvatus.json").unlink()
    edit_config(directory, num_hidden_layers=100_000)
    with pytest.raises(ArtefactError, match="num_hidden_layers = 100000 must lie"):
        load_bundle(directory)


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As files of 2019 have them: a buffer of positions and copies of what is tied."""
    return {
        **tensors,
        "albert.embeddings.position_ids": torch.arange(LIMIT)[None],
        "predictions.decoder.weight": tensors["albert.embeddings.word_embeddings.weight"].clone(),
        "predictions.decoder.bias": tensors["predictions.bias"].clone(),
    }


def test_older_files_load_alike(tmp_path: Path, tokenizer: Tokenizer) -> None:
    theirs = saved_by_them(tmp_path, tokenizer)
    edit_weights(tmp_path, old_names)
    equal(load_bundle(tmp_path).network, theirs, tokenizer)


def test_a_projection_that_is_not_the_identity_is_refused_where_nothing_is_to_be_projected(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    saved_by_them(tmp_path / "square", tokenizer, embedding_size=16)
    with pytest.raises(ArtefactError, match="not the identity"):
        load_bundle(tmp_path / "square")
    directory = save_ours(tmp_path / "ours", our_model(tokenizer, embedding=0), tokenizer)
    assert torch.equal(load_file(directory / "model.safetensors")[f"{PROJECTION}.weight"], torch.eye(16))


@pytest.mark.parametrize(
    ("model", "objectives", "layout"),
    [
        ({}, BOTH, "albert"),
        ({"embedding": 8}, BOTH[:1], "albert"),
        ({}, BOTH[1:], "larvatus"),  # there is no class with that head alone
        ({}, (BOTH[0], NextSentenceConfig()), "larvatus"),
        ({}, (BOTH[0], SentenceOrderConfig(pooler=False)), "larvatus"),
        ({"segments": 0}, BOTH, "larvatus"),
        ({"norm": "pre"}, BOTH, "larvatus"),
        ({"shared": False}, BOTH, "larvatus"),
        ({"shared": False, "embedding": 8}, BOTH[:1], "electra"),
        ({"shared": False}, BOTH[:1], "bert"),
    ],
)
def test_a_model_is_written_in_the_layout_that_computes_the_same(
    model: dict[str, Any], objectives: tuple[ObjectiveConfig, ...], layout: str
) -> None:
    architecture = Architecture(
        model=TransformerConfig(**{"shared": True, **model}), objectives=objectives, vocabulary=300
    )
    assert layout_for(architecture, pad=0).model_type == layout


# ── the published vocabulary: Unigram with BERT's special tokens


@pytest.fixture(scope="module")
def published(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """As albert-base-v2 has it, but for its table of characters and with pieces of our own."""
    scored = json.loads(tokenizer.library.to_str())["model"]["vocab"][4:-1]
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    library = tokenizers.Tokenizer(models.Unigram([(name, 0.0) for name in special] + [tuple(s) for s in scored], 1))
    library.normalizer = normalizers.Sequence(
        [
            *(normalizers.Replace(quotes, '"') for quotes in ("``", "''")),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    library.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    library.add_special_tokens([AddedToken(name, lstrip=name == "[MASK]", normalized=False) for name in special])
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return library


def test_the_published_kind_of_vocabulary_is_read(tmp_path: Path, published: tokenizers.Tokenizer) -> None:
    published.save(str(tmp_path / "tokenizer.json"))
    read = Tokenizer.load(tmp_path)
    assert (read.kind, read.lowercase, read.style) == ("unigram", True, "▁")
    assert (read.padding_id, read.unk_id, read.cls_id, read.sep_id, read.mask_id) == (0, 1, 2, 3, 4)
    for text in ["The river's bank", "naïve  café ``by'' the river 山", "Please turn [MASK] in", "<unk> </s>"]:
        found = read.encode(text)
        assert not {2, 3, 4} & set(found.ids.tolist()), "special tokens in a text are text"
        flat = read.encode_flat([text])
        assert flat.ids.tolist() == found.ids.tolist()
        assert flat.starts.tolist() == found.word_starts.tolist()
    found = read.encode("The River's bank")
    pieces = [read.token(i).replace("▁", "") for i in found.ids.tolist()]
    assert ["The River's bank"[a:b].strip().lower() for a, b in found.spans.tolist()] == pieces
    assert [found.text[a:b] for a, b in found.word_spans.tolist()] == ["The", "River", "'", "s", "bank"]
    plain = "naïve  café ``by'' the river"
    assert read.encode(plain).ids.tolist() == published.encode(plain, add_special_tokens=False).ids
    assert read.encode("turn [MASK] in", special_tokens_in_text=True).ids.tolist().count(4) == 1


def test_a_directory_like_the_published_ones_fills_blanks_as_transformers_would(
    tmp_path: Path, published: tokenizers.Tokenizer
) -> None:
    published.save(str(tmp_path / "tokenizer.json"))
    read = Tokenizer.load(tmp_path)
    theirs = saved_by_them(tmp_path / "m", read, "AlbertForMaskedLM")
    text = "Please turn your [MASK] in."
    best = load(tmp_path / "m", device="cpu").fill(text, top=3, words_only=False)
    ids = torch.tensor([published.encode(text).ids])
    with torch.no_grad():
        log_V = theirs(input_ids=ids).logits[ids == 4][0].log_softmax(-1)
    ordinary = [id for id in log_V.argsort(descending=True).tolist() if id not in read.special_ids]
    assert [fill.id for fill in best] == ordinary[:3]
    assert [fill.probability for fill in best] == pytest.approx(log_V.exp()[ordinary[:3]].tolist(), rel=1e-3)
