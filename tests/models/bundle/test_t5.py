"""T5 directories, both ways and from text: versions 1.0 and 1.1, their scores, and what is written greedily."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.testing import assert_close

from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import encode_batch, sentinel_ids
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabularies import UnigramConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.nn.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from larvatus.models.objectives import DenoisingConfig
from tests.models.bundle.theirs import PROSE, equal_tensors, scramble, their_directory, transformers
from tests.tiny import save_model

SMALL = {"d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4} | {
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
}
VERSIONS = {
    "1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},  # with an output of its own
}
READ = ["Please turn your homework in.", "the river", "The bank of a wide river, and deep!", "was wide " * 20]
WRITTEN = ["The river was wide.", "homework", "Please turn", "A café by the bank of the river was wide, and deep!"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary([PROSE], UnigramConfig(size=160, frame="t5"), allow_smaller=True)


@torch.no_grad()
def same_from_text(directory: Path, theirs: Any, network: Network) -> None:
    """Their tokenizer and model against ours, from the same strings: padded there, flat here."""
    auto = transformers.AutoTokenizer.from_pretrained(directory)
    read, labels = (auto(texts, padding=True, return_tensors="pt") for texts in (READ, WRITTEN))
    wanted = labels.input_ids.masked_fill(labels.attention_mask == 0, -100)
    answer = theirs.eval()(input_ids=read.input_ids, attention_mask=read.attention_mask, labels=wanted)
    tokenizer, encoder = Tokenizer.load(directory), network.encoder
    assert isinstance(encoder, EncoderDecoder)
    ours = encoder.continuation_states(*(on_device(encode_batch(tokenizer, texts), "cpu") for texts in (READ, WRITTEN)))
    logits = network.heads["denoising"].logits(ours, encoder.word_vectors)
    assert logits.std() > 0.05
    assert_close(logits, answer.logits[labels.attention_mask == 1], rtol=1e-4, atol=1e-4)
    assert float(F.cross_entropy(logits, inputs_ids(tokenizer))) == pytest.approx(float(answer.loss), abs=1e-5)

    written = theirs.generate(
        input_ids=read.input_ids,
        attention_mask=read.attention_mask,
        max_new_tokens=12,
        do_sample=False,
        num_beams=1,
        use_cache=False,
        eos_token_id=1,
        pad_token_id=0,
    )
    under_way = encoder.generation_state(
        on_device(encode_batch(tokenizer, READ), "cpu"),
        max_new=12,
        head=lambda z: network.heads["denoising"].logits(z, encoder.word_vectors),
    )
    done = torch.zeros(len(READ), dtype=torch.bool)
    for place in range(1, written.shape[1]):
        ids = under_way.logits().argmax(-1).masked_fill(done, 0)
        assert ids.tolist() == written[:, place].tolist()
        done |= ids == 1
        under_way.extend(ids)


def inputs_ids(tokenizer: Tokenizer) -> torch.Tensor:
    return torch.from_numpy(encode_batch(tokenizer, WRITTEN).ids)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_transformers_saves_we_load_and_save_again(tmp_path: Path, tokenizer: Tokenizer, version: str) -> None:
    fields = SMALL | VERSIONS[version]
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, "T5ForConditionalGeneration", **fields)
    if version == "1.1":  # they begin with one table for both
        with pytest.raises(ArtefactError, match=r"needs its own output matrix, and there is no lm_head.weight"):
            load_bundle(directory)
        theirs.lm_head.weight = torch.nn.Parameter(theirs.shared.weight.detach().flip(0) * 0.5)
        theirs.save_pretrained(directory)
    bundle = load_bundle(directory)
    assert bundle.model == EncoderDecoderConfig(
        layers=2,
        decoder_layers=3,
        hidden=16,
        heads=4,
        head_size=6,
        feedforward=24,
        relative_buckets=8,
        relative_distance=12,
        gated=version == "1.1",
        activation="gelu-tanh" if version == "1.1" else "relu",
        tied=version == "1.0",
    )
    assert bundle.objectives == (DenoisingConfig(),)
    same_from_text(directory, theirs, bundle.network)

    save_model(tmp_path / "ours", bundle.network, bundle.tokenizer, bundle.objectives)
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("t5", ["T5ForConditionalGeneration"])
    again = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "ours")
    same_from_text(tmp_path / "ours", again, bundle.network)
    equal_tensors(load_bundle(tmp_path / "ours").network, bundle.network)
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    assert ("lm_head.weight" in stored) == (version == "1.1")


def test_what_we_build_transformers_loads(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = EncoderDecoderConfig(layers=1, hidden=16, heads=2, gated=True, activation="gelu-tanh")
    network = scramble(Network.build(config, (DenoisingConfig(),), tokenizer.size, 0))
    save_model(tmp_path / "ours", network, tokenizer, (DenoisingConfig(),))
    same_from_text(
        tmp_path / "ours", transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "ours"), network
    )


def test_what_is_no_t5_of_ours_is_refused_by_name(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, _ = their_directory(tmp_path / "theirs", tokenizer, "T5ForConditionalGeneration", **SMALL)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"feed_forward_proj": "gated-silu"}))
    with pytest.raises(ArtefactError, match="feed_forward_proj"):
        load_bundle(directory)
    (directory / "config.json").write_text(json.dumps(config | {"architectures": ["T5EncoderModel"]}))
    with pytest.raises(ArtefactError, match="architecture 'T5EncoderModel' is not one of T5ForConditionalGeneration"):
        load_bundle(directory)


def test_the_tokenizer_of_transformers_gives_the_same_ids_as_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Their own class, with its template and its sentinels, saved and read by ours."""
    scores = dict(json.loads(tokenizer.library.to_str())["model"]["vocab"])
    pieces = [(name, scores[name]) for name in tokenizer.tokens if not name.startswith("<extra_id_")]
    theirs = transformers.T5Tokenizer(vocab=pieces, extra_ids=100)
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert (ours.special.pad, ours.special.sep, ours.special.cls, len(sentinel_ids(ours))) == ("<pad>", "</s>", "", 100)
    for text in READ:
        assert encode_batch(ours, [text]).ids.tolist() == theirs(text).input_ids
    pair = ours.template.pair.ids(*(ours.encode(text).ids for text in READ[:2]))
    assert pair.tolist() == theirs(*READ[:2]).input_ids
    marked = "Please <extra_id_0> homework <extra_id_1>"
    assert ours.encode(marked, special_tokens_in_text=True).ids.tolist() == theirs(marked).input_ids[:-1]
    assert not set(ours.encode(marked).ids.tolist()) & set(sentinel_ids(ours).tolist())
