"""`transformers`' ModernBertForMaskedLM loads what we save and we load what it saves, with equal vectors and logits."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from larvatus.core.batch import TokenBatch
from larvatus.core.errors import ArtefactError
from larvatus.core.rng import stream
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabulary import ByteBPEConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.bundle.huggingface.bert_like import BertLike
from larvatus.models.bundle.huggingface.modernbert import ModernBert
from larvatus.models.network import Network
from larvatus.models.nn import TransformerConfig, on_device
from larvatus.models.objectives import MaskedLMConfig, NextSentenceConfig
from larvatus.models.recipes import SIZES, read_recipe

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TEXT = "the river bank was wide and deep, please turn your homework in. 山 naïve the bank of the river " * 3
LENGTHS = [3, 31, 12, 12, 1, 40]  # most of them longer than the window, one as long as may be
MODEL = TransformerConfig(
    layers=5,
    hidden=24,
    heads=3,
    feedforward=20,
    norm="pre",
    norm_epsilon=1e-5,
    first_norm=False,
    positions="rotary",
    rotary_base=5000.0,
    rotary_base_local=100.0,
    gated=True,
    biases=False,
    local_attention=8,
    global_every=3,
    segments=0,
    max_positions=40,
    dropout=0.0,
    attention_dropout=0.0,
    init=0.3,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_vocabulary([TEXT], ByteBPEConfig(size=290))


def batch_of(vocabulary: int) -> TokenBatch[Any]:
    draw = stream(4, "test modernbert")
    return TokenBatch.of([draw.integers(0, vocabulary, size=length).tolist() for length in LENGTHS])


def random_everywhere(model: torch.nn.Module) -> None:
    """Norms and biases too, or a wrong name would not show."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(5)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)


def equal_to_theirs(network: Network, theirs: Any, vocabulary: int) -> None:
    batch = batch_of(vocabulary)
    rows = torch.split(torch.from_numpy(batch.ids), LENGTHS)
    pad = torch.nn.utils.rnn.pad_sequence
    mask = pad([torch.ones_like(row) for row in rows], batch_first=True)
    with torch.no_grad():
        answer = theirs.eval()(
            input_ids=pad(list(rows), batch_first=True), attention_mask=mask, output_hidden_states=True
        )
        states = network.eval().encoder(on_device(batch, "cpu"), layers=range(network.encoder.depth + 1))
        logits = network.objectives["masked-lm"].logits(states[-1], network.encoder.embeddings.words.weight)
        last = theirs.model(input_ids=pad(list(rows), batch_first=True), attention_mask=mask).last_hidden_state
    assert len(states) == len(answer.hidden_states) == len(network.encoder.blocks) + 1
    for ours, other in zip(states[:-1], answer.hidden_states[:-1], strict=True):
        assert_close(ours, other[mask.bool()], rtol=1e-4, atol=1e-4)
    assert_close(states[-1], last[mask.bool()], rtol=1e-4, atol=1e-4)
    assert logits.abs().max() > 0.5  # not equal for being nothing
    assert_close(logits, answer.logits[mask.bool()], rtol=1e-4, atol=1e-4)


def save(directory: Path, model: TransformerConfig, tokenizer: Tokenizer) -> Network:
    network = Network.build(model, [MaskedLMConfig()], tokenizer.size, seed=2)
    random_everywhere(network)
    save_bundle(
        directory,
        network=network,
        objective_configs=[MaskedLMConfig()],
        tokenizer=tokenizer,
        recipe={"name": "modern"},
        lineage={},
        card="# modern\n",
    )
    return network


def changed(**fields: Any) -> TransformerConfig:
    return TransformerConfig(**{field: getattr(MODEL, field) for field in MODEL.__struct_fields__} | fields)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        changed(biases=True, activation="gelu-tanh", feedforward=0),
        changed(local_attention=0, global_every=1, activation="relu"),
        changed(layers=2, global_every=7),
    ],
    ids=["modern", "biases", "global", "two layers"],
)
def test_what_we_save_transformers_loads_with_equal_vectors_and_logits(
    tmp_path: Path, tokenizer: Tokenizer, model: TransformerConfig, attention: str
) -> None:
    network = save(tmp_path / "m", model, tokenizer)
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "m", output_loading_info=True, attn_implementation=attention
    )
    assert type(theirs) is transformers.ModernBertForMaskedLM
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    equal_to_theirs(network, theirs, tokenizer.size)
    again = load_bundle(tmp_path / "m")
    assert again.model == model
    assert again.objectives == (MaskedLMConfig(),)
    equal_to_theirs(again.network, theirs, tokenizer.size)


def test_their_tokenizer_feeds_their_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save(tmp_path / "m", MODEL, tokenizer)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    asked = words("the river was naïve", return_tensors="pt")
    ids = tokenizer.encode("the river was naïve").ids.tolist()
    assert asked["input_ids"][0].tolist() == [tokenizer.cls_id, *ids, tokenizer.sep_id]
    theirs = transformers.ModernBertForMaskedLM.from_pretrained(tmp_path / "m")
    with torch.no_grad():
        assert theirs(**asked).logits.shape == (1, len(ids) + 2, tokenizer.size)


def their_directory(path: Path, tokenizer: Tokenizer, head: str = "ModernBertForMaskedLM") -> tuple[Path, Any]:
    config = transformers.ModernBertConfig(
        vocab_size=tokenizer.size,
        hidden_size=24,
        num_hidden_layers=5,
        num_attention_heads=3,
        intermediate_size=20,
        max_position_embeddings=40,
        local_attention=8,
        pad_token_id=tokenizer.padding_id,
        bos_token_id=None,
        eos_token_id=None,
        cls_token_id=tokenizer.cls_id,
        sep_token_id=tokenizer.sep_id,
    )
    theirs = getattr(transformers, head)(config)
    random_everywhere(theirs)
    theirs.save_pretrained(path / "theirs")
    tokenizer.save(path / "theirs")
    return path / "theirs", theirs


def edit_config(directory: Path, *without: str, **fields: Any) -> None:
    path = directory / "config.json"
    config = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in config.items() if name not in without}))


def test_what_transformers_saves_we_load_with_equal_vectors_and_logits(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path, tokenizer)
    bundle = load_bundle(directory)
    assert (bundle.model.local_attention, bundle.model.global_every, bundle.model.biases) == (8, 3, False)
    assert (bundle.model.rotary_base, bundle.model.rotary_base_local) == (160_000.0, 10_000.0)
    assert bundle.unused == ()
    equal_to_theirs(bundle.network, theirs, tokenizer.size)


def test_the_fields_of_published_configs_are_read_too(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """As answerdotai/ModernBERT-base has them: no list of layers, no rope_parameters; and the tied matrix twice."""
    directory, theirs = their_directory(tmp_path, tokenizer)
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    edit_config(directory, "layer_types", "rope_parameters", **old)
    path = directory / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    tensors["decoder.weight"] = tensors["model.embeddings.tok_embeddings.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})
    equal_to_theirs(load_bundle(directory).network, theirs, tokenizer.size)


def test_a_bare_encoder_loads_without_a_head(tmp_path: Path, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path, tokenizer, "ModernBertModel")
    bundle = load_bundle(directory)
    assert bundle.objectives == ()
    ids = batch_of(tokenizer.size)
    one = torch.from_numpy(ids.ids[3:34])[None]
    with torch.no_grad():
        ours: Tensor = bundle.network.encoder(on_device(ids, "cpu"))
        assert_close(ours[3:34], theirs.eval()(input_ids=one).last_hidden_state[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"classifier_activation": "relu"}, "classifier_activation differ"),
        ({"mlp_bias": True}, "biases in some layers only"),
        ({"mlp_dropout": 0.1}, "mlp_dropout is not 0"),
        ({"decoder_bias": False}, "decoder_bias"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"num_attention_heads": 5}, "is not divisible by model.heads"),
        ({"num_hidden_layers": 4}, "layer_types has 5 entries for 4 layers"),
        ({"layer_types": ["sliding_attention"] * 5}, "layer_types must be"),
        ({"layer_types": ["chunked_attention"] * 5}, "layer_types"),
        ({"local_attention": 1}, "local_attention = 1"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 0.0}}}, "rope_theta"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
        ({"architectures": ["ModernBertForCausalLM"]}, "ModernBertForCausalLM"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0"),
    ],
)
def test_a_config_that_we_cannot_follow_is_refused_by_field(
    tmp_path: Path, tokenizer: Tokenizer, fields: dict[str, Any], word: str
) -> None:
    directory, _ = their_directory(tmp_path, tokenizer)
    edit_config(directory, **fields)
    with pytest.raises(ArtefactError, match=word) as caught:
        load_bundle(directory)
    assert "config.json" in str(caught.value)


def test_each_model_goes_into_the_first_layout_that_can_express_it() -> None:
    def layout(model: TransformerConfig, *heads: Any) -> str:
        return layout_for(Architecture(model=model, objectives=heads, vocabulary=100), pad=0).model_type

    for size in SIZES:
        assert layout(read_recipe("modern", size=size).model, MaskedLMConfig()) == "modernbert"
        assert layout(read_recipe("bert", size=size).model, MaskedLMConfig()) == "bert"
    assert layout(TransformerConfig(norm="pre"), MaskedLMConfig()) == "larvatus"
    assert layout(MODEL, NextSentenceConfig()) == "larvatus"
    for field in ("biases", "gated", "positions", "norm"):
        plain = {"norm": "pre"} if field == "norm" else {field: getattr(MODEL, field)}
        wants = Architecture(model=TransformerConfig(**plain), objectives=(MaskedLMConfig(),), vocabulary=9)
        assert field in (BertLike().unsupported(wants) or "")
    for field in ("dropout", "attention_dropout", "segments"):
        other = Architecture(
            model=changed(**{field: 1 if field == "segments" else 0.1}), objectives=(MaskedLMConfig(),), vocabulary=9
        )
        assert field in (ModernBert().unsupported(other) or "")
