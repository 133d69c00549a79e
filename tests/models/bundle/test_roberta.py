"""RoBERTa and XLM-R directories, both ways: positions that begin at row 2 and a constant segment change no number."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close

from larvatus import load
from larvatus.core.errors import ArtefactError
from larvatus.data.text.special_tokens import encode_batch
from larvatus.data.text.tokenizer import Tokenizer
from larvatus.data.text.vocabulary import ByteBPEConfig, UnigramConfig, train_vocabulary
from larvatus.models.bundle.directory import load_bundle, save_bundle
from larvatus.models.bundle.huggingface import Architecture, layout_for
from larvatus.models.network import Network
from larvatus.models.nn.device import on_device
from larvatus.models.nn.transformer import TransformerConfig
from larvatus.models.objectives import MaskedLMConfig

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PROSE = "Please turn your homework in. The river was wide, and deep! A naïve café by the river's bank? " * 3
TEXTS = ["Please turn your homework in.", "the river", "", "The bank of a wide river, 山 and deep!"]
LIMIT = 90  # tokens; the longest of the texts has fewer
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def byte_bpe() -> Tokenizer:
    return train_vocabulary([PROSE], ByteBPEConfig(size=290))


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return train_vocabulary([PROSE], UnigramConfig(size=60), allow_smaller=True)


@pytest.fixture(params=["Roberta", "XLMRoberta"])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tokenizer(family: str, byte_bpe: Tokenizer, unigram: Tokenizer) -> Tokenizer:
    return byte_bpe if family == "Roberta" else unigram


def their_directory(path: Path, tokenizer: Tokenizer, name: str = "RobertaForMaskedLM") -> tuple[Path, Any]:
    family = "XLMRoberta" if name.startswith("XLM") else "Roberta"
    config = getattr(transformers, f"{family}Config")(
        vocab_size=tokenizer.size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=20,
        max_position_embeddings=LIMIT + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = getattr(transformers, name)(config)
        for parameter in theirs.parameters():  # biases, the segment and the rows of padding too
            torch.nn.init.normal_(parameter, std=0.3)
    theirs.save_pretrained(path)
    tokenizer.save(path)
    return path, theirs.eval()


def our_model(tokenizer: Tokenizer, **model: Any) -> Network:
    config = TransformerConfig(
        **{"layers": 2, "hidden": 16, "heads": 2, "segments": 0, "max_positions": LIMIT, "norm_epsilon": 1e-5, **model}
    )
    network = Network.build(config, (MaskedLMConfig(),), tokenizer.size, 0).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return network


def save_ours(path: Path, network: Network, tokenizer: Tokenizer) -> Path:
    save_bundle(
        path,
        network=network,
        objective_configs=(MaskedLMConfig(),),
        tokenizer=tokenizer,
        recipe={"name": "roberta"},
        lineage={},
        card="# tiny\n",
    )
    return path


@torch.no_grad()
def equal(network: Network, theirs: Any, tokenizer: Tokenizer) -> None:
    """Every hidden state and the logits of all tokens; theirs padded, ours not. Positions are left to each."""
    batch = encode_batch(tokenizer, TEXTS)
    rows = torch.split(torch.from_numpy(batch.ids), batch.lengths.tolist())
    ids = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=tokenizer.padding_id)
    real = ids != tokenizer.padding_id
    answer = theirs.eval()(input_ids=ids, attention_mask=real.long(), output_hidden_states=True)
    states = network.encoder(on_device(batch, "cpu"), layers=range(network.encoder.depth + 1))
    assert states[-1].std() > 0.1  # not equal for being nothing
    for ours, other in zip(states, answer.hidden_states, strict=True):
        assert_close(ours, other[real], rtol=1e-4, atol=1e-4)
    if "masked-lm" in network.objectives:
        logits = network.objectives["masked-lm"].logits(states[-1], network.encoder.embeddings.words.weight)
        assert_close(logits, answer.logits[real], rtol=1e-4, atol=1e-4)


def test_what_transformers_saves_we_load_with_equal_logits(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, f"{family}ForMaskedLM")
    bundle = load_bundle(directory)
    assert (bundle.model.max_positions, bundle.model.segments) == (LIMIT, 0)
    assert bundle.objectives == (MaskedLMConfig(),)
    assert bundle.unused == ()
    equal(bundle.network, theirs, tokenizer)


def test_an_encoder_alone_loads_and_leaves_its_pooler(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, f"{family}Model")
    bundle = load_bundle(directory)
    assert bundle.objectives == ()
    assert bundle.unused == ("roberta.pooler.dense.bias", "roberta.pooler.dense.weight")
    equal(bundle.network, theirs, tokenizer)


def test_what_we_save_transformers_loads_with_equal_logits(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    network = our_model(tokenizer, feedforward=24)
    directory = save_ours(tmp_path / "ours", network, tokenizer)
    theirs, info = getattr(transformers, f"{family}ForMaskedLM").from_pretrained(directory, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    equal(network, theirs, tokenizer)
    for name, tensor in load_bundle(directory).network.state_dict().items():
        assert torch.equal(tensor, network.state_dict()[name]), name


def test_what_we_load_and_save_again_is_theirs_still(tmp_path: Path, family: str, tokenizer: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", tokenizer, f"{family}ForMaskedLM")
    again = save_ours(tmp_path / "again", load_bundle(directory).network, tokenizer)
    assert type(transformers.AutoModelForMaskedLM.from_pretrained(again)) is type(theirs)
    equal(load_bundle(again).network, theirs, tokenizer)


def test_their_tokenizer_gives_our_ids(tmp_path: Path, tokenizer: Tokenizer) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(save_ours(tmp_path / "m", our_model(tokenizer), tokenizer))
    for text in [*TEXTS, " two  spaces ", "naïve\ncafé 🙂", "the river's"]:
        ids = tokenizer.encode(text).ids.tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids
        assert theirs(text)["input_ids"] == [tokenizer.cls_id, *ids, tokenizer.sep_id]
        assert theirs(text)["input_ids"] == encode_batch(tokenizer, [text]).ids.tolist()
    assert (theirs.mask_token_id, theirs.pad_token_id) == (tokenizer.mask_id, 1)


def test_blanks_of_a_loaded_directory_are_filled_as_transformers_would(tmp_path: Path, byte_bpe: Tokenizer) -> None:
    directory, theirs = their_directory(tmp_path / "theirs", byte_bpe)
    text = "Please turn your<mask> in."
    best = load(directory, device="cpu").fill(text, top=3)
    asked = transformers.AutoTokenizer.from_pretrained(directory)(text, return_tensors="pt")
    with torch.no_grad():
        log_V = theirs(input_ids=asked["input_ids"]).logits[asked["input_ids"] == byte_bpe.mask_id][0].log_softmax(-1)
    ordinary = [id for id in log_V.argsort(descending=True).tolist() if id not in byte_bpe.special_ids]
    assert [fill.id for fill in best] == ordinary[:3]
    assert [fill.probability for fill in best] == pytest.approx(log_V.exp()[ordinary[:3]].tolist(), rel=1e-3)


def rewrite(directory: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = directory / "model.safetensors"
    save_file(change({n: t.clone() for n, t in load_file(path).items()}), path, metadata={"format": "pt"})


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As files of 2019 have them: a buffer of positions and copies of what is tied."""
    return {
        **tensors,
        "roberta.embeddings.position_ids": torch.arange(LIMIT + 2)[None],
        "lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"].clone(),
        "lm_head.decoder.bias": tensors["lm_head.bias"].clone(),
    }


def half(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.half() for name, tensor in tensors.items()}


@pytest.mark.parametrize("change", [old_names, half])
def test_older_and_smaller_files_load_alike(
    tmp_path: Path, byte_bpe: Tokenizer, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    """Of half precision, the sum of position and segment is taken in float32, as it must not round again."""
    directory, theirs = their_directory(tmp_path / "theirs", byte_bpe)
    rewrite(directory, change)
    equal(load_bundle(directory).network, theirs.half().float() if change is half else theirs, byte_bpe)


def test_an_untied_decoder_is_refused(tmp_path: Path, byte_bpe: Tokenizer) -> None:
    directory, _ = their_directory(tmp_path / "theirs", byte_bpe)
    rewrite(directory, lambda t: {**t, "lm_head.decoder.bias": t["lm_head.bias"] + 1})
    with pytest.raises(ArtefactError, match=r"decoder\.bias differs from"):
        load_bundle(directory)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"pad_token_id": 0}, "pad_token_id"),  # positions would begin at another row
        ({"type_vocab_size": 2}, "type_vocab_size"),
        ({"hidden_act": "relu"}, "always has a GELU"),
        ({"max_position_embeddings": 2}, "max_position_embeddings"),
        ({"max_position_embeddings": LIMIT}, "misshapen: roberta.embeddings.position_embeddings.weight"),
        ({"hidden_size": 10**12}, "= 1000000000000 must lie between 1"),
        ({"is_decoder": True}, "is_decoder"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"architectures": ["RobertaForCausalLM"]}, "RobertaForCausalLM"),
        ({"architectures": ["XLMRobertaModel"]}, "is not one of RobertaForMaskedLM"),
    ],
)
def test_a_config_that_we_cannot_follow_is_refused_by_field(
    tmp_path: Path, byte_bpe: Tokenizer, fields: dict[str, Any], word: str
) -> None:
    directory, _ = their_directory(tmp_path / "theirs", byte_bpe)
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    with pytest.raises(ArtefactError, match=word):
        load_bundle(directory)


@pytest.mark.parametrize(("kind", "layout"), [("byte-bpe", "roberta"), ("bpe", "roberta"), ("unigram", "xlm-roberta")])
def test_the_kind_of_vocabulary_tells_roberta_from_xlm_r(kind: str, layout: str) -> None:
    heads = (MaskedLMConfig(),)
    same = Architecture(model=TransformerConfig(segments=0), objectives=heads, vocabulary=300)
    assert layout_for(same, pad=1, vocabulary=kind).model_type == layout
    pairs = Architecture(model=TransformerConfig(segments=2), objectives=heads, vocabulary=300)
    assert layout_for(pairs, pad=1, vocabulary=kind).model_type == "bert"


@pytest.mark.parametrize(
    ("pad", "model", "layout"),
    [
        (1, {"segments": 0}, "roberta"),
        (0, {"segments": 0}, "distilbert"),  # RoBERTa would count positions from another row
        (0, {"segments": 0, "norm_epsilon": 1e-5}, "larvatus"),  # DistilBERT's norms add 1e-12
        (1, {"segments": 0, "activation": "relu"}, "distilbert"),  # RoBERTa's head has a GELU
        (1, {"segments": 0, "relative_buckets": 32}, "mpnet"),
        (0, {"segments": 0, "relative_buckets": 32}, "larvatus"),
        (1, {"segments": 0, "relative_buckets": 16}, "larvatus"),
        (1, {"segments": 0, "norm": "pre"}, "larvatus"),
        (1, {"segments": 1}, "bert"),
        (0, {}, "bert"),
    ],
)
def test_a_model_is_written_in_the_layout_that_computes_the_same(pad: int, model: dict[str, Any], layout: str) -> None:
    architecture = Architecture(model=TransformerConfig(**model), objectives=(MaskedLMConfig(),), vocabulary=300)
    assert layout_for(architecture, pad=pad).model_type == layout


def test_a_vocabulary_with_another_padding_id_is_saved_in_our_own_layout(
    tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    directory = save_ours(tmp_path / "m", our_model(tiny_tokenizer), tiny_tokenizer)
    assert json.loads((directory / "config.json").read_text())["model_type"] == "larvatus"
    assert load_bundle(directory).model.segments == 0
